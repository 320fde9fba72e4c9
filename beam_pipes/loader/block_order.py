"""A block-wise order, for caches whose shards come from afar.

A globally shuffled batch of 32 touches up to 32 shards, which is free on a local disk and ruinous on an object store.
A *block* is a run of consecutive records (here: a shard). Blocks are permuted; `window` consecutive blocks of that
permutation form a *window*; all records of a window are permuted together. So a reader that holds one window, and
fetches the next one meanwhile, reads every block once an epoch.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from beam_pipes.errors import LoaderError
from beam_pipes.loader.order import IndexLike, Indices, KeyedPermutation, check_indices, derive_key


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockShuffle:
    """Ask a loader for a block-wise order: `Loader(split, shuffle=BlockShuffle(window=8), …)`; blocks are shards.

    A larger `window` shuffles better and needs room for twice as many shards.
    """

    window: int = 8

    def __post_init__(self) -> None:
        if isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 1:
            raise LoaderError(f"window should be a positive number of blocks, got {self.window!r}")


# Streams within a loader's own stream: derived keys never collide with those of a global order.
_BLOCKS, _WINDOW = 1, 2


class BlockOrder:
    """Shuffles blocks, then the records of `window` neighbouring blocks together.

    Memory is 24 bytes a *block*, none a record. `block_sizes` are the record counts of consecutive blocks.

    The price is quality: a batch comes from at most `window` blocks (two windows at a seam). Where neighbours in the
    store are alike (sorted by date, by language), batch means then vary more than under a global shuffle;
    docs/how-to/shuffle-a-remote-cache.md has the measured table.
    """

    def __init__(self, block_sizes: IndexLike, *, window: int, seed: int = 0, epoch: int = 0, stream: int = 0) -> None:
        if window < 1:
            raise LoaderError(f"a window holds at least one block, got window={window}", window=window)
        sizes = np.asarray(block_sizes, np.int64)
        count = len(sizes)
        self.size = int(sizes.sum())
        self.window = window
        self._key = derive_key(seed, epoch, stream)
        self._blocks = KeyedPermutation(count, seed=derive_key(self._key, _BLOCKS)).records(np.arange(count))
        self._block_starts = np.concatenate(([0], np.cumsum(sizes)))
        self._slot_starts = np.concatenate(([0], np.cumsum(sizes[self._blocks])))
        self._slot_of_block = np.empty(count, np.int64)
        self._slot_of_block[self._blocks] = np.arange(count)
        self._window_starts = self._slot_starts[np.minimum(np.arange(0, count + window, window), count)]

    @property
    def num_windows(self) -> int:
        return len(self._window_starts) - 1

    def blocks_of_window(self, window: int) -> Indices:
        """The blocks that must be at hand while window number `window` is read, in the order of the epoch."""
        return self._blocks[window * self.window : (window + 1) * self.window]

    def window_of(self, position: int) -> int:
        """The window that `position` falls into."""
        return int(np.searchsorted(self._window_starts, position, side="right")) - 1

    def records(self, positions: IndexLike) -> Indices:
        positions = check_indices(positions, self.size, "position")
        shuffled = self._permute_within_windows(positions, inverse=False)
        slots = np.searchsorted(self._slot_starts, shuffled, side="right") - 1
        return self._block_starts[self._blocks[slots]] + (shuffled - self._slot_starts[slots])

    def positions(self, records: IndexLike) -> Indices:
        records = check_indices(records, self.size, "record")
        blocks = np.searchsorted(self._block_starts, records, side="right") - 1
        shuffled = self._slot_starts[self._slot_of_block[blocks]] + (records - self._block_starts[blocks])
        return self._permute_within_windows(shuffled, inverse=True)

    def _permute_within_windows(self, places: Indices, *, inverse: bool) -> Indices:
        windows = np.searchsorted(self._window_starts, places, side="right") - 1
        out = np.empty_like(places)
        for window in np.unique(windows):
            start, stop = self._window_starts[window], self._window_starts[window + 1]
            key = derive_key(self._key, _WINDOW, int(window))
            local = KeyedPermutation(int(stop - start), seed=key)
            inside = windows == window
            mapped = (local.positions if inverse else local.records)(places[inside] - start)
            out[inside] = start + mapped
        return out
