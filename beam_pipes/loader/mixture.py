"""Mixtures: rows of several sources in fixed proportions, at every moment and not only on average."""

from __future__ import annotations

import bisect
import dataclasses
import math
import threading
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from beam_pipes.errors import LoaderError
from beam_pipes.loader.order import Indices
from beam_pipes.loader.schedule import Stretch, integer_rates
from beam_pipes.loader.state import Segment

EXHAUSTED = ("repeat", "stop", "drop")


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
    """Splits, or packing plans, with rates; passed to `Loader` in place of a split.

    `Mixture([(books, 0.7), (web, 0.2), (code, 0.1)])`: of the first n rows, for every n, between 0.7 n - 1 and
    0.7 n + 1 are from books. Rates are proportions of any scale, see `integer_rates` for their precision.

    All sources need the same features, dtypes and ranks, and the same sizes where they are fixed; `Loader` says which
    source has what. A dimension that varies in one source varies in the mixture.

    What happens when a source has given all of its rows:
      "repeat": it starts again, in the order of its next epoch. The mixture never ends: use `epochs=None`.
      "stop": an epoch of the mixture ends before the first row that would be the second of its kind.
      "drop": the source falls out, the others go on at their rates; an epoch is exactly all rows of all sources.
    """

    sources: Iterable[tuple[Any, float | int | Fraction]]
    exhausted: str = dataclasses.field(default="repeat", kw_only=True)

    def __post_init__(self) -> None:
        if self.exhausted not in EXHAUSTED:
            raise LoaderError(f"unknown policy exhausted={self.exhausted!r}; choose one of: {', '.join(EXHAUSTED)}")
        try:
            sources = [(source, rate) for source, rate in self.sources]
        except (TypeError, ValueError) as error:
            raise LoaderError(f"a mixture is a list of (source, rate) pairs, got {self.sources!r}: {error}") from error
        object.__setattr__(self, "sources", tuple(sources))
        object.__setattr__(self, "_rates", integer_rates([rate for _, rate in sources]))

    @property
    def integer_rates(self) -> tuple[int, ...]:
        rates: tuple[int, ...] = self.__dict__["_rates"]
        return rates

    @property
    def rates(self) -> tuple[Fraction, ...]:
        """The proportions in use, exactly; they add up to 1."""
        total = sum(self.integer_rates)
        return tuple(Fraction(rate, total) for rate in self.integer_rates)


class MixtureSchedule:
    """Which source gives each row of one epoch of a mixture, from some row onward. Thread-safe."""

    def __init__(self, segment: Segment, sizes: Sequence[int], exhausted: str) -> None:
        self.segment = segment
        self._sizes = tuple(sizes)
        empty = [index for index, rate in enumerate(segment.rates) if rate and not sizes[index]]
        if empty:
            raise LoaderError(f"source {empty[0]} of the mixture has a positive rate and no rows", source=empty[0])
        self._lock = threading.Lock()
        self._stretches = [Stretch(segment.start, segment.counts, segment.rates)]
        self._starts = [segment.start]
        self.size: int | None = None  # rows of an epoch; None: endless
        # Where the last stretch that is known ends; None where it goes on for ever.
        self._known_until = None if exhausted == "repeat" else self._first_exhaustion(self._stretches[0])
        if exhausted == "stop":
            self.size = self._known_until
        elif exhausted == "drop":
            rated = [index for index, rate in enumerate(segment.rates) if rate]
            self.size = segment.start + sum(max(0, sizes[index] - segment.counts[index]) for index in rated)

    def counts_at(self, position: int) -> tuple[int, ...]:
        """Rows that each source has given in this epoch before row `position`."""
        self._learn_until(position)
        return self._stretches[max(0, bisect.bisect_right(self._starts, position) - 1)].counts_at(position)

    def locate(self, positions: Indices) -> tuple[Indices, Indices]:
        """For each position: its source, and how many rows that source had given before in this epoch."""
        if len(positions) and positions.min() < self.segment.start:
            raise LoaderError(
                f"row {int(positions.min())} lies before row {self.segment.start}, where the rates last changed: "
                "only rows from there on can be computed. Start a new loader to read earlier ones.",
                position=int(positions.min()),
            )
        self._learn_until(int(positions.max(initial=0)))
        sources = np.empty(len(positions), np.int64)
        ordinals = np.empty(len(positions), np.int64)
        owner = np.searchsorted(self._starts, positions, side="right") - 1
        for index in np.unique(owner):
            mine = owner == index
            sources[mine], ordinals[mine] = self._stretches[index].locate(positions[mine])
        return sources, ordinals

    def position_of(self, source: int, ordinal: int) -> int | None:
        """The position of a source's row number `ordinal`; None if it does not come in this epoch from here on."""
        self._learn_until(self.size or 0)
        ends = [*self._starts[1:], self.size]
        for stretch, end in zip(self._stretches, ends, strict=True):
            if ordinal < stretch.counts[source]:
                return None
            position = stretch.position_of(source, ordinal)
            if position is not None and (end is None or position < end):
                return position
        return None

    def _learn_until(self, position: int) -> None:
        """Makes the stretches up to the one of a row known.

        Each source that falls out gives the others a schedule of its own, and each schedule of some hundred sources
        takes half a second: those of the end of an epoch are made when it comes.
        """
        with self._lock:
            while self._known_until is not None and self._known_until != self.size and position >= self._known_until:
                stretch = self._stretches[-1]
                counts = stretch.counts_at(self._known_until)
                rates = tuple(
                    rate if count < size else 0
                    for rate, count, size in zip(stretch.rates, counts, self._sizes, strict=True)
                )
                divisor = math.gcd(*rates)
                rates = tuple(rate // divisor for rate in rates)
                self._stretches.append(Stretch(self._known_until, counts, rates))
                self._starts.append(self._known_until)
                self._known_until = self._first_exhaustion(self._stretches[-1])

    def _first_exhaustion(self, stretch: Stretch) -> int:
        """Where a source would first have to give more rows than it has."""
        return min(
            position
            for source, size in enumerate(self._sizes)
            if (position := stretch.position_of(source, max(size, stretch.counts[source]))) is not None
        )
