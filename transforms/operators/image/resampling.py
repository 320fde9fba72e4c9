"""Resampling along an axis as a matrix: which source pixels make a pixel, with which weights.

Pixel i covers [i, i + 1), its centre is i + 0.5. A filter is stretched by the scale where the image shrinks and
antialiasing is wanted. Source pixels beyond the edge are taken to be those at the edge.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from beam_pipes.graph.types import DALIInterpType

Array = np.ndarray[Any, Any]


def _triangle(xp: Any, x: Any) -> Any:
    return xp.clip(1.0 - xp.abs(x), 0.0, 1.0)


def _cubic(xp: Any, x: Any) -> Any:
    """Catmull and Rom's spline (Keys, 1981, with a = -0.5)."""
    x = xp.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return xp.where(x < 1, near, xp.where(x < 2, far, xp.zeros_like(x)))


def _sinc(xp: Any, x: Any) -> Any:
    turns = np.pi * xp.where(x == 0, xp.full_like(x, 1e-20), x)
    return xp.sin(turns) / turns


def _lanczos3(xp: Any, x: Any) -> Any:
    return xp.where(xp.abs(x) < 3, _sinc(xp, x) * _sinc(xp, x / 3), xp.zeros_like(x))


def _gaussian(xp: Any, x: Any) -> Any:
    """A bell of deviation 1 / (2 √2), cut off where a triangle filter ends."""
    return xp.where(xp.abs(x) < 1, xp.exp(-4.0 * x * x), xp.zeros_like(x))


#: Interpolation → filter, a function of namespace and distances, and how far it reaches.
FILTERS: Final[dict[DALIInterpType, tuple[Callable[[Any, Any], Any], float]]] = {
    DALIInterpType.INTERP_LINEAR: (_triangle, 1.0),
    DALIInterpType.INTERP_TRIANGULAR: (_triangle, 1.0),
    DALIInterpType.INTERP_CUBIC: (_cubic, 2.0),
    DALIInterpType.INTERP_LANCZOS3: (_lanczos3, 3.0),
    DALIInterpType.INTERP_GAUSSIAN: (_gaussian, 1.0),
}


def always_stretched(interpolation: DALIInterpType) -> bool:
    """Whether a filter is stretched where the image shrinks, even without antialiasing."""
    return interpolation in (DALIInterpType.INTERP_TRIANGULAR, DALIInterpType.INTERP_GAUSSIAN)


@functools.lru_cache(maxsize=256)
def nearest_places(size: int, start: float, end: float, length: int) -> Array:
    """(size,) int64: the source pixel of each pixel, where [start, end) of `length` pixels becomes `size` pixels."""
    places = np.floor(start + (np.arange(size) + 0.5) * ((end - start) / size)).astype(np.int64)
    held: Array = np.clip(places, 0, length - 1)
    return held


@functools.lru_cache(maxsize=256)
def weights(size: int, start: float, end: float, length: int, interpolation: DALIInterpType, stretched: bool) -> Array:
    """(size, length) float32: `weights @ column` resamples [start, end) of `length` pixels to `size` pixels."""
    if interpolation == DALIInterpType.INTERP_NN:
        made = np.zeros((size, length), np.float32)
        made[np.arange(size), nearest_places(size, start, end, length)] = 1.0
        return made
    function, reach = FILTERS[interpolation]
    scale = (end - start) / size
    width = max(abs(scale), 1.0) if stretched else 1.0
    centres = start + (np.arange(size) + 0.5) * scale - 0.5
    count = int(np.ceil(2 * reach * width)) + 1
    taps = np.floor(centres - reach * width)[:, None] + np.arange(count + 1)[None, :]
    values = function(np, (taps - centres[:, None]) / width)
    values /= values.sum(axis=1, keepdims=True)
    made64 = np.zeros((size, length))
    np.add.at(made64, (np.arange(size)[:, None], np.clip(taps, 0, length - 1).astype(np.int64)), values)
    return made64.astype(np.float32)


def resample(image: Array, rows: Array, columns: Array) -> Array:
    """(H, W, C) → (h, w, C) float32: by a matrix for rows and one for columns; the reference for all other ways."""
    wide = np.einsum("hH,HWC->hWC", rows, image.astype(np.float32), optimize=True)
    made: Array = np.einsum("wW,hWC->hwC", columns, wide, optimize=True)
    return made
