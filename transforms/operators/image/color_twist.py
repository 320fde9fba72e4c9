"""`fn.color_twist`: hue, saturation, brightness and contrast at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Argument, Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.conversion import cast_to, dtype_of, saturated
from beam_pipes.transforms.operators.image.colours import colour_matrices, middle_of


class ColorTwist(Operator):
    """Changes hue, saturation, brightness and contrast of RGB images (channels last).

    `color_twist([[[200, 100, 50]]], saturation=0.5)` → `[[[162, 112, 87]]]`

    Colours are mapped linearly, through luma and chroma (YIQ) with the constants of DALI; contrast is about half the
    range of the dtype.
    """

    inputs = ("images",)
    devices = ("cpu", "gpu")
    hue = Argument("float", default=0.0, doc="degrees")
    saturation = Argument("float", default=1.0, doc="0 is grey, 1 changes nothing")
    brightness = Argument("float", default=1.0, doc="0 is black, 2 twice as bright")
    contrast = Argument("float", default=1.0, doc="0 is uniform grey, 1 changes nothing")
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the input by default")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        if spec.layout and not spec.layout.endswith("C"):
            raise self.refuse(f"expected images with channels last, got {spec}")
        if spec.shape is not None and (not spec.shape or spec.shape[-1] not in (3, None)):
            raise self.refuse(f"expected images of 3 channels (RGB), got {spec}")
        return spec if self.dtype is None else spec.replace(dtype=self.dtype)

    def run_arrays(self, xp: Any, images: Any, **given: Any) -> Any:
        if images.shape[-1] != 3:
            raise ValueError(f"expected 3 channels (RGB), got {images.shape[-1]}")
        single = np.dtype("float32")
        hue, saturation, brightness, contrast = (
            cast_to(xp, given[name], single) for name in ("hue", "saturation", "brightness", "contrast")
        )
        own = dtype_of(images)
        matrices = cast_to(xp, colour_matrices(xp, hue, saturation, brightness * contrast), single)
        added = xp.reshape(brightness * (1 - contrast) * middle_of(own), (-1,) + (1,) * (images.ndim - 1))
        values = xp.reshape(cast_to(xp, images, single), (images.shape[0], -1, 3))
        mapped = xp.reshape(xp.matmul(values, xp.matrix_transpose(matrices)), images.shape)
        return saturated(xp, mapped + added, own if self.dtype is None else self.dtype)
