"""Moves between host and device: `node.gpu()`, `node.cpu()`."""

from __future__ import annotations

from typing import Any

from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec


class _Copy(Operator):
    inputs = ("data",)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[0]

    def run_arrays(self, xp: Any, data: Any) -> Any:
        return data

    def run(self, sample: Any, data: Any) -> Any:
        return data


class ToDevice(_Copy):
    """The same samples on the device."""

    op_name = "to_device"
    devices = ("mixed",)


class ToHost(_Copy):
    """The same samples, back on the host: an output of the graph."""

    op_name = "to_host"
    devices = ("gpu",)
