"""The loader over map-style datasets. (`beam_pipes.DataLoader` is a different one, over streams, caches and devices.)

    batch sampler ──indices──► examples (here, on threads or in processes) ──collate_fn──► batch

`DataLoader` hands out the batches and counts them in its `Position`; `dump_state` and `load_state` turn that into JSON
and back, and refuse a state that belongs to another order.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import os
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, SupportsIndex

from beam_pipes.errors import DatasetError, ExampleError, StateMismatchError, logger
from beam_pipes.loader.prefetch import SharedIterator
from beam_pipes.loader.world import known_world
from beam_pipes.map_style.batch_samplers import (
    SAMPLERS,
    BatchSampler,
    BucketSampler,
    DistributedSampler,
    describe_sampler,
)
from beam_pipes.map_style.batching import Collated, default_collate
from beam_pipes.map_style.protocol import Item, MapStyle, check_dataset, describe
from beam_pipes.map_style.sampler import check_count
from beam_pipes.map_style.workers import Loaded, WorkerPool, load_examples, load_on_threads, short
from beam_pipes.storage.checked_json import JsonObject

_log = logger(__name__)
# Warnings about Paddle's arguments, given once per process.
_noted: list[list[str]] = []

VERSION = 1


@dataclasses.dataclass
class Position:
    """`position` batches of `epoch` have been handed out."""

    epoch: int
    position: int


def dump_state(place: Position, order: Mapping[str, object]) -> dict[str, object]:
    """Returns the state as JSON values: `order` is what the sequence of batches depends on."""
    return {"version": VERSION, "epoch": place.epoch, "position": place.position, "order": dict(order)}


def load_state(state: JsonObject, order: Mapping[str, object]) -> Position:
    """Returns the place in `state`, or raises `StateMismatchError` naming each difference from `order`."""
    missing = [key for key in ("version", "epoch", "position", "order") if key not in state]
    if missing:
        raise StateMismatchError(f"a DataLoader state needs {', '.join(missing)}; got {sorted(state)}")
    if state["version"] != VERSION:
        raise StateMismatchError(
            f"the state has version {state['version']!r}, this library reads version {VERSION}; start the epoch again"
        )
    saved, ours = dict(_leaves(state["order"])), dict(_leaves(order))
    differences = [
        f"{name} was {saved.get(name)!r}, is {ours.get(name)!r}"
        for name in {**saved, **ours}
        if saved.get(name) != ours.get(name)
    ]
    if differences:
        raise StateMismatchError(
            f"the state belongs to another order of batches: {'; '.join(differences)}. Build the loader as it was, or "
            "start again with set_epoch"
        )
    return Position(int(state["epoch"]), int(state["position"]))


def _leaves(tree: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


WORKER_TYPES = ("process", "thread")


class DataLoader:
    """Iterates over a dataset in batches, any number of times; each iteration is the next epoch.

        loader = DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True, collate_fn=collector)
        for epoch in range(10):
            for batch in loader: ...

    The order of batches depends only on the sampler's seed and the epoch, not on workers or timing.
    An exception in the dataset, in a transform or in `collate_fn` surfaces as `ExampleError` with the index and the
    cause, even if it is an `IndexError` or a `StopIteration`.

    Args:
      dataset: anything with `__len__` and `__getitem__`; `__getitems__(indices)` is used if it exists.
      batch_size: examples in a batch, 1 by default as in the reference.
      shuffle: another permutation each epoch; in order by default.
      drop_last: leave out the last batch if it is shorter.
      sampler: an iterable of indices instead of `shuffle`.
      batch_sampler: an iterable of lists of indices instead of `batch_size`, `shuffle`, `drop_last` and `sampler`.
      collate_fn: list of examples → batch; `default_collate` by default. It is called in the thread that iterates,
        one batch after the other, so it may keep state and need not be picklable.
      num_workers: how many batches' examples are read at the same time ahead of use; 0, the default, reads them when
        they are asked for.
      worker_type: "thread" (default): nothing is copied or pickled; right if the time goes into files, NumPy or
        decoders, which release the GIL. "process": for transforms that are slow Python; they are spawned, so the
        dataset must be picklable and the script guarded by `if __name__ == "__main__":`; examples are copied through a
        pipe.
      prefetch: batches in flight per worker, 2 by default: one being made, one waiting.
      timeout: seconds to wait for a batch of a worker process before an error; 0, the default, keeps waiting, and
        reports on standard error every five minutes which examples it waits for.
      return_list: return the fields of a batch as a list: a tuple becomes a list, an array a list of one; a dict keeps
        its names, as in Paddle. By default a batch is what `collate_fn` returned.
      seed: of the permutations with `shuffle`, 0 by default. A sampler has its own.
      worker_init_fn: called with its number in each worker process as it starts. It is not called for threads, which
        share the process; a warning says so.
      feed_list, places, use_buffer_reader, use_shared_memory, persistent_workers: Paddle's, without effect here; values
        other than the default are logged once.

    Where `torch.distributed` or `jax.distributed` runs several processes, the samplers of this library would give all
    of them the same batches: that is a `DatasetError`, unless a `DistributedSampler` deals them out. Samplers of other
    classes, such as torch's, are trusted to shard.

    Worker processes are kept between epochs, and end with `close()`, with the `with` block, or with the loader.
    """

    def __init__(
        self,
        dataset: MapStyle,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        drop_last: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[list[int]] | None = None,
        collate_fn: Callable[[list[Item]], object] | None = None,
        num_workers: int = 0,
        worker_type: str = "thread",
        prefetch: int = 2,
        timeout: float = 0,
        return_list: bool = False,
        seed: int | None = None,
        feed_list: object = None,
        places: object = None,
        use_buffer_reader: bool = True,
        use_shared_memory: bool = True,
        persistent_workers: bool = True,
        worker_init_fn: Callable[[int], object] | None = None,
    ) -> None:
        check_dataset(dataset, "DataLoader")
        _note_of_paddle(
            feed_list=feed_list,
            places=places,
            use_buffer_reader=not use_buffer_reader,
            use_shared_memory=not use_shared_memory,
            persistent_workers=not persistent_workers,
            worker_init_fn=worker_init_fn is not None and not (num_workers and worker_type == "process"),
        )
        self.dataset = dataset
        self.batch_sampler: Iterable[list[int]]
        if batch_sampler is None:
            self.batch_sampler = _batch_sampler(dataset, batch_size, shuffle, drop_last, sampler, seed)
        else:
            self.batch_sampler = _checked_batch_sampler(
                batch_sampler,
                batch_size=batch_size != 1,
                shuffle=shuffle,
                drop_last=drop_last,
                sampler=sampler is not None,
                seed=seed is not None,
            )
        self._check_world()
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        self.num_workers = check_count(num_workers, "num_workers", "DataLoader", at_least=0)
        self.prefetch = check_count(prefetch, "prefetch", "DataLoader")
        if worker_type not in WORKER_TYPES:
            raise DatasetError(f"DataLoader needs worker_type to be one of: process, thread; got {worker_type!r}")
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
            raise DatasetError(f"DataLoader needs timeout to be a number of seconds of at least 0, got {timeout!r}")
        if timeout and (worker_type == "thread" or not num_workers):
            raise DatasetError("DataLoader can keep a timeout with worker processes only: a thread cannot be stopped")
        self.worker_type = worker_type
        self.worker_init_fn = worker_init_fn
        self.timeout = timeout or None
        self.return_list = return_list
        self._place = Position(getattr(self.batch_sampler, "epoch", 0), 0)
        self._begun = False  # whether an iterator already continues from self._place
        self._seen_epochs = self._sampler_epochs()
        self._idle_pools: list[WorkerPool] = []
        self._finalizer = weakref.finalize(self, _close_pools, self._idle_pools)

    def __len__(self) -> int:
        """The number of batches of an epoch; of the current one where they vary."""
        return len(self.batch_sampler)  # type: ignore[arg-type]

    @property
    def epoch(self) -> int:
        """The current epoch, or the next one before the first `iter`."""
        return self._place.epoch

    def set_epoch(self, epoch: int) -> None:
        """Makes the next `iter` start `epoch`, or continue it if a loaded state is in the middle of it.

        `sampler.set_epoch(epoch)` does the same if the sampler is not at that epoch already.
        """
        check_count(epoch, "epoch", "DataLoader", at_least=0)
        self._seen_epochs = self._sampler_epochs()
        if self._begun or self._place.epoch != epoch:
            self._place, self._begun = Position(epoch, 0), False

    def __iter__(self) -> Iterator[Collated]:
        self._check_world()
        for epoch, seen in zip(self._sampler_epochs(), self._seen_epochs, strict=True):
            if epoch != seen:
                self.set_epoch(epoch)
        if self._begun:
            self._place = Position(self._place.epoch + 1, 0)
        self._begun = True
        place = self._place
        if hasattr(self.batch_sampler, "set_epoch"):
            self.batch_sampler.set_epoch(place.epoch)
        self._seen_epochs = self._sampler_epochs()
        checked = _checked_batch if isinstance(self.dataset, (list, tuple)) else _batch_of_keys
        batches = map(checked, iter(self.batch_sampler))
        return SharedIterator(self._iterate(place, itertools.islice(batches, place.position, None)))

    def state_dict(self) -> dict[str, object]:
        """Returns where the newest iterator stands, as a small dict of JSON values, the same on every rank.

        Inside the loop the current batch counts as done. After the loop it is the start of the next epoch.
        """
        return dump_state(self._place, self._order())

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Makes the next `iter` continue after the last batch of `state`, without reading earlier ones.

        Exact with samplers that are a function of their epoch, as all of ours are. Workers, their type and `prefetch`
        may differ. Raises `StateMismatchError` if the order of batches would.
        """
        self._place, self._begun = load_state(state, self._order()), False
        self._seen_epochs = self._sampler_epochs()

    def close(self) -> None:
        """Ends the worker processes; a later `iter` starts new ones."""
        _close_pools(self._idle_pools)

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, object]:
        # A copy has its own worker processes, and continues where the newest iterator is.
        left = {"_idle_pools", "_finalizer"}
        state = {name: value for name, value in self.__dict__.items() if name not in left}
        return {**state, "_place": dataclasses.replace(self._place), "_begun": False}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._idle_pools = []
        self._finalizer = weakref.finalize(self, _close_pools, self._idle_pools)

    def _check_world(self) -> None:
        world = known_world()
        if world is None or world.count == 1 or _is_dealt_out(self.batch_sampler):
            return
        raise DatasetError(
            f"this is {world}, and the samplers of this DataLoader give each of them the same batches. Pass "
            "sampler=DistributedSampler(dataset, shuffle=…, last='drop'), or "
            "batch_sampler=DistributedSampler(batch_sampler, last='drop'), for the share of this process; "
            "with num_trainers=1, rank=0 it gives all of it to every process."
        )

    def _sampler_epochs(self) -> list[Any]:
        """The epochs of the batch sampler and of the sampler that it groups: a change means that someone set them."""
        return [
            getattr(sampler, "epoch", None)
            for sampler in (self.batch_sampler, getattr(self.batch_sampler, "sampler", None))
        ]

    def _order(self) -> dict[str, object]:
        return {"num_examples": len(self.dataset), **describe_sampler(self.batch_sampler)}

    def _iterate(self, place: Position, batches: Iterator[list[int]]) -> Generator[object, None, None]:
        loaded = self._load(place.epoch, batches)
        try:
            for indices, examples in loaded:
                batch = self._collate(place, indices, examples)
                place.position += 1
                yield batch
            place.epoch, place.position = place.epoch + 1, 0
            self._begun = self._begun and self._place is not place
        finally:
            loaded.close()

    def _load(self, epoch: int, batches: Iterator[list[int]]) -> Generator[Loaded, None, None]:
        if not self.num_workers:
            return ((indices, load_examples(self.dataset, indices, epoch)) for indices in batches)
        if self.worker_type == "thread":
            return load_on_threads(self.dataset, batches, epoch, num_workers=self.num_workers, prefetch=self.prefetch)
        return self._load_in_processes(epoch, batches)

    def _load_in_processes(self, epoch: int, batches: Iterator[list[int]]) -> Generator[Loaded, None, None]:
        pool = (
            self._idle_pools.pop()
            if self._idle_pools
            else WorkerPool(self.dataset, self.num_workers, self.worker_init_fn)
        )
        try:
            yield from pool.load(batches, epoch, prefetch=self.prefetch, timeout=self.timeout)
        except BaseException:
            # Stopped half-way: there are pending requests whose answers nobody will read.
            pool.close()
            raise
        self._idle_pools.append(pool)

    def _collate(self, place: Position, indices: list[int], examples: list[object]) -> object:
        try:
            batch = self.collate_fn(examples)
        except Exception as error:
            raise ExampleError(
                f"collate_fn {describe(self.collate_fn)} failed on batch {place.position} of epoch {place.epoch}, "
                f"examples {short(indices)}: {type(error).__name__}: {error}",
                batch=place.position,
                epoch=place.epoch,
                indices=indices,
            ) from error
        if not self.return_list:
            return batch
        if isinstance(batch, Mapping):
            return batch
        return list(batch) if isinstance(batch, (tuple, list)) else [batch]


def _note_of_paddle(**given: object) -> None:
    without_effect = [name for name, value in given.items() if value]
    if without_effect and not _noted:
        _noted.append(without_effect)
        _log.warning(
            "DataLoader takes %s for scripts written for Paddle, without effect: batches are NumPy arrays on the host, "
            "and workers are kept between epochs.",
            ", ".join(without_effect),
        )


def _close_pools(pools: list[WorkerPool]) -> None:
    while pools:
        pools.pop().close()


def _batch_sampler(
    dataset: MapStyle, batch_size: int, shuffle: bool, drop_last: bool, sampler: Iterable[int] | None, seed: int | None
) -> BatchSampler:
    check_count(batch_size, "batch_size", "DataLoader")
    if sampler is None:
        return BatchSampler(None, batch_size, drop_last, dataset=dataset, shuffle=shuffle, seed=seed or 0)
    if shuffle or seed is not None:
        raise DatasetError("DataLoader takes no shuffle or seed with a sampler: the order is the sampler's")
    return BatchSampler(sampler, batch_size, drop_last)


def _checked_batch_sampler(batch_sampler: Iterable[list[int]], **given: bool) -> Iterable[list[int]]:
    if extra := [name for name, is_given in given.items() if is_given]:
        raise DatasetError(f"DataLoader takes no {', '.join(extra)} with a batch_sampler, which decides them itself")
    if not hasattr(batch_sampler, "__iter__") or not hasattr(batch_sampler, "__len__"):
        raise DatasetError(
            "DataLoader needs a batch_sampler that can be iterated again and has a length, "
            f"got {type(batch_sampler).__name__}"
        )
    return batch_sampler


def _is_dealt_out(sampler: object) -> bool:
    """Whether each process gets its own share; samplers that are not ours are assumed to do this."""
    if type(sampler) is BatchSampler:
        return _is_dealt_out(sampler.sampler)
    if type(sampler) is BucketSampler:
        return sampler.num_trainers > 1
    return type(sampler) is DistributedSampler or type(sampler) not in SAMPLERS.values()


_SINGLE = "one that gives single indices is a sampler="


def _batch_of_keys(batch: Iterable[SupportsIndex]) -> list[int]:
    """Indices, or paths for a dataset that is asked by them: GE2E's `dataset[path]`."""
    if isinstance(batch, (list, tuple)) and all(isinstance(key, (str, os.PathLike)) for key in batch):
        return list(batch)
    return _checked_batch(batch)


def _checked_batch(batch: Iterable[SupportsIndex]) -> list[int]:
    try:
        return [operator.index(index) for index in batch]
    except TypeError as error:
        what = "give the positions of these in the dataset" if hasattr(batch, "__iter__") else _SINGLE
        raise DatasetError(
            f"DataLoader needs a batch_sampler that gives lists of indices, got {batch!r}; {what}"
        ) from error
