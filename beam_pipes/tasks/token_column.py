"""One feature of many examples at once: their lengths, and where they are needed their values."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.loader.batches import ranges

Lengths = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class TokenColumn:
    """The sequences of one feature, one after the other: [5, 6], [], [7] → values [5, 6, 7], lengths [2, 0, 1].

    Attributes:
        lengths: (n,) int64, of each example.
        values: (sum of lengths, ...); None where only the lengths are asked for, as in planning.
        truncated: entries that were cut off on the way here.
        added: entries that were put in.
    """

    lengths: Lengths
    values: npt.NDArray[Any] | None = None
    truncated: int = 0
    added: int = 0

    def first(self, count: int) -> TokenColumn:
        """The first `count` entries of each: `[5, 6, 7], [8]` with 2 → `[5, 6], [8]`."""
        return self._kept(count, from_end=False)

    def last(self, count: int) -> TokenColumn:
        """The last `count` entries of each: `[5, 6, 7], [8]` with 2 → `[6, 7], [8]`."""
        return self._kept(count, from_end=True)

    def with_end(self, entry: int) -> TokenColumn:
        """One entry more behind each: `[5, 6], []` with 1 → `[5, 6, 1], [1]`."""
        lengths = self.lengths + 1
        added = self.added + len(lengths)
        if self.values is None:
            return dataclasses.replace(self, lengths=lengths, added=added)
        values = np.empty(len(self.values) + len(lengths), self.values.dtype)
        is_end = np.zeros(len(values), bool)
        is_end[np.cumsum(lengths) - 1] = True
        values[is_end] = entry
        values[~is_end] = self.values
        return dataclasses.replace(self, lengths=lengths, values=values, added=added)

    def _kept(self, count: int, *, from_end: bool) -> TokenColumn:
        lengths = np.minimum(self.lengths, count)
        cut = int(self.lengths.sum() - lengths.sum())
        if not cut:
            return self
        values = self.values
        if values is not None:
            starts = np.cumsum(self.lengths) - self.lengths
            values = values[ranges(starts + (self.lengths - lengths if from_end else 0), lengths)]
        return dataclasses.replace(self, lengths=lengths, values=values, truncated=self.truncated + cut)
