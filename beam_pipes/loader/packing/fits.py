"""Which row each document goes to, from the lengths alone.

| function | rows hold |
| --- | --- |
| `best_fit` | whole documents, longest first: least padding |
| `first_fit`, `next_fit` | whole documents, roughly or exactly in stored order |
| `vector_fit` | whole documents with several limits: an encoder's and a decoder's, or a number of segments |
| `concat_then_split` | the concatenated documents, cut wherever a row ends: no padding |
"""

from __future__ import annotations

import heapq
from bisect import bisect_right

import numpy as np
import numpy.typing as npt

_BITS = 16


def stable_order(keys: npt.NDArray[np.int64], below: int) -> npt.NDArray[np.int64]:
    """`np.argsort(keys, kind="stable")` of whole numbers in [0, below), in half the time or less.

    `stable_order([2, 0, 2, 1], 3)` → `[1, 3, 0, 2]`

    NumPy sorts 16-bit numbers by radix and longer ones by comparison; here longer ones are sorted 16 bits at a time,
    the lowest first.
    """
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    for shift in range(_BITS, max(below - 1, 0).bit_length(), _BITS):
        order = order[np.argsort((keys[order] >> shift).astype(np.uint16), kind="stable")]
    return order


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


def first_fit(lengths: Int64, capacity: int, max_items: int | None = None) -> Int64:
    """The bin of each item: in stored order, each into the oldest bin that still takes it, up to `max_items` a bin.

    `first_fit([6, 4, 3, 3, 2, 2], 10)` → `[0, 0, 1, 1, 1, 1]`

    Neighbours in the cache stay near each other, which best-fit does not promise; about 5 µs per item. A tournament
    tree over spaces holds at its leaves the oldest bin of each space, so that the oldest of all bins with at least
    so much space is a suffix minimum.
    """
    nothing = len(lengths)
    leaves = 1 << capacity.bit_length()
    tree = [nothing] * (2 * leaves)
    heaps: list[list[int]] = [[] for _ in range(capacity + 1)]
    bins = [0] * len(lengths)
    spaces: list[int] = []
    places: list[int] = []  # for each bin, how many more items it takes

    def refresh(space: int) -> None:
        node = leaves + space
        tree[node] = heaps[space][0] if heaps[space] else nothing
        while node > 1:
            node >>= 1
            left, right = tree[2 * node], tree[2 * node + 1]
            smaller = left if left < right else right
            if tree[node] == smaller:
                break
            tree[node] = smaller

    for item, length in enumerate(lengths.tolist()):
        node = leaves + length
        chosen = tree[node]
        while node > 1:
            if not node & 1 and tree[node + 1] < chosen:
                chosen = tree[node + 1]
            node >>= 1
        if chosen == nothing:
            chosen = len(spaces)
            spaces.append(capacity)
            places.append(len(lengths) if max_items is None else max_items)
        else:
            heapq.heappop(heaps[spaces[chosen]])
            refresh(spaces[chosen])
        bins[item] = chosen
        spaces[chosen] -= length
        places[chosen] -= 1
        if places[chosen]:
            heapq.heappush(heaps[spaces[chosen]], chosen)
            refresh(spaces[chosen])
    return np.array(bins, np.int64)


def next_fit(lengths: Int64, capacity: int, max_items: int | None = None) -> Int64:
    """The bin of each item: in stored order, a new bin whenever the current one does not take the next item.

    `next_fit([6, 4, 3, 3, 2, 2], 10)` → `[0, 0, 1, 1, 1, 1]`; `next_fit([6, 5, 4], 10)` → `[0, 1, 1]`

    Rows are runs of neighbouring records. Wastes most (about 20 % on lognormal lengths): for when order within a row
    matters more than padding.
    """
    ends = np.cumsum(lengths)
    known = ends.tolist()
    starts = []
    item = 0
    while item < len(known):
        starts.append(item)
        before = known[item - 1] if item else 0
        full = bisect_right(known, before + capacity)
        item = full if max_items is None else min(full, item + max_items)
    bins = np.zeros(len(lengths), np.int64)
    bins[starts[1:]] = 1
    return np.cumsum(bins)


def concat_then_split(lengths: Int64, capacity: int) -> tuple[Int64, Int64, Int64, Int64]:
    """The item, start and length of each piece, and its row: items one after the other, cut wherever a row ends.

    `concat_then_split([6, 5, 14], 10)` → items `[0, 1, 1, 2, 2]`, starts `[0, 0, 4, 0, 9]`, lengths
    `[6, 4, 1, 9, 5]`, rows `[0, 0, 1, 1, 2]`. Only the last row has padding. Items have at least one token.
    """
    ends = np.cumsum(lengths)
    begins = ends - lengths
    first_rows = begins // capacity
    counts = (ends - 1) // capacity - first_rows + 1
    items = np.repeat(np.arange(len(lengths)), counts)
    rows = np.arange(len(items)) - (np.cumsum(counts) - counts - first_rows)[items]
    starts = np.maximum(rows * capacity - begins[items], 0)
    stops = np.minimum((rows + 1) * capacity - begins[items], lengths[items])
    return items, starts, stops - starts, rows


# Candidates examined for one place in a bin: a few at first, and at most this many. Without the limit a million pairs
# of independent lengths take minutes for 0.1 % fewer rows.
_SCAN = (256, 16384)


def vector_fit(lengths: Int64, capacities: tuple[int, ...]) -> Int64:
    """The bin of each item of `lengths` (items, features): an item fits where all its features fit.

    `vector_fit([[6, 1], [4, 1], [1, 9]], (10, 10))` → `[0, 1, 0]`

    Items are ordered by their largest share of a capacity. Bin after bin is filled with the first remaining item that
    still fits, until none does (the bin-centric form of first-fit decreasing: Panigrahy et al., "Heuristics for vector
    bin packing", 2011). Items of equal lengths are interchangeable, so a filling found once is repeated as often as
    the remaining counts allow: time is one search for each distinct filling.
    """
    limits = np.asarray(capacities, np.int64)
    vectors, inverse, counts = np.unique(lengths, axis=0, return_inverse=True, return_counts=True)
    shares = vectors / limits
    order = np.lexsort((np.arange(len(vectors)), -shares.sum(1), -shares.max(1)))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    items = np.argsort(rank[inverse.reshape(-1)], kind="stable")
    stock = _Stock(vectors[order], counts[order], limits)
    bins = np.empty(len(lengths), np.int64)
    num_bins = 0
    while (kinds := stock.fill()) is not None:
        used, multiplicity = np.unique(kinds, return_counts=True)
        times = int((stock.counts[used] // multiplicity).min())
        for kind, each in zip(used.tolist(), multiplicity.tolist(), strict=True):
            first = stock.take(kind, times * each)
            bins[items[first : first + times * each]] = np.repeat(np.arange(num_bins, num_bins + times), each)
        num_bins += times
    return bins


class _Stock:
    """The items not yet placed: kinds (distinct vectors, largest first) and how many of each are left."""

    def __init__(self, vectors: Int64, counts: Int64, limits: Int64) -> None:
        self._vectors = vectors
        self._limits = limits
        self._shares = (vectors / limits).max(axis=1)
        self.counts = counts.copy()
        self._next_item = np.cumsum(counts) - counts
        self._num_dead = 0
        self._keep(np.arange(len(vectors)))

    def take(self, kind: int, count: int) -> int:
        """Removes `count` items of a kind; returns the rank of the first of them."""
        first = int(self._next_item[kind])
        self._next_item[kind] += count
        self.counts[kind] -= count
        if not self.counts[kind]:
            self._num_dead += 1
            place = int(np.searchsorted(self._kinds, kind))
            self._columns[0][place] = self._limits[0] + 1  # fits nowhere any more
        return first

    def fill(self) -> list[int] | None:
        """The kinds that together fill one bin, with repetitions; None when nothing is left."""
        if self._num_dead >= min(_SCAN[0] // 2, len(self._kinds)):
            self._keep(self._kinds[self.counts[self._kinds] > 0])
            self._num_dead = 0
        space = self._limits.tolist()
        chosen: list[int] = []
        start = 0
        while (found := self._first_fitting(space, start)) is not None:
            start = found + 1
            kind = int(self._kinds[found])
            vector = self._vectors[kind].tolist()
            fits = min(have // need for have, need in zip(space, vector, strict=True) if need)
            fits = min(fits, int(self.counts[kind]))
            chosen.extend([kind] * fits)
            space = [have - fits * need for have, need in zip(space, vector, strict=True)]
        return chosen or None

    def _keep(self, kinds: Int64) -> None:
        """Makes these the kinds that are searched: one contiguous column per feature, largest share first."""
        self._kinds = kinds
        self._columns = [np.ascontiguousarray(column, np.int32) for column in self._vectors[kinds].T]
        self._smallest = [int(column.min()) if len(column) else 0 for column in self._columns]
        self._negative_shares = -self._shares[kinds]

    def _first_fitting(self, space: list[int], start: int) -> int | None:
        if any(have < least for have, least in zip(space, self._smallest, strict=True)):
            return None
        # No item fits if its largest share exceeds the largest share that is left.
        largest = max(have / limit for have, limit in zip(space, self._limits.tolist(), strict=True))
        start = max(start, int(np.searchsorted(self._negative_shares, -largest - 1e-12)))
        for first, last in ((start, start + _SCAN[0]), (start + _SCAN[0], start + _SCAN[1])):
            fits = self._columns[0][first:last] <= space[0]
            for column, have in zip(self._columns[1:], space[1:], strict=True):
                fits &= column[first:last] <= have
            if len(fits) and fits[at := int(np.argmax(fits))]:
                return first + at
        return None
