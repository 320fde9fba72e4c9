"""What operators did: records, bytes and time, by operator."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence


@dataclasses.dataclass
class OperatorStatistics:
    """What one operator did since the pipeline was built, this process.

    `records` counts samples it was run on, `failed` those it failed on, `bytes` what it gave (`output_bytes` by
    output), `secs` wall time.
    """

    place: str
    batches: int = 0
    records: int = 0
    failed: int = 0
    bytes: int = 0
    secs: float = 0.0
    output_bytes: list[int] = dataclasses.field(default_factory=list)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, *, records: int, failed: int, sizes: Sequence[int], secs: float) -> None:
        """Books one batch; batches may be made by several threads."""
        with self._lock:
            self.batches += 1
            self.records += records
            self.failed += failed
            self.bytes += sum(sizes)
            self.secs += secs
            self.output_bytes = [a + b for a, b in zip(self.output_bytes or [0] * len(sizes), sizes, strict=True)]
