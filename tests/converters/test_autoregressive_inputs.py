"""Shifting right, packed and not, in NumPy; the TensorFlow form is compared in test_converters_on_tf_data."""

from __future__ import annotations

import numpy as np
import pytest

from beam_pipes.errors import TaskError
from beam_pipes.transforms.converters import (
    autoregressive_inputs,
    make_autoregressive_inputs,
    non_padding_position,
    shift_right_by_one,
)


@pytest.mark.parametrize(
    ("values", "bos_id", "expected"),
    [
        ([3, 9, 1], 0, [0, 3, 9]),
        ([3, 9, 1], 7, [7, 3, 9]),
        ([0, 0], 7, [7, 0]),
        ([0.5, 0.25], 0, [0.0, 0.5]),
        ([[1, 2], [3, 4]], 0, [[0, 0], [1, 2]]),
        ([[1, 2], [3, 4]], 5, [[5, 5], [1, 2]]),
        ([], 7, []),
    ],
)
def test_shifting_moves_values_along_the_first_axis(values, bos_id, expected):
    assert shift_right_by_one(np.array(values), bos_id).tolist() == expected


def test_shifting_can_follow_the_last_axis_of_a_batch():
    assert shift_right_by_one(np.array([[1, 2], [3, 4]]), 5, axis=-1).tolist() == [[5, 1], [5, 3]]


def test_packed_targets_begin_again_at_every_sequence():
    targets, ids = np.array([3, 8, 1, 0, 9, 1, 5, 2, 1, 0]), np.array([1, 1, 1, 2, 2, 2, 3, 3, 3, 0])

    assert make_autoregressive_inputs(targets, ids).tolist() == [0, 3, 8, 0, 0, 9, 0, 5, 2, 0]
    assert make_autoregressive_inputs(targets, ids, bos_id=4).tolist() == [4, 3, 8, 4, 0, 9, 4, 5, 2, 4]


def test_packed_targets_may_have_further_axes():
    targets = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)

    inputs = make_autoregressive_inputs(targets, np.array([1, 2, 2]))

    assert inputs.dtype == np.float32
    assert inputs.tolist() == [[0.0, 0.0], [0.0, 0.0], [3.0, 4.0]]


def test_the_output_dtype_is_that_of_the_targets_or_the_one_asked_for():
    targets = np.array([3, 9], np.int16)

    assert autoregressive_inputs(targets).dtype == np.int16
    assert autoregressive_inputs(targets, output_dtype=np.float32).dtype == np.float32


def test_a_sequence_id_of_floats_is_refused():
    with pytest.raises(TaskError, match="The sequence_id should be integer-valued tensors for a packed dataset"):
        make_autoregressive_inputs(np.array([3, 9]), np.array([1.0, 1.0]))


def test_text_cannot_be_shifted():
    with pytest.raises(TaskError, match="Only numeric types are supported. Got: <U1"):
        shift_right_by_one(np.array(["a", "b"]))


def test_an_axis_that_is_not_there_is_refused():
    with pytest.raises(TaskError, match="expected an axis of an array of rank 1, got 1"):
        shift_right_by_one(np.array([1, 2]), axis=1)


def test_non_padding_positions_compare_with_the_pad_id():
    assert non_padding_position(np.array([3, 9, 0])).tolist() == [1, 1, 0]
    assert non_padding_position(np.array([3, 9, 0]), dtype=np.float32, pad_id=9).tolist() == [1.0, 0.0, 1.0]
