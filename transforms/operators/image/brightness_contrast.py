"""`fn.brightness_contrast`."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Argument, Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.conversion import cast_to, dtype_of, saturated, value_range
from beam_pipes.transforms.operators.image.colours import middle_of


class BrightnessContrast(Operator):
    """`brightness_shift * range + brightness * (centre + contrast * (x - centre))`, of every element.

    `brightness_contrast([200, 100, 50], contrast=0.5)` → `[164, 114, 89]` (uint8: the centre is 128)

    `range` is the largest value of the output's dtype (255 for uint8, 1 for floats). The centre is half the range of
    the input's dtype unless `contrast_center` is given.
    """

    inputs = ("images",)
    devices = ("cpu", "gpu")
    rounds_by_place = True
    brightness = Argument("float", default=1.0, doc="factor of the brightness: 0 is black, 2 twice as bright")
    brightness_shift = Argument("float", default=0.0, doc="what is added, in parts of the output's range")
    contrast = Argument("float", default=1.0, doc="factor of the contrast: 0 is uniform grey")
    contrast_center = Argument("float", default=None, doc="what contrast leaves as it is, in the input's units")
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the input by default")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[0] if self.dtype is None else inputs[0].replace(dtype=self.dtype)

    def _applied(self, xp: Any, values: Any, own: np.dtype[Any], **given: Any) -> Any:
        dtype = own if self.dtype is None else self.dtype
        centre = middle_of(own) if given["contrast_center"] is None else given["contrast_center"]
        factor = given["brightness"] * given["contrast"]
        added = given["brightness"] * (centre - given["contrast"] * centre)
        added = added + given["brightness_shift"] * value_range(dtype)
        return saturated(xp, values * factor + added, dtype)

    def run(self, sample: Any, image: Any, **given: Any) -> Any:
        if image.dtype == np.uint8:
            # One of 256 values each: computed once, looked up for every element.
            return self._applied(np, np.arange(256, dtype=np.float32), image.dtype, **given)[image]
        return self._applied(np, image.astype(np.float32), image.dtype, **given)

    def run_arrays(self, xp: Any, images: Any, **given: Any) -> Any:
        shape = (-1,) + (1,) * (images.ndim - 1)
        single = np.dtype("float32")
        wide = {
            name: None if value is None else xp.reshape(cast_to(xp, value, single), shape)
            for name, value in given.items()
        }
        return self._applied(xp, cast_to(xp, images, single), dtype_of(images), **wide)
