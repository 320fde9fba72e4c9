"""First-fit decreasing for rows with several features, each with its own limit (an encoder and a decoder sequence)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

# Candidates looked at for one place in a bin: a few at first, and so many at most. Without the limit a million pairs
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
        """Makes these the kinds that are searched: one contiguous column a feature, largest share first."""
        self._kinds = kinds
        self._columns = [np.ascontiguousarray(column, np.int32) for column in self._vectors[kinds].T]
        self._smallest = [int(column.min()) if len(column) else 0 for column in self._columns]
        self._negative_shares = -self._shares[kinds]

    def _first_fitting(self, space: list[int], start: int) -> int | None:
        if any(have < least for have, least in zip(space, self._smallest, strict=True)):
            return None
        # No item fits whose largest share exceeds the largest share that is left.
        largest = max(have / limit for have, limit in zip(space, self._limits.tolist(), strict=True))
        start = max(start, int(np.searchsorted(self._negative_shares, -largest - 1e-12)))
        for first, last in ((start, start + _SCAN[0]), (start + _SCAN[0], start + _SCAN[1])):
            fits = self._columns[0][first:last] <= space[0]
            for column, have in zip(self._columns[1:], space[1:], strict=True):
                fits &= column[first:last] <= have
            if len(fits) and fits[at := int(np.argmax(fits))]:
                return first + at
        return None
