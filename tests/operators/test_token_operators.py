"""Operators over text: tokens, padding, packing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_runs import run

from beam_pipes.errors import InferenceError, OperatorArgumentError, OperatorError
from beam_pipes.graph import Pipeline
from beam_pipes.tasks.vocabularies import ByteVocabulary, PassThroughVocabulary, TokenizersVocabulary
from beam_pipes.transforms import fn


def text(*texts: str) -> list[np.ndarray]:
    return [np.frombuffer(one.encode(), np.uint8) for one in texts]


def test_tokenize_with_a_vocabulary() -> None:
    vocabulary = ByteVocabulary()
    found = run(lambda x: fn.tokenize(x, vocabulary=vocabulary, append_eos=True), text("ab", "é", ""))
    assert [one.tolist() for one in found] == [
        [*vocabulary.encode("ab"), vocabulary.eos_id],
        [*vocabulary.encode("é"), vocabulary.eos_id],
        [vocabulary.eos_id],
    ]
    cut = run(lambda x: fn.tokenize(x, vocabulary=vocabulary, append_eos=True, max_length=3), text("abcdef"))
    assert cut[0].tolist() == [*vocabulary.encode("ab"), vocabulary.eos_id] and cut[0].dtype == np.int32


def test_tokenize_with_a_file(tmp_path: Path) -> None:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    words.save(str(path))
    found = run(lambda x: fn.tokenize(x, vocabulary=str(path), dtype="uint16"), text("b a", "a x b"))
    assert [one.tolist() for one in found] == [[1, 0], [0, 2, 1]] and found[0].dtype == np.uint16


def test_tokenize_follows_a_class_that_encodes_otherwise(tmp_path: Path) -> None:
    class Backwards(TokenizersVocabulary):
        def encode(self, s: object) -> list[int]:
            return super().encode(s)[::-1]

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    found = run(lambda x: fn.tokenize(x, vocabulary=Backwards(words)), text("b a", "a x b"))
    assert [one.tolist() for one in found] == [[0, 1], [1, 2, 0]]


def test_tokenize_says_what_is_wrong() -> None:
    with pytest.raises(OperatorError, match=r"on record 'external_source@1'.*the text is not UTF-8"):
        run(lambda x: fn.tokenize(x, vocabulary=ByteVocabulary()), [*text("ok"), np.array([0xFF], np.uint8)])
    with pytest.raises(OperatorArgumentError, match=r"there is no file 'nowhere.json'"):
        run(lambda x: fn.tokenize(x, vocabulary="nowhere.json"), text("a"))
    with pytest.raises(OperatorArgumentError, match=r"append_eos needs a vocabulary with an id that ends a sequence"):
        run(lambda x: fn.tokenize(x, vocabulary=PassThroughVocabulary(10), append_eos=True), text("a"))
    with pytest.raises(OperatorArgumentError, match=r"dtype should hold ids below 259, and uint8 does not"):
        run(lambda x: fn.tokenize(x, vocabulary=ByteVocabulary(), dtype="uint8"), text("a"))
    with pytest.raises(InferenceError, match=r"expected text as bytes"):
        run(lambda x: fn.tokenize(x, vocabulary=ByteVocabulary()), [np.zeros(2, np.int32)])


SEQUENCES = [np.array([7, 8, 9], np.int32), np.array([5], np.int32), np.zeros(0, np.int32)]


def test_pad_batch() -> None:
    padded, lengths = run(lambda x: fn.pad_batch(x), SEQUENCES)
    assert [one.tolist() for one in padded] == [[7, 8, 9], [5, 0, 0], [0, 0, 0]] and [int(n) for n in lengths] == [
        3,
        1,
        0,
    ]
    padded, lengths = run(lambda x: fn.pad_batch(x, length=2, truncate=True, multiple_of=4, pad_value=-1), SEQUENCES)
    assert [one.tolist() for one in padded] == [[7, 8, -1, -1], [5, -1, -1, -1], [-1] * 4]
    assert [int(n) for n in lengths] == [2, 1, 0]
    with pytest.raises(OperatorError, match=r"a sequence of 3 is longer than length=2; cut it with truncate=True"):
        run(lambda x: fn.pad_batch(x, length=2), SEQUENCES)
    with pytest.raises(InferenceError, match=r"pad_value=-1 is not uint8"):
        run(lambda x: fn.pad_batch(x, pad_value=-1), [one.astype(np.uint8) for one in SEQUENCES])
    with pytest.raises(OperatorArgumentError, match=r"truncate needs length"):
        fn.pad_batch(np.zeros(3), truncate=True)


def test_pack_puts_sequences_behind_each_other() -> None:
    samples = [np.array(one, np.int32) for one in ([7, 8], [5], [1, 2, 3])]
    tokens, segments, positions = run(lambda x: fn.pack(x, length=4), samples)
    assert [one.tolist() for one in tokens] == [[7, 8, 5, 0], [1, 2, 3, 0], [0, 0, 0, 0]]
    assert [one.tolist() for one in segments] == [[1, 1, 2, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    assert [one.tolist() for one in positions] == [[0, 1, 0, 0], [0, 1, 2, 0], [0, 0, 0, 0]]
    with pytest.raises(OperatorError, match=r"a sequence of 3 tokens is longer than length=2"):
        run(lambda x: fn.pack(x, length=2), samples)
    with pytest.raises(OperatorArgumentError, match=r"method should be one of first_fit, best_fit, got 'worst'"):
        fn.pack(np.zeros(3, np.int32), length=4, method="worst")


@given(
    st.lists(st.lists(st.integers(1, 99), max_size=12), min_size=1, max_size=10),
    st.sampled_from(["first_fit", "best_fit"]),
)
@settings(max_examples=25, deadline=None)
def test_what_is_packed_can_be_unpacked(sequences: list[list[int]], method: str) -> None:
    samples = [np.array(one, np.int64) for one in sequences]
    tokens, segments, positions = run(lambda x: fn.pack(x, length=12, method=method), samples)
    unpacked = [
        row[segment == number].tolist()
        for row, segment in zip(tokens, segments, strict=True)
        for number in range(1, int(segment.max()) + 1)
    ]
    assert sorted(unpacked) == sorted(one for one in sequences if one)
    for segment, position in zip(segments, positions, strict=True):
        for number in range(1, int(segment.max()) + 1):
            own = position[segment == number]
            assert own.tolist() == list(range(len(own)))


def test_ragged_text_through_a_graph() -> None:
    pipe = Pipeline(batch_size=2)
    with pipe:
        ids = fn.tokenize(
            fn.external_source(lambda i: text("ab", "cdef"), dtype="uint8", ndim=1), vocabulary=ByteVocabulary()
        )
        pipe.set_outputs(*fn.pad_batch(ids, multiple_of=8))
    padded, lengths = pipe.run()
    assert padded.as_array().shape == (2, 8) and lengths.as_array().tolist() == [2, 4]
