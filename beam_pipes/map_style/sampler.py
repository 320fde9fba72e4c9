"""Samplers: iterables of indices that depend on a seed and an epoch only.

Iterating twice gives the same order twice; `set_epoch` gives the next one. That makes a run repeatable and a stopped
run resumable, and ranks agree on one global order without talking to each other. There are samplers for every index in
order, every index once in random order (or independent draws), given indices in random order, and draws in proportion
to weights.

Random draws are the same under every NumPy version: only the raw 64-bit stream of PCG64 and the hash of SeedSequence
are used, which NumPy promises to keep; the methods of `numpy.random.Generator` may change between versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence, Sized

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import DatasetError


class Sampler:
    """Base class of samplers; `IndexSampler` yields indices, batch samplers yield lists of them.

    Subclass it for your own order: define `__iter__` as a function of `self.seed` and `self.epoch`, `__len__`,
    and `describe`, the facts that the order depends on; a `DataLoader` compares them before it resumes. A subclass that
    does not call `super().__init__`, as one written for Paddle need not, has seed and epoch 0.
    """

    seed: int = 0
    epoch: int = 0

    def __init__(self, *, seed: int = 0, epoch: int = 0) -> None:
        self.seed = check_count(seed, "seed", type(self).__name__, at_least=0)
        self.epoch = check_count(epoch, "epoch", type(self).__name__, at_least=0)

    def __iter__(self) -> Iterator[object]:
        raise DatasetError(f"{type(self).__name__} should define __iter__, giving indices or lists of indices")

    def __len__(self) -> int:
        raise DatasetError(f"{type(self).__name__} should define __len__, how many items one epoch gives")

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of `epoch`; a running iterator is not affected."""
        self.epoch = check_count(epoch, "epoch", type(self).__name__, at_least=0)

    def describe(self) -> dict[str, object]:
        """Returns what the order depends on besides the epoch, as JSON values; a rank is never part of it."""
        return {"sampler": type(self).__name__, "seed": self.seed}

    def random(self, epoch: int, purpose: str = "") -> KeyedRandom:
        """Returns the stream of draws for `epoch`; each `purpose` has its own stream."""
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


def check_count(value: object, name: str, owner: str, *, at_least: int = 1) -> int:
    """Returns `value` as an int, or raises `DatasetError` unless it is an integer of at least `at_least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < at_least:
        raise DatasetError(f"{owner} needs {name} to be an int of at least {at_least}, got {value!r}")
    return int(value)


def check_rank(num_trainers: object, rank: object, owner: str) -> tuple[int, int]:
    """Returns both as ints, or raises `DatasetError` unless 0 <= rank < num_trainers."""
    count, index = check_count(num_trainers, "num_trainers", owner), check_count(rank, "rank", owner, at_least=0)
    if index >= count:
        raise DatasetError(f"{owner} needs 0 <= rank < num_trainers={count}, got rank={index}")
    return count, index


def size_of(source: Sized | int, owner: str) -> int:
    """Returns the number of examples of a dataset, or the number itself."""
    if isinstance(source, Sized):
        return len(source)
    return check_count(source, "data_source (a dataset, or its length)", owner, at_least=0)


def check_lengths(lengths: object, owner: str) -> Indices:
    """Returns lengths as int64, or raises `DatasetError` if they are not a flat sequence of integers >= 0."""
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu") or (array.size and array.min() < 0):
        found = f"dtype {array.dtype}, shape {array.shape}"
        raise DatasetError(f"{owner} needs lengths to be integers of at least 0, one per example; got {found}")
    return array.astype(np.int64)


Indices = npt.NDArray[np.int64]


class KeyedRandom:
    """A stream of draws for one seed, epoch and purpose; two purposes (`salt`) never share a stream."""

    def __init__(self, seed: int, epoch: int, salt: str) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, epoch, *salt.encode()]))

    def permutation(self, size: int) -> Indices:
        """Returns the numbers 0..size-1 in random order: a stable sort of 64-bit keys."""
        return np.argsort(self._raw(size), kind="stable").astype(np.int64, copy=False)

    def uniform(self, size: int) -> npt.NDArray[np.float64]:
        """Returns float64 values in [0, 1) with 53 random bits each."""
        values: npt.NDArray[np.float64] = (self._raw(size) >> np.uint64(11)) * 2.0**-53
        return values

    def integers(self, size: int, stop: int) -> Indices:
        """Returns int64 values in [0, stop), each drawn independently."""
        draws: Indices = (self.uniform(size) * stop).astype(np.int64)
        return draws.clip(max=stop - 1)

    def _raw(self, size: int) -> npt.NDArray[np.uint64]:
        return np.asarray(self._bits.random_raw(size), dtype=np.uint64)


def digest(array: np.ndarray) -> str:
    """Returns `"<size>:<16 hex digits>"` of the values as little-endian 64-bit numbers; equal arrays, equal digests."""
    wide = "<f8" if array.dtype.kind == "f" else "<i8"
    content = hashlib.sha256(np.ascontiguousarray(array).astype(wide).tobytes()).hexdigest()
    return f"{array.size}:{content[:16]}"


def digest_list(indices: Sequence[object] | np.ndarray) -> str:
    """Returns the same for a list of indices, or of lists of indices: `"<length>:<16 hex digits>"`."""
    plain = [np.asarray(item).tolist() for item in indices]
    return f"{len(plain)}:{hashlib.sha256(repr(plain).encode()).hexdigest()[:16]}"


class SequentialSampler(IndexSampler):
    """Gives 0, 1, …, n-1 in every epoch; `seed` is accepted for uniformity and changes nothing."""

    def __init__(self, data_source: Sized | int, *, seed: int = 0, epoch: int = 0) -> None:
        super().__init__(seed=seed, epoch=epoch)
        self._size = size_of(data_source, "SequentialSampler")

    def __len__(self) -> int:
        return self._size

    def order(self, epoch: int) -> Indices:
        return np.arange(self._size, dtype=np.int64)

    def describe(self) -> dict[str, object]:
        return {"sampler": "SequentialSampler", "size": self._size}


class RandomSampler(IndexSampler):
    """Gives a permutation of 0..n-1, a different one each epoch.

    Args:
      data_source: a dataset, or its length n.
      replacement: draw independently instead: an index may then come twice or never.
      num_samples: how many indices an epoch has; n by default. Without replacement at most n.
      seed: 0 by default, so that a run repeats itself; the order is a function of (seed, epoch).
      epoch: the epoch of the next iteration, later set by `set_epoch`.
    """

    def __init__(
        self,
        data_source: Sized | int,
        replacement: bool = False,
        num_samples: int | None = None,
        *,
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        super().__init__(seed=seed, epoch=epoch)
        self._size = size_of(data_source, "RandomSampler")
        self._replacement = replacement
        self._num_samples = (
            self._size if num_samples is None else check_count(num_samples, "num_samples", "RandomSampler", at_least=0)
        )
        if self._num_samples > self._size and (not replacement or self._size == 0):
            raise DatasetError(
                f"RandomSampler cannot draw num_samples={self._num_samples} from {self._size} examples without "
                "replacement; pass replacement=True or a smaller number"
            )

    def __len__(self) -> int:
        return self._num_samples

    def order(self, epoch: int) -> Indices:
        random = self.random(epoch)
        if self._replacement:
            return random.integers(self._num_samples, self._size)
        return random.permutation(self._size)[: self._num_samples]

    def describe(self) -> dict[str, object]:
        facts = {"size": self._size, "replacement": self._replacement, "num_samples": self._num_samples}
        return {**super().describe(), **facts}


class SubsetRandomSampler(IndexSampler):
    """Gives each of `indices` once, in an order that changes with the epoch."""

    def __init__(self, indices: Sequence[int] | np.ndarray, *, seed: int = 0, epoch: int = 0) -> None:
        super().__init__(seed=seed, epoch=epoch)
        array = np.asarray(indices)
        if array.ndim != 1 or (array.size and (array.dtype.kind not in "iu" or array.min() < 0)):
            raise DatasetError(
                "SubsetRandomSampler needs a flat sequence of integers of at least 0, "
                f"got dtype {array.dtype}, shape {array.shape}"
            )
        self._indices = array.astype(np.int64)
        self._digest = digest(self._indices)

    def __len__(self) -> int:
        return len(self._indices)

    def order(self, epoch: int) -> Indices:
        return self._indices[self.random(epoch).permutation(len(self._indices))]

    def describe(self) -> dict[str, object]:
        return {**super().describe(), "indices": self._digest}


class WeightedRandomSampler(IndexSampler):
    """Gives `num_samples` indices, drawn with probability in proportion to `weights`.

    Args:
      weights: one per example, finite and at least 0; they need not sum to 1. A weight of 0 is never drawn.
      num_samples: how many indices an epoch has.
      replacement: draw independently (default). Without it no index comes twice, and at least `num_samples` weights
        must be positive; drawn by exponential keys (Efraimidis and Spirakis, 2006).
      seed: the draws are a function of (seed, epoch).
      epoch: the epoch of the next iteration, later set by `set_epoch`.
    """

    def __init__(
        self,
        weights: Sequence[float] | np.ndarray,
        num_samples: int,
        replacement: bool = True,
        *,
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        super().__init__(seed=seed, epoch=epoch)
        self._weights = np.asarray(weights, dtype=np.float64)
        usable = np.isfinite(self._weights) & (self._weights >= 0)
        if self._weights.ndim != 1 or not usable.all():
            raise DatasetError(
                "WeightedRandomSampler needs a flat sequence of finite weights of at least 0, got shape "
                f"{self._weights.shape} with {np.count_nonzero(~usable)} values that are negative or not finite"
            )
        self._num_samples = check_count(num_samples, "num_samples", "WeightedRandomSampler", at_least=0)
        self._replacement = replacement
        self._digest = digest(self._weights)
        positive = int(np.count_nonzero(self._weights))
        if self._num_samples > positive and (not replacement or positive == 0):
            raise DatasetError(
                f"WeightedRandomSampler cannot draw num_samples={self._num_samples} from {positive} positive weights"
                + (" without replacement" if not replacement else "")
            )

    def __len__(self) -> int:
        return self._num_samples

    def order(self, epoch: int) -> Indices:
        random = self.random(epoch)
        positive = np.flatnonzero(self._weights)
        weights = self._weights[positive]
        if self._replacement:
            ends = np.cumsum(weights)
            draws = random.uniform(self._num_samples) * (ends[-1] if len(ends) else 0.0)
            places = np.minimum(np.searchsorted(ends, draws, side="right"), len(ends) - 1)
        else:
            keys = -np.log1p(-random.uniform(len(weights))) / weights
            places = np.argsort(keys, kind="stable")[: self._num_samples]
        return positive[places].astype(np.int64, copy=False)

    def describe(self) -> dict[str, object]:
        facts = {"weights": self._digest, "num_samples": self._num_samples, "replacement": self._replacement}
        return {**super().describe(), **facts}
