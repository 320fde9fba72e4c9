"""Counts per range of values."""

from __future__ import annotations

import bisect
import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from beam_pipes.engine.statistic import Statistic, plain_number
from beam_pipes.errors import DeclarationError, MergeStatisticsException


class Histogram(Statistic):
    """Counts values in the half-open ranges between `buckets`, and what lies below, above and is NaN.

    A range includes its lower bound. `Histogram('h', [0, 1, 2])` counts in `[-inf,0)`, `[0,1)`, `[1,2)` and
    `[2,inf)`. Empty ranges are not printed unless `verbose_pretty_print`.

        histogram = Histogram('bar', [0, 1, 2, 3])
        histogram.increment(0.0); histogram.increment(1.2); histogram.increment(1.9)
        str(histogram)  →  "bar:\\n  [0,1): 1\\n  [1,2): 2"
    """

    def __init__(self, name: str, buckets: Iterable[float], verbose_pretty_print: bool = False) -> None:
        super().__init__(name)
        self.buckets: list[float] = sorted(set(buckets))
        is_nan = False
        for position, bucket in enumerate(self.buckets):  # stages make histograms for every record: no detours
            if type(bucket) is not int and type(bucket) is not float:
                self.buckets[position] = plain_number(bucket)
            is_nan |= bucket != bucket
        if is_nan or not self.buckets:
            raise DeclarationError(
                f"Histogram {name!r} needs at least one bucket boundary and none that is NaN, got {self.buckets}. "
                "Pass the lower bounds of the ranges, such as [0, 10, 100].",
                name=name,
            )
        # counters[i] is the range that ends at buckets[i]; the last one has no end.
        self.counters = [0] * (len(self.buckets) + 1)
        self.nan_count = 0
        self.verbose_pretty_print = verbose_pretty_print

    def increment(self, value: float, inc: int = 1) -> None:
        """Adds `inc` to the range that holds `value`."""
        if value != value:
            self.nan_count += inc
        else:
            self.counters[bisect.bisect_right(self.buckets, value)] += inc

    def _merge_from(self, other: Histogram) -> None:
        if self.buckets != other.buckets:
            raise MergeStatisticsException(
                f"Cannot merge the histogram {self.name!r}: one has the buckets {self.buckets}, "
                f"the other {other.buckets}. Use the same buckets, or different names.",
                name=self.name,
            )
        counters = self.counters
        for range_index, count in enumerate(other.counters):
            if count:  # a statistic of one record has few that are not empty
                counters[range_index] += count
        self.nan_count += other.nan_count

    def copy(self) -> Histogram:
        duplicate = copy.copy(self)
        duplicate.buckets = list(self.buckets)
        duplicate.counters = list(self.counters)
        return duplicate

    def state(self) -> dict[str, Any]:
        # Infinite boundaries are legal here and illegal in JSON: they travel as strings.
        buckets = [str(b) if isinstance(b, float) and math.isinf(b) else b for b in self.buckets]
        return {
            "buckets": buckets,
            "counters": [plain_number(count) for count in self.counters],
            "nan_count": plain_number(self.nan_count),
            "verbose_pretty_print": self.verbose_pretty_print,
        }

    @classmethod
    def from_state(cls, name: str, state: Mapping[str, Any]) -> Histogram:
        buckets = [float(b) if isinstance(b, str) else b for b in state["buckets"]]
        histogram = cls(name, buckets, state["verbose_pretty_print"])
        histogram.counters = list(state["counters"])
        histogram.nan_count = state["nan_count"]
        return histogram

    @property
    def total(self) -> int:
        """How many values were counted, NaN included."""
        return sum(self.counters) + self.nan_count

    def ranges(self) -> Sequence[tuple[str, int]]:
        """Every range with its count, in order: `[('[-inf,0)', 0), ('[0,1)', 2), ..., ('nan', 0)]`."""
        edges = ["-inf", *(f"{bucket}" for bucket in self.buckets), "inf"]
        named = [(f"[{low},{high})", count) for low, high, count in zip(edges, edges[1:], self.counters, strict=False)]
        return [*named, ("nan", self.nan_count)]

    def _pretty_print(self, name: str) -> str:
        lines = [
            f"  {label}: {count}"
            for label, count in self.ranges()
            if count or (self.verbose_pretty_print and label != "nan")
        ]
        return "\n".join([f"{name}:", *lines])
