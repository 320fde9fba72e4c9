"""A clock that books the time between its marks under stages."""

from __future__ import annotations

import time
from collections.abc import Iterable


class StageClock:
    """`mark(stage)` books what has passed since the mark before; it begins to run when it is made.

    `secs` is stage → seconds in all, in the order of `stages`. A mark costs about 0.2 µs.
    """

    def __init__(self, stages: Iterable[str]) -> None:
        self.secs = dict.fromkeys(stages, 0.0)
        self._lap: dict[str, float] = {}
        self._last = time.perf_counter()

    def mark(self, stage: str) -> None:
        """Books the time since the last mark under `stage`, one of those that were named at the beginning."""
        now = time.perf_counter()
        self._lap[stage] = self._lap.get(stage, 0.0) + now - self._last
        self._last = now

    def lap(self) -> dict[str, float]:
        """The seconds by stage since the last lap; from here on a new one begins."""
        lap, self._lap = self._lap, {}
        for stage, secs in lap.items():
            self.secs[stage] += secs
        return lap
