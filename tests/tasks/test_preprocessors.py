"""Preprocessors in both forms: known values over tf.data, and the same from the Python form."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.errors import TaskError
from beam_pipes.tasks import (
    ByteVocabulary,
    Feature,
    FullCodepointVocabulary,
    PartialCodepointVocabulary,
    PassThroughVocabulary,
    UnigramVocabulary,
    map_over_dataset,
    preprocessors,
)
from beam_pipes.tasks.steps.dataset_map import dict_to_tfexample
from beam_pipes.tasks.steps.examples import examples_from_dataset, normalised
from beam_pipes.tasks.steps.seeds import map_seed_manager, set_preprocessor_seed
from beam_pipes.tasks.steps.sequences import TokenColumn, append_eos_to_features, trim_features
from beam_pipes.tasks.testing import sentencepiece_vocab

BYTES = ByteVocabulary()
IDS = PassThroughVocabulary(100, eos_id=1)
TEXT_FEATURES = {"inputs": Feature(BYTES, add_eos=False), "targets": Feature(BYTES)}
ID_FEATURES = {"inputs": Feature(IDS, add_eos=False), "targets": Feature(IDS)}
TEXTS = {"inputs": "ab", "targets": "c", "other": "x"}
TOKENS = {
    "inputs": np.array([5, 6, 7], np.int32),
    "targets": np.array([8, 9], np.int32),
    "z": np.array([1, 2], np.int32),
}


def both_forms(preprocessor, example: dict, **arguments) -> dict:
    """The result over tf.data, after checking that the Python form gives the same."""
    dataset = tf.data.Dataset.from_tensors({name: tf.constant(value) for name, value in example.items()})
    (through_dataset,) = examples_from_dataset(preprocessor(dataset, **arguments))
    through_dataset = normalised(through_dataset)
    in_python = normalised(preprocessor.python_form(normalised(example), **arguments))
    assert through_dataset.keys() == in_python.keys()
    for name, value in through_dataset.items():
        np.testing.assert_array_equal(value, in_python[name])
        assert np.asarray(value).dtype == np.asarray(in_python[name]).dtype
    return {name: value if isinstance(value, bytes) else value.tolist() for name, value in in_python.items()}


def test_tokenize_keeps_the_text_beside_the_ids() -> None:
    assert both_forms(preprocessors.tokenize, TEXTS, output_features=TEXT_FEATURES) == {
        "inputs_pretokenized": b"ab",
        "inputs": [100, 101],
        "targets_pretokenized": b"c",
        "targets": [102],
        "other": b"x",
    }


def test_tokenize_appends_eos_where_the_feature_asks_for_it() -> None:
    result = both_forms(preprocessors.tokenize_and_append_eos, TEXTS, output_features=TEXT_FEATURES)
    alone = both_forms(
        preprocessors.tokenize, TEXTS, output_features=TEXT_FEATURES, copy_pretokenized=False, with_eos=True
    )

    assert (result["inputs"], result["targets"]) == ([100, 101], [102, 1])
    assert sorted(alone) == ["inputs", "other", "targets"]


def test_a_vector_of_texts_becomes_ragged_and_ends_once() -> None:
    features = {"targets": Feature(BYTES, rank=2)}
    dataset = tf.data.Dataset.from_tensors({"targets": tf.constant(["ab", "c"])})

    (example,) = preprocessors.tokenize(dataset, features, with_eos=True)
    (each,) = preprocessors.append_eos(preprocessors.tokenize(dataset, features), features)

    assert example["targets"].to_list() == [[100, 101], [102, 1]]
    assert each["targets"].to_list() == [[100, 101, 1], [102, 1]]


@pytest.mark.parametrize("texts", [["ab", "c"], ["abc"], []], ids=["two", "one", "none"])
def test_both_forms_end_a_vector_of_texts_at_its_last_one(texts: list[str]) -> None:
    example = {"targets": np.array([text.encode() for text in texts], object)}
    dataset = tf.data.Dataset.from_tensors({"targets": tf.constant(texts, tf.string)})
    features = {"targets": Feature(BYTES, rank=2)}

    (there,) = preprocessors.tokenize_and_append_eos(dataset, features)
    here = preprocessors.tokenize_and_append_eos.python_form(example, features)

    assert here["targets"].tolist() == there["targets"].to_list()


def test_ids_of_several_sequences_are_not_ended_in_python() -> None:
    features = {"targets": Feature(IDS, rank=2)}

    with pytest.raises(
        TaskError, match="holds 2 sequences, of which the last one ends in EOS, so that they are ragged"
    ):
        preprocessors.tokenize_and_append_eos.python_form({"targets": np.array([[5, 6], [7, 8]])}, features)


def test_append_eos_and_append_eos_after_trim() -> None:
    features = {"output_features": ID_FEATURES}

    assert both_forms(preprocessors.append_eos, TOKENS, **features)["targets"] == [8, 9, 1]
    assert both_forms(preprocessors.append_eos, TOKENS, **features)["inputs"] == [5, 6, 7]
    trim = functools.partial(both_forms, preprocessors.append_eos_after_trim, TOKENS, **features)
    assert trim(sequence_length=None)["targets"] == [8, 9, 1]
    assert trim(sequence_length={"targets": 2, "inputs": 2}) == {"inputs": [5, 6, 7], "targets": [8, 1], "z": [1, 2]}
    assert trim(sequence_length={"targets": 1})["targets"] == [1]
    assert trim(sequence_length={"targets": None})["targets"] == [8, 9, 1]


def test_eos_goes_after_the_last_axis() -> None:
    matrix = {"targets": np.array([[1, 2], [3, 4]], np.int32)}
    features = {"targets": Feature(IDS, rank=2)}

    assert both_forms(preprocessors.append_eos, matrix, output_features=features)["targets"] == [[1, 2, 1], [3, 4, 1]]
    trimmed = both_forms(
        preprocessors.append_eos_after_trim, matrix, output_features=features, sequence_length={"targets": 2}
    )
    assert trimmed["targets"] == [[1, 1], [3, 1]]


def test_eos_needs_a_vocabulary_that_has_one_and_a_sequence() -> None:
    dataset = tf.data.Dataset.from_tensors({"targets": tf.constant([1])})

    with pytest.raises(TaskError, match="feature 'targets' has add_eos=True, but its vocabulary has no EOS"):
        preprocessors.append_eos(dataset, {"targets": Feature(PassThroughVocabulary(3))})
    with pytest.raises(TaskError, match="EOS is appended to a sequence, but feature 'targets' is a scalar"):
        preprocessors.append_eos(
            tf.data.Dataset.from_tensors({"targets": tf.constant(1)}), {"targets": Feature(IDS, rank=0)}
        )
    with pytest.raises(TaskError, match="but feature 'targets' is a scalar; declare it with add_eos=False"):
        preprocessors.append_eos.python_form({"targets": np.int32(1)}, {"targets": Feature(IDS, rank=0)})


def test_inputs_are_truncated_from_the_left() -> None:
    left = functools.partial(both_forms, preprocessors.truncate_inputs_left, TOKENS)

    assert left(sequence_length={"inputs": 2, "targets": 1}) == {"inputs": [6, 7], "targets": [8, 9], "z": [1, 2]}
    assert left(sequence_length={"inputs": 5})["inputs"] == [5, 6, 7]
    assert left(sequence_length={"inputs": 0})["inputs"] == []
    assert left(sequence_length=None)["inputs"] == [5, 6, 7]
    assert left(sequence_length={"inputs": [2]})["inputs"] == [6, 7]
    assert left(sequence_length={"inputs": [None]})["inputs"] == [5, 6, 7]


def test_columns_take_a_length_for_each_axis() -> None:
    column = TokenColumn(np.array([3]), np.array([5, 6, 7], np.int32))
    forms = [
        functools.partial(trim_features, output_features={"inputs": Feature(IDS)}),
        functools.partial(append_eos_to_features, output_features={"inputs": Feature(IDS, add_eos=True)}),
        preprocessors.truncate_inputs_left.column_form,
    ]

    def values(form, length) -> list[int]:
        return form({"inputs": column}, sequence_length={"inputs": length})["inputs"].values.tolist()

    assert [values(form, [2]) for form in forms] == [values(form, 2) for form in forms]
    assert [values(form, [2]) for form in forms] == [[5, 6], [5, IDS.eos_id], [6, 7]]
    assert [values(form, [None]) for form in forms] == [[5, 6, 7], [5, 6, 7, IDS.eos_id], [5, 6, 7]]


def test_rekey_renames_and_drops() -> None:
    assert both_forms(preprocessors.rekey, TOKENS, key_map={"targets": "z", "q": ""}) == {"targets": [1, 2], "q": b""}
    assert sorted(both_forms(preprocessors.rekey, TOKENS, key_map=None)) == ["inputs", "targets", "z"]


def test_templates_are_filled_in() -> None:
    result = both_forms(
        preprocessors.preprocess_tensorflow_examples,
        {"a": "hi", "b": np.int64(3)},
        inputs_format="x {a} y {b}",
        targets_format="{b}{a}!",
    )

    assert result == {"inputs": b"x hi y 3", "targets": b"3hi!"}


def test_print_dataset_prints_and_passes_on(capfd) -> None:
    assert both_forms(preprocessors.print_dataset, {"a": np.array([7, 8], np.int32)}) == {"a": [7, 8]}
    assert "7" in capfd.readouterr().out


@pytest.mark.parametrize(
    "vocabulary",
    [
        BYTES,
        FullCodepointVocabulary(),
        PartialCodepointVocabulary([97, 98]),
        UnigramVocabulary(["a", "b b"], split_on_space=True),
    ],
    ids=lambda vocabulary: type(vocabulary).__name__,
)
@settings(max_examples=20, deadline=None)
@given(text=st.text(max_size=12))
def test_vocabularies_encode_and_decode_alike_in_tensorflow(vocabulary, text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    encoded = vocabulary.encode(text)

    in_tensorflow = vocabulary.encode_tf(tf.constant(text))

    assert in_tensorflow.dtype == tf.int32
    assert in_tensorflow.numpy().tolist() == list(encoded)
    if encoded:
        assert vocabulary.decode_tf(in_tensorflow).numpy().decode() == vocabulary.decode(encoded)


def test_decoding_in_tensorflow_stops_at_eos_and_replaces_unknown_ids() -> None:
    batch = tf.constant([[107, 1, 108], [109, 300, 109]])

    assert BYTES.decode_tf(batch).numpy().tolist() == [b"h", b"jj"]
    assert IDS.decode_tf(tf.constant([3, 1, 4])).numpy().tolist() == [3, 1, 0]


def test_a_batch_of_texts_encodes_to_ragged_ids() -> None:
    assert BYTES.encode_tf(tf.constant(["ab", "", "c"])).to_list() == [[100, 101], [], [102]]
    assert UnigramVocabulary(["a"]).encode_tf(tf.constant(["a", "z"])).to_list() == [[1], [2]]


@pytest.mark.parametrize("vocabulary", [BYTES, sentencepiece_vocab()], ids=["bytes", "sentencepiece"])
def test_strings_of_any_rank_are_encoded(vocabulary) -> None:
    texts = [[["this is"], ["a"]], [["test"], [""]]]

    encoded = vocabulary.encode_tf(tf.constant(texts))

    assert encoded.to_list() == [[[vocabulary.encode(text) for text in row] for row in rows] for rows in texts]


def draws(dataset: tf.data.Dataset) -> list[int]:
    return [int(value) for value in dataset]


@map_over_dataset(num_seeds=1)
def draw(example, seed):
    return tf.random.stateless_uniform((), seed, 0, 1 << 30, tf.int32)


def test_seeds_are_of_seqios_dtype() -> None:
    shifted = map_over_dataset(lambda number, seed: number + 0 * seed[0], num_seeds=1)

    assert list(shifted(tf.data.Dataset.range(3)).as_numpy_iterator()) == [0, 1, 2]


@map_over_dataset(num_seeds=2)
def draw_twice(example, seeds):
    return tf.random.stateless_uniform((), seeds[0], 0, 9, tf.int32) * 0 + tf.shape(seeds)[0]


def draw_pair(example, seeds):
    first, second = seeds
    return tf.stack([tf.random.stateless_uniform((), seed, 0, 1 << 30, tf.int32) for seed in (first, second)])


def test_several_seeds_are_a_tuple_as_in_seqio() -> None:
    drawing = map_over_dataset(tf.autograph.experimental.do_not_convert(draw_pair), num_seeds=2)

    for first, second in drawing(tf.data.Dataset.range(4)):
        assert first != second


def test_seeds_come_from_the_active_manager() -> None:
    numbers = tf.data.Dataset.range(4)

    with map_seed_manager(42):
        first, second = draw(numbers), draw(numbers)
    with map_seed_manager(42):
        again = draw(numbers)
    with map_seed_manager(43):
        other = draw(numbers)

    assert draws(first) == draws(again)
    assert draws(first) != draws(second)
    assert draws(first) != draws(other)
    assert len(set(draws(first))) == 4
    assert draws(draw_twice(numbers)) == [2, 2, 2, 2]


def test_without_a_manager_every_call_draws_again() -> None:
    numbers = tf.data.Dataset.range(4)

    assert draws(draw(numbers)) != draws(draw(numbers))


def test_a_preprocessor_can_have_a_seed_of_its_own() -> None:
    seeded = set_preprocessor_seed(draw, seed=7)
    numbers = tf.data.Dataset.range(4)

    with map_seed_manager(1):
        one = seeded(numbers)
    with map_seed_manager(2):
        other = seeded(numbers)

    assert draws(one) == draws(other)


def test_map_over_dataset_wants_at_least_one_seed() -> None:
    with pytest.raises(TaskError, match="num_seeds is the number of seeds a function asks for, 1 or more, got 0"):
        map_over_dataset(lambda example, seed: example, num_seeds=0)


def _feature(dtype):
    return Feature(PassThroughVocabulary(10), dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (None, [2**63 + 1, 1], np.uint64),
        (None, [2**40, 1], np.int64),
        (None, [1, 0.1], np.float32),
        ("uint64", [2**63 + 1, 1], np.uint64),
        ("int64", [2**53 + 1, 1.0], np.int64),
        ("float64", [2**64, 0.1], np.float64),
        ("complex64", [1, 2j], np.complex64),
    ],
)
def test_numbers_of_lists_take_a_dtype_that_holds_them(dtype, value, expected):
    features = {"x": _feature(dtype)} if dtype else {}

    found = normalised({"x": value}, features)["x"]

    assert found.dtype == expected
    assert found.tolist() == [np.dtype(expected).type(number).item() for number in value]


@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [
        (
            None,
            [2**53 + 1, 0.5],
            r"expected numbers that one dtype holds, got 9007199254740993 \(int64\) at \[0\]. Give",
        ),
        (
            None,
            [2**24 + 1, 0.5],
            r"expected numbers that float32 holds, got 16777217 \(int64\) at \[0\]. Give an array",
        ),
        (None, [[1], [2, 3]], r"should be an array, a number or text, got list: \[\[1\], \[2, 3\]\]"),
        ("float32", [2**24 + 1], r"is declared float32, which does not hold 16777217 \(int64\) at \[0\]"),
        ("int32", [1.5], r"is declared int32, which does not hold 1.5 \(float64\) at \[0\]"),
        ("float32", 1e39, r"is declared float32, which does not hold 1e\+39 \(float64\)"),
        ("int32", [1, None], "should be an array, a number or text, got list"),
    ],
)
def test_numbers_that_would_become_others_are_refused(dtype, value, words):
    with pytest.raises(TaskError, match=f"feature 'x'.* {words}|feature 'x':? {words}"):
        normalised({"x": value}, {"x": _feature(dtype)} if dtype else {})


def test_what_a_tf_example_cannot_keep_is_refused():
    with pytest.raises(TaskError, match="keeps numbers as int64, which does not hold 9223372036854775809"):
        dict_to_tfexample({"x": tf.constant([2**63 + 1], tf.uint64)})
    with pytest.raises(TaskError, match=r"keeps numbers as float32, which does not hold 1e\+300"):
        dict_to_tfexample({"x": tf.constant([1e300], tf.float64)})
