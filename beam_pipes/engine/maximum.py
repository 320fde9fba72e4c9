"""A greatest value."""

from __future__ import annotations

import copy
from typing import Any

from beam_pipes.engine.statistic import Statistic, plain_number


class Maximum(Statistic):
    """The greatest of all values: `Maximum('longest', 12)` prints `longest: 12`. Merging keeps the greater one."""

    def __init__(self, name: str, value: int | float) -> None:
        super().__init__(name)
        self.value = value

    def update(self, value: int | float) -> None:
        """Takes one more value."""
        self.value = max(self.value, value)

    def _merge_from(self, other: Maximum) -> None:
        self.value = max(self.value, other.value)

    def copy(self) -> Maximum:
        return copy.copy(self)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "value": plain_number(self.value)}

    def _pretty_print(self, name: str) -> str:
        return f"{name}: {self.value}"
