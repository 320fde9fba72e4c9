"""Analyzers of numbers, or of vectors of one shape: `Count`, `MinMax` and `Moments`.

Values are gathered into float64 blocks of a fixed length, so that sums do not depend on batching and run at NumPy
speed. All analyzers need one pass, and merge.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.analysis.analyzer import Values
from beam_pipes.errors import SpecError
from beam_pipes.storage.checked_json import strict_json

BLOCK_LENGTH = 1024

# What `NumberBlocks` takes, for `Analyzer.accepts`.
NUMBERS: tuple[type, ...] = (int, float, np.number, np.bool_, np.ndarray, list, tuple)

Block = npt.NDArray[np.float64]


class NumberBlocks:
    """`add` yields full blocks, `rest` the last one; all values have the shape of the first.

    Raises `SpecError` for a value that is not a number, or has another shape.
    """

    def __init__(self) -> None:
        self.shape: tuple[int, ...] | None = None
        self._waiting: list[Block] = []
        self._count = 0

    def add(self, values: Values) -> Iterator[Block]:
        """Takes values; yields float64[1024, *shape] whenever a block is full."""
        made = self._array(values)
        self._waiting.append(made)
        self._count += len(made)
        if self._count < BLOCK_LENGTH:
            return
        gathered = np.concatenate(self._waiting)
        stop = len(gathered) - len(gathered) % BLOCK_LENGTH
        self._waiting, self._count = [gathered[stop:]], len(gathered) - stop
        for start in range(0, stop, BLOCK_LENGTH):
            yield gathered[start : start + BLOCK_LENGTH]

    def rest(self) -> Iterator[Block]:
        """Yields the rest, if any."""
        if self._count:
            yield np.concatenate(self._waiting)
        self._waiting, self._count = [], 0

    def _array(self, values: Values) -> Block:
        try:
            made = np.asarray(values)
            if made.dtype.kind not in "biuf":
                raise ValueError(f"dtype {made.dtype}")
        except ValueError as error:
            bad = next((value for value in values if not _is_number(value)), None)
            shapes = sorted({np.shape(value) for value in values}) if bad is None else []
            found = f"the shapes {shapes}" if bad is None else f"{type(bad).__name__} {bad!r:.60}"
            raise SpecError(
                f"expected numbers, or arrays of numbers of one shape, got {found}. Give of=..., a pipeline that ends "
                "in such values."
            ) from error
        if self.shape is None:
            self.shape = made.shape[1:]
        if made.shape[1:] != self.shape:
            raise SpecError(
                f"expected values of the shape {list(self.shape)}, as the first one has, got {list(made.shape[1:])}. "
                "Give of=..., a pipeline that ends in values of one shape."
            )
        return made.astype(np.float64)


def _is_number(value: object) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except ValueError:
        return False


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Count(Analyzer):
    """Counts the values: `Count("lines")` gives an `int`.

    The file is the number in decimal digits.
    """

    def accumulator(self) -> Accumulator:
        return _Counted()

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        total = sum(int(Path(path).read_text(encoding="ascii")) for path in accumulators)
        Path(target).write_text(f"{total}\n", encoding="ascii")

    def read(self, path: str) -> int:
        return int(Path(path).read_text(encoding="ascii"))


class _Counted(Accumulator):
    def __init__(self) -> None:
        self._count = 0

    def add(self, values: Values, record_ids: Sequence[str]) -> None:
        self._count += len(values)

    def save(self, path: str) -> None:
        Path(path).write_text(f"{self._count}\n", encoding="ascii")


@dataclasses.dataclass(frozen=True, eq=False)
class Bounds:
    """`low` and `high` of `count` values, float64[*shape]; NaN for only NaNs, or no values."""

    count: int
    low: Block
    high: Block

    @classmethod
    def of(cls, values: Block) -> Bounds:
        """The bounds of float64[n, *shape]."""
        return cls(len(values), np.asarray(np.fmin.reduce(values, axis=0)), np.asarray(np.fmax.reduce(values, axis=0)))

    def merged(self, other: Bounds) -> Bounds:
        """The bounds of both. Raises `SpecError` if their shapes differ."""
        if not self.count or not other.count:
            return other if not self.count else self
        if self.low.shape != other.low.shape:
            raise SpecError(
                f"expected bounds of the shape {list(self.low.shape)}, got {list(other.low.shape)}: source shards have "
                "values of other shapes. Give of=..., a pipeline that ends in values of one shape."
            )
        return Bounds(self.count + other.count, np.fmin(self.low, other.low), np.fmax(self.high, other.high))

    def to_bytes(self) -> bytes:
        """JSON; floats with the fewest digits that restore them."""
        value = {
            "count": self.count,
            "high": self.high.ravel().tolist(),
            "low": self.low.ravel().tolist(),
            "shape": list(self.low.shape),
        }
        return (strict_json(value, separators=(",", ":")) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Bounds:
        """The inverse of `to_bytes`."""
        value = json.loads(data)
        low, high = (np.array(value[name], np.float64).reshape(value["shape"]) for name in ("low", "high"))
        return cls(value["count"], low, high)


_NOTHING = Bounds(0, np.array(np.nan), np.array(np.nan))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MinMax(Analyzer):
    """The smallest and the largest number, or of each element of arrays of one shape: gives `Bounds`.

    A NaN counts, but does not affect bounds. Integers are taken as float64, exact up to 2^53.
    """

    accepts = NUMBERS

    def accumulator(self) -> Accumulator:
        return _Bounded()

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        total = _NOTHING
        for path in accumulators:
            total = total.merged(Bounds.from_bytes(Path(path).read_bytes()))
        Path(target).write_bytes(total.to_bytes())

    def read(self, path: str) -> Bounds:
        return Bounds.from_bytes(Path(path).read_bytes())


class _Bounded(Accumulator):
    def __init__(self) -> None:
        self._bounds = _NOTHING
        self._blocks = NumberBlocks()

    def add(self, values: Values, record_ids: Sequence[str]) -> None:
        for block in self._blocks.add(values):
            self._bounds = self._bounds.merged(Bounds.of(block))

    def save(self, path: str) -> None:
        for block in self._blocks.rest():
            self._bounds = self._bounds.merged(Bounds.of(block))
        Path(path).write_bytes(self._bounds.to_bytes())


@dataclasses.dataclass(frozen=True, eq=False)
class MomentSums:
    """`count` values, their `mean` and `m2`, the sum of squared distances from the mean; float64[*shape].

        MomentSums.of(np.array([1.0, 3.0])).merged(MomentSums.of(np.array([5.0])))  →  count 3, mean 3.0, m2 8.0

    Merging follows Chan, Golub and LeVeque (1979), "Updating formulae and a pairwise algorithm for computing sample
    variances": no cancellation occurs, however large the mean is compared with the deviation.
    """

    count: int
    mean: Block
    m2: Block

    @classmethod
    def of(cls, values: Block) -> MomentSums:
        """The sums of float64[n, *shape]."""
        mean = values.mean(axis=0)
        return cls(len(values), mean, np.square(values - mean).sum(axis=0))

    def merged(self, other: MomentSums) -> MomentSums:
        """The sums of both. Raises `SpecError` if their shapes differ."""
        if not self.count or not other.count:
            return other if not self.count else self
        if self.mean.shape != other.mean.shape:
            raise SpecError(
                f"expected moments of the shape {list(self.mean.shape)}, got {list(other.mean.shape)}: source shards "
                "have values of other shapes. Give of=..., a pipeline that ends in values of one shape."
            )
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        m2 = self.m2 + other.m2 + np.square(apart) * (self.count * other.count / count)
        return MomentSums(count, mean, m2)

    @property
    def variance(self) -> Block:
        """The population's variance (divided by `count`); NaN without values."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.m2 / np.float64(self.count))

    @property
    def std(self) -> Block:
        """The square root of `variance`."""
        return np.asarray(np.sqrt(self.variance))

    def to_bytes(self) -> bytes:
        """JSON; floats with the fewest digits that restore them."""
        value = {
            "count": self.count,
            "m2": self.m2.ravel().tolist(),
            "mean": self.mean.ravel().tolist(),
            "shape": list(self.mean.shape),
        }
        return (strict_json(value, separators=(",", ":")) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> MomentSums:
        """The inverse of `to_bytes`."""
        value = json.loads(data)
        mean, m2 = (np.array(value[name], np.float64).reshape(value["shape"]) for name in ("mean", "m2"))
        return cls(value["count"], mean, m2)


_NO_MOMENTS = MomentSums(0, np.array(np.nan), np.array(0.0))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Moments(Analyzer):
    """Mean and variance of numbers, or for each element of arrays of one shape: gives `MomentSums`.

        lengths = Moments("lengths", of=Lengths())
        (x - self.lengths.value().mean) / self.lengths.value().std

    A NaN makes every result that includes it NaN. Integers are taken as float64, exact up to 2^53. Costs about 0.1 µs
    per number.
    """

    accepts = NUMBERS

    def accumulator(self) -> Accumulator:
        return _Moments()

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        total = _NO_MOMENTS
        for path in accumulators:
            total = total.merged(MomentSums.from_bytes(Path(path).read_bytes()))
        Path(target).write_bytes(total.to_bytes())

    def read(self, path: str) -> MomentSums:
        return MomentSums.from_bytes(Path(path).read_bytes())


class _Moments(Accumulator):
    def __init__(self) -> None:
        self._sums = _NO_MOMENTS
        self._blocks = NumberBlocks()

    def add(self, values: Values, record_ids: Sequence[str]) -> None:
        for block in self._blocks.add(values):
            self._sums = self._sums.merged(MomentSums.of(block))

    def save(self, path: str) -> None:
        for block in self._blocks.rest():
            self._sums = self._sums.merged(MomentSums.of(block))
        Path(path).write_bytes(self._sums.to_bytes())
