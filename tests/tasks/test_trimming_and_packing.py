"""Trimming, padding, online packing and shifted targets, against known values and a packer in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import TaskError
from beam_pipes.tasks import Feature, PassThroughVocabulary
from beam_pipes.tasks.steps.dataset_map import stateless_shuffle
from beam_pipes.tasks.steps.packing import make_autoregressive_inputs, packing_density, trim_and_pack_dataset
from beam_pipes.tasks.steps.sequences import trim_and_pad_dataset, trim_dataset

VOCABULARY = PassThroughVocabulary(100)


def dataset_of(*examples: dict, **dtypes: str) -> tf.data.Dataset:
    def spec(name: str) -> tf.TensorSpec:
        value = np.asarray(examples[0][name])
        dtype = dtypes.get(name) or ("string" if value.dtype.kind in "SUO" else "int32")
        return tf.TensorSpec([None] * value.ndim, dtype)

    return tf.data.Dataset.from_generator(
        lambda: iter(examples), output_signature={name: spec(name) for name in examples[0]}
    )


def lists(dataset: tf.data.Dataset) -> list[dict]:
    return [{name: value.tolist() for name, value in row.items()} for row in dataset.as_numpy_iterator()]


def pack_in_python(examples: list[dict], lengths: dict[str, int]) -> list[dict]:
    """One row at a time, in order, in windows of the largest length: what the TensorFlow packer has to give."""
    window = max(lengths.values())
    rows = []
    for start in range(0, len(examples), window):
        row: list[dict] = []
        for example in examples[start : start + window]:
            example = {name: example[name][: lengths[name]] for name in lengths}
            if any(sum(len(e[name]) for e in [*row, example]) > lengths[name] for name in lengths):
                rows.append(row)
                row = []
            row.append(example)
        rows.append(row)
    packed = []
    for row in rows:
        made = {}
        for name, length in lengths.items():
            values = [v for e in row for v in e[name]]
            segments = [i for i, e in enumerate(row, 1) for _ in e[name]]
            positions = [p for e in row for p in range(len(e[name]))]
            pad = [0] * (length - len(values))
            made |= {name: values + pad, f"{name}_segment_ids": segments + pad, f"{name}_positions": positions + pad}
        packed.append(made)
    return packed


def test_trimming_cuts_output_features_only() -> None:
    features = {"a": Feature(VOCABULARY), "b": Feature(VOCABULARY, rank=2), "c": Feature(VOCABULARY, rank=0)}
    dataset = dataset_of({"a": [1, 2, 3], "b": [[1, 2], [3, 4]], "c": 7, "z": [1, 2, 3]})

    first_axis = lists(trim_dataset(dataset, {"a": 2, "b": 1, "z": 1}, features))
    each_axis = lists(trim_dataset(dataset, {"b": [None, 1]}, features))

    assert first_axis == [{"a": [1, 2], "b": [[1, 2]], "c": 7, "z": [1, 2, 3]}]
    assert each_axis[0]["b"] == [[1], [3]]
    assert lists(trim_dataset(dataset, None, features)) == lists(dataset)


def test_padding_fills_up_to_the_length_and_knows_its_shape() -> None:
    dataset = dataset_of({"a": [1, 2, 3], "b": [[1, 2], [3, 4]], "s": [b"x"], "a_positions": [0, 1, 2]})

    padded = trim_and_pad_dataset(dataset, {"a": 5, "b": [3, 1], "s": 2})

    assert lists(padded) == [{"a": [1, 2, 3, 0, 0], "b": [[1], [3], [0]], "s": [b"x", b""], "a_positions": [0, 1, 2]}]
    assert padded.element_spec["b"].shape == [3, 1]
    assert lists(trim_and_pad_dataset(dataset, {"a": 2}))[0]["a"] == [1, 2]


def test_packing_gives_segment_ids_and_positions() -> None:
    packed = trim_and_pack_dataset(dataset_of({"a": [1, 2, 3], "z": [1]}, {"a": [4, 5], "z": [2]}), {"a": 6})

    assert lists(packed) == [
        {"a": [1, 2, 3, 4, 5, 0], "a_segment_ids": [1, 1, 1, 2, 2, 0], "a_positions": [0, 1, 2, 0, 1, 0]}
    ]
    assert packed.element_spec["a"].shape == [6]


def test_an_empty_feature_keeps_the_segment_ids_of_the_others_in_step() -> None:
    packed = trim_and_pack_dataset(
        dataset_of({"inputs": [7, 8], "targets": []}, {"inputs": [4], "targets": [3]}), {"inputs": 4, "targets": 3}
    )

    row = lists(packed)[0]
    assert row["inputs_segment_ids"] == [1, 1, 2, 0]
    assert row["targets_segment_ids"] == [2, 0, 0]


def test_id_zero_inside_a_sequence_is_data() -> None:
    packed = trim_and_pack_dataset(dataset_of({"a": [7, 0, 0]}, {"a": [0, 5]}), {"a": 6})

    row = lists(packed)[0]
    assert row["a"] == [7, 0, 0, 0, 5, 0]
    assert row["a_segment_ids"] == [1, 1, 1, 2, 2, 0]


def test_floats_and_further_axes_survive_packing() -> None:
    examples = ({"a": [1, 2], "b": [[1.5, 2], [3, 4]]}, {"a": [4], "b": [[3.0, 1]]})

    packed = trim_and_pack_dataset(dataset_of(*examples, b="float32"), {"a": 4, "b": 4})

    row = lists(packed)[0]
    assert row["b"] == [[1.5, 2], [3, 4], [3, 1], [0, 0]]
    assert row["b_segment_ids"] == [1, 1, 2, 0]
    assert packed.element_spec["b"].dtype == tf.float32


def test_a_feature_without_room_is_packed_into_rows_of_no_values() -> None:
    """As in decoder-only training over tasks with inputs; TensorFlow's `unbatch` ends the process on such rows."""
    packed = trim_and_pack_dataset(
        dataset_of({"inputs": [7], "a": [3]}, {"inputs": [], "a": [4, 5]}), {"inputs": 0, "a": 4}
    )

    (row,) = lists(packed)
    assert (row["inputs"], row["a"]) == ([], [3, 4, 5, 0])


def test_an_empty_dataset_packs_into_no_rows() -> None:
    assert lists(trim_and_pack_dataset(dataset_of({"a": [1]}).take(0), {"a": 4})) == []


def test_packing_names_what_it_cannot_pack() -> None:
    dataset = dataset_of({"a": [1], "c": 3})

    with pytest.raises(TaskError, match=r"Feature 'q' not found in dataset. Available keys are \['a', 'c'\]"):
        trim_and_pack_dataset(dataset, {"a": 4, "q": 2})
    with pytest.raises(TaskError, match="one-dimensional or more. 'c' is a scalar; leave it out"):
        trim_and_pack_dataset(dataset, {"c": 4})


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_packing_fills_one_row_at_a_time_in_windows(data: st.DataObject) -> None:
    lengths = {"inputs": data.draw(st.integers(2, 9)), "targets": data.draw(st.integers(2, 9))}
    sequence = st.lists(st.integers(0, 50), max_size=10)
    examples = data.draw(
        st.lists(st.fixed_dictionaries({"inputs": sequence, "targets": sequence}), min_size=1, max_size=30)
    )

    packed = trim_and_pack_dataset(dataset_of(*examples, inputs="int32", targets="int32"), lengths)

    assert lists(packed) == pack_in_python(examples, lengths)


def test_density_is_the_share_of_data() -> None:
    packed = trim_and_pack_dataset(dataset_of({"a": [1, 2, 3]}, {"a": [4, 5]}), {"a": 6})

    assert packing_density(packed.as_numpy_iterator()) == {"a": 5 / 6}


def test_autoregressive_inputs_begin_with_bos_in_every_sequence() -> None:
    targets, ids = tf.constant([3, 9, 1, 4, 1, 0, 0]), tf.constant([1, 1, 1, 2, 2, 0, 0])

    assert make_autoregressive_inputs(targets, ids).numpy().tolist() == [0, 3, 9, 0, 4, 0, 0]
    assert make_autoregressive_inputs(targets, ids, bos_id=5).numpy().tolist() == [5, 3, 9, 5, 4, 5, 0]
    assert make_autoregressive_inputs(targets, bos_id=5).numpy().tolist() == [5, 3, 9, 1, 4, 1, 0]
    assert make_autoregressive_inputs(tf.constant([[1, 2], [3, 4]])).numpy().tolist() == [[0, 0], [1, 2]]
    assert make_autoregressive_inputs(tf.constant([1.5, 2.5]), output_dtype=tf.int32).numpy().tolist() == [0, 1]


def test_autoregressive_inputs_refuse_what_they_cannot_shift() -> None:
    with pytest.raises(TaskError, match="sequence_id should be integer-valued tensors for a packed dataset"):
        make_autoregressive_inputs(tf.constant([3, 9]), tf.constant([1.0, 1.0]))
    with pytest.raises(TaskError, match="Only numeric types are supported. Got: string"):
        make_autoregressive_inputs(tf.constant(["a"]))
    rows, ids = [[1, 2], [3, 4]], [[1, 1], [1, 2]]
    for array in (np.array, tf.constant):
        with pytest.raises(TaskError, match="Only 1-D sequences are .* packed 2-D sequence; for a batch .*: axis=1."):
            make_autoregressive_inputs(array(rows), array(ids))
        assert np.array(make_autoregressive_inputs(array(rows), array(ids), axis=1)).tolist() == [[0, 1], [0, 0]]


def test_a_stateless_shuffle_is_a_function_of_its_seed() -> None:
    value = tf.range(1, 9)

    assert stateless_shuffle(value, (1, 2)).numpy().tolist() == [8, 7, 4, 2, 5, 6, 1, 3]
    assert stateless_shuffle(value, (42, 7)).numpy().tolist() == [8, 7, 6, 1, 4, 3, 5, 2]
