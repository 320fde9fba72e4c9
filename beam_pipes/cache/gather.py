"""Reading many places of one memory with one NumPy call each."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# From this mean length on, copying slice by slice beats one index per element.
LONG_ROW = 192


def take_rows(memory: Array, offsets: Array, dtype: np.dtype[Any], count: int) -> Array:
    """`count` elements from each byte offset (a multiple of the itemsize): (n, count), a copy.

    `memory` is a flat array of bytes. All rows are one fancy index into a view whose rows overlap: row `i` of the view
    starts at element `i`.
    """
    itemsize = dtype.itemsize
    if count == 0 or not len(offsets):
        return np.empty((len(offsets), count), dtype)
    units = memory[: len(memory) // itemsize * itemsize].view(dtype)
    starts = offsets // itemsize
    if count == 1:
        return np.asarray(units[starts])[:, None]
    rows: Array = np.ndarray(
        shape=(len(units) - count + 1, count), dtype=dtype, buffer=units, strides=(itemsize, itemsize)
    )
    return np.asarray(rows[starts])


def take_values(memory: Array, offsets: Array, lengths: Array, dtype: np.dtype[Any]) -> Array:
    """`lengths[i]` elements from each byte offset, one run after the other: (sum of lengths,), a copy."""
    itemsize = dtype.itemsize
    total = int(lengths.sum())
    if total == 0:
        return np.empty(0, dtype)
    units = memory[: len(memory) // itemsize * itemsize].view(dtype)
    starts = offsets // itemsize
    if total >= LONG_ROW * len(lengths):
        return np.concatenate(
            [units[start:end] for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]
        )
    # Position of an element: where its run starts in memory, minus where it starts in the result, plus its place there.
    shifts = starts - (np.cumsum(lengths) - lengths)
    return np.asarray(units[np.repeat(shifts, lengths) + np.arange(total)])
