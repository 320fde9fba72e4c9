"""How many values there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beam_pipes.analysis import Accumulator, Analyzer


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Count(Analyzer):
    """Counts the values: `Count("lines")` gives an `int`.

    The file is the number in decimal digits.
    """

    def accumulator(self) -> Accumulator:
        return _Counted()

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        total = sum(int(Path(path).read_text(encoding="ascii")) for path in accumulators)
        Path(target).write_text(f"{total}\n", encoding="ascii")

    def read(self, path: str) -> int:
        return int(Path(path).read_text(encoding="ascii"))


class _Counted(Accumulator):
    def __init__(self) -> None:
        self._count = 0

    def add(self, values: Sequence[Any], record_ids: Sequence[str]) -> None:
        self._count += len(values)

    def save(self, path: str) -> None:
        Path(path).write_text(f"{self._count}\n", encoding="ascii")
