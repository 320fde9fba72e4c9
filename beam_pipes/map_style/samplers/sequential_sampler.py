"""Every index in order."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import numpy as np

from beam_pipes.map_style.samplers.base import IndexSampler, size_of
from beam_pipes.map_style.samplers.keyed_random import Indices


class SequentialSampler(IndexSampler):
    """Gives 0, 1, …, n-1 in every epoch; `seed` is accepted for uniformity and changes nothing."""

    def __init__(self, data_source: Sized | int, *, seed: int = 0, epoch: int = 0) -> None:
        super().__init__(seed=seed, epoch=epoch)
        self._size = size_of(data_source, "SequentialSampler")

    def __len__(self) -> int:
        return self._size

    def order(self, epoch: int) -> Indices:
        return np.arange(self._size, dtype=np.int64)

    def describe(self) -> dict[str, Any]:
        return {"sampler": "SequentialSampler", "size": self._size}
