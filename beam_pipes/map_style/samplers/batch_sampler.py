"""Indices in lists of equal length."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.samplers.base import IndexSampler, Sampler, check_count
from beam_pipes.map_style.samplers.digests import digest_list


class BatchSampler(Sampler):
    """Groups the indices of a sampler into lists of `batch_size`.

        list(BatchSampler(SequentialSampler(5), batch_size=2, drop_last=False)) → [[0, 1], [2, 3], [4]]

    Args:
      sampler: any iterable of indices with a length; its epoch follows this one's.
      batch_size: how many indices a list has.
      drop_last: leave out the last list where it is shorter (here 4). Which examples that hits changes with the
        epoch if the sampler shuffles.
      seed, epoch: belong to `sampler`; there are none here.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        if not hasattr(sampler, "__iter__") or not hasattr(sampler, "__len__"):
            raise DatasetError(
                "BatchSampler needs a sampler: an iterable of indices with a length, that can be iterated again; "
                f"got {type(sampler).__name__}"
            )
        super().__init__(seed=getattr(sampler, "seed", 0), epoch=getattr(sampler, "epoch", 0))
        self.sampler = sampler
        self.batch_size = check_count(batch_size, "batch_size", "BatchSampler")
        self.drop_last = drop_last

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        size = len(self.sampler)  # type: ignore[arg-type]  # checked at construction
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        if isinstance(self.sampler, IndexSampler):
            return self._from_array(self.sampler.order(self.sampler.epoch))
        return self._from_iterator(iter(self.sampler))

    def describe(self) -> dict[str, Any]:
        return {
            "sampler": "BatchSampler",
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "of": describe_sampler(self.sampler),
        }

    def _from_array(self, order: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[list[int]]:
        stop = len(order) - len(order) % self.batch_size if self.drop_last else len(order)
        for start in range(0, stop, self.batch_size):
            yield order[start : start + self.batch_size].tolist()

    def _from_iterator(self, indices: Iterator[int]) -> Iterator[list[int]]:
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch


def describe_sampler(sampler: Any) -> dict[str, Any]:
    """Describes any sampler; of a list the content is known, of another class that is not ours only the length."""
    if isinstance(sampler, Sampler):
        return sampler.describe()
    if isinstance(sampler, (list, tuple, np.ndarray)):
        return {"sampler": "list", "content": digest_list(sampler)}
    size = len(sampler) if hasattr(sampler, "__len__") else None
    return {"sampler": type(sampler).__name__, "size": size}
