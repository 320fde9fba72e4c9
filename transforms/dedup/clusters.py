"""Clusters: which records are alike, directly or by way of others; each is named by its first record."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Clusters:
    """Disjoint sets of the numbers 0 … size - 1, at first each by itself; a set's root is its least number.

    8 bytes a number (4 below 2^32). What the sets are in the end does not depend on the order of unions.

    Source: R. Tarjan, "Efficiency of a good but not linear set union algorithm" (1975); here the least number is the
    root, whatever the sizes.
    """

    def __init__(self, size: int) -> None:
        self._parents = np.arange(size, dtype=np.uint32 if size < 1 << 32 else np.int64)
        self._fast = self._parents.data

    def union(self, left: int, right: int) -> None:
        """Puts the sets of two numbers together."""
        left, right = self._root(left), self._root(right)
        if left < right:
            self._fast[right] = left
        else:
            self._fast[left] = right

    def roots(self, numbers: Array) -> Array:
        """The least number of the set of each of `numbers`."""
        parents = self._parents
        roots = parents[numbers]
        while True:
            above = parents[roots]
            if np.array_equal(above, roots):
                return roots.astype(np.int64)
            roots = above

    def members(self) -> tuple[Array, Array]:
        """(numbers that are not the least of their set, ascending; the least number of the set of each)."""
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
