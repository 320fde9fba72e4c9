"""`fn.cat`: samples joined along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.axes import axes_in, positive_axes


class Cat(Operator):
    """Joins samples along an axis that they have.

    `cat([1, 2], [3])` → `[1, 2, 3]`
    """

    inputs = ("input",)
    variadic = True
    devices = ("cpu", "gpu")
    axis = Constant("int", default=0, doc="along which axis")
    axis_name = Constant("str", default=None, doc="the same by its name in the layout")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        first = joined(self, inputs)
        self._axis = axes_in(self, first.layout, self.axis_name)[0] if self.axis_name is not None else int(self.axis)
        if first.shape is None:
            return first
        if not first.shape:
            raise self.refuse("scalars have no axis to be joined along; use fn.stack")
        axis = positive_axes(self, [self._axis], len(first.shape))[0]
        extents = [spec.shape[axis] if spec.shape is not None else None for spec in inputs]
        shape = list(first.shape)
        for at in range(len(shape)):
            if at != axis:
                shape[at] = agreed(self, at, [spec.shape[at] for spec in inputs if spec.shape is not None])
        shape[axis] = None if None in extents else sum(extent for extent in extents if extent is not None)
        return first.replace(shape=tuple(shape))

    def run_arrays(self, xp: Any, *arrays: Any) -> Any:
        axis = self._axis % (arrays[0].ndim - 1) + 1
        return np.concatenate(arrays, axis=axis) if xp is np else xp.concat(arrays, axis=axis)


def joined(operator: Operator, inputs: tuple[TensorSpec, ...]) -> TensorSpec:
    """What inputs that are to be joined have in common; raises `InferenceError` where they differ."""
    dtypes = {spec.dtype for spec in inputs if spec.dtype is not None}
    ranks = {spec.ndim for spec in inputs if spec.ndim is not None}
    layouts = {spec.layout for spec in inputs if spec.layout}
    for what, found in (("dtype", dtypes), ("rank", ranks), ("layout", layouts)):
        if len(found) > 1:
            shown = ", ".join(str(spec) for spec in inputs)
            raise operator.refuse(f"all inputs should have one {what}, got {shown}")
    shaped = next((spec for spec in inputs if spec.shape is not None), inputs[0])
    dtype = next(iter(dtypes)) if len(dtypes) == 1 and all(spec.dtype is not None for spec in inputs) else None
    return TensorSpec(dtype, shaped.shape, next(iter(layouts), ""))


def agreed(operator: Operator, axis: int, extents: list[int | None]) -> int | None:
    """The extent that all inputs have along an axis, as far as it is known."""
    known = {extent for extent in extents if extent is not None}
    if len(known) > 1:
        raise operator.refuse(f"all inputs should have one extent along axis {axis}, got {sorted(known)}")
    return next(iter(known), None)
