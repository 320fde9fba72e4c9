"""Mixtures: rows of several sources in fixed proportions, at every moment and not only on average."""

from __future__ import annotations

import dataclasses
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
    """Which source gives each row of one epoch of a mixture, from some row onward."""

    def __init__(self, segment: Segment, sizes: Sequence[int], exhausted: str) -> None:
        self.segment = segment
        self._sizes = tuple(sizes)
        empty = [index for index, rate in enumerate(segment.rates) if rate and not sizes[index]]
        if empty:
            raise LoaderError(f"source {empty[0]} of the mixture has a positive rate and no rows", source=empty[0])
        self._stretches = [Stretch(segment.start, segment.counts, segment.rates)]
        self.size: int | None = None  # rows of an epoch; None: endless
        if exhausted == "stop":
            self.size = self._first_exhaustion(self._stretches[0])[0]
        elif exhausted == "drop":
            self.size = self._add_stretches_until_all_are_exhausted()
        self._starts = np.array([stretch.start for stretch in self._stretches])

    def counts_at(self, position: int) -> tuple[int, ...]:
        """Rows that each source has given in this epoch before row `position`."""
        return self._stretches[self._stretch_of(position)].counts_at(position)

    def locate(self, positions: Indices) -> tuple[Indices, Indices]:
        """For each position: its source, and how many rows that source had given before in this epoch."""
        if len(positions) and positions.min() < self.segment.start:
            raise LoaderError(
                f"row {int(positions.min())} lies before row {self.segment.start}, where the rates last changed: "
                "only rows from there on can be computed. Start a new loader to read earlier ones.",
                position=int(positions.min()),
            )
        sources = np.empty(len(positions), np.int64)
        ordinals = np.empty(len(positions), np.int64)
        owner = np.searchsorted(self._starts, positions, side="right") - 1
        for index in np.unique(owner):
            mine = owner == index
            sources[mine], ordinals[mine] = self._stretches[index].locate(positions[mine])
        return sources, ordinals

    def position_of(self, source: int, ordinal: int) -> int | None:
        """The position of a source's row number `ordinal`; None if it does not come in this epoch from here on."""
        for index, stretch in enumerate(self._stretches):
            if ordinal < stretch.counts[source]:
                return None
            position = stretch.position_of(source, ordinal)
            last = self._starts[index + 1] if index + 1 < len(self._stretches) else self.size
            if position is not None and (last is None or position < last):
                return position
        return None

    def _stretch_of(self, position: int) -> int:
        return max(0, int(np.searchsorted(self._starts, position, side="right")) - 1)

    def _first_exhaustion(self, stretch: Stretch) -> tuple[int, int]:
        """Where a source would first have to give more rows than it has, and which one."""
        positions = [
            (position, source)
            for source, size in enumerate(self._sizes)
            if (position := stretch.position_of(source, max(size, stretch.counts[source]))) is not None
        ]
        return min(positions)

    def _add_stretches_until_all_are_exhausted(self) -> int:
        stretch = self._stretches[0]
        while True:
            position, _ = self._first_exhaustion(stretch)
            counts = stretch.counts_at(position)
            rates = tuple(
                rate if count < size else 0
                for rate, count, size in zip(stretch.rates, counts, self._sizes, strict=True)
            )
            if not any(rates):
                return position
            stretch = Stretch(position, counts, rates)
            self._stretches.append(stretch)
