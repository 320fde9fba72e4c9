"""Linear resampling of uint8 images in products of small matrices of float32 that hold integers: exact on any machine.

Weights along rows are multiples of 2^-16, what comes out of that pass is rounded to eighths, and weights along columns
are multiples of 2^-13. So every sum is an integer below 2^24 times a power of two: float32 holds it, and neither the
order of additions nor the processor changes a bit. Intermediate rounding costs at most 1/16, where Pillow's costs 1/2.

Windows of the source that follow each other at one distance, `Bands`, make as many pixels each, so that one NumPy call
multiplies them all and threads do not contend for the interpreter lock.
"""

from __future__ import annotations

import functools
import math
import threading
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from beam_pipes.graph.tensors import Array
from beam_pipes.transforms.operators.arrays import opencv

_ROW_BITS, _EIGHTHS, _COLUMN_BITS = 16, 3, 13
# Pixels that one product makes, of which that number is taken which suits the scale: with fewer, calls cost more, with
# more, zeros do.
_ROWS_AT_ONCE, _COLUMNS_AT_ONCE = range(4, 9), range(12, 21)
# Multiplications from which on OpenBLAS uses threads of its own, which would stand in the way of ours.
_MOST_PRODUCTS = 1 << 18
# Bytes of an image that are converted to float32 at once, and up to which a thread keeps memory for the next one: fresh
# pages cost as much as the arithmetic.
_MOST_SCRATCH_BYTES = 1 << 22


class _Bands(NamedTuple):
    """A matrix without most of its zeros: `matrices[i]` is for `extent` source pixels from `first + i * stride` on.

    The first and the last pixels may lie beyond the image; their weights are zero.
    """

    first: int
    stride: int
    matrices: Array

    @property
    def length(self) -> int:
        """Source pixels of all bands."""
        return (len(self.matrices) - 1) * self.stride + int(self.matrices.shape[2])


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
    down = _bands(size[0], *rows, height, stretched[0], _ROW_BITS, _ROW_BITS - _EIGHTHS, _ROWS_AT_ONCE)
    across = _bands(size[1], *columns, width, stretched[1], _COLUMN_BITS, _COLUMN_BITS + _EIGHTHS, _COLUMNS_AT_ONCE)
    tall = _rows_resized(image, down, across.first, across.length)
    np.rint(tall, out=tall)
    count, extent = across.matrices.shape[1:]
    weights = np.ascontiguousarray(across.matrices.transpose(0, 2, 1))
    made = scratch("made", (channels, tall.shape[1], len(across.matrices), count))
    step = max(1, _MOST_PRODUCTS // (extent * count))
    for top in range(0, tall.shape[1], step):
        some = tall[:, top : top + step]
        windows = as_strided(
            some,
            (channels, len(across.matrices), some.shape[1], extent),
            (some.strides[0], 4 * across.stride, some.strides[1], 4),
            writeable=False,
        )
        np.matmul(windows, weights, out=made[:, top : top + step].transpose(0, 2, 1, 3))
    made += np.float32(0.5)
    whole = made.reshape(channels, tall.shape[1], -1)[:, : size[0], : size[1]]
    planes = scratch("planes", whole.shape, np.uint8)
    np.copyto(planes, whole, casting="unsafe")
    return of_planes(planes)


def _rows_resized(image: Array, down: _Bands, left: int, wide: int) -> Array:
    """(H, W, C) uint8 → (C, h, `wide`) float32 in eighths, of `wide` columns from `left` on."""
    height, width, channels = image.shape
    bands, count, extent = down.matrices.shape
    tall = scratch("tall", (channels, bands, count, wide))
    room = _MOST_SCRATCH_BYTES // (4 * channels * wide) - extent
    at_once = bands if room >= (bands - 1) * down.stride else max(1, room // max(1, down.stride) + 1)
    first_column, last_column = max(left, 0), min(left + wide, width)
    inside = slice(first_column - left, last_column - left)
    for begin in range(0, bands, at_once):
        end = min(begin + at_once, bands)
        top = down.first + begin * down.stride
        part = scratch("part", (channels, (end - begin - 1) * down.stride + extent, wide))
        first_row, last_row = max(top, 0), min(top + part.shape[1], height)
        # What lies beyond the image has no weight, and may be no infinity.
        part[:, : first_row - top], part[:, last_row - top :] = 0.0, 0.0
        part[:, :, : inside.start], part[:, :, inside.stop :] = 0.0, 0.0
        pixels = image[first_row:last_row, first_column:last_column]
        np.copyto(part[:, first_row - top : last_row - top, inside], as_planes(pixels))
        step = max(1, _MOST_PRODUCTS // (count * extent))
        for start in range(0, wide, step):
            some = part[:, :, start : start + step]
            windows = as_strided(
                some,
                (channels, end - begin, extent, some.shape[2]),
                (some.strides[0], down.stride * some.strides[1], some.strides[1], 4),
                writeable=False,
            )
            np.matmul(down.matrices[begin:end], windows, out=tall[:, begin:end, :, start : start + step])
    return tall.reshape(channels, bands * count, wide)


class _Kept(threading.local):
    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}

    def fingerprint_config(self) -> dict[str, object]:
        """Nothing: the kept tables do not affect results, so a cache does not become stale."""
        return {}


_kept = _Kept()


def scratch(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> Array:
    """An uninitialised array of this thread, shared with later callers that use the same `name`."""
    size = math.prod(shape)
    if size * np.dtype(dtype).itemsize > _MOST_SCRATCH_BYTES:
        return np.empty(shape, dtype)
    found = _kept.arrays.get(name)
    if found is None or len(found) < size:
        found = _kept.arrays[name] = np.empty(size, dtype)
    return np.reshape(found[:size], shape)


def as_planes(image: Array, *, mirrored: bool = False) -> Array:
    """(H, W, C) → (C, H, W), mirrored left and right on request: a view, or uint8 in reused memory."""
    cv2 = opencv()
    if cv2 is None or image.dtype != np.uint8 or image.shape[2] not in (2, 3, 4) or not image.size:
        view: Array = image[:, :: -1 if mirrored else 1].transpose(2, 0, 1)
        return view
    if mirrored:
        image = cv2.flip(image, 1, scratch("mirrored", image.shape, np.uint8))
    # A fifth of what a loop over every third byte takes.
    planes = scratch("split", (image.shape[2], *image.shape[:2]), np.uint8)
    cv2.split(image, list(planes))
    return planes


def of_planes(planes: Array) -> Array:
    """(C, H, W) uint8 → (H, W, C), an array of its own."""
    cv2 = opencv()
    if cv2 is None or len(planes) == 1:
        return np.array(planes.transpose(1, 2, 0), order="C")
    made: Array = cv2.merge(list(planes))
    return made


@functools.lru_cache(maxsize=16)
def _bands(
    size: int, start: float, end: float, length: int, stretched: bool, bits: int, shift: int, counts: range
) -> _Bands:
    """Integers that sum to 2^bits for each of `size` pixels, times 2^-shift; one of `counts` pixels in a matrix."""
    scale = (end - start) / size
    reach = max(scale, 1.0) if stretched else 1.0
    centres = start + (np.arange(size) + 0.5) * scale - 0.5
    taps = np.floor(centres - reach)[:, None] + np.arange(math.ceil(2 * reach) + 2)
    values = np.maximum(0.0, 1.0 - np.abs(taps - centres[:, None]) / reach)
    values /= values.sum(axis=1, keepdims=True)
    whole = np.rint(values * (1 << bits))
    pixels = np.arange(size)
    whole[pixels, values.argmax(axis=1)] += (1 << bits) - whole.sum(axis=1)
    # Bands are a whole number of source pixels apart: that number of pixels drifts least for which that is nearly so.
    least = max(counts.start, math.ceil(1 / scale))
    count = min(range(least, least + len(counts)), key=lambda one: abs(one * scale - round(one * scale)))
    stride = round(count * scale)
    places = np.clip(taps, 0, length - 1).astype(np.int64) - (pixels // count * stride)[:, None]
    first = int(places[:, 0].min())
    made = np.zeros((-(-size // count) * count, int(places[:, -1].max()) - first + 1), np.float32)
    if taps[0, 0] < 0 or taps[-1, -1] >= length:
        np.add.at(made, (pixels[:, None], places - first), whole)  # the pixel at the edge counts several times
    else:
        made[pixels[:, None], places - first] = whole
    made *= np.float32(2.0**-shift)
    return _Bands(first, stride, made.reshape(-1, count, made.shape[1]))
