"""Decoder inputs from decoder targets: shifted right by one, starting anew at every packed sequence."""

from __future__ import annotations

from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.dtypes import DType
from beam_pipes.tasks.in_python.array_ops import ops_of


def shift_right_by_one(tensor: Any, bos_id: int = 0, *, axis: int = 0) -> Any:
    """Moves every value one step along `axis`; `bos_id` enters, the last value leaves.

    `[3, 9, 1]` → `[0, 3, 9]`. Takes NumPy arrays, lists and TensorFlow tensors of any numeric dtype, and returns
    the same kind. `axis=-1` shifts each row of a batch.
    """
    ops = ops_of(tensor)
    tensor = ops.asarray(tensor)
    _check_numeric(ops.dtype_of(tensor))
    return ops.shift_right(tensor, bos_id, axis=axis)


def make_autoregressive_inputs(
    targets: Any,
    sequence_id: Any = None,
    output_dtype: Any = None,
    bos_id: int = 0,
    *,
    axis: int = 0,
) -> Any:
    """The tokens a decoder reads while it is trained to produce `targets`.

    One sequence: `[3, 9, 1, 0]` → `[bos, 3, 9, 1]`. Packed, with `sequence_id` `[1, 1, 2, 2, 0]`:
    `[3, 1, 4, 1, 0]` → `[bos, 3, bos, 4, bos]`: each sequence, and the padding behind the last, starts with
    `bos_id` and never sees its neighbour.

    `sequence_id`: integers, one a step along `axis`; targets of a higher rank (`(steps, features)`) are welcome.
    `output_dtype`: the dtype of the result, by default that of `targets`.

    Raises `TaskError` (a `ValueError`) for a `sequence_id` of another dtype and for targets that are no numbers.
    """
    ops = ops_of(targets, sequence_id)
    targets = ops.asarray(targets)
    inputs = shift_right_by_one(targets, bos_id, axis=axis)
    if sequence_id is not None:
        sequence_id = ops.asarray(sequence_id)
        found = ops.dtype_of(sequence_id)
        if not found.startswith(("int", "uint")):
            raise TaskError(
                "The sequence_id should be integer-valued tensors for a packed dataset. "
                f"Got: {found}; cast it to int32.",
                dtype=found,
            )
        begins = ops.not_equal(sequence_id, ops.shift_right(sequence_id, 0, axis=axis))
        inputs = ops.fill_where(inputs, ops.expand_to_rank_of(begins, inputs), bos_id)
    return inputs if output_dtype is None else ops.cast(inputs, DType(output_dtype))


autoregressive_inputs = make_autoregressive_inputs


def non_padding_position(tensor: Any, dtype: Any = "int32", pad_id: int = 0) -> Any:
    """1 where `tensor` differs from `pad_id`, 0 elsewhere: `[3, 9, 0]` → `[1, 1, 0]`.

    For custom converters whose ids exclude `pad_id`. The converters here do not use it: an id 0 inside a sequence
    is data, so they ask the lengths.
    """
    ops = ops_of(tensor)
    tensor = ops.asarray(tensor)
    return 1 - ops.cast(ops.equal(tensor, ops.fill_like(tensor, pad_id)), DType(dtype))


def _check_numeric(dtype: str) -> None:
    if not dtype.startswith(("int", "uint", "float", "bfloat", "double", "half")):
        raise TaskError(f"Only numeric types are supported. Got: {dtype}", dtype=dtype)
