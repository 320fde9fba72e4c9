"""Epochs: from a position in an epoch to a row of a source.

    orders = Orders(rows, 1, BlockShuffle(window=2), 0)    # 6 rows in 3 blocks
    orders.records(0, np.arange(6))  →  array([2, 3, 5, 4, 1, 0])
    orders.approach(0, 3)            # its window of blocks and the next one are fetched

`Orders` are the orders of one source, epoch by epoch; streams of one source and of a mixture have one for each source.
Where records were added to a split during a run, an epoch may read only a part of the rows:

    next_epoch    epoch 0  old records             now    epoch 0  old records │ the other old ones and all new ones
                  epoch 1  old and new records            epoch 1  old and new records
                                                                               └ where the state was saved

`EpochRange` is epochs over some rows of the present source, such as the old ones, with the stand-ins that these had.
`joined` combines the parts into one run, which says for every epoch, past or future, how many rows it has and which
ones: in an epoch that an addition divides, the old and the new rows come in proportion to what is left of them, like
two sources of a mixture."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from beam_pipes.cache.filtered import positions_of
from beam_pipes.loader.columns import stored_split
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
    records_of_each,
)
from beam_pipes.loader.rows import Rows
from beam_pipes.loader.state import Addition, Segment

Shuffle = bool | BlockShuffle | BalancedShuffle


def shuffle_label(shuffle: Shuffle) -> str:
    """How a state names the kind of order: "global", "stored", "blocks/8" or "balanced/64"."""
    if isinstance(shuffle, BalancedShuffle):
        return f"balanced/{shuffle.rows}"
    if isinstance(shuffle, BlockShuffle):
        return f"blocks/{shuffle.window}"
    return "global" if shuffle else "stored"


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
            self.of_epoch(0)  # raises now if blocks cannot be shuffled, or rows have no costs

    def records(self, epoch: int, positions: Indices) -> Indices:
        records = self.of_epoch(epoch).records(positions)
        return records + epoch * self.rows.size if self.rows.draws_anew else records

    @staticmethod
    def records_of_each(parts: Sequence[tuple[Orders, int]], counts: Sequence[int], positions: Indices) -> Indices:
        """`orders.records(epoch, …)` of each part, for the next `counts` of the positions."""
        found = records_of_each([orders.of_epoch(epoch) for orders, epoch in parts], counts, positions)
        if any(orders.rows.draws_anew for orders, _ in parts):
            offsets = [epoch * orders.rows.size if orders.rows.draws_anew else 0 for orders, epoch in parts]
            found += np.repeat(offsets, counts)
        return found

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


# A place names a snapshot and a row in it, as numbered by the run over that snapshot: takedowns draw by that number,
# and so do the random parts of transforms. The present source has number 0, so that its places are plain rows.
_SNAPSHOT_BITS = 40
ROW_OF_PLACE = (1 << _SNAPSHOT_BITS) - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """A part being read: its orders, and where its rows are.

    `rows_of_snapshot` are their numbers in the snapshot that they were read from first (None: as in the part), `rows`
    in the present source (None: as in the part).
    """

    orders: Orders
    rows_of_snapshot: Indices | None = None
    rows: Indices | None = None


class EpochRange:
    """Epochs over a part of the source, which snapshot number `snapshot` of the run was the first to read."""

    def __init__(self, size: int, snapshot: int, opened: Callable[[], Opened]) -> None:
        self._size = size
        self._snapshot = snapshot << _SNAPSHOT_BITS
        self._opened = functools.lru_cache(maxsize=1)(opened)  # on first use: a run past these epochs does not need it

    def size_of(self, epoch: int) -> int:
        return self._size

    def locate(self, epoch: int, positions: Indices) -> Indices:
        opened = self._opened()
        rows = opened.orders.records(epoch, positions)
        if opened.rows_of_snapshot is not None:
            rows = opened.rows_of_snapshot[rows].astype(np.int64)
        return rows | self._snapshot if self._snapshot else rows

    def position_of(self, epoch: int, row: int) -> int | None:
        opened = self._opened()
        rows = np.array([row]) if opened.rows is None else positions_of(opened.rows, [row])
        return int(opened.orders.of_epoch(epoch).positions(rows)[0]) if len(rows) else None

    def approach(self, epoch: int, position: int) -> None:
        if position < self._size:
            self._opened().orders.approach(epoch, position)

    def read_instead(self, rows: Indices) -> Indices:
        """Rows of the present source that are read for rows of this snapshot: takedowns draw as they did there."""
        opened = self._opened()
        split = stored_split(opened.orders.rows.split)
        found = np.asarray(split.stand_ins(rows), np.int64)
        return found if opened.rows is None else opened.rows[found].astype(np.int64)

    def rows_of(self, rows: Indices) -> Indices:
        """The numbers that rows of this part have in the present source."""
        found = self._opened().rows
        return rows if found is None else found[rows].astype(np.int64)


def are_of_present(places: Indices) -> bool:
    """Whether all places are rows of the present source, as in any other stream."""
    return not len(places) or int(places.max()) <= ROW_OF_PLACE


def by_snapshot(places: Indices, of_snapshot: Callable[[int, Indices], Indices]) -> Indices:
    """`of_snapshot(number, rows)` of all places, snapshot by snapshot."""
    if are_of_present(places):
        return of_snapshot(0, places)
    snapshots = places >> _SNAPSHOT_BITS
    found = np.empty_like(places)
    for number in np.unique(snapshots).tolist():
        mine = snapshots == number
        found[mine] = of_snapshot(number, places[mine] & ROW_OF_PLACE)
    return found


class _Joined:
    """The epochs of `before`, then those of `after`; `added` rows join the last one before if the addition says so."""

    def __init__(self, before: Epochs, added: EpochRange, after: Epochs, addition: Addition) -> None:
        self._before, self._added, self._after = before, added, after
        self._addition = addition

    def _joins(self, epoch: int) -> bool:
        return epoch == self._addition.epoch and self._addition.position is not None

    def _part(self, epoch: int) -> Epochs:
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

    def locate(self, epoch: int, positions: Indices) -> Indices:
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


Epochs: TypeAlias = EpochRange | _Joined


def joined(additions: Sequence[Addition], wholes: Sequence[EpochRange], added: Sequence[EpochRange]) -> Epochs:
    """The epochs of a run. `wholes` are all rows before each addition and after the last; `added` those of each one."""
    epochs: Epochs = wholes[0]
    for addition, more, whole in zip(additions, added, wholes[1:], strict=True):
        epochs = _Joined(epochs, more, whole, addition)
    return epochs
