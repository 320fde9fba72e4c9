"""`fn.stack`: samples side by side along a new axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.cat import agreed, joined


class Stack(Operator):
    """Puts samples of one shape side by side along a new axis.

    `stack([1, 2], [3, 4])` → `[[1, 2], [3, 4]]`
    """

    inputs = ("input",)
    variadic = True
    devices = ("cpu", "gpu")
    axis = Constant("int", default=0, doc="where the new axis stands in the output")
    axis_name = Constant("str", default=None, doc="its name, one letter, where the samples have a layout")

    def check(self) -> None:
        if self.axis_name is not None and len(self.axis_name) != 1:
            raise self.argument_error(f"axis_name should be one letter, got {self.axis_name!r}.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        first = joined(self, inputs)
        if first.shape is None:
            return first.replace(layout="")
        ndim = len(first.shape)
        axis = self._at(ndim)
        shape = [agreed(self, at, [spec.shape[at] for spec in inputs if spec.shape is not None]) for at in range(ndim)]
        shape.insert(axis, len(inputs))
        layout = ""
        if self.axis_name is not None and len(first.layout) == ndim:
            layout = first.layout[:axis] + self.axis_name + first.layout[axis:]
        return TensorSpec(first.dtype, tuple(shape), layout)

    def _at(self, ndim: int) -> int:
        if not -ndim - 1 <= self.axis <= ndim:
            raise self.refuse(f"axis={self.axis} is out of range for an output of rank {ndim + 1}")
        return int(self.axis) % (ndim + 1)

    def run_arrays(self, xp: Any, *arrays: Any) -> Any:
        axis = 1 + self._at(arrays[0].ndim - 1)
        return np.stack(arrays, axis=axis) if xp is np else xp.stack(arrays, axis=axis)
