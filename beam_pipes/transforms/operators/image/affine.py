"""Affine maps of images: for each pixel of the output, its origin in the source.

A map is (2, 3): `(x, y) ↦ M (x, y, 1)`, of pixel corners: the centre of pixel (0, 0) is (0.5, 0.5). The spatial axes of
an image, height and width, are found by its layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from beam_pipes.extras import require
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Namespace, Value
from beam_pipes.graph.types import DALIInterpType
from beam_pipes.transforms.operators.arrays import cast_to, placed_like, saturated

INTERPOLATIONS = (DALIInterpType.INTERP_NN, DALIInterpType.INTERP_LINEAR)
_CV2_DTYPES = ("uint8", "int16", "uint16", "float32", "float64")


def inverse(matrix: Array) -> Array:
    """The inverse of a map (2, 3); raises `ValueError` if it is singular."""
    square = np.vstack([matrix, [0.0, 0.0, 1.0]])
    if abs(np.linalg.det(square)) < 1e-12:
        raise ValueError(f"the matrix {matrix.tolist()} has no inverse")
    inverted: Array = np.linalg.inv(square)[:2]
    return inverted


def rotation_canvas(height: int, width: int, degrees: float) -> tuple[int, int]:
    """(height, width) of the smallest canvas for a rotated image.

    Its parity is that of the side that is closer to its direction, so that the centre stays a centre.
    """
    angle = float(_radians(degrees))
    cosine, sine = abs(math.cos(angle)), abs(math.sin(angle))
    slack = 1e-2
    w = math.ceil(width * cosine + height * sine - slack)
    h = math.ceil(width * sine + height * cosine - slack)
    upright = sine <= cosine
    if w % 2 != (width if upright else height) % 2:
        w += 1
    if h % 2 != (height if upright else width) % 2:
        h += 1
    return h, w


def rotation_map(degrees: float, source: tuple[int, int], target: tuple[int, int]) -> Array:
    """The map that turns an image counter-clockwise about its middle; (height, width) of source and target."""
    cosine, sine = np.cos(_radians(degrees)), np.sin(_radians(degrees))
    middle_x, middle_y = np.float32(-target[1] / 2), np.float32(-target[0] / 2)
    to_x = cosine * middle_x - sine * middle_y + np.float32(source[1] / 2)
    to_y = sine * middle_x + cosine * middle_y + np.float32(source[0] / 2)
    return np.array([[cosine, -sine, to_x], [sine, cosine, to_y]], np.float64)


def _radians(degrees: float) -> np.float32:
    """In float32, like DALI's angles: the error affects canvases at 45 degrees, and positions at right angles."""
    made: np.float32 = np.float32(degrees) * np.float32(np.pi / 180)
    return made


#: Number of positions that DALI computes incrementally before it restarts.
_TILE = 256


def _nearest(image: Array, matrix: Array, size: tuple[int, int], fill_value: float | None, dtype: np.dtype) -> Array:
    """The nearest pixels, at positions accumulated in float32 along rows, as in DALI, so that positions between two
    pixels take the same one."""
    rows = np.arange(size[0], dtype=np.float32)[:, None] + np.float32(0.5)
    places = []
    for along, down, first in matrix.astype(np.float32):
        steps = np.full(size, along, np.float32)
        for begin in range(0, size[1], _TILE):
            steps[:, begin : begin + 1] = along * np.float32(begin + 0.5) + (down * rows + first)
            tile = steps[:, begin : begin + _TILE]
            np.cumsum(tile, axis=1, out=tile)
        places.append(np.floor(steps).astype(np.int64))
    x, y = places
    height, width = image.shape[:2]
    made: Array = saturated(np, image[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)], dtype)
    if fill_value is not None:
        made[(x < 0) | (x >= width) | (y < 0) | (y >= height)] = saturated(np, np.float64(fill_value), dtype)
    return made


def warped(
    image: Array,
    matrix: Array,
    size: tuple[int, int],
    *,
    interpolation: DALIInterpType,
    fill_value: float | None,
    dtype: np.dtype,
) -> Array:
    """(H, W, C) → (*size, C): OpenCV's `warpAffine` if it supports the dtype, else `sampled`."""
    height, width, channels = image.shape
    if not image.size:
        raise ValueError(f"an image of shape {image.shape} has no pixels")
    fits = dtype == image.dtype and image.dtype.name in _CV2_DTYPES and channels <= 4
    fits = fits and max(height, width, *size) < 1 << 15
    fill = None if fill_value is None else float(fill_value)
    if interpolation == DALIInterpType.INTERP_NN:
        # OpenCV rounds positions to 1/1024 of a pixel for the nearest one, and takes the neighbour on edges.
        return _nearest(image, matrix, size, fill, dtype)
    if not fits:
        return np.asarray(sampled(np, image[None], matrix[None], size, interpolation, fill, dtype)[0])
    cv2 = require("cv2", purpose="fn.warp_affine")
    shifted = matrix.copy()
    shifted[:, 2] += matrix[:, :2] @ (0.5, 0.5) - 0.5
    border = cv2.BORDER_REPLICATE if fill_value is None else cv2.BORDER_CONSTANT
    made = cv2.warpAffine(
        np.ascontiguousarray(image),
        shifted,
        (size[1], size[0]),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=border,
        borderValue=(0.0 if fill_value is None else fill_value,) * 4,
    )
    warped_image: Array = made.reshape(*size, channels)
    return warped_image


def sampled(
    xp: Namespace,
    images: Value,
    matrices: Value,
    size: tuple[int, int],
    interpolation: DALIInterpType,
    fill_value: float | None,
    dtype: np.dtype,
) -> Value:
    """(n, H, W, C), (n, 2, 3) → (n, *size, C): the reference for `warped`, used on devices.

    Pixels beyond the image are `fill_value`, or those at its edge if it is None.
    """
    n, height, width, channels = images.shape

    def constant(array: Array) -> Value:
        return placed_like(xp, array, images)

    precise = np.dtype("float64") if xp is np else np.dtype("float32")
    matrices = cast_to(xp, matrices, precise)
    rows, columns = np.meshgrid(np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5, indexing="ij")
    rows, columns = constant(rows.astype(precise).reshape(1, -1)), constant(columns.astype(precise).reshape(1, -1))

    def coordinate(which: int) -> Value:
        m = matrices[:, which, :]
        return m[:, 0:1] * columns + m[:, 1:2] * rows + m[:, 2:3]

    x, y = coordinate(0), coordinate(1)
    flat = xp.reshape(cast_to(xp, images, np.dtype("float32")), (n * height * width, channels))
    first = xp.reshape(constant(np.arange(n, dtype=np.int64) * height * width), (n, 1))

    def taken(row: Value, column: Value) -> Value:
        held_row, held_column = xp.clip(row, 0, height - 1), xp.clip(column, 0, width - 1)
        index = xp.reshape(first + held_row * width + held_column, (-1,))
        found = xp.reshape(xp.take(flat, index, axis=0), (n, -1, channels))
        if fill_value is None:
            return found
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        return xp.where(xp.expand_dims(inside, axis=-1), found, xp.full_like(found, fill_value))

    def whole(values: Value) -> Value:
        # Far outside the image all positions are equivalent; clamped before conversion to integers.
        return cast_to(xp, xp.clip(xp.floor(values), -2.0, float(max(height, width) + 1)), np.dtype("int64"))

    if interpolation == DALIInterpType.INTERP_NN:
        made = taken(whole(y), whole(x))
    else:
        left, top = whole(x - 0.5), whole(y - 0.5)
        across = xp.clip(x - 0.5 - cast_to(xp, left, precise), 0.0, 1.0)
        down = xp.clip(y - 0.5 - cast_to(xp, top, precise), 0.0, 1.0)
        across = xp.expand_dims(cast_to(xp, across, np.dtype("float32")), axis=-1)
        down = xp.expand_dims(cast_to(xp, down, np.dtype("float32")), axis=-1)
        upper = taken(top, left) * (1 - across) + taken(top, left + 1) * across
        lower = taken(top + 1, left) * (1 - across) + taken(top + 1, left + 1) * across
        made = upper * (1 - down) + lower * down
    return saturated(xp, xp.reshape(made, (n, *size, channels)), dtype)


def image_layout(operator: Operator, spec: TensorSpec) -> str:
    """The layout of images: the given one, else HWC or HW by rank; "" if even the rank is unknown.

    Raises `InferenceError` for samples that are not images.
    """
    if spec.layout:
        if "H" not in spec.layout or "W" not in spec.layout:
            raise operator.refuse(f"expected images, with axes H and W, got {spec}")
        return spec.layout
    if spec.ndim is None:
        return ""
    if spec.ndim not in (2, 3):
        raise operator.refuse(f"expected images of rank 2 or 3 (HW, HWC), or a layout with H and W, got {spec}")
    return "HWC"[: spec.ndim]


def layout_of(layout: str, ndim: int) -> str:
    """The layout of a sample whose rank is only now known; raises `ValueError` if it is not an image."""
    if layout:
        return layout
    if ndim not in (2, 3):
        raise ValueError(f"expected an image of rank 2 or 3 (HW, HWC), got rank {ndim}")
    return "HWC"[:ndim]


def with_size(
    spec: TensorSpec, layout: str, height: int | None, width: int | None, dtype: np.dtype | None
) -> TensorSpec:
    """The spec of images of another size."""
    made = spec.replace(dtype=dtype if dtype is not None else spec.dtype, layout=spec.layout or layout)
    if spec.shape is None:
        return made
    shape = list(spec.shape)
    shape[layout.index("H")], shape[layout.index("W")] = height, width
    return made.replace(shape=tuple(shape))


def on_hwc(image: Array, layout: str, function: Callable[[Array], Array]) -> Array:
    """Applies a function of one HWC image to an image, or to each frame, of any layout."""
    names = layout_of(layout, image.ndim)
    if names == "HWC":
        return function(image)
    if names == "HW":
        return function(image[:, :, None])[:, :, 0]
    height, width = names.index("H"), names.index("W")
    channel = names.find("C")
    lead = [axis for axis in range(image.ndim) if axis not in (height, width, channel)]
    order = [*lead, height, width, *([channel] if channel >= 0 else [])]
    moved = image.transpose(order)
    if channel < 0:
        moved = moved[..., None]
    frames = moved.reshape(-1, *moved.shape[-3:])
    made = np.stack([function(np.ascontiguousarray(frame)) for frame in frames])
    made = made.reshape(*moved.shape[:-3], *made.shape[1:])
    if channel < 0:
        made = made[..., 0]
    return np.ascontiguousarray(made.transpose(np.argsort(order)))
