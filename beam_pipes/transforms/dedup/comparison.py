"""Comparing records that share a band, and clusters of similar ones.

Signatures are read from the accumulators when two records are compared. A cluster holds the records that are similar
directly or through others, and is named by its first record.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from types import TracebackType

import numpy as np

from beam_pipes.transforms.dedup.row_file import RowFiles

Array = np.ndarray

# Pairs compared at once: 4 MiB with 128 numbers each.
_PAIRS_AT_ONCE = 4096

# Signatures of groups held at once: 16 MiB.
ROWS_AT_ONCE = 1 << 15


class Comparison:
    """Compares records and joins similar ones."""

    def __init__(self, signatures: Signatures, clusters: Clusters, *, least: int, rows_at_once: int) -> None:
        self._signatures = signatures
        self._clusters = clusters
        self._least = least
        self._rows_at_once = rows_at_once

    def identical(self, ordinals: Array, starts: Array) -> Array:
        """Joins the records of each group whose signatures equal that of its first; returns the joined records."""
        sizes = np.diff(starts)
        firsts = np.repeat(ordinals[starts[:-1]], sizes)
        others = ordinals != firsts
        left, right = firsts[others], ordinals[others]
        same = self._agreeing(left, right) == self._signatures.count
        self._join(left[same], right[same])
        joined: Array = right[same]
        return joined

    def groups(self, ordinals: Array, starts: Array, *, max_compared: int) -> int:
        """Compares within groups that share a band; returns the number of groups too large for a complete comparison.

        First compares the first record of every group with the others, for all groups at once: most groups need no
        more. Then the rest, as many groups at a time as have signatures that fit into memory.
        """
        sizes = np.diff(starts)
        begins, ends = starts[:-1][sizes > 1], starts[1:][sizes > 1]
        first, others = _pairs(begins, ends, turn=0)
        for part in pair_parts(len(first)):
            left, right = self._apart(ordinals[first[part]], ordinals[others[part]])
            alike = self._agreeing(left, right) >= self._least
            self._join(left[alike], right[alike])
        left_over = (ends - begins > 2) & ~self._united(ordinals, begins, ends)
        begins, ends = begins[left_over], ends[left_over]
        cut = 0
        for batch in _batches(ends - begins, self._rows_at_once):
            rows = np.concatenate([ordinals[low:high] for low, high in zip(begins[batch], ends[batch], strict=True)])
            if len(rows) > self._rows_at_once:
                cut += self._large_group(rows, max_compared)
            else:
                bounds = np.cumsum([0, *(ends[batch] - begins[batch])])
                cut += self._small_groups(rows, bounds[:-1], bounds[1:], max_compared)
        return cut

    def _small_groups(self, ordinals: Array, begins: Array, ends: Array, max_compared: int) -> int:
        """Turn n compares the n-th record of every group with those after it, for all groups at once."""
        signatures = self._signatures.of(ordinals)
        for turn in range(1, max_compared):
            if not len(begins):
                return 0
            first, others = _pairs(begins, ends, turn=turn)
            for part in pair_parts(len(first)):
                self._compare(ordinals, signatures, first[part], others[part])
            left_over = (ends - begins > turn + 2) & ~self._united(ordinals, begins, ends)
            begins, ends = begins[left_over], ends[left_over]
        return len(begins)

    def _large_group(self, ordinals: Array, max_compared: int) -> int:
        """Compares the first records of one group with all after them, read part by part."""
        leaders = self._signatures.of(ordinals[:max_compared])
        for start in range(0, len(ordinals), self._rows_at_once):
            part = ordinals[start : start + self._rows_at_once]
            rows = np.concatenate([ordinals[:max_compared], part])
            signatures = np.concatenate([leaders, self._signatures.of(part)])
            for leader in range(len(leaders)):
                others = len(leaders) + np.arange(max(0, leader + 1 - start), len(part))
                self._compare(rows, signatures, np.full(len(others), leader), others)
        united = self._united(ordinals, np.zeros(1, np.int64), np.array([len(ordinals)]))
        return int(len(ordinals) > max_compared + 1 and not united[0])

    def _compare(self, ordinals: Array, signatures: Array, first: Array, others: Array) -> None:
        """Compares pairs of rows whose signatures are in memory."""
        apart = self._clusters.roots(ordinals[first]) != self._clusters.roots(ordinals[others])
        first, others = first[apart], others[apart]
        for part in pair_parts(len(first)):
            one, other = first[part], others[part]
            alike = (signatures[one] == signatures[other]).sum(axis=1) >= self._least
            self._join(ordinals[one[alike]], ordinals[other[alike]])

    def _apart(self, left: Array, right: Array) -> tuple[Array, Array]:
        """The pairs that are not in one cluster."""
        apart = self._clusters.roots(left) != self._clusters.roots(right)
        return left[apart], right[apart]

    def _united(self, ordinals: Array, begins: Array, ends: Array) -> Array:
        """Whether all records of each group are now in one cluster."""
        if not len(begins):
            return np.zeros(0, bool)
        sizes = ends - begins
        offsets = np.cumsum(sizes) - sizes
        position = np.arange(int(sizes.sum())) - np.repeat(offsets, sizes)
        roots = self._clusters.roots(ordinals[np.repeat(begins, sizes) + position])
        united: Array = np.minimum.reduceat(roots, offsets) == np.maximum.reduceat(roots, offsets)
        return united

    def _agreeing(self, left: Array, right: Array) -> Array:
        """The number of equal signature numbers in each pair: (pairs,)."""
        counts = np.empty(len(left), np.int64)
        for part in pair_parts(len(left)):
            counts[part] = (self._signatures.of(left[part]) == self._signatures.of(right[part])).sum(axis=1)
        return counts

    def _join(self, left: Array, right: Array) -> None:
        for one, other in zip(left.tolist(), right.tolist(), strict=True):
            self._clusters.union(one, other)


def pair_parts(count: int) -> list[slice]:
    """The number of pairs at a time whose signatures fit into memory."""
    return [slice(start, start + _PAIRS_AT_ONCE) for start in range(0, count, _PAIRS_AT_ONCE)]


def _pairs(begins: Array, ends: Array, *, turn: int) -> tuple[Array, Array]:
    """Positions of pairs: record number `turn` of each group, and each record after it."""
    lengths = ends - begins - turn - 1
    firsts = np.repeat(begins + turn, lengths)
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return firsts, firsts + 1 + within


def _batches(sizes: Array, limit: int) -> list[slice]:
    """Consecutive groups that together have at most `limit` rows; a larger one is a batch of its own."""
    batches, start, total = [], 0, 0
    for index, size in enumerate(sizes.tolist()):
        if index > start and total + size > limit:
            batches.append(slice(start, index))
            start, total = index, 0
        total += size
    return [*batches, slice(start, len(sizes))] if len(sizes) else []


class Clusters:
    """Disjoint sets of the numbers 0 … size - 1, at first each in its own set; a set's root is its least number.

    8 bytes per number (4 below 2^32). The final sets do not depend on the order of unions.

    Source: R. Tarjan, "Efficiency of a good but not linear set union algorithm" (1975); here the least number is the
    root, regardless of sizes.
    """

    def __init__(self, size: int) -> None:
        self._parents = np.arange(size, dtype=np.uint32 if size < 1 << 32 else np.int64)
        self._fast = self._parents.data

    def union(self, left: int, right: int) -> None:
        """Merges the sets of two numbers."""
        left, right = self._root(left), self._root(right)
        if left < right:
            self._fast[right] = left
        else:
            self._fast[left] = right

    def roots(self, numbers: Array) -> Array:
        """The least number of the set of each of `numbers`."""
        parents = self._parents
        roots: np.ndarray = parents[numbers]
        while True:
            above = parents[roots]
            if np.array_equal(above, roots):
                return roots.astype(np.int64)
            roots = above

    def members(self) -> tuple[Array, Array]:
        """(numbers other than the least of their set, ascending; for each, the least number of its set)."""
        block = 1 << 20
        found = [np.empty(0, np.int64)]
        for start in range(0, len(self._parents), block):
            part = self._parents[start : start + block]
            found.append(start + np.flatnonzero(part != np.arange(start, start + len(part))))
        members = np.concatenate(found)
        return members, self.roots(members)

    def _root(self, number: int) -> int:
        parents = self._fast
        while (parent := parents[number]) != number:
            parents[number] = number = parents[parent]
        return number


# Maximum number of accumulators open at the same time.
_MAX_OPEN = 128


class Signatures:
    """Rows of the column `signatures` by the ordinals of records; few files are open, and nothing is held in memory."""

    def __init__(self, places: RowFiles, *, count: int) -> None:
        self._places = places
        self.count = count
        self._open: OrderedDict[int, int] = OrderedDict()

    def __enter__(self) -> Signatures:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def of(self, ordinals: Array) -> Array:
        """(records, count) uint32; each record is read once, whatever the order of `ordinals`."""
        wanted, back = np.unique(ordinals, return_inverse=True)
        found = np.empty((len(wanted), self.count), "<u4")
        bounds = np.searchsorted(wanted, self._places.firsts)
        for index in np.flatnonzero(np.diff(bounds)).tolist():
            low, high = int(bounds[index]), int(bounds[index + 1])
            rows = wanted[low:high] - self._places.firsts[index]
            offsets, size = self._places.shards[index].offsets("signatures", rows)
            file = self._file(index)
            data = b"".join([os.pread(file, size, offset) for offset in offsets.tolist()])
            found[low:high] = np.frombuffer(data, "<u4").reshape(-1, self.count)
        return found[back]

    def _file(self, index: int) -> int:
        file = self._open.get(index)
        if file is None:
            if len(self._open) == _MAX_OPEN:
                os.close(self._open.popitem(last=False)[1])
            file = os.open(self._places.shards[index].path, os.O_RDONLY)
        self._open[index] = file
        self._open.move_to_end(index)
        return file
