"""A count."""

from __future__ import annotations

import copy
from typing import Any

from beam_pipes.engine.statistic import Statistic, plain_number


class Counter(Statistic):
    """Counts something: `Counter('how_many_foo', 5)` prints `how_many_foo: 5`."""

    def __init__(self, name: str, start_value: int = 0) -> None:
        super().__init__(name)
        self.count = start_value

    def increment(self, inc: int = 1) -> None:
        """Adds `inc`."""
        self.count += inc

    def _merge_from(self, other: Counter) -> None:
        self.count += other.count

    def copy(self) -> Counter:
        return copy.copy(self)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "count": plain_number(self.count)}

    def _pretty_print(self, name: str) -> str:
        return f"{name}: {self.count}"
