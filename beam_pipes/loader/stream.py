"""Streams: the rows of epochs, addressed by position.

`locate` turns positions of an epoch into *places* (cheap, vectorised, independent of the data), `gather` turns places
into a batch. The loader locates many batches at once and gathers one at a time.

`AppendedStream` is the stream of a run during which records were added to its split:

    next_epoch    epoch 0  old records             now    epoch 0  old records │ the other old ones and all new ones
                  epoch 1  old and new records            epoch 1  old and new records
                                                                               └ where the state was saved
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.filtered import numbers_in, positions_of
from beam_pipes.cache.split import Split
from beam_pipes.errors import LoaderError, StateMismatchError
from beam_pipes.loader.batches import Batch, Fills
from beam_pipes.loader.columns import read_consistently
from beam_pipes.loader.mixture import MixtureSchedule, integer_rates
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
from beam_pipes.loader.packed_rows import PackedRows, PaddedRows
from beam_pipes.loader.packing.plan import PackingPlan
from beam_pipes.loader.row_source import PaddedSplit
from beam_pipes.loader.rows import (
    Columns,
    GatherOptions,
    InMemory,
    Rows,
    SplitRows,
    row_bytes,
)
from beam_pipes.loader.state import Addition, LoaderState, Segment, check_same_sequence

Shuffle = bool | BlockShuffle | BalancedShuffle
Places = npt.NDArray[np.int64]

# A thousand places cost little more than one: the calls are what takes time.
LOCATED_ROWS = 8192


class EpochSizes(NamedTuple):
    """A number of consecutive epochs (None: all that follow) with equally many rows (None: endless)."""

    epochs: int | None
    rows: int | None


class Given(NamedTuple):
    """The rows that a source has given over all passes; `stream` numbers the permutations of its order."""

    identity: dict[str, Any]
    rows: int
    stream: int


class Progress(NamedTuple):
    """The number of rows given in all, and by each source."""

    rows: int
    sources: list[Given]


class Stream(Protocol):
    """Rows of epochs by position. Thread-safe."""

    @property
    def size(self) -> int | None:
        """Rows of an epoch; None for an endless stream."""
        ...

    @property
    def features(self) -> tuple[str, ...]: ...

    @property
    def all_features(self) -> frozenset[str]:
        """All existing features, whether read or not."""
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
        """Rows of one epoch, which a change of a mixture's rates may have altered."""
        ...

    def epoch_sizes(self) -> list[EpochSizes]:
        """The rows of all epochs from the first one on, in runs of equal sizes; the last run has no end."""
        ...

    @property
    def located_rows(self) -> int:
        """The best number of rows to locate at once."""
        ...

    @property
    def segment_multiple(self) -> int:
        """Each segment of a packed row takes a multiple of that many places; 1 for rows that are not packed."""
        ...

    def identity(self) -> dict[str, Any]: ...

    def restored(self, state: LoaderState, *, declared: bool) -> Stream:
        """The stream continued from a state of the same sequence, for a mixture `declared` with the same rates."""
        ...

    def progress(self, epoch: int, position: int) -> Progress:
        """What each source has given before a row."""
        ...

    def segment(self, epoch: int) -> Segment | None: ...

    def stated_segment(self, epoch: int) -> Segment | None:
        """The segment as a state needs it."""
        ...

    def locate(self, epoch: int, positions: Indices) -> Places: ...

    def check_widths(self) -> None:
        """Raises `LoaderError` if a column varies and row lengths are unknown before reading."""
        ...

    def gather(self, places: Places, beside: Places | None = None) -> Batch:
        """The rows at some places; those `beside` them, including other hosts' rows, decide how wide varying columns
        are.
        """
        ...

    def located(self, places: Places) -> Mapping[str, InMemory] | None:
        """Where the columns of rows are in memory; None if a batch is more than a copy of them."""
        ...

    @property
    def fetches_ahead(self) -> bool:
        """Whether `approach` does anything."""
        ...

    def approach(self, epoch: int, position: int) -> None:
        """Announces that rows from here on will be gathered, so that the next ones can be fetched."""
        ...

    def position_of(self, epoch: int, source: int, row: int) -> int | None: ...


def shuffle_label(shuffle: Shuffle) -> str:
    """How a state names the kind of order: "global", "stored", "blocks/8" or "balanced/64"."""
    if isinstance(shuffle, BalancedShuffle):
        return f"balanced/{shuffle.rows}"
    if isinstance(shuffle, BlockShuffle):
        return f"blocks/{shuffle.window}"
    return "global" if shuffle else "stored"


def open_rows(source: Any, options: GatherOptions) -> Rows:
    """Rows of a split, of a packing plan, or of records padded one by one."""
    if isinstance(source, PackingPlan):
        return PackedRows(source, options)
    return PaddedRows(source, options) if isinstance(source, PaddedSplit) else SplitRows(source, options)


class Orders:
    """The orders of one source, epoch by epoch."""

    def __init__(self, rows: Rows, seed: int, shuffle: Shuffle, stream: int) -> None:
        self.rows = rows
        self.stream = stream
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
        self._arguments: dict[str, Any] = {"source": source, "options": options, "seed": seed, "shuffle": shuffle}
        self._rows = open_rows(source, options)
        self._orders = Orders(self._rows, seed, shuffle, 0)
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

    def restored(self, state: LoaderState, *, declared: bool) -> RowStream:
        stream = self.with_changes(state.appended)
        if stream.additions and state.epoch <= stream.additions[-1].epoch:
            stream.locate(state.epoch, np.empty(0, np.int64))  # refuses now if the older records are gone
        return stream

    additions: tuple[Addition, ...] = ()

    @property
    def changes(self) -> tuple[Addition, ...] | None:
        """What `with_changes` takes over to the same stream in another process; None if nothing changed."""
        return self.additions or None

    def with_changes(self, changes: tuple[Addition, ...]) -> RowStream:
        """The same rows, in a run during which some of them were added."""
        if changes == self.additions:
            return self
        return AppendedStream(**self._arguments, additions=changes) if changes else RowStream(**self._arguments)

    def restarted(self) -> RowStream:
        """The same rows, in a run that begins with all of them."""
        return self.with_changes(())

    def lines(self) -> list[str]:
        """What `Loader.describe` prints of it beside its source."""
        return []

    def progress(self, epoch: int, position: int) -> Progress:
        rows = epoch * self.size + position
        return Progress(rows, [Given(self.identity(), rows, 0)])

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

    def located(self, places: Places) -> Mapping[str, InMemory] | None:
        return self._rows.located(places) if isinstance(self._rows, SplitRows | PackedRows) else None

    def approach(self, epoch: int, position: int) -> None:
        self._orders.approach(epoch, position)

    def position_of(self, epoch: int, source: int, row: int) -> int | None:
        if source:
            raise LoaderError(f"there is one source, number 0; got source {source}", source=source)
        return int(self._orders.of_epoch(epoch).positions([row])[0])


#: When records that were added to a source are read: from the next epoch on, or in the rest of the running one.
Appended = Literal["next_epoch", "now"]


def check_appendable(source: Any) -> None:
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
    source = stream._arguments["source"]
    older = _split_of(source).as_of(str(state.source.get("manifest")))
    rows = open_rows(_with_split(source, older), stream._arguments["options"])
    check_same_sequence(state, dataclasses.replace(now, source=rows.identity()))
    manifest, _, digest = older.manifest_id.partition("?")
    addition = Addition(
        manifest=manifest[:16] + (f"?{digest}" if digest else ""),
        rows=rows.size,
        # At the start of an epoch nothing of it has been read yet: it gets the new records under either policy.
        epoch=state.epoch if state.position else state.epoch - 1,
        position=state.position if state.position and appended == "now" else None,
    )
    additions = (*state.appended, addition) if addition.epoch >= 0 else ()
    return dataclasses.replace(state, source=now.source, appended=additions)


def _split_of(source: Any) -> Any:
    return source.split if isinstance(source, PaddedSplit) else source


def _with_split(source: Any, split: Any) -> Any:
    return dataclasses.replace(source, split=split) if isinstance(source, PaddedSplit) else split


class _Epochs(Protocol):
    """The rows of epochs of a run, as their numbers in the present source."""

    def size_of(self, epoch: int) -> int: ...

    def locate(self, epoch: int, positions: Indices) -> Places: ...

    def position_of(self, epoch: int, row: int) -> int | None: ...

    def approach(self, epoch: int, position: int) -> None: ...


class _Part:
    """Epochs over a part of the source: `opened` gives its orders and the numbers of its rows (None: all rows)."""

    def __init__(self, size: int, opened: Callable[[], tuple[Orders, Indices | None]]) -> None:
        self._size = size
        self._opened = functools.lru_cache(maxsize=1)(opened)  # on first use: a run past these epochs needs none of it

    def size_of(self, epoch: int) -> int:
        return self._size

    def locate(self, epoch: int, positions: Indices) -> Places:
        orders, numbers = self._opened()
        rows = orders.records(epoch, positions)
        return rows if numbers is None else numbers[rows].astype(np.int64)

    def position_of(self, epoch: int, row: int) -> int | None:
        orders, numbers = self._opened()
        rows = np.array([row]) if numbers is None else positions_of(numbers, [row])
        return int(orders.of_epoch(epoch).positions(rows)[0]) if len(rows) else None

    def approach(self, epoch: int, position: int) -> None:
        if position < self._size:
            self._opened()[0].approach(epoch, position)


class _Joined:
    """The epochs of `before`, then those of `after`; `added` rows join the last one before if the addition says so."""

    def __init__(self, before: _Epochs, added: _Part, after: _Epochs, addition: Addition) -> None:
        self._before, self._added, self._after = before, added, after
        self._addition = addition

    def _joins(self, epoch: int) -> bool:
        return epoch == self._addition.epoch and self._addition.position is not None

    def _part(self, epoch: int) -> _Epochs:
        return self._after if epoch > self._addition.epoch else self._before

    @functools.cached_property
    def _schedule(self) -> MixtureSchedule:
        """Which of `before` (0) and `added` (1) gives each row: both to their ends, in proportion to what is left."""
        epoch, position = self._addition.epoch, self._addition.position or 0
        sizes = [self._before.size_of(epoch), self._added.size_of(epoch)]
        left = [sizes[0] - position, sizes[1]]
        rates = integer_rates(left if any(left) else [1, 0])
        return MixtureSchedule(Segment(start=position, counts=(position, 0), rates=rates), sizes, "drop")

    def size_of(self, epoch: int) -> int:
        return self._part(epoch).size_of(epoch) + (self._added.size_of(epoch) if self._joins(epoch) else 0)

    def locate(self, epoch: int, positions: Indices) -> Places:
        if not self._joins(epoch):
            return self._part(epoch).locate(epoch, positions)
        sources, ordinals = np.zeros(len(positions), np.int64), np.array(positions, np.int64)
        late = ordinals >= (self._addition.position or 0)
        sources[late], ordinals[late] = self._schedule.locate(ordinals[late])
        rows = np.empty(len(positions), np.int64)
        for source, part in enumerate((self._before, self._added)):
            mine = sources == source
            rows[mine] = part.locate(epoch, ordinals[mine])
        return rows

    def position_of(self, epoch: int, row: int) -> int | None:
        ordinal = self._part(epoch).position_of(epoch, row)
        if not self._joins(epoch) or (ordinal is not None and ordinal < (self._addition.position or 0)):
            return ordinal
        if ordinal is not None:
            return self._schedule.position_of(0, ordinal)
        ordinal = self._added.position_of(epoch, row)
        return None if ordinal is None else self._schedule.position_of(1, ordinal)

    def approach(self, epoch: int, position: int) -> None:
        if not self._joins(epoch) or position < (self._addition.position or 0):
            return self._part(epoch).approach(epoch, position)
        for part, count in zip((self._before, self._added), self._schedule.counts_at(position), strict=True):
            part.approach(epoch, count)


class AppendedStream(RowStream):
    """The rows of a split to which records were added during the run.

    Epochs before an addition have the rows of the older snapshot, in the order of the run over that snapshot, so the
    past of the run can be computed like its future. Holds 4 bytes for each older record while such epochs are read.
    """

    def __init__(self, source: Any, options: GatherOptions, *, additions: tuple[Addition, ...], **order: Any) -> None:
        super().__init__(source, options, **order)
        check_appendable(source)
        self.additions = additions
        split = _split_of(source)

        def part(rows: int, stream: int, chosen: Callable[[], Any]) -> _Part:
            def opened() -> tuple[Orders, Indices]:
                found = chosen()
                if len(found) != rows:
                    raise StateMismatchError(
                        f"this state is of a run that had {rows} rows where there are {len(found)} now: {found!r}. "
                        "Pass the split, and the condition of split.where, that it was saved with.",
                        differences=(f"rows: {rows} → {len(found)}",),
                    )
                rows_of_part = open_rows(_with_split(source, found), options)
                return Orders(rows_of_part, order["seed"], order["shuffle"], stream), numbers_in(split, found)

            return _Part(rows, opened)

        def older(addition: Addition) -> Any:
            return split.as_of(addition.manifest)

        wholes = [part(each.rows, 0, functools.partial(older, each)) for each in additions]
        wholes.append(_Part(self.size, lambda: (self._orders, None)))
        epochs: _Epochs = wholes[0]
        for number, addition in enumerate(additions):
            following = additions[number + 1] if number + 1 < len(additions) else None

            def since(addition: Addition = addition, following: Addition | None = following) -> Any:
                return (split if following is None else older(following)).since(addition.manifest)

            more = (self.size if following is None else following.rows) - addition.rows
            epochs = _Joined(epochs, part(more, number + 1, since), wholes[number + 1], addition)
        self._epochs = epochs

    def size_of(self, epoch: int) -> int:
        return self._epochs.size_of(epoch)

    @functools.cached_property
    def _sizes(self) -> list[EpochSizes]:
        sizes = map(self.size_of, range(1 + max(addition.epoch for addition in self.additions)))
        return [EpochSizes(len(list(alike)), size) for size, alike in itertools.groupby(sizes)]

    def epoch_sizes(self) -> list[EpochSizes]:
        return [*self._sizes, EpochSizes(None, self.size)]

    def progress(self, epoch: int, position: int) -> Progress:
        if epoch <= self.additions[-1].epoch:
            raise LoaderError(
                f"previous=… needs a state of an epoch that began with all records, and records were added in epoch "
                f"{self.additions[-1].epoch}, in which this state was saved. Read that epoch to its end first."
            )
        return super().progress(epoch, position)

    def locate(self, epoch: int, positions: Indices) -> Places:
        return self._epochs.locate(epoch, positions)

    def approach(self, epoch: int, position: int) -> None:
        self._epochs.approach(epoch, position)

    def position_of(self, epoch: int, source: int, row: int) -> int | None:
        super().position_of(epoch, source, row)  # refuses what is not a row
        return self._epochs.position_of(epoch, row)

    def lines(self) -> list[str]:
        return [
            f"appended: in epoch {addition.epoch} {addition.rows:,} rows of manifest {addition.manifest}"
            + (", then those of the next" if addition.position is None else f", all from row {addition.position:,} on")
            for addition in self.additions
        ]
