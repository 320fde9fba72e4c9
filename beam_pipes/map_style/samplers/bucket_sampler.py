"""Batches of almost equal length, in random order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.samplers.base import Sampler, check_count, check_lengths
from beam_pipes.map_style.samplers.digests import digest
from beam_pipes.map_style.samplers.keyed_random import Indices


class BucketSampler(Sampler):
    """A batch sampler: gives lists of indices whose examples are of almost equal length.

    Each epoch: a new permutation of everything is cut into pools of `pool_batches` batches; a pool is sorted by
    length and cut into batches; all batches are shuffled. So batches hold other examples each epoch, and the short
    last batch can stand anywhere. Lengths uniform in 200-900, batches of 32: less than 1 % of what is
    fed is padding, where random batches have 38 %.

    With `max_elements` the size of a batch varies: as many examples (at most `batch_size`) as keep
    `examples × longest` within it, for a steady memory footprint.

    Args:
      lengths: the length of each example.
      batch_size: examples a batch, or at most that many with `max_elements`.
      drop_last: leave out the last, shorter batch: `n % batch_size` examples, drawn at random each epoch. Not
        together with `max_elements`, where no batch is the short one.
      pool_batches: batches a pool has. More pads less and makes neighbours in a batch more alike; 100 by default.
      max_elements: limit for `examples × longest` in a batch; every single length has to be within it.
      shuffle: with False pools are cut from the dataset in order and batches stay sorted in each, for evaluation.
      seed: batches are a function of (seed, epoch).
      epoch: the epoch of the next iteration, later set by `set_epoch`.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray[Any, Any],
        batch_size: int,
        drop_last: bool = False,
        *,
        pool_batches: int = 100,
        max_elements: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        super().__init__(seed=seed, epoch=epoch)
        self._lengths = check_lengths(lengths, "BucketSampler")
        self._digest = digest(self._lengths)
        self.batch_size = check_count(batch_size, "batch_size", "BucketSampler")
        self.pool_batches = check_count(pool_batches, "pool_batches", "BucketSampler")
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.max_elements = max_elements
        if max_elements is not None:
            check_count(max_elements, "max_elements", "BucketSampler")
            if drop_last:
                raise DatasetError("BucketSampler cannot drop a last batch with max_elements: batches vary in size")
            longest = int(np.argmax(self._lengths)) if len(self._lengths) else 0
            if len(self._lengths) and self._lengths[longest] > max_elements:
                raise DatasetError(
                    f"BucketSampler cannot place example {longest} of length {self._lengths[longest]} in a batch of "
                    f"max_elements={max_elements}; raise the limit or leave the example out"
                )

    def __len__(self) -> int:
        if self.max_elements is not None:
            return len(self._cut(self.epoch)[1]) - 1
        size = len(self._lengths)
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order, bounds = self._cut(self.epoch)
        batches: Sequence[int] | Indices = range(len(bounds) - 1)
        if self.shuffle:
            batches = self.random(self.epoch, "batches").permutation(len(bounds) - 1)
        return (order[bounds[batch] : bounds[batch + 1]].tolist() for batch in batches)

    def describe(self) -> dict[str, Any]:
        facts = {
            "lengths": self._digest,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "pool_batches": self.pool_batches,
            "max_elements": self.max_elements,
            "shuffle": self.shuffle,
        }
        return {**super().describe(), **facts}

    def _cut(self, epoch: int) -> tuple[Indices, list[int]]:
        """Returns all indices, pool after pool sorted by length, and the bounds of the batches in them."""
        size = len(self._lengths)
        order = self.random(epoch).permutation(size) if self.shuffle else np.arange(size, dtype=np.int64)
        if self.drop_last:
            order = order[: size - size % self.batch_size]
        pool_size = self.pool_batches * self.batch_size
        bounds = [0]
        for start in range(0, len(order), pool_size):
            pool = order[start : start + pool_size]
            pool = pool[np.argsort(self._lengths[pool], kind="stable")]
            order[start : start + pool_size] = pool
            bounds += [start + end for end in self._ends(self._lengths[pool])]
        return order, bounds

    def _ends(self, ascending: Indices) -> list[int]:
        """Returns where the batches of one sorted pool end."""
        if self.max_elements is None:
            return [*range(self.batch_size, len(ascending), self.batch_size), len(ascending)]
        ends, start = [], 0
        for place, length in enumerate(ascending.tolist()):
            count = place - start + 1
            if count > self.batch_size or count * length > self.max_elements:
                ends.append(place)
                start = place
        return [*ends, len(ascending)]
