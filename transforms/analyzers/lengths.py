"""How many values have which length."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.errors import SpecError


@dataclasses.dataclass(frozen=True, eq=False)
class Lengths:
    """`counts` maps each length that occurs to how many values have it, in the order of lengths.

    Lengths({2: 3, 5: 1})  →  count 4, total 11, mean 2.75, quantile(0.5) 2
    """

    counts: Mapping[int, int]

    @property
    def count(self) -> int:
        """How many values there are."""
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
        """How many values lie below the first boundary, between each two, and at or above the last.

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

    def add(self, values: Sequence[Any], record_ids: Sequence[str]) -> None:
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


def _has_length(value: Any) -> bool:
    try:
        len(value)
    except TypeError:
        return False
    return True


def _write(counts: Mapping[int, int], path: str) -> None:
    Path(path).write_text(json.dumps(sorted(counts.items()), separators=(",", ":")) + "\n", encoding="ascii")
