"""Streams: the rows of epochs, addressed by position.

`locate` turns positions of an epoch into *places* (cheap, vectorised, independent of the data), `gather` turns places
into a batch. The loader locates many batches at once and gathers one at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import LoaderError
from beam_pipes.loader.batches import Batch, Fills
from beam_pipes.loader.columns import read_consistently
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
from beam_pipes.loader.state import LoaderState, Segment

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
        """Each segment of a packed row takes a multiple of so many places; 1 for rows that are not packed."""
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
        """Where the columns of rows lie in memory; None where a batch is more than a copy of them."""
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
        return self

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
