"""`fn.to_decibels`: magnitudes on a logarithmic scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.conversion import cast_to


class ToDecibels(Operator):
    """`multiplier * log10(max(x / reference, least))`, float32; the least is what `cutoff_db` stands for.

    `to_decibels([1, 10, 100])` → `[-20, -10, 0]`

    The reference is the largest value of the sample unless it is given.
    """

    inputs = ("data",)
    devices = ("cpu", "gpu")
    multiplier = Constant("float", default=10.0, doc="10 for power, 20 for magnitude")
    reference = Constant("float", default=0.0, doc="what is 0 dB; 0 is the largest value of each sample")
    cutoff_db = Constant("float", default=-200.0, doc="what is less counts as this many dB")

    def check(self) -> None:
        if not self.multiplier > 0 or self.reference < 0:
            raise self.argument_error(
                f"multiplier should be above 0 and reference not below, got {self.multiplier} and {self.reference}."
            )

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[0].replace(dtype=np.dtype("float32"))

    def run_arrays(self, xp: Any, data: Any) -> Any:
        values = cast_to(xp, data, np.dtype("float32"))
        if self.reference:
            scaled = values * (1.0 / self.reference)
        else:
            most = xp.max(xp.reshape(values, (values.shape[0], -1)), axis=1)
            most = xp.where(most == 0, xp.ones_like(most), most)
            scaled = values / xp.reshape(most, (-1,) + (1,) * (values.ndim - 1))
        least = xp.full_like(scaled, 10.0 ** (self.cutoff_db / self.multiplier))
        return xp.log10(xp.where(scaled > least, scaled, least)) * self.multiplier
