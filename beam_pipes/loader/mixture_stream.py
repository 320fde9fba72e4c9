"""Streams of mixtures: which source gives the row at a position, and which row of that source.

    position ──MixtureSchedule──► (source, its n-th row) ──Orders of the source──► (source, row)

A *segment* starts where a loader last changed the rates (`set_rates`), or where sources were added or removed
(`taking_over`): later rows depend only on it and on the declaration, which is why a state holds it.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from beam_pipes.cache.regions import ArenaValues, merged
from beam_pipes.errors import LoaderError, StateMismatchError, UnboundedLoaderError
from beam_pipes.loader.batches import Batch, merge_rows
from beam_pipes.loader.epochs import Orders, Shuffle
from beam_pipes.loader.mixture import Mixture, MixtureSchedule, Rates, Timeline, integer_rates
from beam_pipes.loader.order import Indices
from beam_pipes.loader.packing.plan import PackingPlan
from beam_pipes.loader.rows import GatherOptions, Shapes, SplitRows, varying
from beam_pipes.loader.state import LoaderState, Segment
from beam_pipes.loader.stream import (
    LOCATED_ROWS,
    EffectiveRate,
    EpochSizes,
    Given,
    Places,
    Progress,
    Stream,
)

# How a mixture was changed: in which epoch, its segment there, and the sizes of the epochs before.
Changes = tuple[int, Segment, tuple[EpochSizes, ...] | None]

# A state lists identities and rates of up to this many sources, and only a digest of more: it stays under a kilobyte.
_LISTED_SOURCES = 4
_LISTED_RATES = 16

_NONE = np.empty(0, np.int64)


def rates_label(rates: Sequence[int]) -> list[int] | str:
    """Rates as a state names them."""
    if len(rates) <= _LISTED_RATES:
        return list(rates)
    return _digest(list(rates))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


class MixtureStream(Stream):
    """The rows of a mixture; places are pairs (source, row)."""

    no_places = np.empty((0, 2), np.int64)

    def __init__(
        self,
        mixture: Mixture,
        options: GatherOptions,
        *,
        seed: int,
        shuffle: Shuffle,
        batch_size: int | None = None,
    ) -> None:
        opened: Sequence[Any] = [source for source, _ in mixture.sources]
        super().__init__(opened, options, seed=seed, shuffle=shuffle)
        self._mixture = mixture
        self.is_limited = mixture.limits is not None
        self._sizes = [rows.size for rows in self.sources]
        self._size_of_source = np.array(self._sizes, np.int64)
        timeline = self._timeline = mixture.timeline(_rows_of_unit(mixture, batch_size))
        self._schedules: Callable[[Segment], MixtureSchedule] = functools.lru_cache(maxsize=2)(
            functools.partial(_schedule, mixture, self._sizes, timeline)
        )
        self._change(0, None, ())

    def _change(self, epoch: int, segment: Segment | None, earlier: tuple[EpochSizes, ...] | None) -> None:
        """Takes the segment of an epoch whose rates changed during it; later epochs have these rates from their start.

        `earlier` are the epochs before that one; None if their rates are not known.
        """
        self.changed_epoch, self._changed, self._earlier = epoch, segment, earlier
        rates = self._mixture.integer_rates if segment is None else segment.rates
        if len(rates) != len(self.sources):
            raise LoaderError(f"the mixture has {len(self.sources)} sources, got {len(rates)} rates")
        streams = (segment.streams if segment else None) or range(len(self.sources))
        self._orders = list(map(self._new_orders, self.sources, streams))
        self._whole = Segment(start=0, counts=(0,) * len(self.sources), rates=rates)
        self.size = self._schedules(self._whole).size

    def _replaced(self, epoch: int, segment: Segment | None, earlier: tuple[EpochSizes, ...] | None) -> MixtureStream:
        made = copy.copy(self)
        made._change(epoch, segment, earlier)
        return made

    @property
    def located_rows(self) -> int:
        """Fewer if small sources are repeated often: every pass over a source has its own order."""
        rates, rows = self._whole.rates, LOCATED_ROWS
        passes_per_row = sum(rate / size for rate, size in zip(rates, self._sizes, strict=True) if size) / sum(rates)
        while rows > 256 and rows * passes_per_row > 4 * len(rates):
            rows //= 2
        return rows

    def size_of(self, epoch: int) -> int | None:
        return self._schedule(epoch).size

    def epoch_sizes(self) -> list[EpochSizes]:
        if self._changed is None:
            return [EpochSizes(None, self.size)]
        if self._earlier is None:
            raise UnboundedLoaderError(
                f"this loader was restored in epoch {self.changed_epoch} of a mixture whose rates had changed, and "
                "how many steps the epochs before had is not known: it has no length and no step numbers. Use epoch "
                "and position, which the state holds."
            )
        return [*self._earlier, EpochSizes(1, self.size_of(self.changed_epoch)), EpochSizes(None, self.size)]

    def identity(self) -> dict[str, object]:
        sources = [rows.identity() for rows in self.sources]
        identity: dict[str, object] = {
            "num_sources": len(sources),
            "exhausted": self._mixture.exhausted,
            "rates": rates_label(self._mixture.integer_rates),
            "digest": _digest(sources),
        }
        if self._timeline is not None:
            label = self._timeline.label
            identity["schedule"] = label if sum(map(len, label)) <= _LISTED_RATES else _digest(label)
        if self._mixture.limits is not None:
            limits = list(self._mixture.limits)
            identity["max_epochs"] = limits if len(limits) <= _LISTED_RATES else _digest(limits)
        if len(sources) <= _LISTED_SOURCES:
            identity["sources"] = [
                f"{source['split']}@{str(source['manifest'])[:12]}/{source['rows']}"
                + (f"/{str(source['plan'])[:12]}" if "plan" in source else "")
                for source in sources
            ]
        return identity

    def segment(self, epoch: int) -> Segment:
        """The segment that rows of this epoch belong to; raises `LoaderError` for an epoch before the last change."""
        if self._changed and epoch < self.changed_epoch:
            raise LoaderError(
                f"epoch {epoch} lies before epoch {self.changed_epoch}, where the rates last changed: only rows from "
                "there on can be computed. Start a new loader to read earlier ones.",
                epoch=epoch,
            )
        return self._changed if self._changed and epoch == self.changed_epoch else self._whole

    @property
    def needs_segment(self) -> bool:
        """Whether a state must hold the segment: a state of many sources leaves it out until their rates change."""
        return len(self._sizes) <= _LISTED_RATES

    def stated_segment(self, epoch: int) -> Segment | None:
        """None if there are many rates and they are the declared ones, whose digest is in the identity."""
        if self._changed is None and not self.needs_segment:
            return None
        return self.segment(epoch)

    def with_rates(self, rates: Rates, epoch: int, position: int) -> MixtureStream:
        """The same mixture at other rates from this row on; every source continues where it is."""
        if self._timeline is not None:
            raise LoaderError(
                "this mixture has a schedule of its rates, which set_rates would contradict. Declare a Mixture with "
                "another schedule, and restore the state into its loader: restore(state, previous=mixture)."
            )
        segment = Segment(
            start=position,
            counts=self._schedule(epoch).counts_at(position),
            rates=integer_rates(rates),
            streams=self._changed.streams if self._changed else None,
        )
        return self._replaced(epoch, segment, self._sizes_before(epoch))

    def restored(self, state: LoaderState, *, declared: bool) -> MixtureStream:
        """The same mixture, continued from a state of a mixture `declared` with the same rates."""
        segment = state.segment
        if segment is None:
            if self.needs_segment:
                raise StateMismatchError("this state is of a mixture and misses its segment", differences=("segment",))
            return self.restarted()
        if len(segment.counts) != len(self._sizes) or len(segment.rates) != len(self._sizes):
            raise StateMismatchError(
                f"this state is of a mixture of {len(segment.rates)} sources, now there are {len(self._sizes)}",
                differences=(f"sources: {len(segment.rates)} → {len(self._sizes)}",),
            )
        start = self.restarted()
        if declared and segment == start._whole:
            restored = start
        else:
            restored = self._replaced(state.epoch, segment, None if state.epoch else ())
        # A segment with other sources than these may have given more rows of one than its limit is here.
        limits = restored._schedule(state.epoch).most_rows if segment.streams is None else ()
        for source, (limit, count) in enumerate(zip(limits, segment.counts, strict=False)):
            if limit is not None and count > limit:
                raise StateMismatchError(
                    f"this state is damaged: source {source} of the mixture, which gives {limit} rows in an epoch, is "
                    f"said to have given {count}. Restore another one.",
                    differences=("segment.counts",),
                )
        return restored

    def progress(self, epoch: int, position: int) -> Progress:
        counts = self._schedule(epoch).counts_at(position)
        sources = [
            Given(orders.rows.identity(), epoch * size + count, orders.stream)
            for orders, size, count in zip(self._orders, self._sizes, counts, strict=True)
        ]
        rows = position if not epoch else sum(given.rows for given in sources)
        return Progress(rows, sources)

    def effective_rates(self, epoch: int, position: int) -> list[EffectiveRate]:
        counts = self._schedule(epoch).counts_at(position)
        rates = self._schedule(epoch).rates_at(position)
        return [
            EffectiveRate(count, count / max(1, sum(counts)), count / size if size else 0.0, rate / sum(rates))
            for count, size, rate in zip(counts, self._sizes, rates, strict=True)
        ]

    def taking_over(self, before: Progress) -> tuple[MixtureStream, int]:
        """This mixture as the continuation of another one, or of a single source: sources in both continue where they
        are.

        Each keeps the permutations of its order; the others get new numbers.
        """
        if self._mixture.exhausted != "repeat":
            raise LoaderError(
                "sources are added to a run and taken from it where a mixture repeats them, and this one has "
                f"exhausted={self._mixture.exhausted!r}. Pass exhausted='repeat', with max_epochs=1 for an end."
            )
        left = list(before.sources)
        unused = itertools.count(1 + max(given.stream for given in left))
        counts, streams = [], []
        for orders in self._orders:
            identity = orders.rows.identity()
            same = next((given for given in left if given.identity == identity), None)
            if same is not None:
                left.remove(same)
            counts.append(0 if same is None else same.rows)
            streams.append(next(unused) if same is None else same.stream)
        timeline = self._timeline
        rates = self._mixture.integer_rates if timeline is None else timeline.rates_at(before.rows)
        segment = Segment(start=before.rows, counts=tuple(counts), rates=rates, streams=tuple(streams))
        return self._replaced(0, segment, ()), segment.start

    @property
    def changes(self) -> Changes | None:
        return None if self._changed is None else (self.changed_epoch, self._changed, self._earlier)

    def with_changes(self, changes: Changes) -> MixtureStream:
        """The same mixture with another one's changed rates."""
        return self._replaced(*changes)

    def restarted(self) -> MixtureStream:
        """The same mixture at its declared rates."""
        return self._replaced(0, None, ())

    def locate(self, epoch: int, positions: Indices) -> Places:
        sources, ordinals = self._schedule(epoch).locate(positions)
        places = np.empty((len(positions), 2), np.int64)
        places[:, 0] = sources
        if not len(positions):
            return places
        passes, offsets = np.divmod(ordinals, self._size_of_source[sources])
        first, count = int(passes.min()), len(self._orders)
        runs = list(_runs((passes - first) * count + sources, below=(int(passes.max()) - first + 1) * count))
        order = np.concatenate([mine for _, mine in runs])
        parts = [(self._orders[number % count], epoch + first + number // count) for number, _ in runs]
        places[order, 1] = Orders.records_of_each(parts, [len(mine) for _, mine in runs], offsets[order])
        return places

    def approach(self, epoch: int, position: int) -> None:
        counts = self._schedule(epoch).counts_at(position)
        for orders, count, size in zip(self._orders, counts, self._sizes, strict=True):
            if size:
                orders.approach(epoch + count // size, count % size)

    def rows_at(self, places: Places) -> tuple[Indices, Indices]:
        return places[:, 0], places[:, 1]

    def _gather(self, places: Places, shapes: Shapes | None) -> Batch:
        sources = places[:, 0]
        parts = []
        for source, mine in list(_runs(sources, below=len(self._orders))) or [(0, _NONE)]:
            parts.append((mine, self.sources[source].gather(places[mine, 1], shapes)))
        return merge_rows(parts, len(places), self.fills, shapes)

    def located(self, places: Places) -> Mapping[str, ArenaValues] | None:
        sources = [rows for rows in self.sources if isinstance(rows, SplitRows)]
        if len(sources) < len(self._orders):
            return None
        chosen = list(_runs(places[:, 0], below=len(sources))) or [(n, _NONE) for n in range(len(sources))]
        parts = []
        for source, mine in chosen:
            part = sources[source].located(places[mine, 1])
            if part is None:
                return None
            parts.append(part)
        order = np.concatenate([mine for _, mine in chosen])
        found = {}
        for name in self.features:
            column = merged([part[name] for part in parts], order)
            if column is None:
                return None
            found[name] = column
        return found

    def _widest(self, places: Places) -> Shapes:
        found: dict[str, tuple[int, ...]] = {}
        names = varying(self.columns)
        for source, mine in _runs(places[:, 0], below=len(self._orders)):
            rows = self.sources[source]
            widest = rows.widest(places[mine, 1])
            for name in names:
                shape = widest.get(name) or tuple(size or 0 for size in rows.columns[name].shape)
                found[name] = tuple(map(max, shape, found.get(name, shape)))
        return found

    def positions_of(self, epoch: int, source: int, row: int, before: int | None = None) -> Iterator[int]:
        """All positions of an epoch at which a row comes, ascending: once in each pass over its source.

        Those before the last change of the rates are omitted, and with `before` those from there on.
        """
        if not 0 <= source < len(self._orders):
            raise LoaderError(f"sources are numbered from 0 to {len(self._orders) - 1}, got {source}", source=source)
        schedule, size, orders = self._schedule(epoch), self._sizes[source], self._orders[source]
        orders.of_epoch(epoch).positions([row])  # raises for an invalid row, also of a source that never occurs
        given = schedule.rows_before(source, before)
        for again in itertools.count(schedule.segment.counts[source] // size):
            if given is not None and again * size >= given:
                return
            ordinal = again * size + int(orders.of_epoch(epoch + again).positions([row])[0])
            position = schedule.position_of(source, ordinal)
            if position is not None and (before is None or position < before):
                yield position

    def counts_at(self, epoch: int, position: int) -> tuple[int, ...]:
        """Rows that each source has given in the first `position` rows of an epoch."""
        return self._schedule(epoch).counts_at(position)

    def rows_given(self, epoch: int, source: int, ordinals: Indices) -> Indices:
        """The rows of a source that it gives as number `ordinals` of an epoch, all of one pass over it."""
        size = self._sizes[source]
        return self._orders[source].records(epoch + int(ordinals[0]) // size, ordinals % size)

    def _schedule(self, epoch: int) -> MixtureSchedule:
        return self._schedules(self.segment(epoch))

    def _sizes_before(self, epoch: int) -> tuple[EpochSizes, ...] | None:
        """The sizes of the epochs before one that is not before the last change; None if unknown."""
        if self._changed is not None and self._earlier is None:
            return None
        found: list[EpochSizes] = []
        first = 0
        for count, rows in self.epoch_sizes():
            count = epoch - first if count is None else min(count, epoch - first)
            first += count
            if count and found and found[-1].rows == rows:
                found[-1] = EpochSizes((found[-1].epochs or 0) + count, rows)
            elif count:
                found.append(EpochSizes(count, rows))
        return tuple(found)


def _runs(numbers: Indices, *, below: int) -> Iterator[tuple[int, Indices]]:
    """Each number that occurs, and where; one sort, whose time depends on the rows and not on the numbers."""
    narrow = numbers.astype(np.uint16) if below <= 1 << 16 else numbers
    order = np.argsort(narrow, kind="stable")
    changes = np.flatnonzero(np.diff(narrow[order])) + 1
    for first, last in itertools.pairwise([0, *changes.tolist(), len(order)] if len(order) else []):
        yield int(numbers[order[first]]), order[first:last]


def _schedule(mixture: Mixture, sizes: Sequence[int], timeline: Timeline | None, segment: Segment) -> MixtureSchedule:
    return MixtureSchedule(segment, sizes, mixture.exhausted, max_epochs=mixture.limits, timeline=timeline)


def _rows_of_unit(mixture: Mixture, batch_size: int | None) -> Fraction:
    """The rows in a unit of the mixture's schedule: a step is a batch of rows, a token part of a row."""
    schedule = mixture.schedule
    if schedule is None or schedule.unit == "rows":
        return Fraction(1)
    if schedule.unit == "steps":
        assert batch_size is not None
        return Fraction(batch_size)
    plans = [source for source, _ in mixture.sources]
    lengths = {tuple(plan.sequence_lengths.values()) if isinstance(plan, PackingPlan) else None for plan in plans}
    (length, *others) = lengths
    if others or length is None or len(length) != 1:
        raise LoaderError(
            "a schedule in tokens needs sources whose rows have one number of tokens: packing plans of one "
            "feature, all of the same sequence_length. Pass unit='rows' or 'steps'."
        )
    return Fraction(1, length[0])
