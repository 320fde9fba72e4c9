"""What every sampler is: an iterable of indices (or of lists of indices) that depends on a seed and an epoch only.

Iterating twice gives the same order twice; `set_epoch` gives the next one. That makes a run repeatable, a stopped run
resumable, and ranks agree on one global order without talking to each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.samplers.keyed_random import Indices, KeyedRandom


class Sampler:
    """Base class of samplers; `IndexSampler` yields indices, batch samplers yield lists of them.

    Subclass it for an order of your own: define `__iter__` as a function of `self.seed` and `self.epoch`, `__len__`,
    and `describe`, the facts that the order depends on; a `DataLoader` compares them before it resumes.
    """

    def __init__(self, *, seed: int = 0, epoch: int = 0) -> None:
        self.seed = check_count(seed, "seed", type(self).__name__, at_least=0)
        self.epoch = check_count(epoch, "epoch", type(self).__name__, at_least=0)

    def __iter__(self) -> Iterator[Any]:
        raise DatasetError(f"{type(self).__name__} should define __iter__, giving indices or lists of indices")

    def __len__(self) -> int:
        raise DatasetError(f"{type(self).__name__} should define __len__, how many items one epoch gives")

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of `epoch`; an iterator that is already under way is not touched."""
        self.epoch = check_count(epoch, "epoch", type(self).__name__, at_least=0)

    def describe(self) -> dict[str, Any]:
        """Returns what the order depends on besides the epoch, as JSON values; a rank is never part of it."""
        return {"sampler": type(self).__name__, "seed": self.seed}

    def random(self, epoch: int, purpose: str = "") -> KeyedRandom:
        """Returns the stream of draws for `epoch`; each `purpose` has a stream of its own."""
        return KeyedRandom(self.seed, epoch, type(self).__name__ + purpose)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in self.describe().items() if name != "sampler")
        return f"{type(self).__name__}({facts}, epoch={self.epoch})"


class IndexSampler(Sampler):
    """A sampler of single indices: defines `order`, and is iterable by it."""

    def order(self, epoch: int) -> Indices:
        """Returns the indices of `epoch`, int64."""
        raise DatasetError(f"{type(self).__name__} should define order(self, epoch), an array of indices")

    def __iter__(self) -> Iterator[int]:
        return map(int, self.order(self.epoch))


def check_count(value: Any, name: str, owner: str, *, at_least: int = 1) -> int:
    """Returns `value` as an int, or raises `DatasetError` where it is no integer of `at_least` that much."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < at_least:
        raise DatasetError(f"{owner} needs {name} to be an int of at least {at_least}, got {value!r}")
    return int(value)


def size_of(source: Sized | int, owner: str) -> int:
    """Returns the number of examples of a dataset, or the number itself."""
    if isinstance(source, Sized):
        return len(source)
    return check_count(source, "data_source (a dataset, or its length)", owner, at_least=0)


def check_lengths(lengths: Any, owner: str) -> Indices:
    """Returns lengths as int64, or raises `DatasetError` where they are not a flat sequence of integers >= 0."""
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu") or (array.size and array.min() < 0):
        found = f"dtype {array.dtype}, shape {array.shape}"
        raise DatasetError(f"{owner} needs lengths to be integers of at least 0, one an example; got {found}")
    return array.astype(np.int64)
