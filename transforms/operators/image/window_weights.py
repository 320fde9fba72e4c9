"""Resampling a window of its own in each image of a batch: matrices made on the device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from beam_pipes.graph.types import DALIInterpType
from beam_pipes.transforms.operators.generic.conversion import cast_to, placed_like
from beam_pipes.transforms.operators.image.resampling import FILTERS, always_stretched

_SINGLE = np.dtype("float32")


def resampled_windows(
    xp: Any,
    values: Any,
    axis: int,
    *,
    starts: Any,
    extents: Any,
    nearest: Any,
    size: int,
    min_filter: DALIInterpType,
    mag_filter: DALIInterpType,
    antialias: bool,
) -> Any:
    """(n, …, length, …) float32 → (n, …, size, …): of image i the pixels from `starts[i]`, `extents[i]` of them.

    `nearest` (n, size) says which pixel is the nearest one, for filters that are INTERP_NN; it may be None elsewhere.
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
    xp: Any,
    interpolation: DALIInterpType,
    starts: Any,
    scales: Any,
    nearest: Any,
    size: int,
    length: int,
    antialias: bool,
    like: Any,
) -> Any:
    """(n, size, length) float32."""
    if interpolation == DALIInterpType.INTERP_NN:
        pixels = placed_like(xp, np.arange(length, dtype=np.int32).reshape(1, 1, -1), like)
        return cast_to(xp, xp.expand_dims(nearest, axis=-1) == pixels, _SINGLE)
    function, reach = FILTERS[interpolation]
    stretched = antialias or always_stretched(interpolation)
    margin = math.ceil(reach * (max(length / size, 1.0) if stretched else 1.0)) + 1
    # Distances from where the window starts: small numbers, so that float32 holds their fractions.
    pixels = placed_like(xp, np.arange(-margin, length + margin, dtype=np.int32).reshape(1, 1, -1), like)
    middles = placed_like(xp, (np.arange(size, dtype=np.float32) + np.float32(0.5)).reshape(1, -1, 1), like)
    scale = xp.reshape(scales, (-1, 1, 1))
    away = cast_to(xp, pixels - xp.reshape(starts, (-1, 1, 1)), _SINGLE) - (middles * scale - 0.5)
    values = function(xp, away / xp.clip(scale, 1.0, float(max(length, 1)))) if stretched else function(xp, away)
    values = values / xp.sum(values, axis=-1, keepdims=True)
    # What a filter takes from beyond the image is the pixel at its edge.
    first = xp.sum(values[..., : margin + 1], axis=-1, keepdims=True)
    last = xp.sum(values[..., -margin - 1 :], axis=-1, keepdims=True)
    if length == 1:
        return xp.ones_like(first)
    return xp.concat([first, values[..., margin + 1 : -margin - 1], last], axis=-1)
