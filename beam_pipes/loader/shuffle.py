"""`Shuffle`: the ways to shuffle rows, and `Orders`: the orders of one source that they give, epoch by epoch.

    orders = Orders(rows, 1, BlockShuffle(window=2), 0)    # 6 rows in 3 blocks
    orders.records(0, np.arange(6))  →  array([2, 3, 5, 4, 1, 0])
    orders.approach(0, 3)            # its window of blocks and the next one are fetched

The streams of one source, of an appended one and of a mixture have one `Orders` for each source.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

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
from beam_pipes.loader.rows import Rows

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
