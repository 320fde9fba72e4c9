"""`fn.flip`: mirrored images."""

from __future__ import annotations

from typing import Any

from beam_pipes.graph.argument import Argument
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.image.spatial import image_layout, layout_of


class Flip(Operator):
    """Mirrors images (HWC, HW, or of any layout with H and W) where `horizontal` or `vertical` is not zero.

    `flip([[1, 2], [3, 4]], horizontal=1)` → `[[2, 1], [4, 3]]`
    """

    inputs = ("images",)
    devices = ("cpu", "gpu")
    horizontal = Argument("int", default=1, doc="mirrors left and right")
    vertical = Argument("int", default=0, doc="mirrors top and bottom")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        self._layout = image_layout(self, inputs[0])
        return inputs[0]

    def _axes(self, ndim: int) -> tuple[int, int]:
        names = layout_of(self._layout, ndim)
        return names.index("H"), names.index("W")

    def run(self, sample: Any, image: Any, *, horizontal: int, vertical: int) -> Any:
        places = [slice(None)] * image.ndim
        rows, columns = self._axes(image.ndim)
        if vertical:
            places[rows] = slice(None, None, -1)
        if horizontal:
            places[columns] = slice(None, None, -1)
        return image[tuple(places)]

    def run_arrays(self, xp: Any, images: Any, *, horizontal: Any, vertical: Any) -> Any:
        def where(condition: Any, flipped: Any, plain: Any) -> Any:
            return xp.where(xp.reshape(condition != 0, (-1,) + (1,) * (plain.ndim - 1)), flipped, plain)

        rows, columns = self._axes(images.ndim - 1)
        images = where(vertical, xp.flip(images, axis=1 + rows), images)
        return where(horizontal, xp.flip(images, axis=1 + columns), images)
