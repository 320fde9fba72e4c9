"""`fn.rotate`: turned images."""

from __future__ import annotations

import math
from typing import Any

from beam_pipes.graph.argument import Argument, Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.graph.types import DALIInterpType
from beam_pipes.transforms.operators.image.affine import rotation_canvas, rotation_map, warped
from beam_pipes.transforms.operators.image.spatial import image_layout, layout_of, on_hwc, with_size
from beam_pipes.transforms.operators.image.warp_affine import (
    check_interpolation,
    known_size,
    output_size,
    warped_arrays,
)


class Rotate(Operator):
    """Turns images counter-clockwise about their middle.

    `rotate([[1, 2], [3, 4]], angle=90)` → `[[2, 4], [1, 3]]`

    The canvas grows to hold the whole image, unless `keep_size` or `size` says otherwise; on the device one of them has
    to. Pixels beyond the image are `fill_value`, or those at its edge without one.
    """

    inputs = ("images",)
    devices = ("cpu", "gpu")
    rounds_by_place = True
    angle = Argument("float", doc="degrees, counter-clockwise")
    fill_value = Constant("float", default=None, doc="what lies beyond the image; its edge by default")
    keep_size = Constant("bool", default=False, doc="whether the output has the size of the input")
    size = Argument("floats", default=None, doc="height and width of the output", static=True)
    interp_type = Constant(DALIInterpType, default=DALIInterpType.INTERP_LINEAR, doc="nearest or linear")
    dtype = Constant("dtype", default=None, doc="the dtype of the output; that of the input by default")

    def check(self) -> None:
        check_interpolation(self)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        self._layout = image_layout(self, spec)
        height, width = known_size(self, spec, self._layout)
        if self.constants.get("size", 0) is None and not self.keep_size:
            if "angle" in self.constants and height is not None and width is not None:
                height, width = rotation_canvas(height, width, self.constants["angle"])
            else:
                height = width = None
        return with_size(spec, self._layout, height, width, self.dtype)

    def run(self, sample: Any, image: Any, *, angle: float, size: Any) -> Any:
        names = layout_of(self._layout, image.ndim)
        own = image.shape[names.index("H")], image.shape[names.index("W")]
        if not math.isfinite(angle):
            raise ValueError(f"the angle should be a number of degrees, got {angle}")
        target = output_size(size, own if self.keep_size else rotation_canvas(*own, angle))
        matrix = rotation_map(angle, own, target)
        return on_hwc(
            image,
            names,
            lambda one: warped(
                one,
                matrix,
                target,
                interpolation=self.interp_type,
                fill_value=self.fill_value,
                dtype=image.dtype if self.dtype is None else self.dtype,
            ),
        )

    def run_arrays(self, xp: Any, images: Any, *, angle: Any, size: Any) -> Any:
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
