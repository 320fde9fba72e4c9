"""A dataset that remembers its examples."""

from __future__ import annotations

from typing import Any

from beam_pipes.map_style.datasets.base import Dataset, MapStyle, check_dataset, fetch


class CacheDataset(Dataset):
    """Keeps every example in memory once it was asked for: the second policy of `docs/caching-policies.md`.

    The first pass costs what the dataset below costs, later ones a dict lookup. Examples are handed out as the very
    same objects each time: do not change them in place. Safe under threads (two threads that miss at once may both
    compute, one result is kept); each worker process of a `DataLoader` fills a cache of its own, starting empty;
    an example that failed is tried again.
    """

    def __init__(self, dataset: MapStyle) -> None:
        check_dataset(dataset, "CacheDataset")
        self._dataset = dataset
        self._examples: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._dataset)

    def get_example(self, index: int) -> Any:
        try:
            return self._examples[index]
        except KeyError:
            return self._examples.setdefault(index, fetch(self._dataset, index, "CacheDataset"))

    def __getstate__(self) -> dict[str, Any]:
        # What is cached may be gigabytes, and is never needed on the other side of a pickle.
        return {**self.__dict__, "_examples": {}}

    @property
    def num_cached(self) -> int:
        """How many examples are held in memory."""
        return len(self._examples)

    def clear(self) -> None:
        """Forgets every example."""
        self._examples.clear()
