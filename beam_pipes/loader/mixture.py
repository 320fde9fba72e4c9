"""Mixtures: rows of several sources in fixed proportions, at every moment and not only on average.

    rates (0.7, 0.3) ──integer_rates──► (7, 3) ──chairman_table──► the source of each of 10 slots ──► MixtureSchedule

`Mixture` is what users declare, `MixtureSchedule` says which source gives the row at position p. *Rates* are integers
w_1..w_k; their sum D is the *period*. In a period the sources are scheduled by the chairman assignment (R. Tijdeman,
"The chairman assignment problem", Discrete Mathematics 32, 1980): at slot t the sources whose lag w_i·t/D - count_i is
at least 1/(2k-2) are eligible, and of these the one with the earliest deadline is taken. After every slot, every count
then differs from w_i·t/D by at most 1 - 1/(2k-2) < 1, which is the best possible bound. After D slots all counts are
exact, so the schedule repeats: counts at any position follow from one period's table.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import heapq
import itertools
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import LoaderError
from beam_pipes.loader.order import Indices
from beam_pipes.loader.row_source import RowSource, opened
from beam_pipes.loader.state import Segment

MAX_EXACT_PERIOD = 1 << 20  # rates with a common denominator up to here are kept exactly
_SEARCHED_PERIOD = 1 << 18  # others are approximated by a period up to here


def exact_rates(rates: Sequence[float | int | Fraction]) -> tuple[int, ...]:
    """Rates as integers without a common factor, in exactly the same proportions: `(0.7, 0.2, 0.1)` → `(7, 2, 1)`.

    Raises:
        LoaderError: a rate is not a number or is negative, or none is positive.
    """
    exact = [_as_fraction(rate, index) for index, rate in enumerate(rates)]
    if not any(exact):
        raise LoaderError(f"a mixture needs at least one positive rate, got {list(rates)!r}")
    scale = math.lcm(*(rate.denominator for rate in exact))
    whole = [int(rate * scale) for rate in exact]
    divisor = math.gcd(*whole)
    return tuple(rate // divisor for rate in whole)


def integer_rates(rates: Sequence[float | int | Fraction]) -> tuple[int, ...]:
    """Rates as integers without a common factor, whose sum is small enough for a table.

    Integers, fractions and decimals keep their exact proportions: `(0.7, 0.2, 0.1)` → `(7, 2, 1)`. Rates whose common
    denominator exceeds 2^20 get the best simultaneous approximation with a period of at most 2^18: for two sources
    within 10^-10, for three within 10^-7, for many within 2·10^-6 of the proportions asked for.
    """
    exact = exact_rates(rates)
    period = sum(exact)
    if period <= MAX_EXACT_PERIOD:
        return exact
    shares = [rate / period for rate in exact]
    weights = _approximate(np.array(shares))
    for index, (weight, share) in enumerate(zip(weights, shares, strict=True)):
        if share and not weight:
            raise LoaderError(
                f"rate {share:.3g} of source {index} is too small beside the others: "
                f"a source gets at least one row in {_SEARCHED_PERIOD}, or none with rate 0",
                source=index,
            )
    return weights


def _as_fraction(rate: float | int | Fraction, index: int) -> Fraction:
    try:
        # repr() gives the decimal that was typed: 0.1 means one tenth, not 3602879701896397/2^55.
        value = Fraction(repr(float(rate))) if isinstance(rate, (float, np.floating)) else Fraction(rate)
    except (TypeError, ValueError) as error:
        raise LoaderError(f"rate of source {index} should be a number, got {rate!r}", source=index) from error
    if value < 0:
        raise LoaderError(f"rate of source {index} should not be negative, got {rate!r}", source=index)
    return value


def _approximate(shares: npt.NDArray[np.float64]) -> tuple[int, ...]:
    """The period in (2^17, 2^18] at which all shares come closest to whole numbers (simultaneous approximation)."""
    periods = np.arange(_SEARCHED_PERIOD // 2 + 1, _SEARCHED_PERIOD + 1, dtype=np.float64)
    worst = np.zeros(len(periods))
    total = np.zeros(len(periods))
    for share in shares:
        ideal = share * periods
        rounded = np.rint(ideal)
        np.maximum(worst, np.abs(rounded - ideal) / periods, out=worst)
        total += rounded
    worst[total != periods] = np.inf
    best = int(np.argmin(worst))
    period = int(periods[best]) if math.isfinite(worst[best]) else _SEARCHED_PERIOD
    weights = np.floor(shares * period).astype(np.int64)
    # Largest remainders get what rounding down left over; where the best period was found this is plain rounding.
    remainders = shares * period - weights
    weights[np.argsort(-remainders, kind="stable")[: period - int(weights.sum())]] += 1
    divisor = math.gcd(*weights.tolist())
    return tuple(int(weight) // divisor for weight in weights)


def chairman_turns(rates: Sequence[int]) -> Iterator[int]:
    """Endless turns of sources with integer rates: `(2, 1)` → 0, 1, 0, 0, 1, 0, ... One with rate 0 never has a turn.

    About 1 µs a turn, and no memory beyond a few numbers a source, however large the rates are.
    """
    period = sum(rates)
    sources = [index for index, rate in enumerate(rates) if rate]
    if len(sources) == 1:
        yield from itertools.repeat(sources[0])
    scale = 2 * len(sources) - 2
    given = [0] * len(rates)
    # Item j (from 0) of source i is eligible from slot ceil(D·(scale·j + 1) / (scale·w)), and should be placed by
    # slot floor(D·(scale·(j + 1) - 1) / (scale·w)) + 1; all in integers.
    waiting = [(-(-period // (scale * rates[index])), index) for index in sources]
    heapq.heapify(waiting)
    ready: list[tuple[int, int]] = []
    for slot in itertools.count(1):
        while waiting and waiting[0][0] <= slot:
            index = heapq.heappop(waiting)[1]
            deadline = period * (scale * (given[index] + 1) - 1) // (scale * rates[index])
            heapq.heappush(ready, (deadline, index))
        index = heapq.heappop(ready)[1]
        yield index
        given[index] += 1
        release = -(-period * (scale * given[index] + 1) // (scale * rates[index]))
        heapq.heappush(waiting, (release, index))


@functools.lru_cache(maxsize=64)
def chairman_table(rates: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """One period of the turns: the source of each of `sum(rates)` slots, then kept. `(2, 1)` → `[0, 1, 0]`."""
    period = sum(rates)
    result = np.fromiter(itertools.islice(chairman_turns(rates), period), np.int32, period)
    result.setflags(write=False)
    return result


class Stretch:
    """A part of a mixture at constant rates: row `start` onward, where source i had already given `counts[i]` rows."""

    def __init__(self, start: int, counts: Sequence[int], rates: tuple[int, ...]) -> None:
        self.start = start
        self.counts = tuple(counts)
        self.rates = rates
        self.period = sum(rates)
        self._table = chairman_table(rates)
        self._slots = _slots_of(rates)

    def counts_at(self, position: int) -> tuple[int, ...]:
        """Rows that each source has given before row `position`; O(sources · log(period))."""
        periods, slot = divmod(position - self.start, self.period)
        return tuple(
            count + periods * rate + int(np.searchsorted(slots, slot))
            for count, rate, slots in zip(self.counts, self.rates, self._slots, strict=True)
        )

    def locate(self, positions: Indices) -> tuple[npt.NDArray[np.int32], Indices]:
        """For each position: its source, and how many rows that source had given before."""
        periods, slots = np.divmod(positions - self.start, self.period)
        sources = self._table[slots]
        ordinals = np.empty(len(positions), np.int64)
        for source in np.unique(sources):
            mine = sources == source
            earlier = np.searchsorted(self._slots[source], slots[mine])
            ordinals[mine] = self.counts[source] + periods[mine] * self.rates[source] + earlier
        return sources, ordinals

    def position_of(self, source: int, ordinal: int) -> int | None:
        """The position of row number `ordinal` (counted from 0 over the whole epoch) of a source; None if never."""
        rate = self.rates[source]
        if not rate:
            return None
        periods, item = divmod(ordinal - self.counts[source], rate)
        return self.start + periods * self.period + int(self._slots[source][item])


@functools.lru_cache(maxsize=64)
def _slots_of(rates: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], ...]:
    table = chairman_table(rates)
    return tuple(np.flatnonzero(table == index) for index in range(len(rates)))


EXHAUSTED = ("repeat", "stop", "drop")


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
    """Splits, or packing plans, with rates; passed to `Loader` in place of a split.

    `Mixture([(books, 0.7), (web, 0.2), (code, 0.1)])`: of the first n rows, for every n, between 0.7 n - 1 and
    0.7 n + 1 are from books. A source is a split, its path ("books/train"), or a packing plan. Rates are proportions of
    any scale, see `integer_rates` for their precision.

    All sources need the same features, dtypes and ranks, and the same sizes where they are fixed; `Loader` says which
    source has what. A dimension that varies in one source varies in the mixture.

    What happens when a source has given all of its rows:
      "repeat": it starts again, in the order of its next epoch. The mixture never ends: use `epochs=None`.
      "stop": an epoch of the mixture ends before the first row that would be the second of its kind.
      "drop": the source falls out, the others go on at their rates; an epoch is exactly all rows of all sources.
    """

    sources: Iterable[tuple[RowSource, float | int | Fraction]]
    exhausted: str = dataclasses.field(default="repeat", kw_only=True)

    def __post_init__(self) -> None:
        if self.exhausted not in EXHAUSTED:
            raise LoaderError(f"unknown policy exhausted={self.exhausted!r}; choose one of: {', '.join(EXHAUSTED)}")
        try:
            pairs = [(source, rate) for source, rate in self.sources]
        except (TypeError, ValueError) as error:
            raise LoaderError(f"a mixture is a list of (source, rate) pairs, got {self.sources!r}: {error}") from error
        object.__setattr__(self, "sources", tuple((opened(source), rate) for source, rate in pairs))
        object.__setattr__(self, "_rates", integer_rates([rate for _, rate in pairs]))

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
