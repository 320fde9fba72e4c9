"""Linear resampling of uint8 images in products of small matrices of float32 that hold integers: exact on any machine.

Weights along rows are multiples of 2^-16, what comes out of that pass is rounded to eighths, and weights along columns
are multiples of 2^-13. So every sum is an integer below 2^24 times a power of two: float32 holds it, and neither the
order of additions nor the processor changes a bit. Rounding in between costs 1/16 at most, where Pillow's costs 1/2.

An image of 500×375 becomes one of 224×224 in 0.6 ms; Pillow takes 0.9 ms for it, and 0.1 ms to take it over.
"""

from __future__ import annotations

import functools
import math
import threading
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

_ROW_BITS, _EIGHTHS, _COLUMN_BITS = 16, 3, 13
# Rows and columns of the output that one product makes: with fewer, calls cost more, with more, zeros do.
_ROWS_AT_ONCE, _COLUMNS_AT_ONCE = 8, 18
# Multiplications from which on OpenBLAS uses threads of its own, which would stand in the way of ours.
_MOST_PRODUCTS = 1 << 18
# Bytes up to which an image is converted to float32 as a whole, and up to which a thread keeps memory for the next one:
# fresh pages cost as much as the arithmetic.
_MOST_SCRATCH_BYTES = 1 << 22


class _Bands(NamedTuple):
    """A matrix without most of its zeros: `matrices[i]` is for `extent` source pixels from `firsts[i]` on."""

    firsts: list[int]
    extent: int
    matrices: Array


def linearly_resized(
    image: Array,
    size: tuple[int, int],
    rows: tuple[float, float],
    columns: tuple[float, float],
    stretched: tuple[bool, bool],
) -> Array:
    """(H, W, C) uint8 → (*size, C) uint8: rows and columns [start, end) of the image, by the triangle filter.

    `stretched` says for rows and for columns whether the filter is stretched where the image shrinks. Within 1 of
    `resampling.resample`, and equal to it for all but some hundredths of the pixels.
    """
    height, width, channels = image.shape
    down = _row_bands(size[0], *rows, height, stretched[0])
    across = _column_bands(size[1], *columns, width, stretched[1], channels)
    left, right = across.firsts[0], max(across.firsts) + across.extent
    tall = _rows_resized(image[:, left:right].reshape(height, -1), down)
    np.rint(tall, out=tall)
    count = across.matrices.shape[2]
    made = _scratch("made", (len(tall), len(across.firsts) * count))
    taken = across.extent * channels
    step = max(1, _MOST_PRODUCTS // (taken * count))
    for top in range(0, len(tall), step):
        some, out = tall[top : top + step], made[top : top + step]
        for index, first in enumerate(across.firsts):
            at = (first - left) * channels
            np.matmul(some[:, at : at + taken], across.matrices[index], out=out[:, index * count : (index + 1) * count])
    made += np.float32(0.5)
    return made[: size[0], : size[1] * channels].astype(np.uint8).reshape(*size, channels)


def _rows_resized(pixels: Array, bands: _Bands) -> Array:
    """(H, n) uint8 → (h, n) float32, in eighths."""
    count = bands.matrices.shape[1]
    made = _scratch("tall", (len(bands.firsts) * count, pixels.shape[1]))
    step = max(1, _MOST_PRODUCTS // (count * bands.extent))
    whole = None
    if 4 * pixels.size <= _MOST_SCRATCH_BYTES:
        whole = _scratch("whole", pixels.shape)
        np.copyto(whole, pixels)
    for index, first in enumerate(bands.firsts):
        if whole is not None:
            part = whole[first : first + bands.extent]
        else:
            part = pixels[first : first + bands.extent].astype(np.float32)
        out = made[index * count : (index + 1) * count]
        for start in range(0, pixels.shape[1], step):
            np.matmul(bands.matrices[index], part[:, start : start + step], out=out[:, start : start + step])
    return made


class _Kept(threading.local):
    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}

    def fingerprint_config(self) -> dict[str, Any]:
        """Nothing, whatever is kept: it decides no result, so a cache is not stale because something was resized."""
        return {}


_kept = _Kept()


def _scratch(name: str, shape: tuple[int, ...]) -> Array:
    """A float32 array of this thread, with whatever was in it; it is the next caller's, too."""
    size = math.prod(shape)
    if 4 * size > _MOST_SCRATCH_BYTES:
        return np.empty(shape, np.float32)
    found = _kept.arrays.get(name)
    if found is None or len(found) < size:
        found = _kept.arrays[name] = np.empty(size, np.float32)
    return found[:size].reshape(shape)


@functools.lru_cache(maxsize=16)
def _row_bands(size: int, start: float, end: float, length: int, stretched: bool) -> _Bands:
    bands = _bands(size, start, end, length, stretched, bits=_ROW_BITS, at_once=_ROWS_AT_ONCE)
    return bands._replace(matrices=bands.matrices * np.float32(2.0 ** (_EIGHTHS - _ROW_BITS)))


@functools.lru_cache(maxsize=16)
def _column_bands(size: int, start: float, end: float, length: int, stretched: bool, channels: int) -> _Bands:
    """Matrices (source pixels and channels, pixels and channels)."""
    at_once = max(1, _COLUMNS_AT_ONCE // channels)
    bands = _bands(size, start, end, length, stretched, bits=_COLUMN_BITS, at_once=at_once)
    wide = np.zeros((len(bands.firsts), bands.extent, channels, at_once, channels), np.float32)
    scaled = bands.matrices.transpose(0, 2, 1) * np.float32(2.0 ** -(_COLUMN_BITS + _EIGHTHS))
    for channel in range(channels):
        wide[:, :, channel, :, channel] = scaled
    return bands._replace(matrices=wide.reshape(len(bands.firsts), bands.extent * channels, at_once * channels))


def _bands(size: int, start: float, end: float, length: int, stretched: bool, *, bits: int, at_once: int) -> _Bands:
    """Integers that sum to 2^bits for each of `size` pixels, `at_once` of them in a matrix."""
    scale = (end - start) / size
    reach = max(scale, 1.0) if stretched else 1.0
    centres = start + (np.arange(size) + 0.5) * scale - 0.5
    taps = np.floor(centres - reach)[:, None] + np.arange(math.ceil(2 * reach) + 2)
    values = np.maximum(0.0, 1.0 - np.abs(taps - centres[:, None]) / reach)
    values /= values.sum(axis=1, keepdims=True)
    whole = np.rint(values * (1 << bits))
    whole[np.arange(size), values.argmax(axis=1)] += (1 << bits) - whole.sum(axis=1)
    # Filled up with pixels of no weight to whole matrices.
    rows = np.minimum(np.arange(math.ceil(size / at_once) * at_once), size - 1)
    places = np.clip(taps, 0, length - 1).astype(np.int64)[rows].reshape(-1, at_once * taps.shape[1])
    whole = np.where((np.arange(len(rows)) < size)[:, None], whole[rows], 0.0)
    firsts = places.min(axis=1)
    extent = int((places.max(axis=1) - firsts).max()) + 1
    firsts = np.minimum(firsts, length - extent)
    made = np.zeros((len(rows), extent))
    within = (places - firsts[:, None]).reshape(len(rows), -1)
    np.add.at(made, (np.arange(len(rows))[:, None], within), whole)
    return _Bands(firsts.tolist(), extent, made.astype(np.float32).reshape(-1, at_once, extent))
