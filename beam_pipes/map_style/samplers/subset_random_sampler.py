"""Given indices in random order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.samplers.base import IndexSampler
from beam_pipes.map_style.samplers.digests import digest
from beam_pipes.map_style.samplers.keyed_random import Indices


class SubsetRandomSampler(IndexSampler):
    """Gives each of `indices` once, in an order that changes with the epoch."""

    def __init__(self, indices: Sequence[int] | np.ndarray[Any, Any], *, seed: int = 0, epoch: int = 0) -> None:
        super().__init__(seed=seed, epoch=epoch)
        array = np.asarray(indices)
        if array.ndim != 1 or (array.size and (array.dtype.kind not in "iu" or array.min() < 0)):
            raise DatasetError(
                "SubsetRandomSampler needs a flat sequence of integers of at least 0, "
                f"got dtype {array.dtype}, shape {array.shape}"
            )
        self._indices = array.astype(np.int64)
        self._digest = digest(self._indices)

    def __len__(self) -> int:
        return len(self._indices)

    def order(self, epoch: int) -> Indices:
        return self._indices[self.random(epoch).permutation(len(self._indices))]

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "indices": self._digest}
