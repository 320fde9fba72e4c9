"""Padding sequences of different lengths into one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from beam_pipes.cache.exact import NotExactError, NotNumbersError, natural_array
from beam_pipes.errors import DatasetError
from beam_pipes.map_style.batching.exact import cast_exactly, checked_dtype, checked_pad_value

Array = np.ndarray[Any, Any]
Lengths = np.ndarray[Any, np.dtype[np.int64]]


@overload
def batch_sequences(
    sequences: Sequence[ArrayLike],
    axis: int = ...,
    pad_value: float = ...,
    *,
    dtype: DTypeLike | None = ...,
    length: int | None = ...,
    return_lengths: Literal[False] = ...,
) -> Array: ...


@overload
def batch_sequences(
    sequences: Sequence[ArrayLike],
    axis: int = ...,
    pad_value: float = ...,
    *,
    dtype: DTypeLike | None = ...,
    length: int | None = ...,
    return_lengths: Literal[True],
) -> tuple[Array, Lengths]: ...


def batch_sequences(
    sequences: Sequence[ArrayLike],
    axis: int = 0,
    pad_value: float = 0,
    *,
    dtype: DTypeLike | None = None,
    length: int | None = None,
    return_lengths: bool = False,
) -> Array | tuple[Array, Lengths]:
    """Stacks arrays that differ in length along one axis, padding the shorter ones at their end.

        batch_sequences([[1, 2, 3], [4]])                       → [[1, 2, 3], [4, 0, 0]]
        batch_sequences([[1, 2, 3], [4]], return_lengths=True)  → ([[1, 2, 3], [4, 0, 0]], [3, 1])

    Args:
      sequences: arrays of one rank, equal in every axis but `axis`; at least one.
      axis: the axis of time in one example; negative counts from the end.
      pad_value: written behind the shorter ones; it has to be a value of `dtype` (-1 is none of uint8).
      dtype: of the result; by default the common dtype of the examples. Values that it cannot hold are an error.
      length: pad to this length instead of the longest, for a static shape; a longer example is an error.
      return_lengths: also return each example's own length, int64.

    Returns a new array of shape `(batch, …, longest, …)`, filled once. Raises `DatasetError` with the index of the
    example that does not fit.
    """
    result: Array | tuple[Array, Lengths] = pad_into_batch(
        "batch_sequences", sequences, axis=axis, pad_value=pad_value, dtype=dtype, length=length, lengths=return_lengths
    )
    return result


def pad_into_batch(
    owner: str,
    sequences: Sequence[ArrayLike],
    *,
    axis: int,
    pad_value: float,
    dtype: DTypeLike | None,
    length: int | None,
    lengths: bool,
    ranks: tuple[int, ...] | None = None,
) -> Any:
    """Does the work of every batch function; `owner` is the one that errors speak of."""
    arrays = [_as_array(owner, sequence, row) for row, sequence in enumerate(sequences)]
    if not arrays:
        raise DatasetError(f"{owner} needs at least one example, got an empty minibatch")
    rank = arrays[0].ndim
    _check_ranks(owner, arrays, ranks or (rank,))
    if not -rank <= axis < rank:
        raise DatasetError(f"{owner} needs an axis between {-rank} and {rank - 1} for {rank}-D examples, got {axis}")
    axis %= rank
    own_lengths = np.array([array.shape[axis] for array in arrays], dtype=np.int64)
    target = checked_dtype(owner, arrays, dtype)
    pad = checked_pad_value(owner, pad_value, target)
    shape = list(arrays[0].shape)
    shape[axis] = _padded_length(owner, own_lengths, length)
    batch = np.empty((len(arrays), *shape), dtype=target)
    all_before = (slice(None),) * axis
    for row, array in enumerate(arrays):
        if array.shape[:axis] != arrays[0].shape[:axis] or array.shape[axis + 1 :] != arrays[0].shape[axis + 1 :]:
            raise DatasetError(
                f"{owner} needs examples that are equal in every axis but {axis}; example 0 has shape "
                f"{arrays[0].shape}, example {row} has {array.shape}",
                index=row,
            )
        end = array.shape[axis]
        data = (row,) + all_before + (slice(0, end),)
        padding = (row,) + all_before + (slice(end, None),)
        batch[data] = cast_exactly(owner, array, target, row)
        batch[padding] = pad
    return (batch, own_lengths) if lengths else batch


def _as_array(owner: str, sequence: ArrayLike, row: int) -> Array:
    try:
        return natural_array(sequence)
    except NotExactError as error:
        raise DatasetError(
            f"{owner}: example {row} holds {error.found} ({error.kind}) beside numbers with which it has no dtype in "
            "common; pass an array",
            index=row,
        ) from None
    except NotNumbersError as error:
        raise DatasetError(f"{owner} needs examples that are arrays, but of example {row} {error}", index=row) from None
    except ValueError as error:
        raise DatasetError(f"{owner} needs examples that are arrays, but example {row} is ragged", index=row) from error


def _check_ranks(owner: str, arrays: list[Array], ranks: tuple[int, ...]) -> None:
    wanted = " or ".join(f"{rank}-D" for rank in ranks)
    for row, array in enumerate(arrays):
        if array.ndim not in ranks or array.ndim == 0:
            what = wanted if ranks != (0,) else "1-D or higher"
            raise DatasetError(f"{owner} needs {what} examples, but example {row} has shape {array.shape}", index=row)
        if array.ndim != arrays[0].ndim:
            raise DatasetError(
                f"{owner} needs examples of one rank; example 0 has shape {arrays[0].shape}, "
                f"example {row} has {array.shape}",
                index=row,
            )


def _padded_length(owner: str, own_lengths: Lengths, length: int | None) -> int:
    longest = int(np.argmax(own_lengths))
    if length is None:
        return int(own_lengths[longest])
    if own_lengths[longest] > length:
        raise DatasetError(
            f"{owner} cannot pad to length={length}: example {longest} is {own_lengths[longest]} long. Truncate it, "
            "or leave length out to pad to the longest",
            index=longest,
        )
    return length
