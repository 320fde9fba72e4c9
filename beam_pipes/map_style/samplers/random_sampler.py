"""Every index once in random order, or a number of independent draws."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.samplers.base import IndexSampler, check_count, size_of
from beam_pipes.map_style.samplers.keyed_random import Indices


class RandomSampler(IndexSampler):
    """Gives a permutation of 0..n-1, another one each epoch.

    Args:
      data_source: a dataset, or its length n.
      replacement: draw independently instead: an index may then come twice or never.
      num_samples: how many indices an epoch has; n by default. Without replacement at most n.
      seed: 0 by default, so that a run repeats itself; the order is a function of (seed, epoch).
      epoch: the epoch of the next iteration, later set by `set_epoch`.
    """

    def __init__(
        self,
        data_source: Sized | int,
        replacement: bool = False,
        num_samples: int | None = None,
        *,
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        super().__init__(seed=seed, epoch=epoch)
        self._size = size_of(data_source, "RandomSampler")
        self._replacement = replacement
        self._num_samples = (
            self._size if num_samples is None else check_count(num_samples, "num_samples", "RandomSampler", at_least=0)
        )
        if self._num_samples > self._size and (not replacement or self._size == 0):
            raise DatasetError(
                f"RandomSampler cannot draw num_samples={self._num_samples} from {self._size} examples without "
                "replacement; pass replacement=True or a smaller number"
            )

    def __len__(self) -> int:
        return self._num_samples

    def order(self, epoch: int) -> Indices:
        random = self.random(epoch)
        if self._replacement:
            return random.integers(self._num_samples, self._size)
        return random.permutation(self._size)[: self._num_samples]

    def describe(self) -> dict[str, Any]:
        facts = {"size": self._size, "replacement": self._replacement, "num_samples": self._num_samples}
        return {**super().describe(), **facts}
