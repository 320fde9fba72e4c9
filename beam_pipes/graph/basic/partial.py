"""A value that only one branch of a condition has: what an early return leaves until the other way returns too."""

from __future__ import annotations

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec


class Partial(Operator):
    """The samples of one branch. The engine runs it: it reads out of a branch."""

    op_name = "partial"
    inputs = ("predicate", "value")
    devices = ("cpu", "gpu")
    reads_branches = True
    branch = Constant("bool", doc="the branch that has a value")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[1]
