"""A greatest value."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from math import isfinite
from typing import Any

from beam_pipes.engine.statistic import Statistic, plain_number


class Maximum(Statistic):
    """The greatest of all values: `Maximum('longest', 12)` prints `longest: 12`. Merging keeps the greater one.

    NaN is no value: it is passed over, and what has seen nothing else prints `nan`.
    """

    def __init__(self, name: str, value: int | float) -> None:
        super().__init__(name)
        self.value = value

    def update(self, value: int | float) -> None:
        """Takes one more value."""
        # NaN is neither greater nor smaller: what max() makes of it depends on the order.
        if value > self.value or self.value != self.value:
            self.value = value

    def _merge_from(self, other: Maximum) -> None:
        self.update(other.value)

    def copy(self) -> Maximum:
        return copy.copy(self)

    def state(self) -> dict[str, Any]:
        value = plain_number(self.value)
        # Legal here and illegal in JSON: what is not finite travels as a string, as in Histogram.
        return {**super().state(), "value": str(value) if isinstance(value, float) and not isfinite(value) else value}

    @classmethod
    def from_state(cls, name: str, state: Mapping[str, Any]) -> Maximum:
        value = state["value"]
        return cls(name, float(value) if isinstance(value, str) else value)

    def _pretty_print(self, name: str) -> str:
        return f"{name}: {self.value}"
