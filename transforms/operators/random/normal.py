"""`fn.random.normal`: numbers of a normal distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Argument, Constant
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.conversion import saturated
from beam_pipes.transforms.operators.random.shapes import Drawing, drawn


class Normal(Drawing):
    """Numbers of a normal distribution.

    `normal(mean=100, stddev=15)` → `98.1, 121.7, 86.0, …`
    """

    mean = Argument("float", default=0.0, doc="the mean")
    stddev = Argument("float", default=1.0, doc="the standard deviation")
    dtype = Constant("dtype", default="float32", doc="the dtype of what is given; integers are rounded")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec(self.dtype, self.shape_spec(inputs[0] if inputs else None))

    def run_batch(
        self, samples: Samples, shape_like: TensorList | None = None, *, mean: Any, stddev: Any, shape: Any
    ) -> TensorList:
        if np.any(wrong := stddev < 0):
            raise ValueError(f"stddev should not be negative, got {stddev[wrong][0]}")
        middle, width = np.asarray(mean)[:, None], np.asarray(stddev)[:, None]
        return drawn(
            samples,
            shape_like,
            shape,
            lambda some, count: saturated(np, middle + _standard(some, count) * width, self.dtype),
        )


def _standard(samples: Samples, count: int) -> Any:
    """Standard normal numbers by Box and Muller; the one at a place is the same whatever `count` is."""
    pairs = samples.uniform(2 * count)
    radius = np.sqrt(-2.0 * np.log1p(-pairs[:, ::2]))
    return radius * np.cos(2.0 * np.pi * pairs[:, 1::2])
