"""Draws in proportion to weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.samplers.base import IndexSampler, check_count
from beam_pipes.map_style.samplers.digests import digest
from beam_pipes.map_style.samplers.keyed_random import Indices


class WeightedRandomSampler(IndexSampler):
    """Gives `num_samples` indices, drawn with probability in proportion to `weights`.

    Args:
      weights: one an example, finite and at least 0; they need not sum to 1. A weight of 0 is never drawn.
      num_samples: how many indices an epoch has.
      replacement: draw independently (default). Without it no index comes twice, and at least `num_samples` weights
        have to be positive; drawn by exponential keys (Efraimidis and Spirakis, 2006).
      seed: the draws are a function of (seed, epoch).
      epoch: the epoch of the next iteration, later set by `set_epoch`.
    """

    def __init__(
        self,
        weights: Sequence[float] | np.ndarray[Any, Any],
        num_samples: int,
        replacement: bool = True,
        *,
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        super().__init__(seed=seed, epoch=epoch)
        self._weights = np.asarray(weights, dtype=np.float64)
        usable = np.isfinite(self._weights) & (self._weights >= 0)
        if self._weights.ndim != 1 or not usable.all():
            raise DatasetError(
                "WeightedRandomSampler needs a flat sequence of finite weights of at least 0, got shape "
                f"{self._weights.shape} with {np.count_nonzero(~usable)} values that are negative or not finite"
            )
        self._num_samples = check_count(num_samples, "num_samples", "WeightedRandomSampler", at_least=0)
        self._replacement = replacement
        self._digest = digest(self._weights)
        positive = int(np.count_nonzero(self._weights))
        if self._num_samples > positive and (not replacement or positive == 0):
            raise DatasetError(
                f"WeightedRandomSampler cannot draw num_samples={self._num_samples} from {positive} positive weights"
                + (" without replacement" if not replacement else "")
            )

    def __len__(self) -> int:
        return self._num_samples

    def order(self, epoch: int) -> Indices:
        random = self.random(epoch)
        positive = np.flatnonzero(self._weights)
        weights = self._weights[positive]
        if self._replacement:
            ends = np.cumsum(weights)
            draws = random.uniform(self._num_samples) * (ends[-1] if len(ends) else 0.0)
            places = np.minimum(np.searchsorted(ends, draws, side="right"), len(ends) - 1)
        else:
            keys = -np.log1p(-random.uniform(len(weights))) / weights
            places = np.argsort(keys, kind="stable")[: self._num_samples]
        return positive[places].astype(np.int64, copy=False)

    def describe(self) -> dict[str, Any]:
        facts = {"weights": self._digest, "num_samples": self._num_samples, "replacement": self._replacement}
        return {**super().describe(), **facts}
