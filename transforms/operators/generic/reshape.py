"""`fn.reshape`: the same elements in another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from beam_pipes.graph.argument import Argument, Constant
from beam_pipes.graph.operator import Device, Operator
from beam_pipes.graph.tensor_spec import TensorSpec


class Reshape(Operator):
    """Gives samples another shape; the order of their elements stays.

    `reshape([[1, 2, 3], [4, 5, 6]], shape=[3, -1])` → `[[1, 2], [3, 4], [5, 6]]`

    `rel_shape` multiplies extents instead: `[0.5, 2]` makes 2×3 to 1×6. `src_dims=[1, 0]` says which extent of the
    input stands for which of the output; -1 there is a new axis of 1. An extent of -1 is what is left over. The shape
    may also come as a second input, on the host.
    """

    inputs = ("data", "shape_input")
    optional_inputs = 1
    devices: ClassVar[tuple[Device, ...]] = ("cpu", "gpu")
    shape = Argument("ints", default=None, doc="extents of the output; one may be -1", static=True)
    rel_shape = Argument("floats", default=None, doc="extents of the output by those of the input", static=True)
    src_dims = Constant("ints", default=None, doc="which extents of the input are taken; -1 for an axis of 1")
    layout = Constant("str", default=None, doc="names of the axes; those of the input where the rank stays the same")

    def check(self) -> None:
        if self.constants.get("shape") is not None and self.constants.get("rel_shape") is not None:
            raise self.argument_error("give one of shape and rel_shape.")
        shape = self.constants.get("shape")
        if shape is not None and (sum(shape == -1) > 1 or any(shape < -1)):
            raise self.argument_error(f"shape should hold extents and at most one -1, got {shape.tolist()}.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        if len(inputs) > 1:
            dims = inputs[1].shape
            found = TensorSpec.of_rank(spec.dtype, dims[0] if dims else None)
        elif "shape" in self.constants and "rel_shape" in self.constants:
            if not any(self.constants[name] is not None for name in ("shape", "rel_shape", "src_dims", "layout")):
                raise self.refuse("give shape, rel_shape, src_dims, layout or a second input")
            found = TensorSpec(spec.dtype, self._known_shape(spec))
        else:
            found = TensorSpec(spec.dtype)
        return found.replace(layout=self._layout(spec, found.ndim))

    def _known_shape(self, spec: TensorSpec) -> tuple[int | None, ...] | None:
        if spec.shape is not None and None not in spec.shape:
            extents = [int(extent) for extent in spec.shape if extent is not None]
            try:
                return self._shape_of(extents, self.constants["shape"], self.constants["rel_shape"])
            except ValueError as error:
                raise self.refuse(str(error)) from error
        if self.constants["shape"] is not None:
            return tuple(None if extent == -1 else int(extent) for extent in self.constants["shape"])
        wanted = self.constants["rel_shape"] if self.constants["rel_shape"] is not None else self.src_dims
        return spec.shape if wanted is None else (None,) * len(wanted)

    def _layout(self, spec: TensorSpec, ndim: int | None) -> str:
        if self.layout is not None:
            if ndim is not None and len(self.layout) != ndim:
                raise self.refuse(f"layout={self.layout!r} names {len(self.layout)} axes, and the output has {ndim}")
            return str(self.layout)
        return spec.layout if ndim is not None and ndim == spec.ndim else ""

    def _shape_of(self, extents: Sequence[int], shape: Any, rel_shape: Any) -> tuple[int, ...]:
        """The shape of one output."""
        size = math.prod(extents)
        if shape is not None:
            wanted = [int(extent) for extent in shape]
        else:
            source = list(range(len(extents))) if self.src_dims is None else [int(dim) for dim in self.src_dims]
            if rel_shape is not None and self.src_dims is None:
                source = source[: len(rel_shape)] + [-1] * (len(rel_shape) - len(extents))
            if any(not -1 <= dim < len(extents) for dim in source):
                raise ValueError(f"src_dims={source} should name axes of samples of rank {len(extents)}, or -1")
            wanted = [1 if dim < 0 else extents[dim] for dim in source]
            if rel_shape is not None:
                if len(rel_shape) != len(wanted):
                    raise ValueError(f"rel_shape has {len(rel_shape)} numbers, and src_dims {len(wanted)}")
                wanted = [
                    -1 if factor < 0 else round(extent * factor)
                    for extent, factor in zip(wanted, map(float, rel_shape), strict=True)
                ]
        if -1 in wanted:
            rest = math.prod(extent for extent in wanted if extent != -1)
            if rest and size % rest == 0:
                wanted = [size // rest if extent == -1 else extent for extent in wanted]
        if math.prod(wanted) != size or -1 in wanted:
            raise ValueError(f"{size} elements of shape {tuple(extents)} do not make shape {tuple(wanted)}")
        return tuple(wanted)

    def run(self, sample: Any, data: Any, shape_input: Any = None, *, shape: Any, rel_shape: Any) -> Any:
        return data.reshape(self._shape_of(data.shape, shape if shape_input is None else shape_input, rel_shape))

    def run_arrays(self, xp: Any, data: Any, shape_input: Any = None, *, shape: Any, rel_shape: Any) -> Any:
        if shape_input is not None:
            raise ValueError("on the device the shape should be given as shape=, computed on the host")
        return xp.reshape(data, (data.shape[0], *self._shape_of(data.shape[1:], shape, rel_shape)))
