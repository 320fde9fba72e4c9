"""Batch functions turn a list of examples into arrays, and pad sequences of different length.

`default_collate` makes a structure of arrays from a list of structures. Casts and pad values are exact, or an error:
NumPy would silently turn -1 into 255 and 3.7 into 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike, DTypeLike

from beam_pipes.errors import DatasetError
from beam_pipes.format import exact
from beam_pipes.format.dtypes import Array
from beam_pipes.format.exact import NotExactError, NotNumbersError, exact_number, natural_array
from beam_pipes.map_style.protocol import Item

# A structure like an example with batches as leaves, or whatever a `collate_fn` returns; callers know its type.
Collated = Any


def default_collate(examples: Sequence[object]) -> Collated:
    """Turns a list of examples into one structure like an example, whose leaves are batches.

        [(1.2, [7, 8]), (1.6, [9, 9])]         → (array([1.2, 1.6]), [array([7, 9]), array([8, 9])])
        [{"x": array(4,)}, {"x": array(4,)}]   → {"x": array(2, 4)}

    Arrays of one shape are stacked; numbers become arrays (int64, float64, bool); `str`, `bytes` and paths become
    lists; tuples, named tuples, lists and dicts are collated field by field. Raises `DatasetError`, with the place
    of the field, if examples differ in shape, length, keys or type: sequences of different length need a batch
    function that pads.
    """
    if not len(examples):
        raise DatasetError("default_collate needs at least one example, got an empty list")
    return _collate(list(examples), "example")


def _collate(values: list[Item], place: str) -> object:
    first = values[0]
    if isinstance(first, (int, float, complex, np.generic)) and not isinstance(first, (str, bytes)):
        return _numbers(values, place)
    _check_types(values, place)
    if isinstance(first, np.ndarray):
        return _stack(values, place)
    if isinstance(first, (str, bytes)) or hasattr(first, "__fspath__"):
        return values
    if isinstance(first, Mapping):
        return {key: _collate(column, f"{place}[{key!r}]") for key, column in _columns_by_key(values, place).items()}
    if isinstance(first, (tuple, list)):
        columns: list[Collated] = [
            _collate(column, f"{place}[{field}]") for field, column in enumerate(_columns(values, place))
        ]
        if isinstance(first, list):
            return columns
        return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)
    raise DatasetError(
        f"default_collate cannot batch {place} of type {type(first).__name__}; it takes arrays, numbers, strings, "
        "bytes, paths, tuples, lists and dicts of them. Pass a collate_fn for anything else."
    )


def _numbers(values: list[object], place: str) -> np.ndarray:
    integral = all(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values)
    kinds = {np.asarray(value).dtype.kind for value in values}
    try:
        array = natural_array(values) if integral or len(kinds) == 1 else None
    except NotExactError:
        raise DatasetError(
            f"default_collate found integers at {place} that no 64-bit integer dtype holds together"
        ) from None
    if array is None or array.dtype.kind not in "biufcmM":
        names = sorted({type(value).__name__ for value in values})
        raise DatasetError(f"default_collate found values of different types at {place}: {', '.join(names)}")
    return array


def _stack(arrays: list[np.ndarray], place: str) -> np.ndarray:
    for row, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise DatasetError(
                f"default_collate found arrays of different shape at {place}: {arrays[0].shape} in example 0, "
                f"{array.shape} in example {row} of the batch. Pass a collate_fn that pads, such as batch_sequences."
            )
        if array.dtype != arrays[0].dtype:
            raise DatasetError(
                f"default_collate found arrays of different dtype at {place}: {arrays[0].dtype} in example 0, "
                f"{array.dtype} in example {row} of the batch. Convert them, or pass a collate_fn."
            )
    return np.stack(arrays)


def _check_types(values: list[object], place: str) -> None:
    names = sorted({type(value).__name__ for value in values})
    if len(names) > 1 and not (all(isinstance(value, Mapping) or hasattr(value, "__fspath__") for value in values)):
        raise DatasetError(f"default_collate found values of different types at {place}: {', '.join(names)}")


def _columns_by_key(records: list[Mapping[object, object]], place: str) -> dict[object, list[object]]:
    keys = list(records[0])
    for row, record in enumerate(records):
        if set(record) != set(keys):
            raise DatasetError(
                f"default_collate found dicts of different keys at {place}: {keys} in example 0, {list(record)} in "
                f"example {row} of the batch"
            )
    return {key: [record[key] for record in records] for key in keys}


def _columns(records: list[Sequence[object]], place: str) -> list[list[object]]:
    sizes = [len(record) for record in records]
    if len(set(sizes)) > 1:
        raise DatasetError(
            f"default_collate found sequences of different length at {place}: {sizes}. "
            "Pass a collate_fn that pads, such as batch_sequences or batch_text_id."
        )
    return [[record[field] for record in records] for field in range(sizes[0])]


# Arrays that differ in length along one axis.
Minibatch = Sequence[ArrayLike]
Lengths = npt.NDArray[np.int64]
# An array; with `return_lengths` a pair of it and the lengths.
Batched = Any


def batch_sequences(
    sequences: Minibatch,
    axis: int = 0,
    pad_value: float = 0,
    *,
    dtype: DTypeLike | None = None,
    length: int | None = None,
    return_lengths: bool = False,
) -> Batched:
    """Stacks arrays that differ in length along one axis, padding the shorter ones at their end.

        batch_sequences([[1, 2, 3], [4]])                       → [[1, 2, 3], [4, 0, 0]]
        batch_sequences([[1, 2, 3], [4]], return_lengths=True)  → ([[1, 2, 3], [4, 0, 0]], [3, 1])

    Args:
      sequences: arrays of one rank, equal in every axis but `axis`; at least one.
      axis: the axis of time in one example; negative counts from the end.
      pad_value: appended to the shorter ones; it must be a value of `dtype` (-1 is not one of uint8).
      dtype: of the result; by default the common dtype of the examples. Values that it cannot hold are an error.
      length: pad to this length instead of the longest, for a static shape; a longer example is an error.
      return_lengths: also return each example's own length, int64.

    Returns a new array of shape `(batch, …, longest, …)`, filled once. Raises `DatasetError` with the index of the
    example that does not fit.
    """
    return pad_into_batch("batch_sequences", None, sequences, axis, pad_value, dtype, length, return_lengths)


def pad_into_batch(
    owner: str,
    ranks: tuple[int, ...] | None,
    sequences: Minibatch,
    axis: int,
    pad_value: float,
    dtype: DTypeLike | None,
    length: int | None,
    return_lengths: bool,
) -> Batched:
    """The work of every batch function; `owner` is its name in errors, `ranks` the ranks of its examples, or None."""
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
        batch[(row,) + all_before + (slice(end),)] = cast_exactly(owner, array, target, row)
        batch[(row,) + all_before + (slice(end, None),)] = pad
    return (batch, own_lengths) if return_lengths else batch


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
    wanted = " or ".join(f"{rank}-D" for rank in ranks) if ranks != (0,) else "1-D or higher"
    for row, array in enumerate(arrays):
        if array.ndim not in ranks or array.ndim == 0:
            raise DatasetError(f"{owner} needs {wanted} examples, but example {row} has shape {array.shape}", index=row)
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


def checked_dtype(owner: str, arrays: list[Array], dtype: DTypeLike | None) -> np.dtype:
    """Returns the dtype of the batch: the requested one, or the common dtype of all examples."""
    if dtype is None:
        # An empty list is float64 to NumPy, which says nothing about the other examples.
        found = [array.dtype for array in arrays if array.size] or [arrays[0].dtype]
        kinds = {one.kind for one in found}
        if len(kinds) > 1 and kinds != {"i", "u"}:
            names = sorted({str(one) for one in found})
            raise DatasetError(f"{owner} found examples of different kinds: {', '.join(names)}; pass dtype=…")
        target = np.result_type(*found)
        if target.kind == "f" and "f" not in kinds:
            raise DatasetError(
                f"{owner} found examples of int64 and uint64, which no integer dtype holds; pass dtype=…"
            )
    else:
        target = np.dtype(dtype)
    if target.kind not in "biuf":
        raise DatasetError(f"{owner} pads numbers and booleans only, got dtype {target}")
    return target


def checked_pad_value(owner: str, pad_value: float, dtype: np.dtype) -> object:
    """Returns `pad_value` as a scalar of `dtype`, or raises `DatasetError` if `dtype` does not hold it."""
    value = np.asarray(pad_value)
    if value.ndim or value.dtype.kind not in "biuf":
        raise DatasetError(f"{owner} needs a number as pad value, got {type(pad_value).__name__}: {pad_value!r}")
    try:
        return exact_number(pad_value, dtype)
    except NotExactError:
        if dtype.kind == "f":
            bounds = f"{np.finfo(dtype).min} to {np.finfo(dtype).max}"
            if abs(int(pad_value)) <= int(np.finfo(dtype).max):
                bounds += ", but not every integer"
        else:
            bounds = "False or True"
            if dtype.kind != "b":
                bounds = f"whole numbers from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"
    raise DatasetError(f"{owner}: pad value {pad_value!r} is not a value of dtype {dtype}, which holds {bounds}")


def cast_exactly(owner: str, array: Array, dtype: np.dtype, index: int) -> Array:
    """Returns `array` as `dtype`. A float may be rounded to a shorter float; nothing else may change."""
    if array.size == 0 or array.dtype == dtype or array.dtype.kind == "b":
        return array.astype(dtype, copy=False)
    kinds = array.dtype.kind + dtype.kind
    if kinds not in ("ff", "ii", "iu", "ui", "uu", "if", "uf"):
        raise DatasetError(
            f"{owner} makes a batch of dtype {dtype}, but example {index} has dtype {array.dtype}; pass another dtype, "
            "or convert the examples first",
            index=index,
        )
    try:
        return exact.cast_exactly(array, dtype, rounds=True)
    except exact.NotExactError as error:
        raise DatasetError(
            f"{owner}: example {index} holds {error.found} ({error.kind}), which dtype {dtype} cannot hold; pass a "
            "wider dtype",
            index=index,
        ) from None
