"""Colours as linear maps: `brightness_contrast` of every element; `color_twist`, which changes hue and saturation too,
and `color_space_conversion`. `brightness`, `contrast`, `hsv`, `hue` and `saturation` are parts of the first two.
"""

from __future__ import annotations

import numpy as np

from beam_pipes.graph.operator import Argument, Constant, Operator
from beam_pipes.graph.samples import Sample
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Given, Namespace, Value
from beam_pipes.graph.types import DALIImageType
from beam_pipes.transforms.operators.arrays import Mapped, cast_to, dtype_of, saturated, value_range
from beam_pipes.transforms.operators.decoders import CHANNELS, YCBCR

_DTYPE_DOC = "the dtype of the output; that of the input by default"


class LinearColours(Mapped):
    """The same linear function for every element, defined by arguments."""

    inputs = ("images",)
    devices = ("cpu", "gpu")
    rounds_by_place = True
    dtype = Constant("dtype", default=None, doc=_DTYPE_DOC)

    def _applied(self, xp: Namespace, values: Value, own: np.dtype, **given: Given) -> Value:
        dtype = own if self.dtype is None else self.dtype
        brightness, contrast = given.get("brightness", 1.0), given.get("contrast", 1.0)
        centre = middle_of(own) if given.get("contrast_center") is None else given["contrast_center"]
        added = brightness * (centre - contrast * centre) + given.get("brightness_shift", 0.0) * value_range(dtype)
        return saturated(xp, values * (brightness * contrast) + added, dtype)

    def run(self, sample: Sample, image: Array, **given: Given) -> Value:
        if image.dtype == np.uint8:
            # Each element is one of 256 values: computed once, then looked up.
            return self._applied(np, np.arange(256, dtype=np.float32), image.dtype, **given)[image]
        return self._applied(np, image.astype(np.float32), image.dtype, **given)

    def run_arrays(self, xp: Namespace, images: Value, **given: Value | None) -> Value:
        shape = (-1,) + (1,) * (images.ndim - 1)
        single = np.dtype("float32")
        wide = {
            name: None if value is None else xp.reshape(cast_to(xp, value, single), shape)
            for name, value in given.items()
        }
        return self._applied(xp, cast_to(xp, images, single), dtype_of(images), **wide)


class BrightnessContrast(LinearColours):
    """`brightness_shift * range + brightness * (centre + contrast * (x - centre))`, of every element.

    `brightness_contrast([200, 100, 50], contrast=0.5)` → `[164, 114, 89]` (uint8: the centre is 128)

    `range` is the largest value of the output's dtype (255 for uint8, 1 for floats). The centre is half the range of
    the input's dtype unless `contrast_center` is given.
    """

    brightness = Argument("float", default=1.0, doc="factor of the brightness: 0 is black, 2 twice as bright")
    brightness_shift = Argument("float", default=0.0, doc="the shift, as a fraction of the output's range")
    contrast = Argument("float", default=1.0, doc="factor of the contrast: 0 is uniform grey")
    contrast_center = Argument("float", default=None, doc="the value that contrast keeps, in the input's units")


class Brightness(LinearColours):
    """`brightness_shift * range + brightness * x`: `brightness([200, 100, 50], brightness=0.5)` → `[100, 50, 25]`."""

    brightness = BrightnessContrast.brightness
    brightness_shift = BrightnessContrast.brightness_shift


class Contrast(LinearColours):
    """`centre + contrast * (x - centre)`: `contrast([200, 100, 50], contrast=0.5)` → `[164, 114, 89]`."""

    contrast = BrightnessContrast.contrast
    contrast_center = BrightnessContrast.contrast_center


class Twist(Mapped):
    """A linear map of RGB (channels last), through luma and chroma (YIQ) with the constants of DALI."""

    inputs = ("images",)
    devices = ("cpu", "gpu")
    dtype = Constant("dtype", default=None, doc=_DTYPE_DOC)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        if spec.layout and not spec.layout.endswith("C"):
            raise self.refuse(f"expected images with channels last, got {spec}")
        if spec.shape is not None and (not spec.shape or spec.shape[-1] not in (3, None)):
            raise self.refuse(f"expected images of 3 channels (RGB), got {spec}")
        return super().infer(spec)

    def run_arrays(self, xp: Namespace, images: Value, **given: Value) -> Value:
        if images.shape[-1] != 3:
            raise ValueError(f"expected 3 channels (RGB), got {images.shape[-1]}")
        single = np.dtype("float32")
        arrays = {name: cast_to(xp, values, single) for name, values in given.items()}
        none = xp.zeros_like(next(iter(arrays.values())))
        hue, saturation = arrays.get("hue", none), arrays.get("saturation", none + 1)
        brightness, contrast = arrays.get("brightness", arrays.get("value", none + 1)), arrays.get("contrast", none + 1)
        own = dtype_of(images)
        matrices = cast_to(xp, colour_matrices(xp, hue, saturation, brightness * contrast), single)
        added = xp.reshape(brightness * (1 - contrast) * middle_of(own), (-1,) + (1,) * (images.ndim - 1))
        values = xp.reshape(cast_to(xp, images, single), (images.shape[0], -1, 3))
        mapped = xp.reshape(xp.matmul(values, xp.matrix_transpose(matrices)), images.shape)
        return saturated(xp, mapped + added, own if self.dtype is None else self.dtype)


class ColorTwist(Twist):
    """Changes hue, saturation, brightness and contrast of RGB images (channels last).

    `color_twist([[[200, 100, 50]]], saturation=0.5)` → `[[[162, 112, 87]]]`

    Contrast is relative to half the range of the dtype.
    """

    hue = Argument("float", default=0.0, doc="degrees")
    saturation = Argument("float", default=1.0, doc="0 is grey, 1 changes nothing")
    brightness = Argument("float", default=1.0, doc="0 is black, 2 twice as bright")
    contrast = Argument("float", default=1.0, doc="0 is uniform grey, 1 changes nothing")


class Hsv(Twist):
    """Changes hue, saturation and value of RGB images: `hsv([[[200, 100, 50]]], value=0.5)` → `[[[100, 50, 25]]]`."""

    hue, saturation = ColorTwist.hue, ColorTwist.saturation
    value = Argument("float", default=1.0, doc="0 is black, 2 twice as bright")
    dtype = Constant("dtype", default="uint8", doc="the dtype of the output")


class Hue(Twist):
    """Turns the hue of RGB images: `hue([[[200, 100, 50]]], hue=30)` → `[[[169, 127, 0]]]`."""

    hue = ColorTwist.hue
    image_type = Constant(DALIImageType, default=DALIImageType.RGB, doc="accepted for ported graphs: it is RGB")


class Saturation(Twist):
    """Changes the saturation of RGB images: `saturation([[[200, 100, 50]]], saturation=0.5)` → `[[[162, 112, 87]]]`."""

    saturation = ColorTwist.saturation
    image_type = Hue.image_type


class ColorSpaceConversion(Operator):
    """Images (uint8, channels last) in another colour space.

    `color_space_conversion([[[200, 100, 50]]], image_type=types.RGB, output_type=types.GRAY)` → `[[[124]]]`
    """

    inputs = ("images",)
    image_type = Constant(DALIImageType, doc="the colour space of the images")
    output_type = Constant(DALIImageType, doc="what they become; YCbCr is that of BT.601, luma from 16 to 235")

    def check(self) -> None:
        if not {self.image_type, self.output_type} <= set(CHANNELS):
            raise self.argument_error("image_type and output_type should be RGB, BGR, GRAY or YCbCr.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec, channels = inputs[0], CHANNELS[self.image_type]
        if spec.shape is not None and (
            spec.shape[-1:] not in ((channels,), (None,)) or spec.dtype not in (np.uint8, None)
        ):
            raise self.refuse(f"expected {self.image_type.name} images, uint8 of {channels} channels, got {spec}")
        return spec if spec.shape is None else spec.replace(shape=(*spec.shape[:-1], CHANNELS[self.output_type]))

    def run(self, sample: Sample, image: Array) -> Array:
        values = image.astype(np.float64)
        if self.image_type == DALIImageType.YCbCr:
            values = (values - (16, 128, 128)) @ np.linalg.inv(YCBCR).T
        elif self.image_type == DALIImageType.BGR:
            values = values[..., ::-1]
        elif self.image_type == DALIImageType.GRAY:
            values = np.repeat(values, 3, -1)
        if self.output_type == DALIImageType.YCbCr:
            values = values @ YCBCR.T + (16, 128, 128)
        elif self.output_type == DALIImageType.BGR:
            values = values[..., ::-1]
        elif self.output_type == DALIImageType.GRAY:
            values = values @ RGB_TO_YIQ[:1].T
        return saturated(np, values, np.dtype(np.uint8))


# RGB to luma and two chroma axes, with the constants that DALI has (NTSC, three digits), and back.
RGB_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
YIQ_TO_RGB = np.linalg.inv(RGB_TO_YIQ)


def middle_of(dtype: np.dtype) -> float:
    """The middle of a dtype's range: 128 for uint8, 16384 for int16, 0.5 for floats."""
    return (float(np.iinfo(dtype).max) + 1) / 2 if dtype.kind in "iu" else 0.5


def colour_matrices(xp: Namespace, hue: Value, saturation: Value, value: Value) -> Value:
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
