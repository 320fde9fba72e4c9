"""Chosen examples of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipes.map_style.datasets.base import Dataset, MapStyle, check_dataset, checked_indices, fetch


class SubsetDataset(Dataset):
    """The examples of `dataset` at `indices`, in their order; an index may occur more than once.

        SubsetDataset("abcd", [2, 0]) → "c", "a"

    Use it to sort or filter by metadata without loading an example: `SubsetDataset(clips, np.argsort(seconds))`.
    Raises `ExampleIndexError` at construction where an index lies outside the dataset.
    """

    def __init__(self, dataset: MapStyle, indices: Sequence[int] | np.ndarray[Any, Any]) -> None:
        check_dataset(dataset, "SubsetDataset")
        self._dataset = dataset
        self._indices = np.asarray(
            checked_indices(indices, len(dataset), f"{type(dataset).__name__} under SubsetDataset"), dtype=np.int64
        )

    def __len__(self) -> int:
        return len(self._indices)

    def get_example(self, index: int) -> Any:
        return fetch(self._dataset, int(self._indices[index]), "SubsetDataset")
