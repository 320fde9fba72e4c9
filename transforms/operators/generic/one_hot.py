"""`fn.one_hot`: class numbers as vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.conversion import saturated


class OneHot(Operator):
    """A new axis of `num_classes`, `on_value` at the class and `off_value` elsewhere.

    `one_hot(1, num_classes=3)` → `[0.0, 1.0, 0.0]`

    A number that is no class gives `off_value` everywhere. A sample of shape (1,) counts as a scalar.
    """

    inputs = ("data",)
    devices = ("cpu", "gpu")
    num_classes = Constant("int", default=0, doc="how many classes there are")
    axis = Constant("int", default=-1, doc="where the new axis stands in the output")
    axis_name = Constant("str", default=None, doc="its name, one letter: the output then has a layout")
    on_value = Constant("float", default=1.0, doc="what stands at the class")
    off_value = Constant("float", default=0.0, doc="what stands elsewhere")
    dtype = Constant("dtype", default="float32", doc="the dtype of the output")

    def check(self) -> None:
        if self.num_classes < 1:
            raise self.argument_error(f"num_classes should be at least 1, got {self.num_classes}.")
        if self.axis_name is not None and len(self.axis_name) != 1:
            raise self.argument_error(f"axis_name should be one letter, got {self.axis_name!r}.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        if spec.dtype is not None and spec.dtype.kind not in "iub":
            raise self.refuse(f"expected class numbers (integers), got {spec}")
        if spec.shape is None:
            return TensorSpec(self.dtype)
        own = () if spec.shape == (1,) else spec.shape
        axis = self._axis(len(own))
        shape = (*own[:axis], self.num_classes, *own[axis:])
        layout = ""
        if self.axis_name is not None and len(spec.layout) == len(own):
            layout = spec.layout[:axis] + self.axis_name + spec.layout[axis:]
        return TensorSpec(self.dtype, None if spec.shape == (None,) and self.axis != 0 else shape, layout)

    def _axis(self, ndim: int) -> int:
        if not -ndim - 1 <= self.axis <= ndim:
            raise self.refuse(f"axis={self.axis} is out of range for an output of rank {ndim + 1}")
        return int(self.axis) % (ndim + 1)

    def run_arrays(self, xp: Any, data: Any) -> Any:
        own = data.shape[1:]
        if own == (1,):
            data, own = xp.reshape(data, (-1,)), ()
        axis = 1 + self._axis(len(own))
        classes = xp.reshape(
            xp.asarray(np.arange(self.num_classes, dtype="int32")), (self.num_classes,) + (1,) * (len(own) + 1 - axis)
        )
        if type(data).__module__.partition(".")[0] == "torch":
            classes = classes.to(data.device)
        values = saturated(np, np.array([self.on_value, self.off_value]), self.dtype)
        chosen = xp.expand_dims(data, axis=axis) == classes
        on = xp.full(chosen.shape, values[0].item(), dtype=getattr(xp, self.dtype.name))
        off = xp.full(chosen.shape, values[1].item(), dtype=getattr(xp, self.dtype.name))
        if type(data).__module__.partition(".")[0] == "torch":
            on, off = on.to(data.device), off.to(data.device)
        return xp.where(chosen, on, off)
