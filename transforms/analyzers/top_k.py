"""The most frequent values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.errors import DeclarationError
from beam_pipes.transforms.analyzers.value_counts import COUNTED, Value, ValueCounts
from beam_pipes.transforms.analyzers.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TopK(Analyzer):
    """The `k` most frequent values with their counts: gives `[("the", 123), …]`, exact.

    Values are what `Vocabulary` counts; equal counts are in the order of the values. Every value is counted, so this
    costs what a vocabulary costs.
    """

    k: int = 100

    accepts = COUNTED

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k < 1:
            raise DeclarationError(f"analyzer {self.name!r}: k should be at least 1, got {self.k}.")

    def accumulator(self) -> Accumulator:
        return ValueCounts()

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        self._vocabulary().merge(accumulators, target)

    def read(self, path: str) -> list[tuple[Value, int]]:
        table = self._vocabulary().read(path)
        return list(zip(table.tokens, table.counts.tolist(), strict=True))

    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.name, size=self.k)
