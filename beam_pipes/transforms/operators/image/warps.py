"""`fn.rotate`: turned images.

`fn.warp_affine`: images through an affine map.
"""

from __future__ import annotations

import math

import numpy as np

from beam_pipes.graph.operator import Argument, Constant, Operator
from beam_pipes.graph.samples import Sample
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Namespace, Row, Value
from beam_pipes.graph.types import DALIInterpType
from beam_pipes.transforms.operators.image.affine import (
    INTERPOLATIONS,
    image_layout,
    inverse,
    layout_of,
    on_hwc,
    rotation_canvas,
    rotation_map,
    sampled,
    warped,
    with_size,
)
from beam_pipes.transforms.operators.image.resampling import rounded


class Rotate(Operator):
    """Turns images counter-clockwise about their middle.

    `rotate([[1, 2], [3, 4]], angle=90)` → `[[2, 4], [1, 3]]`

    The canvas grows to hold the whole image, unless `keep_size` or `size` is given; on the device, one of them is
    required. Pixels beyond the image are `fill_value`, or those at its edge without one.
    """

    inputs = ("images",)
    devices = ("cpu", "gpu")
    rounds_by_place = True
    angle = Argument("float", doc="degrees, counter-clockwise")
    fill_value = Constant("float", default=None, doc="value beyond the image; its edge by default")
    keep_size = Constant("bool", default=False, doc="whether the output has the size of the input")
    size = Argument("floats", default=None, doc="height and width of the output", static=True)
    interp_type = Constant(
        DALIInterpType, default=DALIInterpType.INTERP_LINEAR, doc="between pixels", choices=INTERPOLATIONS
    )
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the input by default")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        self._layout = image_layout(self, spec)
        height, width = known_size(self, spec, self._layout)
        if not self.is_given("size") and not self.keep_size:
            if "angle" in self.constants and height is not None and width is not None:
                height, width = rotation_canvas(height, width, self.constants["angle"])
            else:
                height = width = None
        return with_size(spec, self._layout, height, width, self.dtype)

    def run(self, sample: Sample, image: Array, *, angle: float, size: Row | None) -> Array:
        names = layout_of(self._layout, image.ndim)
        own = image.shape[names.index("H")], image.shape[names.index("W")]
        if not math.isfinite(angle):
            raise ValueError(f"the angle should be a number of degrees, got {angle}")
        target = output_size(size, own if self.keep_size else rotation_canvas(*own, angle))
        matrix = rotation_map(angle, own, target)
        return warped_image(self, image, names, matrix, target)

    def run_arrays(self, xp: Namespace, images: Value, *, angle: Value, size: Row | None) -> Value:
        if size is None and not self.keep_size:
            raise ValueError(
                "on the device rotate needs keep_size=True or size=: the canvas would depend on the angle of each image"
            )
        names = layout_of(self._layout, images.ndim - 1)
        own = images.shape[1 + names.index("H")], images.shape[1 + names.index("W")]
        target = output_size(size, own)
        cosine, sine = xp.cos(angle * (math.pi / 180)), xp.sin(angle * (math.pi / 180))
        x, y = target[1] / 2, target[0] / 2
        to_x = own[1] / 2 - (cosine * x - sine * y)
        to_y = own[0] / 2 - (sine * x + cosine * y)
        matrices = xp.reshape(xp.stack([cosine, -sine, to_x, sine, cosine, to_y], axis=1), (-1, 2, 3))
        return warped_arrays(self, xp, images, self._layout, matrices, size)


class WarpAffine(Operator):
    """`output(x, y) = input(M11 x + M12 y + M13, M21 x + M22 y + M23)`, for `matrix=(M11, M12, M13, M21, M22, M23)`.

    `warp_affine([[0, 10, 20]], matrix=[1, 0, 1, 0, 1, 0])` → `[[10, 20, 20]]`

    (0, 0) is the corner of the first pixel, not its middle. With `inverse_map=False`, the matrix maps from the input to
    the output, and is inverted. Pixels beyond the input are `fill_value`, or those at its edge without one. The matrix
    may also come as a second input, (2, 3) or (6,).
    """

    inputs = ("images", "matrix_input")
    optional_inputs = 1
    devices = ("cpu", "gpu")
    rounds_by_place = True
    matrix = Argument("matrix", default=None, doc="the six numbers of the map, row by row", sizes=(6,))
    inverse_map = Constant("bool", default=True, doc="whether the matrix maps from the output to the input")
    size = Argument(
        "floats", default=None, doc="height and width of the output; those of the input by default", static=True
    )
    fill_value = Constant("float", default=None, doc="value beyond the input; its edge by default")
    interp_type = Constant(
        DALIInterpType, default=DALIInterpType.INTERP_LINEAR, doc="between pixels", choices=INTERPOLATIONS
    )
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the input by default")

    def check(self) -> None:
        matrix = self.constants.get("matrix")
        if matrix is not None and not self.inverse_map:
            try:
                inverse(matrix.reshape(2, 3))
            except ValueError as error:
                raise self.argument_error(f"matrix: {error}.") from error

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        self._layout = image_layout(self, spec)
        if len(inputs) == 1 and not self.is_given("matrix"):
            raise self.refuse("give matrix, or a second input")
        return with_size(spec, self._layout, *known_size(self, spec, self._layout), self.dtype)

    def _map(self, matrix: Array | None) -> Array:
        values = np.asarray(matrix, np.float64)
        if values.size != 6:
            raise ValueError(f"the matrix should be six numbers, row by row, got shape {values.shape}")
        values = values.reshape(2, 3)
        return values if self.inverse_map else inverse(values)

    def run(
        self, sample: Sample, image: Array, matrix_input: Array | None = None, *, matrix: Array | None, size: Row | None
    ) -> Array:
        names = layout_of(self._layout, image.ndim)
        mapped = self._map(matrix if matrix_input is None else matrix_input)
        target = output_size(size, (image.shape[names.index("H")], image.shape[names.index("W")]))
        return warped_image(self, image, names, mapped, target)

    def run_arrays(
        self, xp: Namespace, images: Value, matrix_input: Value | None = None, *, matrix: Value, size: Row | None
    ) -> Value:
        matrices = matrix if matrix_input is None else matrix_input
        matrices = xp.reshape(matrices, (images.shape[0], 2, 3))
        if not self.inverse_map:
            a, b, tx = matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 0, 2]
            c, d, ty = matrices[:, 1, 0], matrices[:, 1, 1], matrices[:, 1, 2]
            det = a * d - b * c
            rows = [d, -b, b * ty - d * tx, -c, a, c * tx - a * ty]
            matrices = xp.reshape(xp.stack([row / det for row in rows], axis=1), (-1, 2, 3))
        return warped_arrays(self, xp, images, self._layout, matrices, size)


def output_size(size: Row | None, own: tuple[int, int]) -> tuple[int, int]:
    """(height, width) of the output: as given, or that of the input."""
    if size is None:
        return own
    if len(size) != 2:
        raise ValueError(f"size should be height and width, got {list(size)}")
    return rounded(float(size[0])), rounded(float(size[1]))


def known_size(operator: Rotate | WarpAffine, spec: TensorSpec, layout: str) -> tuple[int | None, int | None]:
    """The size of the output as known at definition."""
    if "size" not in operator.constants:
        return None, None
    if operator.constants["size"] is not None:
        try:
            return output_size(operator.constants["size"], (1, 1))
        except ValueError as error:
            raise operator.refuse(str(error)) from error
    if spec.shape is None:
        return None, None
    return spec.shape[layout.index("H")], spec.shape[layout.index("W")]


def warped_image(
    operator: Rotate | WarpAffine, image: Array, names: str, matrix: Array, target: tuple[int, int]
) -> Array:
    """A warp of one image, or of each of its frames."""
    dtype = image.dtype if operator.dtype is None else operator.dtype
    options = {"interpolation": operator.interp_type, "fill_value": operator.fill_value, "dtype": dtype}
    return on_hwc(image, names, lambda one: warped(one, matrix, target, **options))


def warped_arrays(
    operator: Rotate | WarpAffine, xp: Namespace, images: Value, layout: str, matrices: Value, size: Row | None
) -> Value:
    """A warp on arrays, of images HWC or HW."""
    names = layout_of(layout, images.ndim - 1)
    if names not in ("HWC", "HW"):
        raise ValueError(f"on the device images should be HWC or HW, got {names}")
    wide = xp.expand_dims(images, axis=-1) if names == "HW" else images
    dtype = np.dtype(str(images.dtype).rpartition(".")[2]) if operator.dtype is None else operator.dtype
    target = output_size(size, (wide.shape[1], wide.shape[2]))
    made = sampled(xp, wide, matrices, target, operator.interp_type, operator.fill_value, dtype)
    return made[..., 0] if names == "HW" else made
