"""Policies of augmentations: `auto_augment`, `trivial_augment_wide` and `rand_augment`, of RGB images in uint8.

An *augmentation* changes an image by a magnitude; a *suite* gives the range of each one's magnitudes, which are divided
into bins; a *policy* draws which augmentations an image gets, their bins and signs. Draws are keyed by record, values
of each augmentation are DALI's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from beam_pipes.checks import known, number
from beam_pipes.errors import OperatorArgumentError
from beam_pipes.extras import require
from beam_pipes.graph.operator import Argument, Constant, Operator
from beam_pipes.graph.samples import Sample
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Row
from beam_pipes.graph.types import DALIInterpType
from beam_pipes.transforms.operators.arrays import saturated
from beam_pipes.transforms.operators.image.affine import INTERPOLATIONS, inverse, rotation_map, warped
from beam_pipes.transforms.operators.image.colours import RGB_TO_YIQ, colour_matrices

_BYTE = np.dtype("uint8")


@dataclasses.dataclass(frozen=True)
class Canvas:
    """How augmentations that move pixels fill the rest."""

    interpolation: DALIInterpType = DALIInterpType.INTERP_LINEAR
    fill_value: float | None = 128

    def moved(self, image: Array, rows: Sequence[Sequence[float]]) -> Array:
        """An image through a map from its places to those of the result."""
        return self._warped(image, inverse(np.array(rows, np.float64)))

    def turned(self, image: Array, degrees: float) -> Array:
        return self._warped(image, rotation_map(degrees, image.shape[:2], image.shape[:2]))

    def _warped(self, image: Array, matrix: Array) -> Array:
        options = {"interpolation": self.interpolation, "fill_value": self.fill_value}
        return warped(image, matrix, image.shape[:2], dtype=_BYTE, **options)  # type: ignore[arg-type]


def _bytes(values: Array) -> Array:
    return np.asarray(saturated(np, values, _BYTE))


def brightened(image: Array, factor: float) -> Array:
    """Every value times a factor."""
    return np.asarray(_bytes(np.arange(256, dtype=np.float32) * np.float32(factor))[image])


def contrasted(image: Array, factor: float) -> Array:
    """Values away from the luma of the mean colour, by a factor."""
    mean = image.mean(axis=(0, 1), dtype=np.float64).astype(np.float32)
    centre = np.float32((mean * RGB_TO_YIQ[0].astype(np.float32)).sum())
    return _bytes(centre + (image.astype(np.float32) - centre) * np.float32(factor))


def coloured(image: Array, factor: float) -> Array:
    """Saturation by a factor."""
    one = np.ones(1, np.float32)
    matrix = np.asarray(colour_matrices(np, one * 0, one * np.float32(factor), one)[0], np.float32)
    return _bytes(image.astype(np.float32) @ matrix.T)


def sharpened(image: Array, strength: float) -> Array:
    """From blurred, -1, to sharp, 1: a filter of 3×3 pixels, mirrored at the edge."""
    blur = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13
    kernel = -strength * blur
    kernel[1, 1] += 1 + strength
    cv2 = require("cv2", purpose="augmentations of images")
    made = cv2.filter2D(image, cv2.CV_32F, kernel.astype(np.float32), borderType=cv2.BORDER_REFLECT_101)
    return _bytes(np.asarray(made).reshape(image.shape))


def posterized(image: Array, bits: float) -> Array:
    """The upper bits of every value, at least one."""
    kept = min(max(round(bits), 1), 8)
    return np.asarray(image & np.uint8(256 - (1 << (8 - kept))))


def solarized(image: Array, threshold: float) -> Array:
    """Values from a threshold on inverted."""
    return np.where(image < threshold, image, 255 - image)


def solarized_by(image: Array, added: float) -> Array:
    """Something added to dark values, below 128."""
    return np.where(image < 128, image + np.uint8(added), image)


def equalized(image: Array) -> Array:
    """Every channel with a flat histogram, as OpenCV does."""
    cv2 = require("cv2", purpose="augmentations of images")
    return np.stack([cv2.equalizeHist(np.ascontiguousarray(image[..., at])) for at in range(image.shape[2])], axis=2)


def stretched(image: Array) -> Array:
    """The values of every channel from 0 to 255."""
    low, high = image.min(axis=(0, 1)), image.max(axis=(0, 1))
    is_flat = high == low
    scale = np.float32(255) / np.where(is_flat, 255, high - low).astype(np.float32)
    return _bytes((image - np.where(is_flat, 0, low).astype(_BYTE)).astype(np.float32) * scale)


#: Augmentation → the image for (image, magnitude, canvas, (height, width) of a translation by 1).
AUGMENTATIONS: Final[Mapping[str, Callable[[Array, float, Canvas, Row], Array]]] = {
    "auto_contrast": lambda image, magnitude, canvas, unit: stretched(image),
    "brightness": lambda image, magnitude, canvas, unit: brightened(image, magnitude),
    "color": lambda image, magnitude, canvas, unit: coloured(image, magnitude),
    "contrast": lambda image, magnitude, canvas, unit: contrasted(image, magnitude),
    "equalize": lambda image, magnitude, canvas, unit: equalized(image),
    "identity": lambda image, magnitude, canvas, unit: image,
    "invert": lambda image, magnitude, canvas, unit: 255 - image,
    "posterize": lambda image, magnitude, canvas, unit: posterized(image, magnitude),
    "rotate": lambda image, magnitude, canvas, unit: canvas.turned(image, magnitude),
    "sharpness": lambda image, magnitude, canvas, unit: sharpened(image, magnitude),
    "shear_x": lambda image, magnitude, canvas, unit: canvas.moved(image, [(1, magnitude, 0), (0, 1, 0)]),
    "shear_y": lambda image, magnitude, canvas, unit: canvas.moved(image, [(1, 0, 0), (magnitude, 1, 0)]),
    "solarize": lambda image, magnitude, canvas, unit: solarized(image, magnitude),
    "solarize_add": lambda image, magnitude, canvas, unit: solarized_by(image, magnitude),
    "translate_x": lambda image, magnitude, canvas, unit: canvas.moved(image, [(1, 0, magnitude * unit[1]), (0, 1, 0)]),
    "translate_y": lambda image, magnitude, canvas, unit: canvas.moved(image, [(1, 0, 0), (0, 1, magnitude * unit[0])]),
}


@dataclasses.dataclass(frozen=True)
class Magnitudes:
    """The first and last magnitude of an augmentation; half of the draws are negated; `shift` is added then."""

    first: float = 0.0
    last: float = 0.0
    is_signed: bool = False
    shift: float = 0.0

    def of(self, index: int, count: int, is_negative: bool) -> float:
        """The magnitude of a bin."""
        magnitude = float(np.linspace(self.first, self.last, count)[index])
        return (-magnitude if is_negative and self.is_signed else magnitude) + self.shift


def _suite(shear: float, rotate: float, change: tuple[float, float], bits: float) -> dict[str, Magnitudes]:
    moves = {"translate_x": 1.0, "translate_y": 1.0, "shear_x": shear, "shear_y": shear, "rotate": rotate}
    changes = {name: Magnitudes(*change, True, shift=1) for name in ("brightness", "contrast", "color")}
    others = {name: Magnitudes() for name in ("equalize", "auto_contrast", "identity")}
    return {
        **{name: Magnitudes(0, most, True) for name, most in moves.items()},
        **changes,
        "sharpness": Magnitudes(*change, True),
        "posterize": Magnitudes(8, bits),
        "solarize": Magnitudes(256, 0),
        **others,
    }


TRIVIAL: Final = _suite(0.99, 135, (0.01, 0.99), 2)
RAND: Final = _suite(0.3, 30, (0, 0.9), 4)
AUTO: Final = {
    **_suite(0.3, 30, (0, 0.9), 4),
    **dict.fromkeys(["brightness", "color", "contrast"], Magnitudes(0.1, 1.9)),
    "sharpness": Magnitudes(0.1, 1.9, shift=-1),
    "posterize": Magnitudes(0, 4),
    "solarize": Magnitudes(0, 256),
    "solarize_add": Magnitudes(0, 110),
    "invert": Magnitudes(),
}

# The policies of AutoAugment (Cubuk et al., CVPR 2019), with DALI's ranges: augmentation, probability, bin of 11.
_POLICIES: Final = {
    "image_net": (
        "equalize .8, shear_y .8 4; color .4 9, equalize .6; color .4 1, rotate .6 8; solarize .8 3, equalize .4; "
        "solarize .4 2, solarize .6 2; color .2 0, equalize .8; equalize .4, solarize_add .8 3; shear_x .2 9, "
        "rotate .6 8; color .6 1, equalize 1; invert .4, rotate .6 0; equalize 1, shear_y .6 3; color .4 7, "
        "equalize .6; posterize .4 6, auto_contrast .4; solarize .6 8, color .6 9; solarize .2 4, rotate .8 9; "
        "rotate 1 7, translate_y .8 9; solarize .8 4; shear_y .8 0, color .6 4; color 1 0, rotate .6 2; equalize "
        ".8; equalize 1, auto_contrast .6; shear_y .4 7, solarize_add .6 7; posterize .8 2, solarize .6 10; "
        "solarize .6 8, equalize .6; color .8 6, rotate .4 5"
    ),
    "reduced_cifar10": (
        "invert .1, contrast .2 6; rotate .7 2, translate_x .3 9; sharpness .8 1, sharpness .9 3; shear_y .5 8, "
        "translate_y .7 9; auto_contrast .5, equalize .9; shear_y .2 7, posterize .3 7; color .4 3, brightness .6 "
        "7; sharpness .3 9, brightness .7 9; equalize .6, equalize .5; contrast .6 7, sharpness .6 5; color .7 7, "
        "translate_x .5 8; equalize .3, auto_contrast .4; translate_y .4 3, sharpness .2 6; brightness .9 6, "
        "color .2 8; solarize .5 2; equalize .2, auto_contrast .6; equalize .2, equalize .6; color .9 9, equalize "
        ".6; auto_contrast .8, solarize .2 8; brightness .1 3, color .7 0; solarize .4 5, auto_contrast .9; "
        "translate_y .9 9, translate_y .7 9; auto_contrast .9, solarize .8 3; equalize .8, invert .1; translate_y "
        ".7 9, auto_contrast .9"
    ),
    "svhn": (
        "shear_x .9 4, invert .2; shear_y .9 8, invert .7; equalize .6, solarize .6 6; invert .9, equalize .6; "
        "equalize .6, rotate .9 3; shear_x .9 4, auto_contrast .8; shear_y .9 8, invert .4; shear_y .9 5, "
        "solarize .2 6; invert .9, auto_contrast .8; equalize .6, rotate .9 3; shear_x .9 4, solarize .3 3; "
        "shear_y .8 8, invert .7; equalize .9, translate_y .6 6; invert .9, equalize .6; contrast .3 3, rotate .8 "
        "4; invert .8; shear_y .7 6, solarize .4 8; invert .6, rotate .8 4; shear_y .3 7, translate_x .9 3; "
        "shear_x .1 6, invert .6; solarize .7 2, translate_y .6 7; shear_y .8 4, invert .8; shear_x .7 9, "
        "translate_y .8 3; shear_y .8 5, auto_contrast .7; shear_x .7 2, invert .1"
    ),
    "reduced_image_net": (
        "posterize .4 8, rotate .6 9; solarize .6 5, auto_contrast .6; equalize .8, equalize .6; posterize .6 7, "
        "posterize .6 6; equalize .4, solarize .2 4; equalize .4, rotate .8 8; solarize .6 3, equalize .6; "
        "posterize .8 5, equalize 1; rotate .2 3, solarize .6 8; equalize .6, posterize .4 6; rotate .8 8, color "
        ".4 0; rotate .4 9, equalize .6; equalize .8; invert .6, equalize 1; color .6 4, contrast 1 8; rotate .8 "
        "8, color 1 2; color .8 8, solarize .8 7; sharpness .4 7, invert .6; shear_x .6 5, equalize 1; color .4 "
        "0, equalize .6; equalize .4, solarize .2 4; solarize .6 5, auto_contrast .6; invert .6, equalize 1; "
        "color .6 4, contrast 1 8; equalize .8, equalize .6"
    ),
}
_AUTO_BINS = 11


def _steps(text: str) -> list[tuple[str, float, int]]:
    parts = [one.split() for one in text.split(",")]
    return [(name, float(share), int(bins[0]) if bins else 0) for name, share, *bins in parts]


#: Name → sub-policies: (augmentation, probability, bin) one after the other.
POLICIES: Final = {name: [_steps(one) for one in text.split(";")] for name, text in _POLICIES.items()}


class Augmenting(Operator):
    """An operator that applies drawn augmentations to images, HWC uint8 of three channels."""

    inputs = ("images",)
    random = True
    shape = Argument("ints", default=None, doc="height and width of the image: translations are then parts of it")
    fill_value = Constant("any", default=128, doc="value beyond a moved image; its edge if None")
    interp_type = Constant(DALIInterpType, default=None, doc="between pixels; linear", choices=INTERPOLATIONS)
    max_translate_abs = Constant("floats", default=None, doc="most pixels of a move, without shape", sizes=(1, 2))
    max_translate_rel = Constant("floats", default=None, doc="the same as a part of shape", sizes=(1, 2))

    _default_abs, _default_rel = 250.0, 1.0

    def check(self) -> None:
        has_shape = self.constants.get("shape", "a node") is not None
        wrong = "max_translate_abs" if has_shape else "max_translate_rel"
        if self.is_given(wrong):
            raise self.argument_error(f"{wrong} does not go {'with' if has_shape else 'without'} shape.")
        if self.fill_value is not None:
            number(self.fill_value, what="fill_value", error=self.argument_error)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        is_image = spec.shape is None or (len(spec.shape) == 3 and spec.shape[2] in (3, None))
        if spec.layout not in ("", "HWC") or spec.dtype not in (None, _BYTE) or not is_image:
            raise self.refuse(f"expected images HWC of 3 channels, uint8, got {spec}")
        return spec

    def run(self, sample: Sample, image: Array, *, shape: Array | None) -> Array:
        if image.dtype != _BYTE or image.ndim != 3 or image.shape[2] != 3:
            raise ValueError(f"expected an image HWC of 3 channels, uint8, got {image.dtype} of shape {image.shape}")
        given, default = self.max_translate_abs, self._default_abs
        if shape is not None:
            given, default = self.max_translate_rel, self._default_rel
        most = np.broadcast_to([default] if given is None else given, 2)
        unit = tuple(most if shape is None else most * np.asarray(shape[:2]))
        canvas = Canvas(self.interp_type or DALIInterpType.INTERP_LINEAR, self.fill_value)
        for name, magnitude in self.chosen(sample):
            image = AUGMENTATIONS[name](image, magnitude, canvas, unit)
        return image

    def chosen(self, sample: Sample) -> list[tuple[str, float]]:
        """The augmentations of one image, each with its magnitude."""
        raise NotImplementedError


class AutoAugment(Augmenting):
    """Augments images by a policy that was learned for a data set (AutoAugment, Cubuk et al., CVPR 2019).

    `auto_augment(images)` → each image by one of the 25 pairs of augmentations for ImageNet, drawn for each epoch
    """

    policy_name = Constant("str", default="image_net", doc="the policy", choices=tuple(POLICIES))

    def chosen(self, sample: Sample) -> list[tuple[str, float]]:
        policies = POLICIES[self.policy_name]
        which, *draws = sample.uniform(5)
        steps = policies[int(which * len(policies))]
        return [
            (name, AUTO[name].of(index, _AUTO_BINS, draws[2 * at + 1] < 0.5))
            for at, (name, share, index) in enumerate(steps)
            if draws[2 * at] < share
        ]


class _Uniform(Augmenting):
    """Augmentations of a suite, each as likely as the others."""

    num_magnitude_bins = Constant("int", default=31, doc="into how many bins ranges of magnitudes are divided", least=1)
    excluded = Constant("strs", default=None, doc="augmentations of the suite that are left out")
    _suite: Mapping[str, Magnitudes] = {}

    def check(self) -> None:
        super().check()
        for name in self.excluded or ():
            known(name, among=list(self._suite), what="augmentation", error=OperatorArgumentError)
        self._names = [name for name in self._suite if name not in (self.excluded or ())]
        if not self._names:
            raise self.argument_error("excluded leaves no augmentation.")

    def _drawn(self, draw: float, index: int, sign: float) -> tuple[str, float]:
        name = self._names[int(draw * len(self._names))]
        return name, self._suite[name].of(index, self.num_magnitude_bins, sign < 0.5)


class TrivialAugmentWide(_Uniform):
    """One augmentation for each image, of any magnitude (TrivialAugment, Müller and Hutter, ICCV 2021).

    `trivial_augment_wide(images)` → each image by one of 14 augmentations
    """

    _suite = TRIVIAL
    _default_abs = 32.0

    def chosen(self, sample: Sample) -> list[tuple[str, float]]:
        draw, place, sign = sample.uniform(3)
        return [self._drawn(draw, int(place * self.num_magnitude_bins), sign)]


class RandAugment(_Uniform):
    """`n` augmentations for each image, of magnitude `m` (RandAugment, Cubuk et al., 2019).

    `rand_augment(images, n=2, m=9)` → each image by two of 14 augmentations, one after the other
    """

    n = Constant("int", doc="augmentations of an image", least=1)
    m = Constant("int", doc="the bin of their magnitudes, from 0", least=0)
    _suite = RAND
    _default_abs, _default_rel = 100.0, 100 / 224

    def check(self) -> None:
        super().check()
        if self.m >= self.num_magnitude_bins:
            raise self.argument_error(f"m should be a bin, below num_magnitude_bins={self.num_magnitude_bins}.")

    def chosen(self, sample: Sample) -> list[tuple[str, float]]:
        return [self._drawn(draw, self.m, sign) for draw, sign in sample.uniform(2 * self.n).reshape(-1, 2)]
