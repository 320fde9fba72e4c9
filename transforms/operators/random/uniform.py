"""`fn.random.uniform`: numbers of a range, or of a list."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Argument, Constant
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.conversion import saturated
from beam_pipes.transforms.operators.random.shapes import Drawing, drawn


class Uniform(Drawing):
    """Numbers that are all alike likely: of the range [low, high), or one of `values`.

    `uniform(range=(10, 30))` → `17.03, 28.4, 11.9, …`

    With a dtype of integers the numbers are rounded, so that both ends of the range occur.
    """

    range = Argument("floats", default=(-1.0, 1.0), doc="lowest number, and the one that all are below")
    values = Argument("floats", default=None, doc="the numbers to choose from, instead of a range")
    dtype = Constant("dtype", default="float32", doc="the dtype of what is given")

    def check(self) -> None:
        ends = self.constants.get("range")
        if ends is not None and not (len(ends) == 2 and ends[0] <= ends[1]):
            raise self.argument_error(f"range should be two numbers, the lower one first, got {ends.tolist()}.")
        if self.constants.get("values") is not None and not len(self.constants["values"]):
            raise self.argument_error("values should hold at least one number.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec(self.dtype, self.shape_spec(inputs[0] if inputs else None))

    def run_batch(
        self, samples: Samples, shape_like: TensorList | None = None, *, range: Any, values: Any, shape: Any
    ) -> TensorList:
        if values is not None:
            return drawn(samples, shape_like, shape, lambda some, count: self._chosen(some, count, values))
        low, high = np.asarray(range)[:, :1], np.asarray(range)[:, 1:]
        if np.any(wrong := low > high):
            raise ValueError(f"range should have the lower number first, got {low[wrong][0]}, {high[wrong][0]}")
        return drawn(samples, shape_like, shape, lambda some, count: self._between(some, count, low, high))

    def _between(self, samples: Samples, count: int, low: Any, high: Any) -> Any:
        made = saturated(np, low + samples.uniform(count) * (high - low), self.dtype)
        if self.dtype.kind != "f":
            return made
        end = high.astype(self.dtype)
        below = np.maximum(np.nextafter(end, np.array(-np.inf, self.dtype)), low.astype(self.dtype))
        return np.where((made >= end) & (high > low), below, made)  # rounding to float32 may reach the end

    def _chosen(self, samples: Samples, count: int, values: Any) -> Any:
        rows = [np.asarray(row) for row in values]
        sizes = np.array([len(row) for row in rows])[:, None]
        chosen = np.minimum((samples.uniform(count) * sizes).astype(np.int64), sizes - 1)
        return saturated(np, np.stack([row[at] for row, at in zip(rows, chosen, strict=True)]), self.dtype)
