"""A batch that the user has at hand, in debug mode: a list of arrays of any library."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec


class BatchConstant(Operator):
    """One array for each sample of this batch."""

    op_name = "batch_constant"
    samples = Constant("any", doc="arrays, one for each sample")

    def column(self) -> TensorList:
        """The samples."""
        return TensorList([_to_numpy(sample) for sample in self.samples])

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        arrays = [_to_numpy(sample) for sample in self.samples]
        dtypes, ranks = {array.dtype for array in arrays}, {array.ndim for array in arrays}
        return TensorSpec.of_rank(dtypes.pop() if len(dtypes) == 1 else None, ranks.pop() if len(ranks) == 1 else None)


def _to_numpy(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
