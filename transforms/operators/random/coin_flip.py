"""`fn.random.coin_flip`: true with a probability."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Argument, Constant
from beam_pipes.graph.samples import Samples
from beam_pipes.graph.tensor_list import TensorList
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.random.shapes import Drawing, drawn


class CoinFlip(Drawing):
    """One where a coin falls on its head, else zero: a scalar for each sample, or an array of `shape`.

    `coin_flip(probability=0.25, dtype=types.BOOL)` → `True, False, False, False, …`
    """

    probability = Argument("float", default=0.5, doc="how likely one is, 0 to 1")
    dtype = Constant("dtype", default="int32", doc="the dtype of what is given")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec(self.dtype, self.shape_spec(inputs[0] if inputs else None))

    def run_batch(
        self, samples: Samples, shape_like: TensorList | None = None, *, probability: Any, shape: Any
    ) -> TensorList:
        wrong = ~((probability >= 0) & (probability <= 1))
        if np.any(wrong):
            raise ValueError(f"probability should be in [0, 1], got {probability[wrong][0]}")
        return drawn(
            samples,
            shape_like,
            shape,
            lambda some, count: (some.uniform(count) < probability[:, None]).astype(self.dtype),
        )
