"""The spatial axes of images: height and width within a layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec


def image_layout(operator: Operator, spec: TensorSpec) -> str:
    """The layout of images: the given one, else HWC or HW by rank; "" where not even the rank is known.

    Raises `InferenceError` for samples that are no images.
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
    """The layout of a sample of which only the rank is known now; raises `ValueError` where it is no image."""
    if layout:
        return layout
    if ndim not in (2, 3):
        raise ValueError(f"expected an image of rank 2 or 3 (HW, HWC), got rank {ndim}")
    return "HWC"[:ndim]


def with_size(
    spec: TensorSpec, layout: str, height: int | None, width: int | None, dtype: np.dtype[Any] | None
) -> TensorSpec:
    """The spec of images of another size."""
    made = spec.replace(dtype=dtype if dtype is not None else spec.dtype, layout=spec.layout or layout)
    if spec.shape is None:
        return made
    shape = list(spec.shape)
    shape[layout.index("H")], shape[layout.index("W")] = height, width
    return made.replace(shape=tuple(shape))


def on_hwc(image: Any, layout: str, function: Callable[[Any], Any]) -> Any:
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
