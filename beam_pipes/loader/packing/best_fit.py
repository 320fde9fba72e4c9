"""Best-fit decreasing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from beam_pipes.loader.packing.stable_order import stable_order

Int64 = npt.NDArray[np.int64]


def best_fit(lengths: Int64, capacity: int) -> Int64:
    """The bin of each item: longest items first, each into the fullest bin that still takes it.

    `best_fit([6, 4, 3, 3, 2, 2], 10)` → `[0, 0, 1, 1, 1, 1]`

    Exactly best-fit decreasing (Johnson et al., "Worst-case performance bounds for simple one-dimensional packing
    algorithms", SIAM J. Computing 3, 1974: at most 11/9 · optimum + 4 bins), but computed over the histogram of
    lengths: bins of equal space are interchangeable, so all items of one length go into all bins of one space at once.
    Time is that of sorting the lengths, plus one step for each pair (length, space) that meets.
    """
    order = stable_order(capacity - lengths, capacity)
    bins = np.empty(len(lengths), np.int64)
    sorted_lengths = lengths[order]
    firsts = np.flatnonzero(np.diff(sorted_lengths, prepend=capacity + 1))
    lasts = np.append(firsts, len(lengths))[1:]
    open_bins = _OpenBins()
    num_bins = 0
    for value, first, last in zip(sorted_lengths[firsts].tolist(), firsts.tolist(), lasts.tolist(), strict=True):
        while first < last:
            space = open_bins.tightest(value)
            per_bin = (space or capacity) // value
            wanted = -(-(last - first) // per_bin)
            if space is None:
                taken = np.arange(num_bins, num_bins + wanted)
                num_bins += wanted
                space = capacity
            else:
                taken = open_bins.take(space, wanted)
            placed = min(last - first, per_bin * len(taken))
            bins[order[first : first + placed]] = taken.repeat(per_bin)[:placed] if per_bin > 1 else taken
            first += placed
            full, in_last = divmod(placed, per_bin)
            open_bins.put(space - per_bin * value, taken[:full])
            if in_last:
                open_bins.put(space - in_last * value, taken[full:])
    return bins


class _OpenBins:
    """Bins by the space they have left, with the smallest sufficient space found by one shift of a bit mask."""

    def __init__(self) -> None:
        self._chunks: dict[int, list[Int64]] = {}
        self._spaces = 0

    def tightest(self, length: int) -> int | None:
        fitting = self._spaces >> length
        if not fitting:
            return None
        return length + (fitting & -fitting).bit_length() - 1

    def take(self, space: int, count: int) -> Int64:
        """Up to `count` bins of exactly this space."""
        chunks = self._chunks[space]
        chunk = chunks.pop()
        if len(chunk) > count:
            chunks.append(chunk[count:])
            chunk = chunk[:count]
        if not chunks:
            self._spaces ^= 1 << space
        return chunk

    def put(self, space: int, bins: Int64) -> None:
        if space and len(bins):
            self._chunks.setdefault(space, []).append(bins)
            self._spaces |= 1 << space
