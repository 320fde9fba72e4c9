"""Colours as linear maps: `brightness_contrast`, and `color_twist`, which changes hue and saturation too."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.operator import Argument, Constant, Operator
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.transforms.operators.arrays import cast_to, dtype_of, saturated, value_range


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


Array = np.ndarray[Any, Any]

# RGB to luma and two chroma axes, with the constants that DALI has (NTSC, three digits), and back.
RGB_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
YIQ_TO_RGB = np.linalg.inv(RGB_TO_YIQ)


def middle_of(dtype: np.dtype[Any]) -> float:
    """The middle of a dtype's range: 128 for uint8, 16384 for int16, 0.5 for floats."""
    return (float(np.iinfo(dtype).max) + 1) / 2 if dtype.kind in "iu" else 0.5


def colour_matrices(xp: Any, hue: Any, saturation: Any, value: Any) -> Any:
    """(n,) degrees, factors and factors → (n, 3, 3) float: maps of RGB.

    Hue turns the chroma axes, saturation stretches them, value all three.
    """
    turn = hue * (np.pi / 180)
    cosine, sine = xp.cos(turn) * saturation, xp.sin(turn) * saturation
    # A matrix is linear in (1, cosine, sine): three constant ones, weighted by sample.
    parts = []
    for row in range(3):
        for column in range(3):
            luma = float(YIQ_TO_RGB[row, 0] * RGB_TO_YIQ[0, column])
            even = float(YIQ_TO_RGB[row, 1] * RGB_TO_YIQ[1, column] + YIQ_TO_RGB[row, 2] * RGB_TO_YIQ[2, column])
            odd = float(YIQ_TO_RGB[row, 1] * RGB_TO_YIQ[2, column] - YIQ_TO_RGB[row, 2] * RGB_TO_YIQ[1, column])
            parts.append((luma + even * cosine + odd * sine) * value)
    return xp.reshape(xp.stack(parts, axis=1), (-1, 3, 3))
