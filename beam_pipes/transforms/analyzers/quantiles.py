"""Distributions: quantiles of numbers, in bounded memory, and the number of values of each length.

A sketch of bounded size gives any quantile within a known rank error.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path

import numpy as np
import numpy.typing as npt

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.analysis.analyzer import Values
from beam_pipes.checks import number
from beam_pipes.errors import SpecError
from beam_pipes.transforms.analyzers.numbers import NUMBERS, NumberBlocks


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Quantiles(Analyzer):
    """Any quantile of numbers, or of all elements of arrays of one shape: gives a `QuantileSketch`.

        lengths = Quantiles("lengths", of=Lengths())
        self.lengths.value().quantile(0.99)

    Args:
        k: numbers kept at each level of the sketch: doubling it halves the error and doubles the file. With the default
            a quantile is off by less than 0.5 % of the ranks of 10^9 numbers (`sketch.rank_error` is the actual bound),
            and the file has at most 0.6 MB.

    A NaN has no rank: `AnalysisError`.
    """

    accepts = NUMBERS

    k: int = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        QuantileSketch(k=self.k)

    def accumulator(self) -> Accumulator:
        return _Sketched(self.k)

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        total = QuantileSketch(k=self.k)
        for path in accumulators:
            total.merge_from(QuantileSketch.from_bytes(Path(path).read_bytes()))
        Path(target).write_bytes(total.to_bytes())

    def read(self, path: str) -> QuantileSketch:
        return QuantileSketch.from_bytes(Path(path).read_bytes())


class _Sketched(Accumulator):
    def __init__(self, k: int) -> None:
        self._sketch = QuantileSketch(k=k)
        self._blocks = NumberBlocks()

    def add(self, values: Values, record_ids: Sequence[str]) -> None:
        for block in self._blocks.add(values):
            self._sketch.add(block)

    def save(self, path: str) -> None:
        for block in self._blocks.rest():
            self._sketch.add(block)
        Path(path).write_bytes(self._sketch.to_bytes())


_Numbers = npt.NDArray[np.float64]


class QuantileSketch:
    """Numbers in levels: each number of level `h` represents `2^h` added numbers.

    A full level is sorted, and every second number moves up a level: those at odd and at even places in turn, so that
    the errors of two compactions cancel. Nothing is random: the same numbers in the same order give the same sketch.

        sketch = QuantileSketch(k=4096); sketch.add(numbers); sketch.quantile(0.5)  →  the median, about

    Compacting a level moves no rank by more than `2^h`; `rank_error` sums this up, so it is a bound, not an estimate.
    It stays below `n · log2(n / k) / k`: for 10^9 numbers and k = 4096, 0.44 % of them. Memory: `8 · k · log2(n / k)`
    bytes.

    Sources: Munro and Paterson (1980), "Selection and sorting with limited storage", for the levels; Karnin, Lang and
    Liberty (2016), "Optimal quantile approximation in streams", here in its deterministic form.
    """

    def __init__(self, *, k: int = 4096) -> None:
        if k < 8 or k % 2:
            raise SpecError(f"k, the numbers of one level, should be even and at least 8, got {k}.")
        self.k = k
        self.count = 0
        self.low = np.inf
        self.high = -np.inf
        self.rank_error = 0
        self._levels: list[_Numbers] = [np.empty(0)]
        self._odd: list[bool] = [False]

    def add(self, numbers: Sequence[float] | _Numbers) -> None:
        """Takes numbers, of any shape. Raises `SpecError` for a NaN, which has no rank."""
        made = np.asarray(numbers, np.float64).ravel()
        if not len(made):
            return
        if np.isnan(made).any():
            raise SpecError("expected numbers that can be ordered, got NaN. Drop it in of=... before it is analysed.")
        self.count += len(made)
        self.low, self.high = min(self.low, float(made.min())), max(self.high, float(made.max()))
        # In pieces of one level, so that the sketch does not depend on batching.
        start = 0
        while start < len(made):
            taken = made[start : start + self.k - len(self._levels[0])]
            self._levels[0] = np.concatenate([self._levels[0], taken])
            start += len(taken)
            self._compact()

    def merge_from(self, other: QuantileSketch) -> None:
        """Adds all numbers of the other sketch."""
        if other.k != self.k:
            raise SpecError(f"expected a sketch with k={self.k}, got one with k={other.k}.")
        self.count += other.count
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.rank_error += other.rank_error
        for level, numbers in enumerate(other._levels):
            self._reach(level)
            self._levels[level] = np.concatenate([self._levels[level], numbers])
        self._compact()

    def quantile(self, fraction: float) -> float:
        """The number that `fraction` of all do not exceed: 0 gives the smallest, 1 the largest; NaN for no numbers."""
        number(fraction, least=0, most=1, what="a quantile's fraction", error=SpecError)
        if not self.count:
            return float("nan")
        if fraction in (0, 1):
            return self.high if fraction else self.low
        numbers, weights = self._weighted()
        reached = np.cumsum(weights)
        return float(numbers[np.searchsorted(reached, fraction * reached[-1], side="left")])

    def rank(self, number: float) -> float:
        """The fraction of all numbers that are at most `number`."""
        numbers, weights = self._weighted()
        return float(weights[: np.searchsorted(numbers, number, side="right")].sum() / max(1, weights.sum()))

    def to_bytes(self) -> bytes:
        """A line of JSON, then the numbers of all levels, float64, little-endian."""
        head = {
            "count": self.count,
            "high": self.high.hex() if self.count else None,
            "k": self.k,
            "levels": [len(level) for level in self._levels],
            "low": self.low.hex() if self.count else None,
            "odd": self._odd,
            "rank_error": self.rank_error,
        }
        body = np.concatenate([np.sort(level) for level in self._levels]).astype("<f8").tobytes()
        return json.dumps(head, sort_keys=True).encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, data: bytes) -> QuantileSketch:
        """The inverse of `to_bytes`."""
        line, _, body = data.partition(b"\n")
        head = json.loads(line)
        made = cls(k=head["k"])
        made.count, made.rank_error, made._odd = head["count"], head["rank_error"], head["odd"]
        if made.count:
            made.low, made.high = float.fromhex(head["low"]), float.fromhex(head["high"])
        ends = np.cumsum(head["levels"])
        numbers = np.frombuffer(body, "<f8").astype(np.float64)
        made._levels = [numbers[end - length : end] for end, length in zip(ends, head["levels"], strict=True)]
        return made

    def _reach(self, level: int) -> None:
        while len(self._levels) <= level:
            self._levels.append(np.empty(0))
            self._odd.append(False)

    def _compact(self) -> None:
        level = 0
        while level < len(self._levels):
            numbers = self._levels[level]
            if len(numbers) >= self.k:
                self._reach(level + 1)
                ordered = np.sort(numbers)
                even = len(ordered) - len(ordered) % 2
                chosen = ordered[int(self._odd[level]) : even : 2]
                self._levels[level], self._odd[level] = ordered[even:], not self._odd[level]
                self._levels[level + 1] = np.concatenate([self._levels[level + 1], chosen])
                self.rank_error += 1 << level
            level += 1

    def _weighted(self) -> tuple[_Numbers, _Numbers]:
        numbers = np.concatenate(self._levels)
        weights = np.concatenate([np.full(len(level), 2.0**h) for h, level in enumerate(self._levels)])
        order = np.argsort(numbers, kind="stable")
        return numbers[order], weights[order]


@dataclasses.dataclass(frozen=True, eq=False)
class Lengths:
    """`counts` maps each length that occurs to the number of values of this length, in the order of lengths.

    Lengths({2: 3, 5: 1})  →  count 4, total 11, mean 2.75, quantile(0.5) 2
    """

    counts: Mapping[int, int]

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts.values())

    @property
    def total(self) -> int:
        """The sum of all lengths."""
        return sum(length * count for length, count in self.counts.items())

    @property
    def mean(self) -> float:
        return self.total / self.count if self.counts else float("nan")

    def quantile(self, fraction: float) -> int:
        """The smallest length that at least `fraction` of the values do not exceed; exact."""
        if not 0 <= fraction <= 1 or not self.counts:
            raise SpecError(
                f"a quantile needs a fraction between 0 and 1 and at least one length, got {fraction!r} of "
                f"{self.count} lengths."
            )
        lengths = list(self.counts)
        reached = list(itertools.accumulate(self.counts.values()))
        return lengths[bisect.bisect_left(reached, fraction * self.count)]

    def buckets(self, boundaries: Sequence[int]) -> list[int]:
        """The number of values below the first boundary, between neighbouring ones, and at or above the last.

        `boundaries` ascend; `Lengths({2: 3, 5: 1}).buckets([4])` gives `[3, 1]`.
        """
        found = [0] * (len(boundaries) + 1)
        for length, count in self.counts.items():
            found[bisect.bisect_right(boundaries, length)] += count
        return found


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LengthHistogram(Analyzer):
    """The lengths of the values (`len(value)`; of an int, itself), counted exactly: gives `Lengths`.

    Memory: one counter for each length that occurs.
    """

    accepts = (int, np.integer, Sized)

    def accumulator(self) -> Accumulator:
        return _LengthCounts()

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        total: collections.Counter[int] = collections.Counter()
        for path in accumulators:
            total.update(self.read(path).counts)
        _write(total, target)

    def read(self, path: str) -> Lengths:
        return Lengths(dict(json.loads(Path(path).read_text(encoding="ascii"))))


class _LengthCounts(Accumulator):
    def __init__(self) -> None:
        self._counts: collections.Counter[int] = collections.Counter()
        self._are_lengths: bool | None = None

    def add(self, values: Values, record_ids: Sequence[str]) -> None:
        classes = {type(value): value for value in values}
        kinds = {_is_length(cls) for cls in classes} | (set() if self._are_lengths is None else {self._are_lengths})
        if len(kinds) > 1:
            found = ", ".join(f"{cls.__name__} {value!r:.60}" for cls, value in classes.items())
            raise SpecError(
                f"expected values that all have a length, or that are all lengths (int), got both: {found}. Give "
                "of=..., a pipeline that ends in one of them."
            )
        (self._are_lengths,) = kinds
        if self._are_lengths:
            self._counts.update(map(int, values))
            return
        try:
            self._counts.update(map(len, values))
        except TypeError:
            bad = next(value for value in values if not _has_length(value))
            raise SpecError(
                f"expected values with a length, or lengths (int), got {type(bad).__name__} {bad!r:.60}. Give of=..., "
                "a pipeline that ends in such values."
            ) from None

    def save(self, path: str) -> None:
        _write(self._counts, path)


def _is_length(cls: type) -> bool:
    return issubclass(cls, (int, np.integer)) and not issubclass(cls, bool)


def _has_length(value: Sized) -> bool:
    try:
        len(value)
    except TypeError:
        return False
    return True


def _write(counts: Mapping[int, int], path: str) -> None:
    Path(path).write_text(json.dumps(sorted(counts.items()), separators=(",", ":")) + "\n", encoding="ascii")
