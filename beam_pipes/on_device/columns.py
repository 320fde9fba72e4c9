"""A run of Python samples as one NumPy column per key.

Batching is where the time of a Python generator goes or is saved: what can be converted for a whole run at once
(Python ints, floats, bools, text, equal arrays, flat lists) is; anything else goes value by value, to the same end.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import SpecError
from beam_pipes.on_device.inference import ColumnSignature
from beam_pipes.on_device.values import (
    STRING,
    UnfitValueError,
    Value,
    convert,
    exact_integers,
    is_integer,
    read_value,
)

# A run whose padded column takes more than this, and more than four times its values, is cut in two.
PADDED_BYTES = 4 * 2**20


@dataclasses.dataclass(frozen=True, eq=False)
class Column:
    """The values of a run, by the layout of their signature.

    Stacked: `values` (n, *shape). Concatenated: `values` (sum of lengths, *shape[1:]) and `extents` (n,) int64, the
    lengths. Padded: `values` (n, *longest) and `extents` (n, rank) int32, the shapes.
    """

    values: np.ndarray[Any, Any]
    extents: np.ndarray[Any, Any] | None = None


class WastefulPaddingError(Exception):
    """Padding this run to its longest sample would multiply its memory."""


def build_column(raw: Sequence[Any], signature: ColumnSignature, first_number: int) -> Column:
    """The column of `raw`; raises `SpecError` naming the sample (counted from `first_number`) and the key."""
    kinds = set(map(type, raw))
    kind = kinds.pop() if len(kinds) == 1 else None
    try:
        if signature.shape == () and kind in (int, float, bool, str, bytes):
            return Column(_scalars(raw, kind, signature))
        if len(signature.shape) == 1 and kind is list:
            flat = _flat_lists(raw, signature)
            if flat is not None:
                return flat
        arrays: Sequence[np.ndarray[Any, Any]] | None = None
        if kind is np.ndarray and all(item.dtype == signature.dtype for item in raw) and signature.dtype != STRING:
            arrays = raw
    except (UnfitValueError, OverflowError):
        arrays = None  # one of them does not fit: go one by one, to name it
    if arrays is None:
        arrays = [_convert_one(item, signature, first_number + index) for index, item in enumerate(raw)]
    for index, array in enumerate(arrays):
        reason = signature.mismatch(array.shape)
        if reason:
            raise _unfit(reason, signature, first_number + index)
    if signature.layout == "stacked":
        return Column(np.stack(arrays))
    if signature.layout == "concatenated":
        return Column(np.concatenate(arrays), np.fromiter(map(len, arrays), np.int64, len(arrays)))
    return _padded(arrays, signature)


def _scalars(raw: Sequence[Any], kind: type, signature: ColumnSignature) -> np.ndarray[Any, Any]:
    if kind is int:
        if is_integer(signature.dtype):
            return exact_integers(raw, signature.dtype)
        return convert(Value(np.array(raw, np.int64), "int"), signature.dtype, declared=signature.declared)
    if kind is float:
        return convert(Value(np.array(raw, np.float64), "float"), signature.dtype, declared=signature.declared)
    if kind is bool:
        return convert(Value(np.array(raw, np.bool_)), signature.dtype, declared=signature.declared)
    array = np.empty(len(raw), STRING)
    array[:] = [item.encode() for item in raw] if kind is str else raw
    return convert(Value(array), signature.dtype, declared=signature.declared)


def _flat_lists(raw: Sequence[list[Any]], signature: ColumnSignature) -> Column | None:
    """Lists of one Python type at rank 1; `None` when they are anything else."""
    leaves = list(itertools.chain.from_iterable(raw))
    kinds = set(map(type, leaves))
    if len(kinds) != 1 or not kinds <= {int, float, bool, str, bytes}:
        return None
    lengths = np.fromiter(map(len, raw), np.int64, len(raw))
    expected = signature.shape[0]
    if expected is not None and (lengths != expected).any():
        return None
    flat = _scalars(leaves, kinds.pop(), signature)
    if expected is not None:
        return Column(flat.reshape(len(raw), expected))
    return Column(flat, lengths)


def _padded(arrays: Sequence[np.ndarray[Any, Any]], signature: ColumnSignature) -> Column:
    shapes = np.array([array.shape for array in arrays], np.int32)
    longest = tuple(shapes.max(axis=0).tolist())
    padded = len(arrays) * math.prod(longest) * signature.dtype.itemsize
    if len(arrays) > 1 and padded > max(PADDED_BYTES, 4 * sum(array.nbytes for array in arrays)):
        raise WastefulPaddingError
    blank = b"" if signature.dtype == STRING else 0
    values = np.full((len(arrays), *longest), blank, signature.dtype)
    for row, array in zip(values, arrays, strict=True):
        row[tuple(slice(0, n) for n in array.shape)] = array
    return Column(values, shapes)


def _convert_one(raw: Any, signature: ColumnSignature, number: int) -> np.ndarray[Any, Any]:
    try:
        return convert(read_value(raw), signature.dtype, declared=signature.declared)
    except UnfitValueError as error:
        raise _unfit(str(error), signature, number) from error


def _unfit(reason: str, signature: ColumnSignature, number: int) -> SpecError:
    remedy = (
        "Change the value, or the output_signature."
        if signature.declared
        else "Yield one type and shape for a key, raise infer_k (-1 reads every sample), or pass output_signature."
    )
    return SpecError(
        f"sample {number} does not fit key {signature.key!r}: {reason}. {remedy}", key=signature.key, sample=number
    )
