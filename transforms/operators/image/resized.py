"""Resizing one image on the host: linearly in exact products, by Pillow for its filters, by gathering or matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from beam_pipes.extras import require
from beam_pipes.graph.types import DALIInterpType
from beam_pipes.transforms.operators.generic.conversion import saturated
from beam_pipes.transforms.operators.image.exact_linear import linearly_resized
from beam_pipes.transforms.operators.image.resampling import always_stretched, nearest_places, resample, weights
from beam_pipes.transforms.operators.image.target_size import Target

Array = np.ndarray[Any, Any]

_PILLOW_FILTERS = {
    DALIInterpType.INTERP_LINEAR: "BILINEAR",
    DALIInterpType.INTERP_TRIANGULAR: "BILINEAR",
    DALIInterpType.INTERP_CUBIC: "BICUBIC",
    DALIInterpType.INTERP_LANCZOS3: "LANCZOS",
}

_LINEAR = {DALIInterpType.INTERP_LINEAR, DALIInterpType.INTERP_TRIANGULAR}
# With more of them the matrices of `exact_linear` hold mostly zeros.
_MOST_CHANNELS = 4
_REACH = {"BILINEAR": 1.0, "BICUBIC": 2.0, "LANCZOS": 3.0}


def resized(
    image: Array,
    target: Target,
    *,
    min_filter: DALIInterpType,
    mag_filter: DALIInterpType,
    antialias: bool,
    dtype: np.dtype[Any],
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
        places = nearest_places(target.height, *rows, height), nearest_places(target.width, *columns, width)
        made = saturated(np, image[places[0][:, None], places[1][None, :]], dtype)
    elif image.dtype == np.uint8 == dtype and set(filters) <= _LINEAR and image.shape[2] <= _MOST_CHANNELS:
        made = linearly_resized(image, (target.height, target.width), rows, columns, stretched)
    elif _is_for_pillow(image, filters, scales, antialias, rows, columns):
        # Pillow rounds, and clips what overshoots, between rows and columns: not so in floats.
        planes = [image[:, :, channel].astype(np.float32) for channel in range(image.shape[2])]
        name = _PILLOW_FILTERS[filters[0]]
        made = saturated(np, np.stack([_by_pillow(one, target, rows, columns, name) for one in planes], axis=2), dtype)
    else:
        made = saturated(
            np,
            resample(
                image,
                weights(target.height, *rows, height, filters[0], stretched[0]),
                weights(target.width, *columns, width, filters[1], stretched[1]),
            ),
            dtype,
        )
    mirrored: Array = made[:: -1 if flips[0] else 1, :: -1 if flips[1] else 1]
    return mirrored


# Pixels: a region that reaches farther beyond the image is left to matrices.
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
    # Pillow leaves out what a filter takes from beyond the edge; pixels repeated there make it take those.
    margins = [
        math.ceil(reach * max((span[1] - span[0]) / size, 1.0) + max(-span[0], span[1] - length, 0.0))
        for span, size, length in zip((rows, columns), (target.height, target.width), plane.shape, strict=True)
    ]
    whole = np.pad(plane, [(margin, margin) for margin in margins], mode="edge")
    box = (columns[0] + margins[1], rows[0] + margins[0], columns[1] + margins[1], rows[1] + margins[0])
    given = pillow.frombuffer("F", (whole.shape[1], whole.shape[0]), whole, "raw", "F;32F", 0, 1)
    return np.asarray(given.resize((target.width, target.height), getattr(pillow.Resampling, name), box=box))
