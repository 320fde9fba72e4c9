"""Linear resampling of uint8 images in sparse products of float32 that hold integers: exact on any machine.

Weights along rows are multiples of 2^-16, the result of that pass is rounded to eighths, and weights along columns are
multiples of 2^-13. So every sum is an integer below 2^24 times a power of two: float32 holds it exactly, and neither
the order of additions nor the processor changes a bit. Intermediate rounding costs at most 1/16, where Pillow's costs
1/2.

Each pass is one product of SciPy: a few source lines, weighted and added, make a line. Its loop runs along whole lines
and without the interpreter lock. Rows and columns are swapped between the passes, so that both run along lines. A large
image is made a few rows at a time, in reused memory.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from beam_pipes.extras import require
from beam_pipes.graph.tensors import Array
from beam_pipes.transforms.operators.arrays import MOST_SCRATCH_BYTES, opencv, scratch

_ROW_BITS, _EIGHTHS, _COLUMN_BITS = 16, 3, 13


class _Weights(NamedTuple):
    """A sparse matrix: pixel i is the sum of `values[p] * source[places[p]]` for p from `ends[i]` to `ends[i + 1]`."""

    ends: Array
    places: Array
    values: Array

    def product(self, pixels: slice, first: int, lines: Array) -> Array:
        """(n, m) float32, the source from line `first` on → (len(pixels), m)."""
        ends = self.ends[pixels.start : pixels.stop + 1]
        inside = slice(ends[0], ends[-1])
        made = np.zeros((len(ends) - 1, lines.shape[1]), np.float32)
        _sparse_product()(
            len(made),
            len(lines),
            lines.shape[1],
            ends - ends[0],
            self.places[inside] - np.int32(first),
            self.values[inside],
            lines.ravel(),
            made.ravel(),
        )
        return made


def linearly_resized(
    image: Array,
    size: tuple[int, int],
    rows: tuple[float, float],
    columns: tuple[float, float],
    stretched: tuple[bool, bool],
) -> Array:
    """(H, W, C) uint8 → (*size, C) uint8: rows and columns [start, end) of the image, by the triangle filter.

    `stretched` says for rows and for columns whether the filter is stretched if the image shrinks. Within 1 of
    `resampling.resample`, and equal to it for all but some hundredths of the pixels.
    """
    height, width, channels = image.shape
    down = _weights(size[0], *rows, height, stretched[0], _ROW_BITS, _ROW_BITS - _EIGHTHS)
    across = _weights(size[1], *columns, width, stretched[1], _COLUMN_BITS, _COLUMN_BITS + _EIGHTHS)
    left, right = int(across.places[0]), int(across.places[-1]) + 1
    made = np.empty((*size, channels), np.uint8)
    # As many rows at once as keep them and their source lines within the limit, but at least one.
    most_lines, most_rows = (MOST_SCRATCH_BYTES // (4 * channels * extent) for extent in (right - left, size[1]))
    start = 0
    while start < size[0]:
        first = int(down.places[down.ends[start]])
        fit = int(np.searchsorted(down.places[down.ends[start + 1 :] - 1], first + most_lines))
        end = min(size[0], start + max(1, min(fit, most_rows)))
        last = int(down.places[down.ends[end] - 1]) + 1
        source = scratch("source", (last - first, (right - left) * channels))
        np.copyto(source.reshape(last - first, right - left, channels), image[first:last, left:right])
        tall = down.product(slice(start, end), first, source)
        np.rint(tall, out=tall)
        turned = scratch("turned", (right - left, end - start, channels))
        _turned(tall.reshape(end - start, right - left, channels), turned)
        wide = across.product(slice(0, size[1]), left, turned.reshape(right - left, -1))
        wide += np.float32(0.5)
        whole = scratch("whole", (size[1], end - start, channels), np.uint8)
        np.copyto(whole.reshape(wide.shape), wide, casting="unsafe")
        _turned(whole, made[start:end])
        start = end
    return made


def _turned(image: Array, made: Array) -> None:
    """(H, W, C) → (W, H, C), into `made`."""
    if (cv2 := opencv()) is None:
        made[...] = image.transpose(1, 0, 2)
    else:
        cv2.transpose(image, made)


def as_planes(image: Array, *, mirrored: bool = False) -> Array:
    """(H, W, C) → (C, H, W), mirrored left and right on request: a view, or uint8 in reused memory."""
    cv2 = opencv()
    if cv2 is None or image.dtype != np.uint8 or image.shape[2] not in (2, 3, 4) or not image.size:
        view: Array = image[:, :: -1 if mirrored else 1].transpose(2, 0, 1)
        return view
    if mirrored:
        image = cv2.flip(image, 1, scratch("mirrored", image.shape, np.uint8))
    # Takes a fifth of the time of a loop over every third byte.
    planes = scratch("split", (image.shape[2], *image.shape[:2]), np.uint8)
    cv2.split(image, list(planes))
    return planes


@functools.cache
def _sparse_product() -> Callable[[int, int, int, Array, Array, Array, Array, Array], None]:
    """SciPy's loop behind `csr_array @ dense`, or the operator if a version of SciPy keeps the loop elsewhere.

    The operator's checks and copies are unnecessary here, and cost a tenth of an image's time.
    """
    sparse = require("scipy.sparse", purpose="fn.resize")
    try:
        loop: Callable[[int, int, int, Array, Array, Array, Array, Array], None]
        loop = importlib.import_module("scipy.sparse._sparsetools").csr_matvecs
    except (ImportError, AttributeError):
        return functools.partial(sparse_product_by_operator, sparse)
    return loop


def sparse_product_by_operator(
    sparse: Any,
    rows: int,
    columns: int,
    width: int,
    ends: Array,
    places: Array,
    values: Array,
    lines: Array,
    made: Array,
) -> None:
    """Adds to `made` (rows, width) the product of a CSR matrix (rows, columns) and `lines` (columns, width), flat."""
    matrix = sparse.csr_array((values, places, ends), shape=(rows, columns))
    made += (matrix @ lines.reshape(columns, width)).ravel()


@functools.lru_cache(maxsize=16)
def _weights(size: int, start: float, end: float, length: int, stretched: bool, bits: int, shift: int) -> _Weights:
    """Integers that sum to 2^bits for each of `size` pixels, times 2^-shift; edge pixels repeat outside."""
    scale = (end - start) / size
    reach = max(scale, 1.0) if stretched else 1.0
    pixels = np.arange(size)
    centres = start + (pixels + 0.5) * scale - 0.5
    # (taps, size): NumPy's loops run along pixels, which outnumber taps.
    taps = np.floor(centres - reach) + np.arange(math.ceil(2 * reach) + 2)[:, None]
    values = np.maximum(0.0, 1.0 - np.abs(taps - centres) / reach)
    values /= values.sum(axis=0)
    most = values.argmax(axis=0)
    values = np.rint(values * (1 << bits))
    values[most, pixels] += (1 << bits) - values.sum(axis=0)
    count, taps, values = len(taps), taps.T.ravel(), values.T.ravel()
    used = np.flatnonzero(values)
    ends = np.searchsorted(used, count * np.arange(size + 1)).astype(np.int32)
    places = np.clip(taps.take(used), 0, length - 1).astype(np.int32)
    return _Weights(ends, places, (values.take(used) * 2.0**-shift).astype(np.float32))
