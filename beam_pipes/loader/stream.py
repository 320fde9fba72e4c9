"""Streams: the rows of epochs, addressed by position.

    stream = RowStream(split, options, seed=1, shuffle=True)
    places = stream.locate(0, np.arange(2))  →  array([17, 4])
    stream.gather(places)                    →  {"tokens": int32 (2, 1024)}

`locate` turns positions of an epoch into *places* (cheap, vectorised, independent of the data), `gather` turns places
into a batch. The loader locates many batches at once and gathers one at a time.

A `Stream` has one source or several: `RowStream` has one, `MixtureStream` several, and `BucketStream` one in batches by
tokens. The split of a `RowStream` may grow during the run: `over_newer` converts a state saved before that, and
`epochs.py` locates the rows of each epoch.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.filtered import numbers_in
from beam_pipes.cache.split import Split
from beam_pipes.errors import LoaderError, StateMismatchError
from beam_pipes.loader.batches import Batch, Fills
from beam_pipes.loader.columns import StoredSplit, read_consistently, stored_split
from beam_pipes.loader.epochs import EpochRange, Opened, Orders, Shuffle, are_of_present, by_snapshot, joined
from beam_pipes.loader.mixture import Rates
from beam_pipes.loader.order import BlockShuffle, Indices, check_indices
from beam_pipes.loader.packed_rows import PackedRows, PaddedRows, give_lengths
from beam_pipes.loader.packing.plan import PackingPlan
from beam_pipes.loader.row_source import PaddedSplit, ReadSplit
from beam_pipes.loader.rows import GatherOptions, InMemory, Rows, Shapes, SplitRows, columns_in_common, row_bytes
from beam_pipes.loader.state import Addition, LoaderState, Segment, check_same_sequence
from beam_pipes.loader.windows import WindowRows, Windows

#: What an open source is, other than a mixture.
OpenSource: TypeAlias = "ReadSplit | PackingPlan | PaddedSplit | Windows"

Places = npt.NDArray[np.int64]

# A thousand places cost little more than one: the calls take most of the time.
LOCATED_ROWS = 8192


class EpochSizes(NamedTuple):
    """A number of consecutive epochs (None: all that follow) with equally many rows (None: endless)."""

    epochs: int | None
    rows: int | None


class Given(NamedTuple):
    """The rows that a source has given over all passes; `stream` numbers the permutations of its order."""

    identity: dict[str, object]
    rows: int
    stream: int


class Progress(NamedTuple):
    """The number of rows given in all, and by each source."""

    rows: int
    sources: list[Given]


def open_rows(source: OpenSource, options: GatherOptions) -> Rows:
    """Rows of a split, of a packing plan, of windows, or of records padded one by one."""
    if isinstance(source, PackingPlan):
        return PackedRows(source, options)
    if isinstance(source, Windows):
        return WindowRows(source, options)
    return PaddedRows(source, options) if isinstance(source, PaddedSplit) else SplitRows(source, options)


class Stream(abc.ABC):
    """Rows of epochs by position, of one source or several. Thread-safe.

    A change that a run has seen (`changes`) can be applied to the same stream in another process.
    """

    #: Rows of an epoch; None for an endless stream.
    size: int | None
    #: The places of no rows.
    no_places: Places = np.empty(0, np.int64)
    #: Whether sources leave after a number of epochs.
    is_limited: bool = False
    #: Records that were added to the source during the run; see `RowStream`.
    additions: tuple[Addition, ...] = ()
    #: The epoch in which the rates last changed.
    changed_epoch: int = 0

    def __init__(self, sources: Sequence[OpenSource], options: GatherOptions, *, seed: int, shuffle: Shuffle) -> None:
        self.sources = [open_rows(source, options) for source in sources]
        #: The width of rows that give the lengths of their segments; None for others.
        self.lengths_width: int | None = None
        if options.segments == "lengths":
            self.lengths_width = give_lengths(self.sources, self.most_segments)
        self._new_orders: Callable[[Rows, int], Orders] = lambda rows, stream: Orders(rows, seed, shuffle, stream)
        self.features = self.sources[0].features
        #: All existing features, whether read or not.
        self.all_features: frozenset[str] = frozenset().union(*(rows.split.spec for rows in self.sources))
        self.columns = columns_in_common(self.sources)
        #: The fill of each feature; one that is ragged in one source is filled as a ragged one in all.
        self.fills: Fills = {
            name: next((rows.fills[name] for rows in self.sources if rows.split.spec[name].ragged), fill)
            for name, fill in self.sources[0].fills.items()
        }
        #: Bytes of a row in a batch; None if batches cannot be cut from larger ones.
        self.row_bytes = row_bytes(self.columns)
        # Only a shuffle of blocks knows which part of a file comes next; other orders touch all files at any time.
        self.fetches_ahead = isinstance(shuffle, BlockShuffle)

    @functools.cached_property
    def most_segments(self) -> int | None:
        """The maximum number of segments in a row; None if that differs by epoch."""
        most = [rows.most_segments for rows in self.sources]
        return None if None in most else max(each for each in most if each is not None)

    @functools.cached_property
    def segment_multiple(self) -> int:
        """Each segment of a packed row takes a multiple of that many places; 1 for rows that are not packed."""
        found = sorted({rows.segment_multiple for rows in self.sources})
        if len(found) > 1:
            raise LoaderError(
                f"the plans of this mixture have segment_multiple {' and '.join(map(str, found))}, and the boundaries "
                "of segments need one for all rows. Pack all sources with the same one."
            )
        return found[0]

    @property
    def located_rows(self) -> int:
        """The best number of rows to locate at once."""
        return LOCATED_ROWS

    def lines(self) -> list[str]:
        """What `Loader.describe` prints besides its source."""
        return []

    @abc.abstractmethod
    def identity(self) -> dict[str, object]: ...

    # Epochs

    @abc.abstractmethod
    def size_of(self, epoch: int) -> int | None:
        """Rows of one epoch, which a change during the run may have altered."""

    @abc.abstractmethod
    def epoch_sizes(self) -> list[EpochSizes]:
        """The rows of all epochs from the first one on, in runs of equal sizes; the last run has no end."""

    @abc.abstractmethod
    def locate(self, epoch: int, positions: Indices) -> Places: ...

    @abc.abstractmethod
    def positions_of(self, epoch: int, source: int, row: int, before: int | None = None) -> Iterator[int]:
        """All positions of an epoch at which a row comes, ascending; with `before`, up to there."""

    def position_of(self, epoch: int, source: int, row: int) -> int | None:
        """The first position at which a row comes; None if it does not."""
        return next(self.positions_of(epoch, source, row), None)

    @abc.abstractmethod
    def approach(self, epoch: int, position: int) -> None:
        """Announces that rows from here on will be gathered, so that the next ones can be fetched."""

    # The run so far

    def segment(self, epoch: int) -> Segment | None:
        """The stretch of constant rates that rows of this epoch belong to."""
        return None

    def stated_segment(self, epoch: int) -> Segment | None:
        """The segment as a state needs it."""
        return None

    @abc.abstractmethod
    def progress(self, epoch: int, position: int) -> Progress:
        """What each source has given before a row."""

    @property
    @abc.abstractmethod
    def changes(self) -> Any | None:
        """What `with_changes` applies to the same stream in another process; None if nothing changed."""

    @abc.abstractmethod
    def with_changes(self, changes: Any) -> Stream: ...

    @abc.abstractmethod
    def restarted(self) -> Stream:
        """The same rows, in a new run."""

    @abc.abstractmethod
    def restored(self, state: LoaderState, *, declared: bool) -> Stream:
        """The stream continued from a state of the same sequence, for a mixture `declared` with the same rates."""

    def with_rates(self, rates: Rates, epoch: int, position: int) -> Stream:
        """The same mixture at other rates from this row on; every source continues where it is."""
        raise LoaderError("only a loader of a Mixture has rates to set")

    def effective_rates(self, epoch: int, position: int) -> list[EffectiveRate]:
        """What each source has given of an epoch before a row, and its rate there."""
        raise LoaderError("only a loader of a Mixture has rates")

    def taking_over(self, before: Progress) -> tuple[Stream, int]:
        """This mixture as the continuation of another one, or of a single source, and the position of its next row."""
        raise LoaderError("previous=… is for a loader of a Mixture, whose sources continue where they were")

    # Reading

    @abc.abstractmethod
    def rows_at(self, places: Places) -> tuple[Indices, Indices]:
        """The sources of these places, and the rows of each, taken down or not."""

    def stand_ins_in(self, epoch: int, source: int, records: Indices) -> Indices:
        """The records of a source that are read in an epoch for some of it; those that do not occur stay."""
        return np.asarray(stored_split(self.sources[source].split).stand_ins(records), np.int64)

    def check_widths(self) -> None:
        """Raises `LoaderError` if a column varies and row lengths are unknown before reading."""
        for rows in self.sources:
            rows.widest(np.empty(0, np.int64))

    def gather(self, places: Places, beside: Places | None = None) -> Batch:
        """The rows at some places; those `beside` them, including other hosts' rows, decide how wide varying columns
        are.
        """
        if beside is None:
            return self._gather(places, None)
        # A split may be taken down and written again between reading the widths and reading the values.
        return self._consistently(lambda: self._gather(places, self._widest(beside)))

    def _consistently(self, read: Callable[[], Batch]) -> Batch:
        return read_consistently([rows.split for rows in self.sources], read)

    @abc.abstractmethod
    def _gather(self, places: Places, shapes: Shapes | None) -> Batch: ...

    @abc.abstractmethod
    def _widest(self, places: Places) -> Shapes: ...

    @abc.abstractmethod
    def located(self, places: Places) -> Mapping[str, InMemory] | None:
        """Where the columns of rows are in memory; None if a batch is more than a copy of them."""


class EffectiveRate(NamedTuple):
    """The contribution of a source to a mixture so far: its rows, their share of all, and the passes over it.

    `rate` is its share at the cursor: 0 for a source that has left.
    """

    rows: int
    share: float
    epochs: float
    rate: float


class RowStream(Stream):
    """The rows of one split or plan; places are row numbers.

    If records were added to a split during the run, epochs before an addition have the rows of the older snapshot, in
    the order of the run over that snapshot, so the past of the run can be computed like its future. Holds 4 bytes for
    each older record while such epochs are read.
    """

    size: int

    def __init__(self, source: OpenSource, options: GatherOptions, *, seed: int, shuffle: Shuffle) -> None:
        super().__init__([source], options, seed=seed, shuffle=shuffle)
        self.source, self.options = source, options
        self._rows = self.sources[0]
        self._orders = self._new_orders(self._rows, 0)
        self.size = self._rows.size
        self._set_additions(())

    def _set_additions(self, additions: tuple[Addition, ...]) -> None:
        if additions:
            check_appendable(self.source)
        self.additions, sizes = additions, [*(addition.rows for addition in additions), self.size]

        def before(number: int) -> Split:
            """The records before an addition; all of them after the last one."""
            split: Split = _split_of(self.source)
            return split.as_of(additions[number].manifest) if number < len(additions) else split

        def since(number: int) -> Split:
            return before(number + 1).since(additions[number].manifest)

        numbers = range(len(additions))
        self._wholes = [
            self._part(sizes[number], 0, number + 1, functools.partial(before, number)) for number in numbers
        ]
        # Epochs that begin after the last addition have the usual order, and no table of numbers.
        self._wholes.append(EpochRange(self.size, 0, lambda: Opened(orders=self._orders)))
        # Their own orders: added records are permuted among themselves, whatever was read before.
        added = [
            self._part(
                sizes[number + 1] - sizes[number],
                number + 1,
                (number + 2) % (len(additions) + 1),
                functools.partial(since, number),
                functools.partial(before, number + 1),
            )
            for number in numbers
        ]
        self._epochs = joined(additions, self._wholes, added)
        self._listed_sizes = functools.cache(self._sizes_before)

    def _part(
        self,
        rows: int,
        stream: int,
        snapshot: int,
        chosen: Callable[[], Split],
        whole: Callable[[], Split] | None = None,
    ) -> EpochRange:
        # Older snapshots are opened only when one of their epochs is read, which a continuing run rarely does.
        def opened() -> Opened:
            found = chosen()
            if len(found) != rows:
                raise StateMismatchError(
                    f"this state is of a run that had {rows} rows where there are {len(found)} now: {found!r}. "
                    "Pass the split, and the condition of split.where, that it was saved with.",
                    differences=(f"rows: {rows} → {len(found)}",),
                )
            return Opened(
                orders=self._new_orders(open_rows(_with_split(self.source, found), self.options), stream),
                rows_of_snapshot=None if whole is None else numbers_in(whole().choice, found.choice),
                rows=numbers_in(_split_of(self.source).choice, found.choice),
            )

        return EpochRange(rows, snapshot, opened)

    def size_of(self, epoch: int) -> int:
        return self._epochs.size_of(epoch)

    def epoch_sizes(self) -> list[EpochSizes]:
        return [*self._listed_sizes(), EpochSizes(None, self.size)]

    def _sizes_before(self) -> list[EpochSizes]:
        # All epochs after the last addition are equally long.
        sizes = map(self.size_of, range(1 + max((addition.epoch for addition in self.additions), default=-1)))
        return [EpochSizes(len(list(alike)), size) for size, alike in itertools.groupby(sizes)]

    def identity(self) -> dict[str, object]:
        return self._rows.identity()

    def restored(self, state: LoaderState, *, declared: bool) -> RowStream:
        stream = self.with_changes(state.appended)
        if stream.additions and state.epoch <= stream.additions[-1].epoch:
            stream.locate(state.epoch, np.empty(0, np.int64))  # refuses now if the older records are gone
        return stream

    @property
    def changes(self) -> tuple[Addition, ...] | None:
        return self.additions or None

    def with_changes(self, changes: tuple[Addition, ...]) -> RowStream:
        """The same rows, in a run during which some of them were added."""
        if changes == self.additions:
            return self
        made = copy.copy(self)
        made._set_additions(changes)
        return made

    def restarted(self) -> RowStream:
        return self.with_changes(())

    def progress(self, epoch: int, position: int) -> Progress:
        if self.additions and epoch <= self.additions[-1].epoch:
            raise LoaderError(
                f"previous=… needs a state of an epoch that began with all records, and records were added in epoch "
                f"{self.additions[-1].epoch}, in which this state was saved. Read that epoch to its end first."
            )
        rows = epoch * self.size + position
        return Progress(rows, [Given(self.identity(), rows, 0)])

    def locate(self, epoch: int, positions: Indices) -> Places:
        return self._epochs.locate(epoch, positions)

    def rows_at(self, places: Places) -> tuple[Indices, Indices]:
        rows = by_snapshot(places, lambda number, rows: self._wholes[number - 1].rows_of(rows))
        return np.zeros(len(places), np.int64), rows

    def stand_ins_in(self, epoch: int, source: int, records: Indices) -> Indices:
        if not self.additions:
            return super().stand_ins_in(epoch, source, records)
        found = np.array(records, np.int64)
        for index, record in enumerate(records.tolist()):
            position = self._epochs.position_of(epoch, record)
            if position is not None:
                found[index] = self._read_at(self.locate(epoch, np.array([position])))[0]
        return found

    def _read_at(self, places: Places) -> Indices:
        """The records that are read at these places: stand-ins for those that are taken down."""
        return by_snapshot(places, lambda number, rows: self._wholes[number - 1].read_instead(rows))

    def _of_present(self, places: Places) -> bool:
        return not self.additions or are_of_present(places)

    def gather(self, places: Places, beside: Places | None = None) -> Batch:
        if self._of_present(places) and (beside is None or self._of_present(beside)):
            return super().gather(places, beside)
        return self._consistently(
            lambda: self._gather(self._read_at(places), None if beside is None else self._widest(self._read_at(beside)))
        )

    def _gather(self, places: Places, shapes: Shapes | None) -> Batch:
        return self._rows.gather(places, shapes)

    def _widest(self, places: Places) -> Shapes:
        return self._rows.widest(places)

    def located(self, places: Places) -> Mapping[str, InMemory] | None:
        return self._rows.located(places if self._of_present(places) else self._read_at(places))

    def approach(self, epoch: int, position: int) -> None:
        self._epochs.approach(epoch, position)

    def positions_of(self, epoch: int, source: int, row: int, before: int | None = None) -> Iterator[int]:
        if source:
            raise LoaderError(f"there is one source, number 0; got source {source}", source=source)
        check_indices([row], self.size, "record")
        position = self._epochs.position_of(epoch, row)
        if position is not None and (before is None or position < before):
            yield position

    def lines(self) -> list[str]:
        return [
            f"appended: in epoch {addition.epoch} {addition.rows:,} rows of manifest {addition.manifest}"
            + (", then those of the next" if addition.position is None else f", all from row {addition.position:,} on")
            for addition in self.additions
        ]


#: When records that were added to a source are read: from the next epoch on, or in the rest of the running one.
Appended = Literal["next_epoch", "now"]


def check_appendable(source: object) -> None:
    """Raises `LoaderError` for a source other than one split, over which no state of an older snapshot can continue."""
    if not isinstance(_split_of(source), Split):
        raise LoaderError(
            f"appended=… is for a loader of one split, as stored or from where(…), got {type(source).__name__}. For "
            "packed rows and mixtures, make the added records a source of their own, split.since(manifest), beside "
            "split.as_of(manifest), and restore with previous=…"
        )


def over_newer(stream: RowStream, state: LoaderState, now: LoaderState, appended: Appended) -> LoaderState:
    """A state of an older snapshot as a state of `stream`, which reads a newer one; `now` is any state of the stream.

    Raises `StaleCacheError` if the older records have changed, and `StateMismatchError` for states of other runs.
    """
    source = stream.source
    older = _split_of(source).as_of(str(state.source.get("manifest")))
    # The run's identity is that of the rows as they were: a state of other records or options is detected here.
    rows = open_rows(_with_split(source, older), stream.options)
    check_same_sequence(state, dataclasses.replace(now, source=rows.identity()))
    # Part of each addition goes into every later state, so it is kept short; the digest is that of a filter.
    manifest, _, digest = older.manifest_id.partition("?")
    addition = Addition(
        manifest=manifest[:16] + (f"?{digest}" if digest else ""),
        rows=rows.size,
        # At the start of an epoch none of it has been read yet: it gets the new records under either policy.
        epoch=state.epoch if state.position else state.epoch - 1,
        position=state.position if state.position and appended == "now" else None,
    )
    # Before the first row of a run there is no past to remember: it simply begins with all records.
    additions = (*state.appended, addition) if addition.epoch >= 0 else ()
    return dataclasses.replace(state, source=now.source, appended=additions)


def _split_of(source: object) -> StoredSplit:
    return source.split if isinstance(source, PaddedSplit) else source


def _with_split(source: OpenSource, split: Split) -> OpenSource:
    return dataclasses.replace(source, split=split) if isinstance(source, PaddedSplit) else split
