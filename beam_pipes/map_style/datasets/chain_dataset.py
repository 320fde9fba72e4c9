"""Datasets one after the other."""

from __future__ import annotations

import bisect
import itertools
from typing import Any

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.datasets.base import Dataset, MapStyle, check_dataset, fetch


class ChainDataset(Dataset):
    """Concatenates datasets: `ChainDataset("ab", "c")` → "a", "b", "c". Raises `DatasetError` without datasets."""

    def __init__(self, *datasets: MapStyle) -> None:
        if not datasets:
            raise DatasetError("ChainDataset needs at least one dataset, got none")
        for dataset in datasets:
            check_dataset(dataset, "ChainDataset")
        self._datasets = datasets
        self._ends = list(itertools.accumulate(len(dataset) for dataset in datasets))

    def __len__(self) -> int:
        return self._ends[-1]

    def get_example(self, index: int) -> Any:
        part = bisect.bisect_right(self._ends, index)
        start = self._ends[part - 1] if part else 0
        return fetch(self._datasets[part], index - start, "ChainDataset")
