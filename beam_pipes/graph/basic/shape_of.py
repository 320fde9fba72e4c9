"""`node.shape()`: the shape of every sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.operator import Operator
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec


class ShapeOf(Operator):
    """int64, (rank,): the shape of every sample."""

    op_name = "shapes"
    inputs = ("data",)
    devices = ("cpu", "gpu")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec.of("int64", (inputs[0].ndim,))

    def run_batch(self, samples: Samples, data: TensorList) -> TensorList:
        if data.is_stacked:
            shape = np.array(data.as_array().shape[1:], np.int64)
            return TensorList(np.broadcast_to(shape, (len(data), len(shape))))
        return TensorList([np.array(sample.shape, np.int64) for sample in data])

    def run_arrays(self, xp: Any, data: Any) -> Any:
        shape = np.array(data.shape[1:], np.int64)
        return xp.asarray(np.tile(shape, (data.shape[0], 1)))
