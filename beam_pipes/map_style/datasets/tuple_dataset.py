"""Several datasets of one length, side by side in tuples."""

from __future__ import annotations

from typing import Any

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.datasets.base import Dataset, MapStyle, check_dataset, fetch


class TupleDataset(Dataset):
    """Zips datasets by index.

        TupleDataset(["a", "b"], [1, 2])[1]   → ("b", 2)
        TupleDataset(["a", "b"], [1, 2])[0:2] → [("a", 1), ("b", 2)]

    Raises `DatasetError` without datasets, or where their lengths differ.
    """

    def __init__(self, *datasets: MapStyle) -> None:
        if not datasets:
            raise DatasetError("TupleDataset needs at least one dataset, got none")
        for dataset in datasets:
            check_dataset(dataset, "TupleDataset")
        lengths = [len(dataset) for dataset in datasets]
        if len(set(lengths)) > 1:
            raise DatasetError(f"TupleDataset needs datasets of one length, got lengths {lengths}")
        self._datasets = datasets
        self._size = lengths[0]

    def __len__(self) -> int:
        return self._size

    def get_example(self, index: int) -> tuple[Any, ...]:
        return tuple(fetch(dataset, index, "TupleDataset") for dataset in self._datasets)
