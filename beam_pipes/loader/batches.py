"""Batches: dicts of arrays that share their first dimension, apart from concatenated `values`.

A ragged feature taken as values has two entries, `tokens` (all values, concatenated) and `tokens/lengths`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import LoaderError

Array = npt.NDArray[Any]
Batch = dict[str, Array]
PadValue = int | float | Mapping[str, int | float]

LENGTHS = "/lengths"


def pad_value_of(feature: str, pad_value: PadValue) -> int | float:
    """The pad value of one feature; 0 for a feature that a mapping does not name."""
    return pad_value.get(feature, 0) if isinstance(pad_value, Mapping) else pad_value


def checked_pad(value: int | float, dtype: np.dtype[Any], feature: str) -> Any:
    """`value` as a scalar of `dtype`; raises `LoaderError` if it is not exactly representable (-1 in uint8 is 255)."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        fits = float(value).is_integer() and info.min <= value <= info.max
    elif dtype.kind == "f":
        fits = not np.isfinite(value) or abs(value) <= float(np.finfo(dtype).max)
    else:
        fits = value == 0 or dtype.kind == "V"  # V: bfloat16 and its kin
    if not fits:
        raise LoaderError(
            f"pad value {value} of feature {feature!r} does not fit its dtype {dtype}; "
            "pass a value within the dtype's range",
            feature=feature,
            pad_value=value,
        )
    return np.array(value).astype(dtype)[()]


def pad_rows(batch: Batch, rows: int, pad_value: PadValue) -> Batch:
    """The batch with rows appended up to `rows`: {'x': [[1, 2]]}, 3 → {'x': [[1, 2], [0, 0], [0, 0]]}."""
    padded = {}
    for name, array in batch.items():
        if name + LENGTHS in batch:
            padded[name] = array  # concatenated values: the rows that come have none
            continue
        fill = 0 if name.endswith(LENGTHS) else pad_value_of(name, pad_value)
        padded[name] = _grown(array, (rows, *array.shape[1:]), fill, name)
    return padded


def merge_rows(parts: Sequence[tuple[Array, Batch]], rows: int, pad_value: PadValue) -> Batch:
    """One batch out of several: each part says which rows of the result it is.

    Padded features of different widths get the largest one.
    """
    first = parts[0][1]
    for _, part in parts[1:]:
        if part.keys() != first.keys():
            raise LoaderError(
                f"the sources of a mixture give different features: {sorted(first)} and {sorted(part)}; "
                "pass features=[…] with those that all of them have"
            )
    merged: Batch = {}
    for name in first:
        if name + LENGTHS in first:
            merged[name] = _merge_values(name, parts, rows)
            continue
        arrays = [part[name] for _, part in parts]
        if len({(array.dtype, array.ndim) for array in arrays}) > 1:
            kinds = ", ".join(sorted({f"{array.dtype}{list(array.shape[1:])}" for array in arrays}))
            raise LoaderError(f"the sources of a mixture differ in feature {name!r}: {kinds}", feature=name)
        shape = (rows, *np.max([array.shape[1:] for array in arrays], axis=0).astype(int).tolist())
        uniform = all(array.shape[1:] == shape[1:] for array in arrays)
        if uniform:
            out = np.empty(shape, arrays[0].dtype)
        else:
            out = np.full(shape, checked_pad(pad_value_of(name, pad_value), arrays[0].dtype, name))
        for (places, _), array in zip(parts, arrays, strict=True):
            if uniform:
                out[places] = array
            else:
                corner: tuple[Any, ...] = (places, *(slice(0, size) for size in array.shape[1:]))
                out[corner] = array
        merged[name] = out
    return merged


def ranges(starts: Array, counts: Array) -> npt.NDArray[np.int64]:
    """Concatenated ranges: starts [5, 0], counts [2, 3] → [5, 6, 0, 1, 2]."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    shifts: npt.NDArray[np.int64] = np.repeat(np.asarray(starts, np.int64) - (ends - counts), counts)
    shifts += np.arange(total)
    return shifts


def _merge_values(name: str, parts: Sequence[tuple[Array, Batch]], rows: int) -> Array:
    lengths = np.zeros(rows, np.int64)
    for places, part in parts:
        lengths[places] = part[name + LENGTHS]
    starts = np.cumsum(lengths) - lengths
    values = [part[name] for _, part in parts]
    out = np.empty((int(lengths.sum()), *values[0].shape[1:]), np.result_type(*values))
    for (places, part), array in zip(parts, values, strict=True):
        out[ranges(starts[places], part[name + LENGTHS])] = array
    return out


def _grown(array: Array, shape: tuple[int, ...], fill: int | float, name: str) -> Array:
    if array.dtype.kind == "O":
        empty: Any = b"" if len(array) and isinstance(array.flat[0], bytes) else ""
        grown = np.full(shape, empty, object)
    else:
        grown = np.full(shape, checked_pad(fill, array.dtype, name), array.dtype)
    grown[: len(array)] = array
    return grown
