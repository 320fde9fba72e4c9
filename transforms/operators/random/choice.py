"""`fn.random.choice`: elements of an array, chosen with given probabilities."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from beam_pipes.graph.argument import Argument
from beam_pipes.graph.operator import Device
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.random.shapes import Drawing, drawn


class Choice(Drawing):
    """Elements of an array, or numbers below an integer: `choice(4)` → `2`, `choice([3, 4, 5], shape=[2])` → `[5, 3]`.

    Of an array of a higher rank, what lies along its first axis is chosen from.
    """

    inputs = ("a", "shape_like")
    devices: ClassVar[tuple[Device, ...]] = ("cpu",)
    optional_inputs = 1
    p = Argument("floats", default=None, doc="how likely each element is; all alike by default. Their sum is 1")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        a = inputs[0]
        if a.ndim == 0 and a.dtype is not None and a.dtype.kind not in "iu":
            raise self.refuse(f"expected an array, or the integer that numbers should be below, got {a}")
        own = self.shape_spec(inputs[1] if len(inputs) > 1 else None)
        if own is None or a.shape is None:
            return TensorSpec(a.dtype)
        return TensorSpec(a.dtype, (*own, *a.shape[1:]))

    def run_batch(
        self, samples: Samples, a: TensorList, shape_like: TensorList | None = None, *, p: Any, shape: Any
    ) -> TensorList:
        sizes = np.array([int(one) if one.ndim == 0 else len(one) for one in a], np.int64)
        if len(sizes) and sizes.min() < 1:
            raise ValueError("there should be at least one element to choose from")
        chosen = drawn(samples, shape_like, shape, lambda some, count: self._places(some, count, sizes, p))
        made = [
            at.astype(one.dtype) if one.ndim == 0 else np.asarray(one[at]) for one, at in zip(a, chosen, strict=True)
        ]
        return TensorList(made)

    def _places(self, samples: Samples, count: int, sizes: Any, p: Any) -> Any:
        uniform = samples.uniform(count)
        if p is None:
            return np.minimum((uniform * sizes[:, None]).astype(np.int64), sizes[:, None] - 1)
        places = np.empty(uniform.shape, np.int64)
        for index, row in enumerate(p):
            row = np.asarray(row, np.float64)
            if len(row) != sizes[index] or np.any(row < 0) or not np.isclose(row.sum(), 1.0, atol=1e-5):
                raise ValueError(
                    f"p should hold {sizes[index]} probabilities whose sum is 1, got {row.tolist()} (sum {row.sum():g})"
                )
            ends = np.cumsum(row / row.sum())
            # Elements of probability zero at the end are never reached, whatever the sum rounds to.
            last = int(np.flatnonzero(row)[-1])
            places[index] = np.minimum(np.searchsorted(ends, uniform[index], side="right"), last)
        return places
