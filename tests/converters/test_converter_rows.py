"""Rows that a packing plan assembled: batches, the joining of features, and the packer of NumPy streams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import TaskError
from beam_pipes.transforms.converters import (
    EncDecFeatureConverter,
    FeatureSpec,
    LMFeatureConverter,
    PrefixLMFeatureConverter,
    PrefixSuffixLMFeatureConverter,
    PrePackedEncDecFeatureConverter,
    join_segments,
    padded_rows,
)
from beam_pipes.transforms.converters.language_models import join_example, language_model_features
from beam_pipes.transforms.converters.rows import pack_examples

sequences = st.lists(st.integers(0, 50), max_size=6)


def pack(examples, names, length):
    """One row of each feature with all the examples in it, written the slow way."""
    row = {}
    for name in names:
        values, ids, positions = [], [], []
        for number, example in enumerate(examples, start=1):
            values += example[name]
            ids += [number] * len(example[name])
            positions += range(len(example[name]))
        for key, part in ((name, values), (f"{name}_segment_ids", ids), (f"{name}_positions", positions)):
            row[key] = np.array(part + [0] * (length - len(part)), np.int32)
    return row


@given(st.lists(st.fixed_dictionaries({"inputs": sequences, "targets": sequences}), max_size=5))
def test_joining_packed_features_is_packing_joined_examples(examples):
    names = ("inputs", "targets")
    joined = [join_example({k: np.array(v, np.int32) for k, v in e.items()}, names) for e in examples]
    expected = pack([{k: v.tolist() for k, v in e.items()} for e in joined], ("targets", "inputs_ends"), 60)

    row = join_segments(pack(examples, names, 30), names)

    for key in ("targets", "targets_segment_ids", "targets_positions"):
        np.testing.assert_array_equal(row[key], expected[key], err_msg=key)
    np.testing.assert_array_equal(row["inputs_ends"], expected["inputs_ends"])


@given(
    st.lists(st.fixed_dictionaries({"inputs": sequences, "targets": sequences, "suffixes": sequences}), max_size=4),
    st.booleans(),
)
def test_rows_of_separately_packed_features_give_the_fields_of_packed_examples(examples, targets_only):
    names = ("inputs", "targets", "suffixes")
    converter = PrefixSuffixLMFeatureConverter(loss_on_targets_only=targets_only)
    stream = [{name: np.array(example[name], np.int32) for name in names} for example in examples]

    from_rows = converter.convert_rows(pack(examples, names, 24))
    # 24 tokens a feature hold four examples of six, so that online packing makes one row too.
    from_stream = list(converter.convert_examples(stream, dict.fromkeys(names, 24)))

    if examples:
        assert len(from_stream) == 1
        for name, value in from_stream[0].items():
            np.testing.assert_array_equal(from_rows[name], value, err_msg=name)
    assert {value.dtype.name for value in from_rows.values()} == {"int32"}


def test_a_batch_of_rows_is_converted_as_each_of_its_rows():
    names = ("inputs", "targets")
    rows = [
        pack([{"inputs": [7, 0, 5], "targets": [3]}, {"inputs": [], "targets": [4, 1]}], names, 8),
        pack([{"inputs": [2], "targets": []}], names, 8),
        pack([], names, 8),
    ]
    batch = {key: np.stack([row[key] for row in rows]) for key in rows[0]}

    for converter in (EncDecFeatureConverter(bos_id=3), PrefixLMFeatureConverter(bos_id=3)):
        converted = converter.convert_rows(batch)
        for index, row in enumerate(rows):
            for name, value in converter.convert_rows(row).items():
                np.testing.assert_array_equal(converted[name][index], value, err_msg=name)


def test_rows_whose_segments_do_not_ascend_cannot_be_joined():
    row = pack([{"inputs": [7], "targets": [3]}, {"inputs": [5], "targets": []}], ("inputs", "targets"), 4)
    row["inputs_segment_ids"] = np.array([2, 0, 1, 0], np.int32)

    with pytest.raises(TaskError, match="feature 'inputs': the segment ids of a row should ascend"):
        join_segments(row, ("inputs", "targets"))


def test_padded_rows_mark_what_is_data_by_length():
    rows = padded_rows({"targets": np.array([[3, 0, 9, 0], [0, 0, 0, 0]])}, {"targets": np.array([3, 0])})

    assert rows["targets_segment_ids"].tolist() == [[1, 1, 1, 0], [0, 0, 0, 0]]
    assert rows["targets_positions"].tolist() == [[0, 1, 2, 0], [0, 0, 0, 0]]


def test_padded_batches_are_converted_without_packing_fields():
    batch = padded_rows({"targets": np.array([[3, 0, 9, 0]], np.int32)}, {"targets": np.array([3])})

    features = LMFeatureConverter(pack=False).convert_rows(batch)

    assert {name: value.tolist() for name, value in features.items()} == {
        "decoder_target_tokens": [[3, 0, 9, 0]],
        "decoder_input_tokens": [[0, 3, 0, 9]],
        "decoder_loss_weights": [[1, 1, 1, 0]],
    }


def test_rows_of_one_feature_need_no_prefix_on_their_ids():
    rows = {
        "targets": np.array([[3, 1, 4]], np.int32),
        "segment_ids": np.array([[1, 1, 2]], np.int32),
        "positions": np.array([[0, 1, 0]], np.int32),
    }

    features = LMFeatureConverter().convert_rows(rows)

    assert features["decoder_input_tokens"].tolist() == [[0, 3, 0]]
    assert features["decoder_segment_ids"].tolist() == [[1, 1, 2]]


def test_a_batch_of_packed_model_inputs_needs_no_packing_in_the_converter():
    row = pack([{"inputs": [7], "targets": [3]}, {"inputs": [5], "targets": [4]}], ("inputs", "targets"), 4)
    row["weights"] = np.ones(4, np.float32)
    converter = PrePackedEncDecFeatureConverter(passthrough_features={"weights": FeatureSpec("float32")})

    features = converter.convert_rows(row)

    assert features.pop("weights").tolist() == [1, 1, 1, 1]
    for name, value in EncDecFeatureConverter().convert_rows(row).items():
        np.testing.assert_array_equal(features[name], value, err_msg=name)


def test_model_inputs_made_elsewhere_without_ids_fall_back_to_non_zero():
    weights = language_model_features({"targets": np.array([3, 9, 0])}, pack=False)["decoder_loss_weights"]

    assert weights.tolist() == [1, 1, 0]


def test_features_without_a_length_are_passed_on_by_padded_rows():
    assert padded_rows({"targets": np.array([[3]]), "id": np.array([7])}, {"targets": np.array([1])})["id"] == [7]


def test_tokens_stored_narrow_are_widened():
    batch = padded_rows({"targets": np.array([[60000, 1]], np.uint16)}, {"targets": np.array([2])})

    features = LMFeatureConverter(pack=False).convert_rows(batch)

    assert features["decoder_target_tokens"].dtype == np.int32
    assert features["decoder_target_tokens"].tolist() == [[60000, 1]]


def test_tokens_that_int32_cannot_hold_are_refused():
    batch = padded_rows({"targets": np.array([[1 << 40]])}, {"targets": np.array([1])})

    with pytest.raises(TaskError, match="rows have incorrect type for feature 'targets': Got int64, expected int32"):
        LMFeatureConverter(pack=False).convert_rows(batch)


def test_rows_without_ids_are_refused_with_the_way_to_make_them():
    with pytest.raises(TaskError, match=r"lack 'targets_segment_ids'.*padded_rows\(\) makes them") as caught:
        LMFeatureConverter().convert_rows({"targets": np.zeros((2, 4), np.int32)})

    assert caught.value.feature == "targets"


def test_ids_of_another_shape_are_refused():
    rows = {
        "targets": np.zeros((2, 4), np.int32),
        "targets_segment_ids": np.zeros((2, 3), np.int32),
        "targets_positions": np.zeros((2, 3), np.int32),
    }

    with pytest.raises(TaskError, match=r"'targets' has shape \(2, 4\), its segment ids \(2, 3\)"):
        LMFeatureConverter().convert_rows(rows)


def test_a_length_beyond_its_padded_array_is_refused():
    with pytest.raises(TaskError, match="feature 'targets': a length of 5 was given for an array padded to 4"):
        padded_rows({"targets": np.zeros((1, 4))}, {"targets": np.array([5])})


@given(st.lists(st.tuples(sequences, sequences), max_size=40), st.integers(1, 9), st.integers(1, 9))
def test_packing_a_stream_keeps_every_token_in_order_and_ids_in_step(pairs, first, second):
    lengths = {"a": first, "b": second}
    examples = [{"a": np.array(a, np.int64), "b": np.array(b, np.int64)} for a, b in pairs]

    rows = list(pack_examples(examples, lengths))

    for name, index in (("a", 0), ("b", 1)):
        packed = [row[name][row[f"{name}_segment_ids"] > 0] for row in rows]
        expected = [pair[index][: lengths[name]] for pair in pairs]
        assert np.concatenate([[], *packed]).tolist() == [token for sequence in expected for token in sequence]
        for row in rows:
            ids, positions = row[f"{name}_segment_ids"], row[f"{name}_positions"]
            for segment in set(ids.tolist()) - {0}:
                assert positions[ids == segment].tolist() == list(range(int((ids == segment).sum())))


def test_a_row_is_closed_at_the_end_of_a_window():
    examples = [{"targets": np.array([step])} for step in range(1, 6)] + [{"targets": np.array([], int)}] * 2

    rows = list(pack_examples(examples, {"targets": 3}))

    assert [row["targets"].tolist() for row in rows] == [[1, 2, 3], [4, 5, 0], [0, 0, 0]]
