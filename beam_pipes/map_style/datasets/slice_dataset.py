"""A contiguous part of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.datasets.base import Dataset, MapStyle, check_dataset, fetch


class SliceDataset(Dataset):
    """Examples `start` to `finish` (exclusive) of a dataset, lazily.

    With `order`, a permutation of all indices of `dataset`, they are those at places `start` to `finish` of it:

        SliceDataset("abcd", 1, 3)                      → "b", "c"
        SliceDataset("abcd", 1, 3, order=[3, 2, 1, 0])  → "c", "b"

    Raises `DatasetError` where the slice overruns the dataset or `order` is not a permutation of its indices.
    """

    def __init__(
        self,
        dataset: MapStyle,
        start: int,
        finish: int,
        order: Sequence[int] | np.ndarray[Any, Any] | None = None,
    ) -> None:
        check_dataset(dataset, "SliceDataset")
        size = len(dataset)
        if not 0 <= start <= finish <= size:
            raise DatasetError(
                f"SliceDataset needs 0 <= start <= finish <= {size}, the dataset's length; "
                f"got start={start}, finish={finish}"
            )
        if order is not None and not np.array_equal(np.sort(np.asarray(order, dtype=np.int64)), np.arange(size)):
            raise DatasetError(
                f"SliceDataset needs an order that holds each of 0..{size - 1} once, got {len(order)} values"
            )
        self._dataset = dataset
        self._start = start
        self._size = finish - start
        self._order = order

    def __len__(self) -> int:
        return self._size

    def get_example(self, index: int) -> Any:
        place = self._start + index
        return fetch(self._dataset, place if self._order is None else int(self._order[place]), "SliceDataset")
