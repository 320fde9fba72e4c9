"""Mixtures: rows of several sources in fixed proportions at every point, not only on average.

    rates (0.7, 0.3) ──integer_rates──► (7, 3) ──chairman_turns──► the source of each of 10 slots ──► MixtureSchedule

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
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import choice
from beam_pipes.errors import LoaderError
from beam_pipes.format.dtypes import Array
from beam_pipes.loader.order import Indices, check_integer
from beam_pipes.loader.packing.plan import PackingPlan
from beam_pipes.loader.row_source import PaddedSplit, ReadSplit, allow_open_files, opened
from beam_pipes.loader.state import MOST_PERIOD, Segment
from beam_pipes.loader.windows import Windows

_SEARCHED_PERIOD = 1 << 18  # a period above MOST_PERIOD is approximated by one up to here


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
    within 10^-10, for three within 10^-7, for many within 2·10^-6 of the requested proportions.
    """
    exact = exact_rates(rates)
    period = sum(exact)
    if period <= MOST_PERIOD:
        return exact
    shares = [rate / period for rate in exact]
    weights = _approximate(np.array(shares))
    for index, (weight, given) in enumerate(zip(weights, exact, strict=True)):
        if given and not weight:
            raise LoaderError(
                f"rate {rates[index]} of source {index} is too small beside the others: "
                f"a source gets at least one row in {_SEARCHED_PERIOD}, or none with rate 0",
                source=index,
            )
    return weights


def _as_fraction(rate: float | int | Fraction, index: int) -> Fraction:
    try:
        if isinstance(rate, str):  # Fraction would read it
            raise TypeError
        # repr() gives the decimal that was typed: 0.1 means one tenth, not 3602879701896397/2^55.
        # NumPy's integers as Python's, whose products do not overflow.
        exact = int(rate) if isinstance(rate, np.integer) else rate
        value = Fraction(repr(float(exact))) if isinstance(exact, (float, np.floating)) else Fraction(exact)
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
    ideal, rounded = np.empty_like(periods), np.empty_like(periods)
    for share in shares:  # in place: new arrays of a megabyte take as long as the arithmetic
        np.multiply(share, periods, out=ideal)
        np.rint(ideal, out=rounded)
        total += rounded
        np.subtract(rounded, ideal, out=ideal)
        np.abs(ideal, out=ideal)
        np.divide(ideal, periods, out=ideal)
        np.maximum(worst, ideal, out=worst)
    worst[total != periods] = np.inf
    best = int(np.argmin(worst))
    period = int(periods[best]) if math.isfinite(worst[best]) else _SEARCHED_PERIOD
    weights = np.floor(shares * period).astype(np.int64)
    # The largest remainders get what rounding down left over; at the best period this is plain rounding.
    remainders = shares * period - weights
    weights[np.argsort(-remainders, kind="stable")[: period - int(weights.sum())]] += 1
    divisor = math.gcd(*weights.tolist())
    return tuple(int(weight) // divisor for weight in weights)


def chairman_turns(rates: Sequence[int]) -> Iterator[int]:
    """Endless turns of sources with integer rates: `(2, 1)` → 0, 1, 0, 0, 1, 0, ... A source of rate 0 has no turns.

    About 1 µs per turn, and no memory beyond a few numbers per source, however large the rates are.
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


class _Known(NamedTuple):
    """The turns of the first slots of a period: the source of each, how many earlier ones belong to the same source,
    and the slots of each source.
    """

    table: npt.NDArray[np.int32]
    earlier: npt.NDArray[np.int32]
    slots: tuple[npt.NDArray[np.int32], ...]


class _Turns:
    """One period of the turns at some rates, computed only as far as needed: 1 µs and 12 bytes per slot. Thread-safe.

    A period may be 2^20 slots, and rates that change every few steps never reach its end.
    """

    def __init__(self, rates: tuple[int, ...]) -> None:
        self._period = sum(rates)
        self._turns = chairman_turns(rates)
        nothing = np.empty(0, np.int32)
        self._known = _Known(nothing, nothing, (nothing,) * len(rates))
        self._lock = threading.Lock()

    def until(self, slot: int) -> _Known:
        """The known turns, at least up to a slot."""
        if len(self._known.table) > slot:
            return self._known
        with self._lock:
            if len(self._known.table) <= slot:
                self._learn(slot + 1)
        return self._known

    def slot_of(self, source: int, item: int) -> int:
        """The slot in which a source has its turn number `item`, counted from 0 in a period."""
        with self._lock:
            while len(self._known.slots[source]) <= item:
                self._learn(len(self._known.table) + 1)
        return int(self._known.slots[source][item])

    def _learn(self, slots: int) -> None:
        known = self._known
        first = len(known.table)
        count = min(max(slots - first, first, _LEARNED_SLOTS), self._period - first)
        table = np.fromiter(itertools.islice(self._turns, count), np.int32, count)
        earlier = np.empty(count, np.int32)
        slots_of = []
        for source, before in enumerate(known.slots):
            mine = np.flatnonzero(table == source)
            earlier[mine] = np.arange(len(before), len(before) + len(mine))
            slots_of.append(np.concatenate([before, (mine + first).astype(np.int32)]))
        self._known = _Known(
            np.concatenate([known.table, table]), np.concatenate([known.earlier, earlier]), tuple(slots_of)
        )


_LEARNED_SLOTS = 1 << 9  # at least this many slots are computed at a time
_SHORT_PERIOD = 1 << 12

# Tables of short periods are kept, such as those for the steps of a ramp; one of a long period takes up to 12 MB.
_short_turns = functools.lru_cache(maxsize=128)(_Turns)
_long_turns = functools.lru_cache(maxsize=4)(_Turns)


def _turns_of(rates: tuple[int, ...]) -> _Turns:
    return (_short_turns if sum(rates) <= _SHORT_PERIOD else _long_turns)(rates)


class Stretch:
    """A part of a mixture at constant rates: from row `start` on, where source i had already given `counts[i]` rows."""

    def __init__(self, start: int, counts: Sequence[int], rates: tuple[int, ...]) -> None:
        self.start = start
        self.counts = tuple(counts)
        self.rates = rates
        self.period = sum(rates)
        self._turns = _turns_of(rates)
        self._counts_and_rates = np.array([self.counts, rates], np.int64)

    def counts_at(self, position: int) -> tuple[int, ...]:
        """Rows that each source has given before row `position`; O(sources · log(period))."""
        periods, slot = divmod(position - self.start, self.period)
        slots_of = self._turns.until(slot - 1).slots
        return tuple(
            count + periods * rate + int(np.searchsorted(slots, slot))
            for count, rate, slots in zip(self.counts, self.rates, slots_of, strict=True)
        )

    def locate(self, positions: Indices) -> tuple[Array, Indices]:
        """For each position: its source, and the number of earlier rows from that source."""
        periods, slots = np.divmod(positions - self.start, self.period)
        known = self._turns.until(int(slots.max(initial=0)))
        sources = known.table[slots]
        counts, rates = self._counts_and_rates[:, sources]
        return sources, counts + periods * rates + known.earlier[slots]

    def position_of(self, source: int, ordinal: int) -> int | None:
        """The position of row number `ordinal` (counted from 0 over the whole epoch) of a source; None if never."""
        rate = self.rates[source]
        if not rate:
            return None
        periods, item = divmod(ordinal - self.counts[source], rate)
        return self.start + periods * self.period + self._turns.slot_of(source, item)

    def bounds_of(self, source: int, ordinal: int) -> tuple[int, int]:
        """The earliest and latest that `position_of` can be, at once: a count differs from its ideal by less than 1."""
        item, rate = ordinal - self.counts[source], self.rates[source]
        earliest, latest = (item - 1) * self.period // rate + 1, -(-(item + 2) * self.period // rate) - 2
        return self.start + earliest, self.start + latest


#: One source of rows: a split or its path, a packing plan, windows, or records padded one by one.
RowSource: TypeAlias = "str | os.PathLike[str] | ReadSplit | PackingPlan | PaddedSplit | Windows"
Rates: TypeAlias = "Sequence[float | int | Fraction]"
Unit = Literal["steps", "rows", "tokens"]
Interpolation = Literal["constant", "linear"]

# A ramp is taken in this many steps of equal length, at the rates of their middles, with a period of at most this many
# rows: the table of a period costs 1 µs per row.
_RAMP_STEPS = 64
_RAMP_PERIOD = 1 << 12


@dataclasses.dataclass(frozen=True)
class RateSchedule:
    """Rates of a mixture that change over the run: `Mixture([(books, 3), (web, 1)], schedule=RateSchedule(…))`.

    `RateSchedule([(10_000, (1, 1)), (20_000, (1, 3))])`: the rates of the mixture until step 10,000, then as many books
    as web, and from step 20,000 on a quarter of books.

    points: pairs of a time and the rates of all sources from then on; a rate may be 0.
    unit: the unit of the times: "steps" (global batches of the loader's batch size, the default), "rows", or "tokens"
        of packed rows, padding included.
    interpolation: "constant" holds the rates until the next point; "linear" changes from the previous point's rates to
        these in 64 steps of equal length, so that a ramp gives the rows of its mean.

    A state can be restored only under the same schedule in rows: one in steps also fixes the batch size of the run.
    Raises `LoaderError` for points that do not ascend from 1, and for unknown units.
    """

    points: Sequence[tuple[int, Rates]]
    unit: Unit = dataclasses.field(default="steps", kw_only=True)
    interpolation: Interpolation = dataclasses.field(default="constant", kw_only=True)

    def __post_init__(self) -> None:
        for option, kinds in (("unit", Unit), ("interpolation", Interpolation)):
            choice(getattr(self, option), of=get_args(kinds), what=f"RateSchedule: {option}", error=LoaderError)
        before, points = 0, []
        for when, rates in self.points:
            before = check_integer("a point of a RateSchedule", when, before + 1)
            exact_rates(rates)
            points.append((before, rates))
        object.__setattr__(self, "points", tuple(points))

    def in_rows(self, rates: tuple[int, ...], rows_of_unit: Fraction) -> Timeline:
        """The schedule from a mixture's first rates on, where a unit is that many rows."""
        changes = [(0, rates)]
        label: list[list[int]] = []
        begin, earlier = 0, rates
        for when, given in self.points:
            row, later = math.ceil(when * rows_of_unit), integer_rates(given)
            steps = min(_RAMP_STEPS, row - begin) if self.interpolation == "linear" else 0
            for step in range(steps):
                middle = Fraction(2 * step + 1, 2 * steps)
                changes.append((begin + step * (row - begin) // steps, _between(earlier, later, middle)))
            changes.append((row, later))
            label.append([row, *later])
            begin, earlier = row, later
        last = dict(changes)  # the last of several at one row counts
        return Timeline(list(last), list(last.values()), [*label, *([[-1]] if self.interpolation == "linear" else [])])


class Timeline:
    """The rates of a mixture at each row: `rates[i]` from row `starts[i]` on. `label` is a short form, for a state."""

    def __init__(self, starts: Sequence[int], rates: Sequence[tuple[int, ...]], label: list[list[int]]) -> None:
        self._starts = starts
        self.rates = rates
        self.label = label

    def rates_at(self, row: int) -> tuple[int, ...]:
        """The rates in force at a row."""
        return self.rates[bisect.bisect_right(self._starts, row) - 1]

    def change_after(self, row: int) -> int | None:
        """The next row after this one at which they change; None if they never change again."""
        index = bisect.bisect_right(self._starts, row)
        return self._starts[index] if index < len(self._starts) else None


def _between(first: Sequence[int], second: Sequence[int], fraction: Fraction) -> tuple[int, ...]:
    """Rates on the way from one to the other, with a short period: (1, 1), (1, 3), 1/2 → (3, 5)."""
    sums = sum(first), sum(second)
    shares = [
        Fraction(one, sums[0]) * (1 - fraction) + Fraction(other, sums[1]) * fraction
        for one, other in zip(first, second, strict=True)
    ]
    exact = exact_rates(shares)
    if sum(exact) <= _RAMP_PERIOD:
        return exact
    weights = [int(share * _RAMP_PERIOD) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda index: weights[index] - shares[index] * _RAMP_PERIOD)
    for index in by_remainder[: _RAMP_PERIOD - sum(weights)]:
        weights[index] += 1
    divisor = math.gcd(*weights)
    return tuple(weight // divisor for weight in weights)


EXHAUSTED = ("repeat", "stop", "drop")


@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
    """Splits, or packing plans, with rates; passed to `Loader` in place of a split.

    `Mixture([(books, 0.7), (web, 0.2), (code, 0.1)])`: of the first n rows, for every n, between 0.7 n - 1 and
    0.7 n + 1 are from books. A source is a split, its path ("books/train"), or a packing plan. Rates are proportions of
    any scale, see `integer_rates` for their precision.

    All sources need the same features, dtypes and ranks, and the same sizes where they are fixed; `Loader` says which
    source has what. A dimension that varies in one source varies in the mixture.

    What happens when a source is exhausted:
      "repeat": it starts again, in the order of its next epoch. The mixture never ends: use `epochs=None`. With
        `max_epochs` it leaves the mixture after that many, and the others continue at their rates; if all sources have
        a limit, the mixture ends when nothing is left.
      "stop": an epoch of the mixture ends before the first row that would repeat one.
      "drop": the source leaves the mixture, the others continue at their rates; an epoch is exactly all rows of all
        sources.

    `max_epochs` is one number for all sources, or a list with None for those without a limit. `schedule` changes the
    rates over the run (only with "repeat").
    """

    sources: Iterable[tuple[RowSource, float | int | Fraction]]
    exhausted: str = dataclasses.field(default="repeat", kw_only=True)
    max_epochs: int | Sequence[int | None] | None = dataclasses.field(default=None, kw_only=True)
    schedule: RateSchedule | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        choice(self.exhausted, of=EXHAUSTED, what="exhausted", error=LoaderError)
        for option in ("max_epochs", "schedule"):
            if getattr(self, option) is not None and self.exhausted != "repeat":
                raise LoaderError(
                    f"{option} is for a mixture that repeats its sources, but this one has "
                    f"exhausted={self.exhausted!r}. Omit exhausted; max_epochs=1 ends as 'drop' does."
                )
        try:
            pairs = [(source, rate) for source, rate in self.sources]
        except (TypeError, ValueError) as error:
            raise LoaderError(f"a mixture is a list of (source, rate) pairs, got {self.sources!r}: {error}") from error
        for index, (source, _) in enumerate(pairs):
            if isinstance(source, Mixture):
                raise LoaderError(
                    f"source {index} of the mixture is a mixture itself. Flatten it: list its sources beside the "
                    "others, each at its share in it times the rate of the whole.",
                    source=index,
                )
        allow_open_files(len(pairs))
        object.__setattr__(self, "sources", tuple((opened(source), rate) for source, rate in pairs))
        object.__setattr__(self, "_rates", integer_rates([rate for _, rate in pairs]))
        given = self.max_epochs
        limits = tuple(given) if isinstance(given, Iterable) else (given,) * len(pairs)
        for option, found in [("max_epochs", limits), *(("rates", rates) for _, rates in self._points)]:
            if len(found) != len(pairs):
                raise LoaderError(f"the mixture has {len(pairs)} sources, got {len(found)} {option}: {tuple(found)!r}")
        whole = (None if each is None else check_integer("max_epochs of a source", each, 1) for each in limits)
        object.__setattr__(self, "_limits", tuple(whole))

    @property
    def _points(self) -> Sequence[tuple[int, Rates]]:
        return () if self.schedule is None else self.schedule.points

    @property
    def limits(self) -> tuple[int | None, ...] | None:
        """The maximum passes over each source; None if none has a limit."""
        limits: tuple[int | None, ...] = self.__dict__["_limits"]
        return None if set(limits) == {None} else limits

    def timeline(self, rows_of_unit: Fraction) -> Timeline | None:
        """The schedule in rows, where a unit is that many rows; None without one."""
        return None if self.schedule is None else self.schedule.in_rows(self.integer_rates, rows_of_unit)

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
    """Which source gives each row of one epoch of a mixture, from some row on. Thread-safe.

    The rates change where a source leaves, and where a timeline says so; the rows between are stretches.
    """

    def __init__(
        self,
        segment: Segment,
        sizes: Sequence[int],
        exhausted: str,
        *,
        max_epochs: Sequence[int | None] | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        self.segment = segment
        self._timeline = timeline
        rated = [segment.rates] if timeline is None else [segment.rates, *timeline.rates]
        empty = [index for index, size in enumerate(sizes) if not size and any(rates[index] for rates in rated)]
        if empty:
            raise LoaderError(f"source {empty[0]} of the mixture has a positive rate but no rows", source=empty[0])
        # How many rows each source gives before it leaves; None if it never does.
        self._limits: list[int | None] = list(sizes)
        if exhausted == "repeat":
            passes = max_epochs or [None] * len(sizes)
            self._limits = [None if most is None else most * size for most, size in zip(passes, sizes, strict=True)]
        self._lock = threading.Lock()
        self._stretches = [Stretch(segment.start, segment.counts, segment.rates)]
        self._starts = [segment.start]
        self.size: int | None = None  # rows of an epoch; None: endless
        # Where the last known stretch ends; None if it goes on forever.
        self._known_until = self._end_of(self._stretches[0])
        if exhausted == "stop":
            self.size = self._known_until
        elif timeline is None:
            left = [
                None if limit is None else max(0, limit - count)
                for limit, count, rate in zip(self._limits, segment.counts, segment.rates, strict=True)
                if rate
            ]
            self.size = None if None in left else segment.start + sum(each for each in left if each is not None)
        elif any(limit is not None for limit in self._limits):
            self._learn_until(None)  # finds now where the sources run out before the schedule brings others

    def rates_at(self, position: int) -> tuple[int, ...]:
        """The rates at row `position`, 0 for a source that has left."""
        self._learn_until(position)
        return self._stretches[max(0, bisect.bisect_right(self._starts, position) - 1)].rates

    def counts_at(self, position: int) -> tuple[int, ...]:
        """Rows that each source has given in this epoch before row `position`."""
        self._learn_until(position)
        return self._stretches[max(0, bisect.bisect_right(self._starts, position) - 1)].counts_at(position)

    def locate(self, positions: Indices) -> tuple[Indices, Indices]:
        """For each position: its source, and how many rows that source had given before in this epoch."""
        if len(positions) and positions.min() < self.segment.start:
            raise LoaderError(
                f"row {int(positions.min())} is before row {self.segment.start}, where the rates last changed: "
                "only later rows can be computed. Start a new loader to read earlier ones.",
                position=int(positions.min()),
            )
        self._learn_until(int(positions.max(initial=0)))
        if len(self._starts) == 1:
            return self._stretches[0].locate(positions)
        sources = np.empty(len(positions), np.int64)
        ordinals = np.empty(len(positions), np.int64)
        owner = np.searchsorted(self._starts, positions, side="right") - 1
        for index in np.unique(owner):
            mine = owner == index
            sources[mine], ordinals[mine] = self._stretches[index].locate(positions[mine])
        return sources, ordinals

    def position_of(self, source: int, ordinal: int) -> int | None:
        """The position of a source's row number `ordinal`; None if it does not come in this epoch from here on."""
        self._learn_until(None)
        ends = [*self._starts[1:], self.size]
        for stretch, end in zip(self._stretches, ends, strict=True):
            if ordinal < stretch.counts[source]:
                return None
            position = stretch.position_of(source, ordinal)
            if position is not None and (end is None or position < end):
                return position
        return None

    @property
    def most_rows(self) -> Sequence[int | None]:
        """The rows that each source gives in an epoch at most; None for those without a limit."""
        return self._limits

    def rows_before(self, source: int, position: int | None) -> int | None:
        """Rows that a source gives before a position, or in the whole epoch (None); None if that never ends."""
        self._learn_until(position)
        end = self.size if position is None or (self.size is not None and self.size < position) else position
        if end is not None:
            return self.counts_at(max(end, self.segment.start))[source]
        last = self._stretches[-1]
        return None if last.rates[source] else last.counts[source]

    def _learn_until(self, position: int | None) -> None:
        """Computes the stretches up to the one of a row; all of them with None.

        Each source that leaves creates a new schedule for the others, and one for a few hundred sources takes half
        a second: those at the end of an epoch are computed only when they are needed.
        """
        with self._lock:
            while (end := self._known_until) is not None and end != self.size and (position is None or position >= end):
                stretch = self._stretches[-1]
                counts = stretch.counts_at(end)
                rates = stretch.rates if self._timeline is None else self._timeline.rates_at(end)
                rates = tuple(
                    rate if limit is None or count < limit else 0
                    for rate, count, limit in zip(rates, counts, self._limits, strict=True)
                )
                if not any(rates):
                    self._check_end(end, counts)
                    self.size = end
                    return
                divisor = math.gcd(*rates)
                rates = tuple(rate // divisor for rate in rates)
                self._stretches.append(Stretch(end, counts, rates))
                self._starts.append(end)
                self._known_until = self._end_of(self._stretches[-1])

    def _check_end(self, end: int, counts: Sequence[int]) -> None:
        """Raises `LoaderError` if nothing is left at a row, but the schedule continues."""
        change = None if self._timeline is None else self._timeline.change_after(end)
        while self._timeline is not None and change is not None:
            rates = self._timeline.rates_at(change)
            for source, (rate, limit, count) in enumerate(zip(rates, self._limits, counts, strict=True)):
                if rate and (limit is None or count < limit):
                    raise LoaderError(
                        f"at row {end} of the run all sources with a rate have been read as often as max_epochs "
                        f"allows, and source {source} has a rate only from row {change} on. Let the schedule change "
                        "earlier, or raise max_epochs.",
                        source=source,
                    )
            change = self._timeline.change_after(change)

    def _end_of(self, stretch: Stretch) -> int | None:
        """Where a source would first exceed its limit, or where the rates change; None if neither happens."""
        change = None if self._timeline is None else self._timeline.change_after(stretch.start)
        ends = [] if change is None else [change]
        leaving = [
            (source, max(limit, count), *stretch.bounds_of(source, max(limit, count)))
            for source, (limit, count) in enumerate(zip(self._limits, stretch.counts, strict=True))
            if limit is not None and stretch.rates[source]
        ]
        # Sources that cannot be the first are not asked where they leave: a million turns may come before, 1 µs each.
        first = min([*ends, *(latest for *_, latest in leaving)], default=0)
        for source, ordinal, earliest, _ in leaving:
            if earliest <= first and (position := stretch.position_of(source, ordinal)) is not None:
                ends.append(position)
        return min(ends, default=None)
