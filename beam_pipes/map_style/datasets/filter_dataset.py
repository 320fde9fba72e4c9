"""The examples that pass a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.datasets.base import Dataset, MapStyle, apply_to_example, check_dataset, fetch


class FilterDataset(Dataset):
    """Keeps the examples for which `filter_fn(example)` is true.

        FilterDataset([3, 8, 5], lambda n: n > 4) → 8, 5

    Every example is read once, at construction, to learn which are kept. Where that is dear and a small dataset of
    metadata of the same length decides as well, pass it as `on`: `filter_fn` then sees `on[i]`, and no example is read.

        FilterDataset(clips, lambda meta: meta["seconds"] < 10, on=metadata)

    An exception in `filter_fn` is raised as `ExampleError` with the index of its example.
    """

    def __init__(self, dataset: MapStyle, filter_fn: Callable[[Any], Any], *, on: MapStyle | None = None) -> None:
        check_dataset(dataset, "FilterDataset")
        judged = dataset if on is None else on
        check_dataset(judged, "FilterDataset")
        if len(judged) != len(dataset):
            raise DatasetError(
                f"FilterDataset needs `on` to hold one value for each of the {len(dataset)} examples, got {len(judged)}"
            )
        self._dataset = dataset
        self._indices = np.asarray(
            [
                index
                for index in range(len(dataset))
                if apply_to_example(filter_fn, fetch(judged, index, "FilterDataset"), index, "filter")
            ],
            dtype=np.int64,
        )

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def indices(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where the kept examples stand in the dataset below, ascending, int64."""
        return self._indices

    def get_example(self, index: int) -> Any:
        return fetch(self._dataset, int(self._indices[index]), "FilterDataset")
