"""The batch functions: what they pad, what they refuse, and in which words."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from beam_pipes.errors import DatasetError
from beam_pipes.map_style import (
    SpecBatcher,
    TextIDBatcher,
    WavBatcher,
    batch_sequences,
    batch_spec,
    batch_text_id,
    batch_wav,
)


def same(expected, array):
    """Whether values, shape and dtype are all as expected."""
    return expected.dtype == array.dtype and np.array_equal(expected, array)


def test_ids_are_padded_behind():
    assert same(np.array([[5, 6, 7], [8, 0, 0]]), batch_text_id([[5, 6, 7], [8]]))
    assert same(np.array([[5, 6], [8, 9]], np.uint8), batch_text_id([[5, 6], [8]], pad_id=9, dtype=np.uint8))


def test_empty_sequences_are_all_padding():
    ids, lengths = batch_text_id([[5], []], return_lengths=True)

    assert same(np.array([[5], [0]]), ids)
    assert same(np.array([1, 0]), lengths)
    assert (2, 0) == batch_text_id([[], []]).shape


def test_waves_keep_their_channels():
    mono, lengths = batch_wav([np.ones(3, np.float64), np.ones(1)], pad_value=-1, return_lengths=True)
    stereo = batch_wav([np.ones((2, 3), np.int16), np.ones((2, 1), np.int16)])

    assert same(np.array([[1, 1, 1], [1, -1, -1]], np.float32), mono)
    assert [3, 1] == lengths.tolist()
    assert same(np.array([[[1, 1, 1]] * 2, [[1, 0, 0]] * 2], np.float32), stereo)


def test_integers_that_a_float_holds_are_taken_however_large():
    values = [1000 << 16, -2000 << 16, -(2**31)]

    assert same(np.array([values], np.float32), batch_wav([np.array(values, np.int32)]))
    for value, dtype in ((2**31 - 1, np.int32), (2**64 - 1, np.uint64), (2**63 - 1, np.int64)):
        with pytest.raises(DatasetError, match=rf"example 0 holds {value} .*, which dtype float32 cannot hold"):
            batch_wav([np.array([value], dtype)])


def test_spectrograms_are_padded_along_time_wherever_that_is():
    long, short = np.ones((2, 3)), np.full((2, 1), 5.0)

    last = batch_spec([long, short], pad_value=-2)
    first = batch_spec([long.T, short.T], pad_value=-2, time_major=True)

    assert same(np.array([[[1, 1, 1]] * 2, [[5, -2, -2]] * 2], np.float32), last)
    assert same(last.transpose(0, 2, 1), first)
    assert (2, 4, 2, 3) == batch_spec([np.ones((4, 2, 3)), np.ones((4, 2, 1))]).shape
    assert (2, 3, 4, 2) == batch_spec([np.ones((3, 4, 2)), np.ones((1, 4, 2))], time_major=True).shape


def test_any_axis_can_be_the_one_that_differs():
    batch, lengths = batch_sequences([np.ones((2, 1, 3)), np.ones((2, 4, 3))], axis=-2, return_lengths=True)

    assert (2, 2, 4, 3) == batch.shape
    assert 6 + 24 == batch.sum()
    assert [1, 4] == lengths.tolist()


def test_a_fixed_length_gives_a_static_shape():
    assert same(np.array([[1, 0, 0, 0]]), batch_text_id([[1]], length=4))
    assert (1, 2, 9) == batch_spec([np.ones((2, 3))], length=9).shape
    assert (1, 9) == batch_wav([np.ones(3)], length=9).shape


def test_the_default_dtype_is_what_the_examples_have_in_common():
    assert np.int32 == batch_sequences([np.ones(2, np.int32), np.ones(1, np.int16)]).dtype
    assert np.float32 == batch_sequences([np.ones(2, np.float32), []]).dtype
    assert np.bool_ == batch_sequences([[True], [False, True]]).dtype
    assert same(
        np.array([[1, 2], [3, 7]], np.uint8),
        batch_sequences([np.array([1, 2], np.uint8), np.array([3], np.uint8)], 0, 7),
    )


def test_the_examples_are_not_changed_and_not_shared():
    example = np.array([1.0, 2.0])

    batch = batch_sequences([example])
    batch[:] = 9

    assert [1.0, 2.0] == example.tolist()


def test_batchers_hold_their_options():
    assert same(np.array([[5, 6], [8, 3]], np.int32), TextIDBatcher(pad_id=3, dtype=np.int32)([[5, 6], [8]]))
    assert [2, 1] == WavBatcher(return_lengths=True)([[0.5, 0.5], [0.25]])[1].tolist()
    assert (1, 4, 2) == SpecBatcher(time_major=True, length=4)([np.ones((3, 2))]).shape


def test_a_value_that_is_not_finite_can_be_the_padding_of_floats():
    assert np.isnan(batch_wav([[1, 2], [1]], pad_value=float("nan"))[1, 1])
    assert -np.inf == batch_wav([[1, 2], [1]], pad_value=-np.inf)[1, 1]


def test_hashes_of_64_bits_stay_the_same():
    assert [[2**63 + 1, 1], [2**64 - 1, 7]] == batch_sequences([[2**63 + 1, 1], [2**64 - 1]], pad_value=7).tolist()


INT64 = "whole numbers from -9223372036854775808 to 9223372036854775807"


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        pytest.param(
            lambda: batch_sequences([np.ones(2, np.uint8)], pad_value=-1),
            "batch_sequences: pad value -1 is not a value of dtype uint8, which holds whole numbers from 0 to 255",
            id="pad_negative",
        ),
        pytest.param(
            lambda: batch_text_id([[1]], pad_id=0.5),
            f"batch_text_id: pad value 0.5 is not a value of dtype int64, which holds {INT64}",
            id="pad_fraction",
        ),
        pytest.param(
            lambda: batch_text_id([[1]], pad_id=float("nan")),
            f"batch_text_id: pad value nan is not a value of dtype int64, which holds {INT64}",
            id="pad_nan",
        ),
        pytest.param(
            lambda: batch_text_id([[1]], pad_id=2**63),
            f"batch_text_id: pad value 9223372036854775808 is not a value of dtype int64, which holds {INT64}",
            id="pad_one_too_large",
        ),
        pytest.param(
            lambda: batch_wav([[1]], pad_value=1e5, dtype=np.float16),
            "batch_wav: pad value 100000.0 is not a value of dtype float16, which holds -65504.0 to 65504.0",
            id="pad_overflow",
        ),
        pytest.param(
            lambda: batch_sequences([np.ones(1)], pad_value=2**53 + 1),
            "batch_sequences: pad value 9007199254740993 is not a value of dtype float64, which holds "
            "-1.7976931348623157e+308 to 1.7976931348623157e+308, but not every integer",
            id="pad_rounded",
        ),
        pytest.param(
            lambda: batch_sequences([[1], [2**53 + 1, 0.5]]),
            "batch_sequences: example 1 holds 9007199254740993 (int64) beside numbers with which it has no dtype in "
            "common; pass an array",
            id="rounded_in_a_list",
        ),
        pytest.param(
            lambda: batch_sequences([np.ma.array([1, 2], mask=[False, True])]),
            "batch_sequences needs examples that are arrays, but of example 0 the element at [1] is masked, so it has "
            "no value: fill it, or leave it out",
            id="masked",
        ),
        pytest.param(
            lambda: batch_sequences([[True]], pad_value=2),
            "batch_sequences: pad value 2 is not a value of dtype bool, which holds False or True",
            id="pad_bool",
        ),
        pytest.param(
            lambda: batch_wav([[1]], pad_value="0"),
            "batch_wav needs a number as pad value, got str: '0'",
            id="pad_text",
        ),
        pytest.param(
            lambda: batch_text_id([[1], [300]], dtype=np.uint8),
            "batch_text_id: example 1 holds 300 (int64), which dtype uint8 cannot hold; pass a wider dtype",
            id="id_too_large",
        ),
        pytest.param(
            lambda: batch_text_id([np.array([2**63], np.uint64)]),
            "batch_text_id: example 0 holds 9223372036854775808 (uint64), which dtype int64 cannot hold; "
            "pass a wider dtype",
            id="id_unsigned",
        ),
        pytest.param(
            lambda: batch_wav([[0.0], [1e300]]),
            "batch_wav: example 1 holds 1e+300 (float64), which dtype float32 cannot hold; pass a wider dtype",
            id="float_overflow",
        ),
        pytest.param(
            lambda: batch_wav([[2**24 + 1]]),
            "batch_wav: example 0 holds 16777217 (int64), which dtype float32 cannot hold; pass a wider dtype",
            id="integer_rounded",
        ),
        pytest.param(
            lambda: batch_text_id([[1], [2.0]]),
            "batch_text_id makes a batch of dtype int64, but example 1 has dtype float64; pass another "
            "dtype, or convert "
            "the examples first",
            id="float_ids",
        ),
        pytest.param(
            lambda: batch_sequences([[1], [2.5]]),
            "batch_sequences found examples of different kinds: float64, int64; pass dtype=…",
            id="kinds",
        ),
        pytest.param(
            lambda: batch_sequences([np.array([1], np.int64), np.array([1], np.uint64)]),
            "batch_sequences found examples of int64 and uint64, which no integer dtype holds; pass dtype=…",
            id="no_common_integer",
        ),
        pytest.param(
            lambda: batch_sequences([["a"]]),
            "batch_sequences pads numbers and booleans only, got dtype <U1",
            id="strings",
        ),
        pytest.param(
            lambda: batch_spec([]), "batch_spec needs at least one example, got an empty minibatch", id="empty"
        ),
        pytest.param(
            lambda: batch_text_id([[[1]]]),
            "batch_text_id needs 1-D examples, but example 0 has shape (1, 1)",
            id="rank",
        ),
        pytest.param(
            lambda: batch_wav([np.ones((1, 1, 1))]),
            "batch_wav needs 1-D or 2-D examples, but example 0 has shape (1, 1, 1)",
            id="wav_rank",
        ),
        pytest.param(
            lambda: batch_wav([np.ones((2, 2)), np.ones(2)]),
            "batch_wav needs examples of one rank; example 0 has shape (2, 2), example 1 has (2,)",
            id="ranks",
        ),
        pytest.param(
            lambda: batch_sequences([1, 2]),
            "batch_sequences needs 1-D or higher examples, but example 0 has shape ()",
            id="scalars",
        ),
        pytest.param(
            lambda: batch_sequences([[[1], [1, 2]]]),
            "batch_sequences needs examples that are arrays, but example 0 is ragged",
            id="ragged",
        ),
        pytest.param(
            lambda: batch_sequences([[1]], axis=1),
            "batch_sequences needs an axis between -1 and 0 for 1-D examples, got 1",
            id="axis",
        ),
        pytest.param(
            lambda: batch_spec([np.ones((2, 3)), np.ones((4, 3))]),
            "batch_spec needs examples that are equal in every axis but 1; example 0 has shape (2, 3), "
            "example 1 has (4, 3)",
            id="bands",
        ),
        pytest.param(
            lambda: batch_text_id([[1], [1, 2, 3]], length=2),
            "batch_text_id cannot pad to length=2: example 1 is 3 long. Truncate it, or leave length out to "
            "pad to the longest",
            id="too_long",
        ),
    ],
)
def test_what_cannot_be_batched_exactly_is_refused(batch, words):
    with pytest.raises(DatasetError, match=f"^{re.escape(words)}$"):
        batch()


DTYPES = st.sampled_from([np.bool_, np.uint8, np.int16, np.int64, np.uint64, np.float16, np.float32, np.float64])


@st.composite
def minibatches(draw):
    """Arrays that differ along one axis only, with that axis."""
    dtype = np.dtype(draw(DTYPES))
    others = draw(st.lists(st.integers(1, 3), max_size=2))
    axis = draw(st.integers(0, len(others)))
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    shapes = [(*others[:axis], length, *others[axis:]) for length in lengths]
    return [draw(arrays.arrays(dtype, shape)) for shape in shapes], axis


@given(minibatches(), st.sampled_from([0, 1]))
def test_unpadding_gives_the_examples_back(minibatch, pad_value):
    examples, axis = minibatch

    batch, lengths = batch_sequences(examples, axis, pad_value, return_lengths=True)

    assert examples[0].dtype == batch.dtype
    for row, example in enumerate(examples):
        data, padding = np.split(batch[row], [lengths[row]], axis=axis)
        np.testing.assert_array_equal(example, data)
        assert np.all(padding == pad_value)
    assert max(lengths) == batch.shape[axis + 1]
