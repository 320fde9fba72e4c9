"""What a loader has delivered since its telemetry began, as sums; differences of two give a window."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over all batches. `tokens`, `queued` and `rows_by_source` are None where the loader does not tell.

    `wait_secs`: what the consumer waited for batches; `busy_secs`: what it did between them. `queued`: the sum over
    batches of how many were ready when one was asked for. `rows_by_source`: rows over all hosts, by name of a source.
    """

    batches: int = 0
    rows: int = 0
    tokens: int | None = None
    wait_secs: float = 0.0
    busy_secs: float = 0.0
    queued: int | None = None
    rows_by_source: Mapping[str, int] | None = None

    def since(self, earlier: Totals) -> Totals:
        """What came after `earlier`."""
        by_source = None
        if self.rows_by_source is not None:
            before = earlier.rows_by_source or {}
            by_source = {name: rows - before.get(name, 0) for name, rows in self.rows_by_source.items()}
        return Totals(
            batches=self.batches - earlier.batches,
            rows=self.rows - earlier.rows,
            tokens=None if self.tokens is None else self.tokens - (earlier.tokens or 0),
            wait_secs=self.wait_secs - earlier.wait_secs,
            busy_secs=self.busy_secs - earlier.busy_secs,
            queued=None if self.queued is None else self.queued - (earlier.queued or 0),
            rows_by_source=by_source,
        )

    def metrics(self) -> dict[str, float]:
        """As a dict of numbers by name; empty before the first batch.

        Totals(batches=10, rows=320, wait_secs=0.1, busy_secs=0.9).metrics()  →
        {'data/wait_ms': 10.0, 'data/wait_frac': 0.1, 'data/batches_per_s': 10.0, 'data/rows_per_s': 320.0}
        """
        secs = self.wait_secs + self.busy_secs
        if not self.batches or secs <= 0:
            return {}
        metrics = {
            "data/wait_ms": 1000.0 * self.wait_secs / self.batches,
            "data/wait_frac": self.wait_secs / secs,
            "data/batches_per_s": self.batches / secs,
            "data/rows_per_s": self.rows / secs,
        }
        if self.tokens is not None:
            metrics["data/tokens_per_s"] = self.tokens / secs
        if self.queued is not None:
            metrics["data/queue_depth"] = self.queued / self.batches
        if self.rows_by_source is not None:
            rows = sum(self.rows_by_source.values())
            for name, count in self.rows_by_source.items():
                metrics[f"data/mix/{name}"] = count / rows if rows else 0.0
        return metrics
