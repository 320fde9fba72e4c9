"""The size and region of an image, from the arguments of `fn.resize`.

Resampling along an axis as a matrix: the source pixels of each pixel, and their weights.

Pixel i covers [i, i + 1), its centre is i + 0.5. A filter is stretched by the scale if the image shrinks and
antialiasing is on. Beyond the edge, the edge pixels repeat.

Resampling a different window in each image of a batch: matrices computed on the device.

Resizing one image on the host: linearly in exact products, by Pillow for its filters, by gathering or matrices.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from beam_pipes.extras import require
from beam_pipes.graph.tensors import Array, Namespace, Row, Value
from beam_pipes.graph.types import DALIInterpType
from beam_pipes.transforms.operators.arrays import cast_to, placed_like, saturated
from beam_pipes.transforms.operators.image.exact_linear import linearly_resized

MODES: Final = ("default", "stretch", "not_larger", "not_smaller")


@dataclasses.dataclass(frozen=True)
class Target:
    """A size in pixels, and (start, end) of the source along height and width; start > end is mirrored."""

    height: int
    width: int
    rows: tuple[float, float]
    columns: tuple[float, float]


def rounded(value: float) -> int:
    """Rounds to the nearest integer, halves up, and to at least one."""
    return max(1, math.floor(value + 0.5))


def wanted_size(extents: Sequence[float], given: Sequence[float], mode: str, max_size: Sequence[float]) -> list[float]:
    """The requested (height, width) of a region of `extents`, in fractions of pixels; zeros in `given` are open.

    `wanted_size((720, 1280), (480, 640), "not_larger", ())` → `[360, 640]`
    """
    if not any(given):
        return list(extents)
    if mode == "stretch" or (mode == "default" and all(given)):
        size = [abs(want) if want else float(have) for want, have in zip(given, extents, strict=True)]
    else:
        # In float32, as in DALI: the fractions decide which pixel of a mask is the nearest one.
        scales = [
            np.float32(abs(want)) / np.float32(have) if want else None
            for want, have in zip(given, extents, strict=True)
        ]
        choose = min if mode == "not_larger" else max
        scale = choose(one for one in scales if one is not None)
        size = [
            abs(want) if own == scale else float(np.float32(have) * scale)
            for want, have, own in zip(given, extents, scales, strict=True)
        ]
    if len(max_size):
        limits = list(max_size) * (len(size) if len(max_size) == 1 else 1)
        if mode in ("not_larger", "not_smaller"):
            factor = min(1.0, *(limit / have for limit, have in zip(limits, size, strict=True) if limit > 0))
            size = [have * factor for have in size]
        else:
            size = [min(have, limit) if limit > 0 else have for have, limit in zip(size, limits, strict=True)]
    return size


def target_of(
    extents: Sequence[int],
    *,
    size: Row | None = None,
    resize_x: float = 0.0,
    resize_y: float = 0.0,
    resize_shorter: float = 0.0,
    resize_longer: float = 0.0,
    mode: str = "default",
    max_size: Sequence[float] = (),
    roi_start: Row | None = None,
    roi_end: Row | None = None,
    roi_relative: bool = False,
    subpixel_scale: bool = True,
) -> Target:
    """The target of an image of (height, width) `extents`. Raises `ValueError` if no size is given."""
    start, end = [0.0, 0.0], [float(extent) for extent in extents]
    if roi_start is not None and roi_end is not None:
        factors = extents if roi_relative else (1, 1)
        start = [float(value) * factor for value, factor in zip(roi_start, factors, strict=True)]
        end = [float(value) * factor for value, factor in zip(roi_end, factors, strict=True)]
    region = [abs(stop - begin) for begin, stop in zip(start, end, strict=True)]
    if not all(region):
        raise ValueError(f"the region {start} to {end} of the image is empty")
    if resize_shorter or resize_longer:
        given = [resize_shorter or resize_longer] * 2
        mode = "not_smaller" if resize_shorter else "not_larger"
    elif size is not None:
        given = [float(value) for value in size]
        given = given * 2 if len(given) == 1 else given
        if len(given) != 2:
            raise ValueError(f"size should be one number, or height and width, got {list(size)}")
    else:
        given = [resize_y, resize_x]
    if not any(given):
        raise ValueError("give size, resize_x, resize_y, resize_shorter or resize_longer: there is none above 0")
    wanted = wanted_size(region, given, mode, max_size)
    pixels = [rounded(value) for value in wanted]
    spans = []
    for axis in range(2):
        begin, stop = start[axis], end[axis]
        if subpixel_scale and pixels[axis] != wanted[axis]:
            # The scale is that of the fractional size: the region grows or shrinks about its centre.
            centre, half = (begin + stop) / 2, (stop - begin) / 2 * pixels[axis] / wanted[axis]
            begin, stop = centre - half, centre + half
        if given[axis] < 0:
            begin, stop = stop, begin
        spans.append((begin, stop))
    return Target(pixels[0], pixels[1], spans[0], spans[1])


def _triangle(xp: Namespace, x: Value) -> Value:
    return xp.clip(1.0 - xp.abs(x), 0.0, 1.0)


def _cubic(xp: Namespace, x: Value) -> Value:
    """Catmull and Rom's spline (Keys, 1981, with a = -0.5)."""
    x = xp.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return xp.where(x < 1, near, xp.where(x < 2, far, xp.zeros_like(x)))


def _sinc(xp: Namespace, x: Value) -> Value:
    turns = np.pi * xp.where(x == 0, xp.full_like(x, 1e-20), x)
    return xp.sin(turns) / turns


def _lanczos3(xp: Namespace, x: Value) -> Value:
    return xp.where(xp.abs(x) < 3, _sinc(xp, x) * _sinc(xp, x / 3), xp.zeros_like(x))


def _gaussian(xp: Namespace, x: Value) -> Value:
    """A bell of deviation 1 / (2 √2), cut off where a triangle filter ends."""
    return xp.where(xp.abs(x) < 1, xp.exp(-4.0 * x * x), xp.zeros_like(x))


#: Interpolation → filter, a function of namespace and distances, and its radius.
FILTERS: Final[dict[DALIInterpType, tuple[Callable[[Any, Any], Any], float]]] = {
    DALIInterpType.INTERP_LINEAR: (_triangle, 1.0),
    DALIInterpType.INTERP_TRIANGULAR: (_triangle, 1.0),
    DALIInterpType.INTERP_CUBIC: (_cubic, 2.0),
    DALIInterpType.INTERP_LANCZOS3: (_lanczos3, 3.0),
    DALIInterpType.INTERP_GAUSSIAN: (_gaussian, 1.0),
}


def always_stretched(interpolation: DALIInterpType) -> bool:
    """Whether a filter is stretched if the image shrinks, even without antialiasing."""
    return interpolation in (DALIInterpType.INTERP_TRIANGULAR, DALIInterpType.INTERP_GAUSSIAN)


@functools.lru_cache(maxsize=256)
@functools.lru_cache(maxsize=256)
def nearest_places(size: int, start: float, end: float, length: int, *, is_rows: bool) -> Array:
    """(size,) int64: the source pixel of each pixel, where [start, end) of `length` pixels becomes `size` pixels.

    Where a place is exactly between two pixels, its rounding decides, and a mask would get another class: places are
    float32 as in DALI, which adds up those of rows and multiplies those of columns.
    """
    scale = (np.float32(end) - np.float32(start)) / np.float32(size)
    places = (np.arange(size, dtype=np.float32) + np.float32(0.5)) * scale + np.float32(start)
    if is_rows:
        steps = np.full(size, scale, np.float32)
        steps[:1] = np.float32(0.5) * scale + np.float32(start)
        places = np.add.accumulate(steps)
    held: Array = np.clip(np.floor(places).astype(np.int64), 0, length - 1)
    held.flags.writeable = False  # it is shared
    return held


@functools.lru_cache(maxsize=256)
def weights(
    size: int,
    start: float,
    end: float,
    length: int,
    interpolation: DALIInterpType,
    stretched: bool,
    *,
    is_rows: bool = True,
) -> Array:
    """(size, length) float32: `weights @ column` resamples [start, end) of `length` pixels to `size` pixels.

    From the end to the start if that is less: mirrored.
    """
    if start > end and interpolation != DALIInterpType.INTERP_NN:
        return np.ascontiguousarray(weights(size, end, start, length, interpolation, stretched, is_rows=is_rows)[::-1])
    if interpolation == DALIInterpType.INTERP_NN:
        made = np.zeros((size, length), np.float32)
        made[np.arange(size), nearest_places(size, start, end, length, is_rows=is_rows)] = 1.0
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


_SINGLE = np.dtype("float32")


def resampled_windows(
    xp: Namespace,
    values: Value,
    axis: int,
    *,
    starts: Value,
    extents: Value,
    nearest: Value | None,
    size: int,
    min_filter: DALIInterpType,
    mag_filter: DALIInterpType,
    antialias: bool,
) -> Value:
    """(n, …, length, …) float32 → (n, …, size, …): of image i the pixels from `starts[i]`, `extents[i]` of them.

    `nearest` (n, size) is the nearest pixel, for INTERP_NN; it may be None for other filters.
    The weights are those of `resampling.weights`, in float32.
    """
    length = values.shape[axis]
    scales = cast_to(xp, extents, _SINGLE) / size
    smaller, larger = (
        _weights(xp, one, starts, scales, nearest, size, length, antialias, values) for one in (min_filter, mag_filter)
    )
    matrices = smaller if min_filter == mag_filter else xp.where(xp.reshape(scales > 1, (-1, 1, 1)), smaller, larger)
    moved = xp.moveaxis(values, axis, 1)
    rest = tuple(moved.shape[2:])
    made = xp.matmul(matrices, xp.reshape(moved, (moved.shape[0], length, -1)))
    return xp.moveaxis(xp.reshape(made, (moved.shape[0], size, *rest)), 1, axis)


def _weights(
    xp: Namespace,
    interpolation: DALIInterpType,
    starts: Value,
    scales: Value,
    nearest: Value | None,
    size: int,
    length: int,
    antialias: bool,
    like: Value,
) -> Value:
    """(n, size, length) float32."""
    if interpolation == DALIInterpType.INTERP_NN:
        pixels = placed_like(xp, np.arange(length, dtype=np.int32).reshape(1, 1, -1), like)
        return cast_to(xp, xp.expand_dims(nearest, axis=-1) == pixels, _SINGLE)
    function, reach = FILTERS[interpolation]
    stretched = antialias or always_stretched(interpolation)
    margin = math.ceil(reach * (max(length / size, 1.0) if stretched else 1.0)) + 1
    # Distances from the start of the window: small numbers, so that float32 holds their fractions.
    pixels = placed_like(xp, np.arange(-margin, length + margin, dtype=np.int32).reshape(1, 1, -1), like)
    middles = placed_like(xp, (np.arange(size, dtype=np.float32) + np.float32(0.5)).reshape(1, -1, 1), like)
    scale = xp.reshape(scales, (-1, 1, 1))
    away = cast_to(xp, pixels - xp.reshape(starts, (-1, 1, 1)), _SINGLE) - (middles * scale - 0.5)
    values = function(xp, away / xp.clip(scale, 1.0, float(max(length, 1)))) if stretched else function(xp, away)
    values = values / xp.sum(values, axis=-1, keepdims=True)
    # Beyond the image a filter takes the pixel at its edge.
    first = xp.sum(values[..., : margin + 1], axis=-1, keepdims=True)
    last = xp.sum(values[..., -margin - 1 :], axis=-1, keepdims=True)
    if length == 1:
        return xp.ones_like(first)
    return xp.concat([first, values[..., margin + 1 : -margin - 1], last], axis=-1)


_PILLOW_FILTERS = {
    DALIInterpType.INTERP_LINEAR: "BILINEAR",
    DALIInterpType.INTERP_TRIANGULAR: "BILINEAR",
    DALIInterpType.INTERP_CUBIC: "BICUBIC",
    DALIInterpType.INTERP_LANCZOS3: "LANCZOS",
}

_LINEAR = {DALIInterpType.INTERP_LINEAR, DALIInterpType.INTERP_TRIANGULAR}
# Beyond this the matrices of `exact_linear` hold mostly zeros.
_MOST_CHANNELS = 4
_REACH = {"BILINEAR": 1.0, "BICUBIC": 2.0, "LANCZOS": 3.0}


def resized(
    image: Array,
    target: Target,
    *,
    min_filter: DALIInterpType,
    mag_filter: DALIInterpType,
    antialias: bool,
    dtype: np.dtype,
) -> Array:
    """(H, W, C) → (target.height, target.width, C) as `dtype`. Within 1 of `resample` for integers."""
    flips = [start > end for start, end in (target.rows, target.columns)]
    rows = (min(target.rows), max(target.rows))
    columns = (min(target.columns), max(target.columns))
    scales = ((rows[1] - rows[0]) / target.height, (columns[1] - columns[0]) / target.width)
    filters = tuple(min_filter if scale > 1 else mag_filter for scale in scales)
    stretched = (
        scales[0] > 1 and (antialias or always_stretched(filters[0])),
        scales[1] > 1 and (antialias or always_stretched(filters[1])),
    )
    height, width = image.shape[:2]
    if image.size == 0:
        raise ValueError(f"an image of shape {image.shape} has no pixels to be resized")
    if filters == (DALIInterpType.INTERP_NN,) * 2:
        places = (
            nearest_places(target.height, *target.rows, height, is_rows=True),
            nearest_places(target.width, *target.columns, width, is_rows=False),
        )
        return np.asarray(saturated(np, image[places[0][:, None], places[1][None, :]], dtype))
    if image.dtype == np.uint8 == dtype and set(filters) <= _LINEAR and image.shape[2] <= _MOST_CHANNELS:
        made = linearly_resized(image, (target.height, target.width), rows, columns, stretched)
    elif _is_for_pillow(image, filters, scales, antialias, rows, columns):
        # Between rows and columns Pillow rounds and clips overshoot, but not in floats.
        planes = [image[:, :, channel].astype(np.float32) for channel in range(image.shape[2])]
        name = _PILLOW_FILTERS[filters[0]]
        made = saturated(np, np.stack([_by_pillow(one, target, rows, columns, name) for one in planes], axis=2), dtype)
    else:
        made = saturated(
            np,
            resample(
                image,
                weights(target.height, *rows, height, filters[0], stretched[0]),
                weights(target.width, *columns, width, filters[1], stretched[1], is_rows=False),
            ),
            dtype,
        )
    mirrored: Array = made[:: -1 if flips[0] else 1, :: -1 if flips[1] else 1]
    return mirrored


# Pixels: regions that reach farther beyond the image are left to matrices.
_MOST_BEYOND = 64


def _is_for_pillow(
    image: Array,
    filters: tuple[DALIInterpType, ...],
    scales: tuple[float, float],
    antialias: bool,
    rows: tuple[float, ...],
    columns: tuple[float, ...],
) -> bool:
    near = rows[0] > -_MOST_BEYOND and columns[0] > -_MOST_BEYOND
    near = near and rows[1] < image.shape[0] + _MOST_BEYOND and columns[1] < image.shape[1] + _MOST_BEYOND
    return (image.dtype.itemsize <= 2 or image.dtype == np.float32) and (
        filters[0] == filters[1]
        and filters[0] in _PILLOW_FILTERS
        and (antialias or max(scales) <= 1 or always_stretched(filters[0]))
        and near
    )


def _by_pillow(plane: Array, target: Target, rows: tuple[float, ...], columns: tuple[float, ...], name: str) -> Array:
    """(H, W) float32 → (target.height, target.width) float32."""
    pillow = require("PIL.Image", purpose="fn.resize")
    reach = _REACH[name]
    # Pillow ignores the part of a filter beyond the edge, so edge pixels are repeated there.
    margins = [
        math.ceil(reach * max((span[1] - span[0]) / size, 1.0) + max(-span[0], span[1] - length, 0.0))
        for span, size, length in zip((rows, columns), (target.height, target.width), plane.shape, strict=True)
    ]
    whole = np.pad(plane, [(margin, margin) for margin in margins], mode="edge")
    box = (columns[0] + margins[1], rows[0] + margins[0], columns[1] + margins[1], rows[1] + margins[0])
    given = pillow.frombuffer("F", (whole.shape[1], whole.shape[0]), whole, "raw", "F;32F", 0, 1)
    return np.asarray(given.resize((target.width, target.height), getattr(pillow.Resampling, name), box=box))
