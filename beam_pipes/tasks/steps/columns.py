"""Columns of many examples, on which the library's own steps run at once when a cache is loaded.

A `TokenColumn` is one feature of many examples: their lengths, and their values if needed. It is cut and extended like
an array, and without values too: then it gives the lengths of the results, by which loaders plan rows.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from beam_pipes.loader.batches import ranges

Lengths = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class TokenColumn:
    """The sequences of one feature, one after the other: [5, 6], [], [7] → values [5, 6, 7], lengths [2, 0, 1].

    Attributes:
        lengths: (n,) int64, of each example.
        values: (sum of lengths, ...); None if only the lengths are needed, as in planning.
        truncated: entries that were cut off on the way here.
        added: entries that were inserted.
    """

    lengths: Lengths
    values: np.ndarray | None = None
    truncated: int = 0
    added: int = 0

    ndim = 1  # a sequence, as in the examples

    def __getitem__(self, kept: slice | tuple[slice, ...]) -> TokenColumn:
        """The first or last entries of each: of `[5, 6, 7], [8]`, `[:2]` is `[5, 6], [8]`, `[-2:]` is `[6, 7], [8]`.

        Of several slices, those of inner axes are left to what has these axes.
        """
        kept = kept[0] if isinstance(kept, tuple) else kept
        if kept.start is not None:
            return self._kept(-kept.start, from_end=True)
        return self if kept.stop is None else self._kept(kept.stop, from_end=False)

    def with_end(self, entry: int) -> TokenColumn:
        """Appends one entry to each: `[5, 6], []` with 1 → `[5, 6, 1], [1]`."""
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
