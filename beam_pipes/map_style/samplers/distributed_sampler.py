"""One rank's share of a global order."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.loader.world import TENSORFLOW, known_world
from beam_pipes.map_style.samplers.base import IndexSampler, Sampler, check_count, size_of
from beam_pipes.map_style.samplers.batch_sampler import describe_sampler
from beam_pipes.map_style.samplers.keyed_random import Indices
from beam_pipes.map_style.samplers.random_sampler import RandomSampler
from beam_pipes.map_style.samplers.sequential_sampler import SequentialSampler

LAST = ("partial", "drop", "pad")


class DistributedSampler(Sampler):
    """Gives rank r of w the items r, r+w, r+2w, … of one order that all ranks compute alike.

    Ranks are disjoint and together cover everything. What happens when w does not divide the items is `last`:

        n=5, w=2   partial: [0 2 4] [1 3]      every item once; some ranks have one item more
                   drop:    [0 2]   [1 3]      equal counts; up to w-1 items left out, others each epoch
                   pad:     [0 2 4] [1 3 0]    equal counts; up to w-1 items of the front come twice

    Synchronous training needs equal counts, or the longer ranks wait for ever: choose `drop` or `pad` there, or make
    the number divisible. `partial` is the default because it changes no data.

    Args:
      dataset_size: a dataset or its length; or another sampler, index or batch, whose items are then dealt out
        (`DistributedSampler(BucketSampler(lengths, 32), 8, rank)` deals whole batches).
      num_trainers: the number of ranks, w. By default the processes of `torch.distributed` or `jax.distributed`.
      rank: this one, in [0, w). By default this process's.
      shuffle: permute per epoch (default). Must be left out with a sampler, which has an order of its own.
      last: see above.
      seed: has to be the same on all ranks; with a sampler, its seed counts.
      epoch: the epoch of the next iteration, later set by `set_epoch`.
    """

    def __init__(
        self,
        dataset_size: Sized | int,
        num_trainers: int | None = None,
        rank: int | None = None,
        shuffle: bool | None = None,
        *,
        last: str = "partial",
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        super().__init__(seed=seed, epoch=epoch)
        if num_trainers is None or rank is None:
            num_trainers, rank = _of_world(num_trainers, rank)
        self.num_trainers = check_count(num_trainers, "num_trainers", "DistributedSampler")
        self.rank = check_count(rank, "rank", "DistributedSampler", at_least=0)
        if self.rank >= self.num_trainers:
            raise DatasetError(f"DistributedSampler needs 0 <= rank < num_trainers={num_trainers}, got rank={rank}")
        if last not in LAST:
            raise DatasetError(f"DistributedSampler needs last to be one of: {', '.join(LAST)}; got {last!r}")
        self.last = last
        self._of: Sampler
        if isinstance(dataset_size, Sampler):
            if shuffle is not None:
                raise DatasetError("DistributedSampler takes no shuffle with a sampler: the order is the sampler's")
            self._of = dataset_size
        else:
            size = size_of(dataset_size, "DistributedSampler")
            ordered = SequentialSampler if shuffle is False else RandomSampler
            self._of = ordered(size, seed=seed)
        self._of.set_epoch(self.epoch)

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self._of.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._places(len(self._of)))

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._of, IndexSampler):
            order = self._of.order(self._of.epoch)
            return map(int, order[self._places(len(order))])
        items = list(self._of)
        return iter([items[place] for place in self._places(len(items))])

    def describe(self) -> dict[str, Any]:
        return {
            "sampler": "DistributedSampler",
            "num_trainers": self.num_trainers,
            "last": self.last,
            "of": describe_sampler(self._of),
        }

    def _places(self, total: int) -> Indices:
        """Returns which places of the global order are this rank's."""
        even = total - total % self.num_trainers
        stop = {"partial": total, "drop": even, "pad": even + self.num_trainers if even < total else total}[self.last]
        return np.arange(self.rank, stop, self.num_trainers, dtype=np.int64) % max(total, 1)


def _of_world(num_trainers: int | None, rank: int | None) -> tuple[int, int]:
    world = known_world()
    # TensorFlow's strategies may divide the data themselves.
    if world is None or world.framework == TENSORFLOW or num_trainers is not None or rank is not None:
        found = f"got num_trainers={num_trainers}, rank={rank}"
        where = "" if world is None else f", and this is {world}"
        raise DatasetError(
            "DistributedSampler needs num_trainers and rank, or neither of them where torch.distributed or "
            f"jax.distributed is initialised; {found}{where}. Pass num_trainers=1, rank=0 for all items."
        )
    return world.count, world.index
