"""The end of a condition: the samples of both branches in their old order."""

from __future__ import annotations

from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec


class Merge(Operator):
    """For each sample what the branch gave that was run for it. The engine runs it: it reads out of branches."""

    op_name = "merge"
    inputs = ("predicate", "then", "orelse")
    devices = ("cpu", "gpu")
    reads_branches = True

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        _, then, orelse = inputs
        shape = None
        if then.shape is not None and orelse.shape is not None:
            shape = tuple(a if a == b else None for a, b in zip(then.shape, orelse.shape, strict=True))
        layout = then.layout if then.layout == orelse.layout else ""
        return TensorSpec(then.dtype if then.dtype is not None else orelse.dtype, shape, layout)
