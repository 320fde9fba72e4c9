"""Streams: the rows of epochs, addressed by position.

`locate` turns positions of an epoch into *places* (cheap, vectorised, independent of the data), `gather` turns places
into a batch. The loader locates many batches at once and gathers one at a time.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import LoaderError, StateMismatchError, UnboundedLoaderError
from beam_pipes.loader.batches import Batch, Fills, merge_rows
from beam_pipes.loader.columns import read_consistently
from beam_pipes.loader.mixture import Mixture, MixtureSchedule, integer_rates
from beam_pipes.loader.order import (
    BalancedOrder,
    BalancedShuffle,
    BlockOrder,
    BlockShuffle,
    Indices,
    KeyedPermutation,
    Order,
    SequentialOrder,
)
from beam_pipes.loader.packed_rows import PackedRows, PaddedRows, PaddedSplit
from beam_pipes.loader.packing.plan import PackingPlan
from beam_pipes.loader.rows import (
    Columns,
    GatherOptions,
    Rows,
    Shapes,
    SplitRows,
    columns_in_common,
    row_bytes,
    varying,
)
from beam_pipes.loader.state import Segment

Shuffle = bool | BlockShuffle | BalancedShuffle
Places = npt.NDArray[np.int64]

# So many identities and rates of sources are listed in a state, of more only a digest: it stays under a kilobyte.
_LISTED_SOURCES = 4
_LISTED_RATES = 16
# A thousand places cost little more than one: the calls are what takes time.
LOCATED_ROWS = 8192


class EpochSizes(NamedTuple):
    """So many epochs in a row (None: all that follow) of so many rows each (None: without end)."""

    epochs: int | None
    rows: int | None


# What has changed a mixture: in which epoch, its segment there, and the sizes of the epochs before.
Changes = tuple[int, Segment, tuple[EpochSizes, ...] | None]


class Stream(Protocol):
    """Rows of epochs by position. Thread-safe."""

    @property
    def size(self) -> int | None:
        """Rows of an epoch; None for a stream without end."""
        ...

    @property
    def features(self) -> tuple[str, ...]: ...

    @property
    def all_features(self) -> frozenset[str]:
        """The features that there are, whether read or not."""
        ...

    @property
    def fills(self) -> Fills:
        """What fills each feature."""
        ...

    @property
    def columns(self) -> Columns:
        """The columns of every batch, in order."""
        ...

    @property
    def row_bytes(self) -> int | None:
        """Bytes of a row in a batch; None if batches cannot be cut out of larger ones."""
        ...

    def size_of(self, epoch: int) -> int | None:
        """Rows of one epoch, which a change of a mixture's rates on the way can have altered."""
        ...

    def epoch_sizes(self) -> list[EpochSizes]:
        """The rows of all epochs from the first one on, in runs of equal sizes; the last run has no end."""
        ...

    @property
    def located_rows(self) -> int:
        """So many rows are best located at once."""
        ...

    @property
    def segment_multiple(self) -> int:
        """Each segment of a packed row takes a multiple of so many places; 1 for rows that are not packed."""
        ...

    def identity(self) -> dict[str, Any]: ...

    def segment(self, epoch: int) -> Segment | None: ...

    def stated_segment(self, epoch: int) -> Segment | None:
        """The segment as a state needs it."""
        ...

    def locate(self, epoch: int, positions: Indices) -> Places: ...

    def check_widths(self) -> None:
        """Raises `LoaderError` where a column varies and how long rows are is not known before they are read."""
        ...

    def gather(self, places: Places, beside: Places | None = None) -> Batch:
        """The rows at some places; those `beside` them, of other hosts too, decide how wide columns that vary are."""
        ...

    @property
    def fetches_ahead(self) -> bool:
        """Whether `approach` does anything."""
        ...

    def approach(self, epoch: int, position: int) -> None:
        """Says that rows from here on are about to be gathered, so that what comes next can be fetched."""
        ...

    def position_of(self, epoch: int, source: int, row: int) -> int | None: ...


def shuffle_label(shuffle: Shuffle) -> str:
    """How a state names the kind of order: "global", "stored", "blocks/8" or "balanced/64"."""
    if isinstance(shuffle, BalancedShuffle):
        return f"balanced/{shuffle.rows}"
    if isinstance(shuffle, BlockShuffle):
        return f"blocks/{shuffle.window}"
    return "global" if shuffle else "stored"


def rates_label(rates: Sequence[int]) -> list[int] | str:
    """Rates as a state names them."""
    if len(rates) <= _LISTED_RATES:
        return list(rates)
    return hashlib.sha256(json.dumps(list(rates)).encode()).hexdigest()[:16]


def open_rows(source: Any, options: GatherOptions) -> Rows:
    """Rows of a split, of a packing plan, or of records padded one by one."""
    if isinstance(source, PackingPlan):
        return PackedRows(source, options)
    return PaddedRows(source, options) if isinstance(source, PaddedSplit) else SplitRows(source, options)


class _Orders:
    """The orders of one source, epoch by epoch."""

    def __init__(self, rows: Rows, seed: int, shuffle: Shuffle, stream: int) -> None:
        self.rows = rows
        self._approached: tuple[int, int] | None = None
        self.of_epoch: Callable[[int], Order] = functools.lru_cache(maxsize=4)(
            functools.partial(_order, rows, seed, shuffle, stream)
        )
        if not isinstance(shuffle, bool):
            self.of_epoch(0)  # raises now where blocks cannot be shuffled, or rows have no costs

    def records(self, epoch: int, positions: Indices) -> Indices:
        records = self.of_epoch(epoch).records(positions)
        return records + epoch * self.rows.size if self.rows.draws_anew else records

    def approach(self, epoch: int, position: int) -> None:
        order = self.of_epoch(epoch)
        if not isinstance(order, BlockOrder):
            return
        window = order.window_of(position)
        if self._approached == (epoch, window):
            return
        if self._approached is None or self._approached[0] != epoch:
            self.rows.check_room([order.blocks_of_window(number) for number in range(order.num_windows)])
        self._approached = (epoch, window)
        self.rows.will_need(np.concatenate([order.blocks_of_window(window), order.blocks_of_window(window + 1)]))


def _order(rows: Rows, seed: int, shuffle: Shuffle, stream: int, epoch: int) -> Order:
    if isinstance(shuffle, BlockShuffle):
        return BlockOrder(rows.block_sizes, window=shuffle.window, seed=seed, epoch=epoch, stream=stream)
    if isinstance(shuffle, BalancedShuffle):
        return BalancedOrder(rows.costs(epoch), rows=shuffle.rows, seed=seed, epoch=epoch, stream=stream)
    if shuffle:
        return KeyedPermutation(rows.size, seed=seed, epoch=epoch, stream=stream)
    return SequentialOrder(rows.size)


class RowStream:
    """The rows of one split or plan; places are row numbers."""

    located_rows = LOCATED_ROWS

    def __init__(self, source: Any, options: GatherOptions, *, seed: int, shuffle: Shuffle) -> None:
        self._rows = open_rows(source, options)
        self._orders = _Orders(self._rows, seed, shuffle, 0)
        self.size = self._rows.size
        self.features = self._rows.features
        self.all_features = frozenset(self._rows.split.spec)
        self.fills = self._rows.fills
        self.columns = self._rows.columns
        self.row_bytes = row_bytes(self.columns)
        self.fetches_ahead = isinstance(shuffle, BlockShuffle)

    @property
    def rows(self) -> Rows:
        return self._rows

    @functools.cached_property
    def most_segments(self) -> int | None:
        return self._rows.most_segments

    @property
    def segment_multiple(self) -> int:
        return self._rows.segment_multiple

    def size_of(self, epoch: int) -> int:
        return self.size

    def epoch_sizes(self) -> list[EpochSizes]:
        return [EpochSizes(None, self.size)]

    def identity(self) -> dict[str, Any]:
        return self._rows.identity()

    def segment(self, epoch: int) -> None:
        return None

    def stated_segment(self, epoch: int) -> None:
        return None

    def locate(self, epoch: int, positions: Indices) -> Places:
        return self._orders.records(epoch, positions)

    def check_widths(self) -> None:
        self._rows.widest(np.empty(0, np.int64))

    def gather(self, places: Places, beside: Places | None = None) -> Batch:
        if beside is None:
            return self._rows.gather(places)
        return read_consistently(
            [self._rows.split], lambda: self._rows.gather(places, shapes=self._rows.widest(beside))
        )

    def approach(self, epoch: int, position: int) -> None:
        self._orders.approach(epoch, position)

    def position_of(self, epoch: int, source: int, row: int) -> int | None:
        if source:
            raise LoaderError(f"there is one source, number 0; got source {source}", source=source)
        return int(self._orders.of_epoch(epoch).positions([row])[0])


class MixtureStream:
    """The rows of a mixture; places are pairs (source, row)."""

    def __init__(
        self,
        mixture: Mixture,
        options: GatherOptions,
        *,
        seed: int,
        shuffle: Shuffle,
        changed: tuple[int, Segment] | None = None,
        earlier: tuple[EpochSizes, ...] | None = (),
    ) -> None:
        self._arguments = (mixture, options, seed, shuffle)
        self.fetches_ahead = isinstance(shuffle, BlockShuffle)
        self._mixture = mixture
        pairs: Sequence[tuple[Any, Any]] = tuple(mixture.sources)
        self._orders = [
            _Orders(open_rows(source, options), seed, shuffle, index) for index, (source, _) in enumerate(pairs)
        ]
        self._sizes = [orders.rows.size for orders in self._orders]
        # An epoch whose rates changed on the way, and its segment; later epochs have these rates from their start.
        self._changed_epoch = changed[0] if changed else 0
        self._changed: Segment | None = changed[1] if changed else None
        self._earlier = earlier  # the epochs before that one; None where their rates are not known
        rates = self._changed.rates if self._changed else mixture.integer_rates
        if len(rates) != len(pairs):
            raise LoaderError(f"the mixture has {len(pairs)} sources, got {len(rates)} rates")
        self._whole = Segment(start=0, counts=(0,) * len(pairs), rates=rates)
        self._schedules: Callable[[Segment], MixtureSchedule] = functools.lru_cache(maxsize=2)(
            lambda segment: MixtureSchedule(segment, self._sizes, mixture.exhausted)
        )
        self.size = self._schedules(self._whole).size
        self.features = self._orders[0].rows.features
        self.all_features = frozenset().union(*(orders.rows.split.spec for orders in self._orders))
        self.columns = columns_in_common(self.sources)
        # A feature that is ragged in one source is filled as a ragged one in all.
        self.fills = {
            name: next((rows.fills[name] for rows in self.sources if rows.split.spec[name].ragged), fill)
            for name, fill in self._orders[0].rows.fills.items()
        }
        self.row_bytes = row_bytes(self.columns)

    @functools.cached_property
    def most_segments(self) -> int | None:
        most = [rows.most_segments for rows in self.sources]
        return None if None in most else max(each for each in most if each is not None)

    @functools.cached_property
    def segment_multiple(self) -> int:
        found = sorted({rows.segment_multiple for rows in self.sources})
        if len(found) > 1:
            raise LoaderError(
                f"the plans of this mixture have segment_multiple {' and '.join(map(str, found))}, and the boundaries "
                "of segments need one for all rows. Pack all sources with the same one."
            )
        return found[0]

    @property
    def located_rows(self) -> int:
        """Fewer where small sources are repeated often: every pass over one has an order of its own."""
        rates, rows = self._whole.rates, LOCATED_ROWS
        passes_per_row = sum(rate / size for rate, size in zip(rates, self._sizes, strict=True) if size) / sum(rates)
        while rows > 256 and rows * passes_per_row > 4 * len(rates):
            rows //= 2
        return rows

    @property
    def sources(self) -> list[Rows]:
        """The rows of each source."""
        return [orders.rows for orders in self._orders]

    def size_of(self, epoch: int) -> int | None:
        return self._schedule(epoch).size

    def epoch_sizes(self) -> list[EpochSizes]:
        if self._changed is None:
            return [EpochSizes(None, self.size)]
        if self._earlier is None:
            raise UnboundedLoaderError(
                f"this loader was restored in epoch {self._changed_epoch} of a mixture whose rates had changed, and "
                "how many steps the epochs before had is not known: it has no length and no step numbers. Use epoch "
                "and position, which the state holds."
            )
        return [*self._earlier, EpochSizes(1, self.size_of(self._changed_epoch)), EpochSizes(None, self.size)]

    def identity(self) -> dict[str, Any]:
        sources = [orders.rows.identity() for orders in self._orders]
        identity: dict[str, Any] = {
            "num_sources": len(sources),
            "exhausted": self._mixture.exhausted,
            "rates": rates_label(self._mixture.integer_rates),
            "digest": hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()[:16],
        }
        if len(sources) <= _LISTED_SOURCES:
            identity["sources"] = [
                f"{source['split']}@{source['manifest'][:12]}/{source['rows']}"
                + (f"/{source['plan'][:12]}" if "plan" in source else "")
                for source in sources
            ]
        return identity

    def segment(self, epoch: int) -> Segment:
        """The segment that rows of this epoch belong to; raises `LoaderError` for an epoch before the last change."""
        if self._changed and epoch < self._changed_epoch:
            raise LoaderError(
                f"epoch {epoch} lies before epoch {self._changed_epoch}, where the rates last changed: only rows from "
                "there on can be computed. Start a new loader to read earlier ones.",
                epoch=epoch,
            )
        return self._changed if self._changed and epoch == self._changed_epoch else self._whole

    @property
    def needs_segment(self) -> bool:
        """Whether a state has to hold the segment: one of many sources leaves it out until their rates change."""
        return len(self._sizes) <= _LISTED_RATES

    def stated_segment(self, epoch: int) -> Segment | None:
        """None where the rates are those of the declaration, which the identity has a digest of, and are many."""
        if self._changed is None and not self.needs_segment:
            return None
        return self.segment(epoch)

    def with_rates(self, rates: Sequence[float | int | Fraction], epoch: int, position: int) -> MixtureStream:
        """The same mixture at other rates from this row on; every source goes on where it is."""
        segment = Segment(start=position, counts=self._schedule(epoch).counts_at(position), rates=integer_rates(rates))
        return self._replaced(epoch, segment, self._sizes_before(epoch))

    def with_segment(self, epoch: int, segment: Segment, *, declared: bool) -> MixtureStream:
        """The same mixture, continued from a segment out of a state of a mixture `declared` with the same rates."""
        if len(segment.counts) != len(self._sizes) or len(segment.rates) != len(self._sizes):
            raise StateMismatchError(
                f"this state is of a mixture of {len(segment.rates)} sources, now there are {len(self._sizes)}",
                differences=(f"sources: {len(segment.rates)} → {len(self._sizes)}",),
            )
        start = self.restarted()
        if declared and segment == start._whole:
            return start
        return self._replaced(epoch, segment, None if epoch else ())

    @property
    def changes(self) -> Changes | None:
        """What `with_changes` takes over to the same mixture in another process; None where nothing changed."""
        return None if self._changed is None else (self._changed_epoch, self._changed, self._earlier)

    def with_changes(self, changes: Changes) -> MixtureStream:
        """The same mixture with the rates that another one has changed to."""
        return self._replaced(*changes)

    def restarted(self) -> MixtureStream:
        """The same mixture at the rates it was declared with."""
        mixture, options, seed, shuffle = self._arguments
        return MixtureStream(mixture, options, seed=seed, shuffle=shuffle)

    def locate(self, epoch: int, positions: Indices) -> Places:
        sources, ordinals = self._schedule(epoch).locate(positions)
        rows = np.empty(len(positions), np.int64)
        for source in np.unique(sources).tolist():
            mine = np.flatnonzero(sources == source)
            passes, offsets = np.divmod(ordinals[mine], self._sizes[source])
            for again in np.unique(passes).tolist():
                inside = passes == again
                rows[mine[inside]] = self._orders[source].records(epoch + again, offsets[inside])
        return np.stack([sources, rows], axis=1)

    def approach(self, epoch: int, position: int) -> None:
        counts = self._schedule(epoch).counts_at(position)
        for orders, count, size in zip(self._orders, counts, self._sizes, strict=True):
            if size:
                orders.approach(epoch + count // size, count % size)

    def check_widths(self) -> None:
        for rows in self.sources:
            rows.widest(np.empty(0, np.int64))

    def gather(self, places: Places, beside: Places | None = None) -> Batch:
        if beside is None:
            return self._gather(places, None)
        splits = [rows.split for rows in self.sources]
        return read_consistently(splits, lambda: self._gather(places, self._widest(beside)))

    def _gather(self, places: Places, shapes: Shapes | None) -> Batch:
        sources = places[:, 0]
        parts = []
        for source in np.unique(sources).tolist() if len(sources) else [0]:
            mine = np.flatnonzero(sources == source)
            parts.append((mine, self._orders[source].rows.gather(places[mine, 1], shapes)))
        return merge_rows(parts, len(places), self.fills, shapes)

    def _widest(self, places: Places) -> Shapes:
        found: dict[str, tuple[int, ...]] = {}
        names = varying(self.columns)
        for source in np.unique(places[:, 0]).tolist():
            rows = self._orders[source].rows
            widest = rows.widest(places[places[:, 0] == source, 1])
            for name in names:
                shape = widest.get(name) or tuple(size or 0 for size in rows.columns[name].shape)
                found[name] = tuple(map(max, shape, found.get(name, shape)))
        return found

    def position_of(self, epoch: int, source: int, row: int) -> int | None:
        if not 0 <= source < len(self._orders):
            raise LoaderError(f"sources are numbered from 0 to {len(self._orders) - 1}, got {source}", source=source)
        ordinal = int(self._orders[source].of_epoch(epoch).positions([row])[0])
        return self._schedule(epoch).position_of(source, ordinal)

    def positions_of(self, epoch: int, source: int, row: int) -> Iterator[int]:
        """All positions at which a row of a mixture without end comes, ascending: once in each pass over its source.

        Those before the last change of the rates are left out.
        """
        schedule, size = self._schedule(epoch), self._sizes[source]
        if not schedule.segment.rates[source]:
            return
        for again in itertools.count():
            ordinal = again * size + int(self._orders[source].of_epoch(epoch + again).positions([row])[0])
            position = schedule.position_of(source, ordinal)
            if position is not None:
                yield position

    def counts_at(self, epoch: int, position: int) -> tuple[int, ...]:
        """Rows that each source has given in the first `position` rows of an epoch."""
        return self._schedule(epoch).counts_at(position)

    def _schedule(self, epoch: int) -> MixtureSchedule:
        return self._schedules(self.segment(epoch))

    def _sizes_before(self, epoch: int) -> tuple[EpochSizes, ...] | None:
        """The sizes of the epochs before one that is not before the last change; None where they are not known."""
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

    def _replaced(self, epoch: int, segment: Segment, earlier: tuple[EpochSizes, ...] | None) -> MixtureStream:
        mixture, options, seed, shuffle = self._arguments
        return MixtureStream(mixture, options, seed=seed, shuffle=shuffle, changed=(epoch, segment), earlier=earlier)


def open_stream(source: Any, options: GatherOptions, *, seed: int, shuffle: Shuffle) -> RowStream | MixtureStream:
    """The stream of a split, a packing plan or a mixture of them."""
    if isinstance(source, Mixture):
        return MixtureStream(source, options, seed=seed, shuffle=shuffle)
    return RowStream(source, options, seed=seed, shuffle=shuffle)
