"""`fn.cast`: another dtype."""

from __future__ import annotations

from typing import Any

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.conversion import saturated


class Cast(Operator):
    """Converts samples to another dtype: fractions are rounded, and what does not fit is held at the dtype's bounds.

    `cast([-3, 0.5, 2.4, 300], dtype=types.UINT8)` → `[0, 1, 2, 255]`
    """

    inputs = ("data",)
    devices = ("cpu", "gpu")
    version = "2"
    dtype = Constant("dtype", doc="the dtype to convert to")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[0].replace(dtype=self.dtype)

    def run_arrays(self, xp: Any, data: Any) -> Any:
        return saturated(xp, data, self.dtype)
