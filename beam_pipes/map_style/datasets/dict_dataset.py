"""Several datasets of one length, side by side in dicts."""

from __future__ import annotations

from typing import Any

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.datasets.base import Dataset, MapStyle, check_dataset, fetch


class DictDataset(Dataset):
    """Zips datasets by index under names.

        DictDataset(text=["a", "b"], label=[1, 2])[1]  → {"text": "b", "label": 2}
        DictDataset(text=["a", "b"], label=[1, 2])[:1] → [{"text": "a", "label": 1}]

    Raises `DatasetError` without datasets, or where their lengths differ.
    """

    def __init__(self, **datasets: MapStyle) -> None:
        if not datasets:
            raise DatasetError("DictDataset needs at least one dataset as a keyword argument, got none")
        for name, dataset in datasets.items():
            check_dataset(dataset, f"DictDataset field {name!r}")
        lengths = {name: len(dataset) for name, dataset in datasets.items()}
        if len(set(lengths.values())) > 1:
            raise DatasetError(f"DictDataset needs datasets of one length, got lengths {lengths}")
        self._datasets = datasets
        self._size = next(iter(lengths.values()))

    def __len__(self) -> int:
        return self._size

    def get_example(self, index: int) -> dict[str, Any]:
        return {name: fetch(dataset, index, "DictDataset") for name, dataset in self._datasets.items()}
