"""A constant as a data node: every sample is the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec


class ConstantSample(Operator):
    """The same value for every sample."""

    op_name = "constant"
    value = Constant("any", doc="an array or a number")
    layout = Constant("str", default="", doc="names of the axes")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        value = np.asarray(self.value)
        return TensorSpec.of(value.dtype, value.shape, self.layout)

    def run_batch(self, samples: Samples) -> TensorList:
        value: Any = np.asarray(self.value)
        return TensorList(np.broadcast_to(value, (len(samples), *value.shape)))
