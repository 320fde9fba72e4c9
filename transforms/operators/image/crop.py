"""`fn.crop`: a window of each image."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.conversion import saturated
from beam_pipes.transforms.operators.image.crop_window import Cropping
from beam_pipes.transforms.operators.image.spatial import layout_of, with_size


class Crop(Cropping):
    """Cuts a window out of images (HWC, HW, or of any layout with H and W).

    `crop(images, crop=(224, 224), crop_pos_x=0.0)` → the 224×224 at the left, half-way down
    """

    inputs = ("images",)
    devices = ("cpu", "gpu")
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the input by default")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return with_size(inputs[0], self._layout_after(inputs[0]), *self._known, self.dtype)

    def _layout_after(self, spec: TensorSpec) -> str:
        self._known = self.prepare(spec)
        return self._layout

    def run(self, sample: Any, image: Any, **given: Any) -> Any:
        cut = self.cut_one(image, layout_of(self._layout, image.ndim), given)
        return cut if self.dtype is None else saturated(np, cut, self.dtype)

    def run_arrays(self, xp: Any, images: Any, **given: Any) -> Any:
        cut = self.cut_all(xp, images, layout_of(self._layout, images.ndim - 1), given)
        return cut if self.dtype is None else saturated(xp, cut, self.dtype)
