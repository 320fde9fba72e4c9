"""What operators did: records, bytes and time, by operator."""

from __future__ import annotations

import dataclasses
import threading


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """What one operator did for one batch."""

    records: int
    failed: int
    sizes: tuple[int, ...]
    secs: float


@dataclasses.dataclass
class OperatorStatistics:
    """What one operator did for the batches that were given, since the pipeline was built, this process.

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

    def add(self, done: Done) -> None:
        """Books one batch; several threads may."""
        with self._lock:
            self.batches += 1
            self.records += done.records
            self.failed += done.failed
            self.bytes += sum(done.sizes)
            self.secs += done.secs
            before = self.output_bytes or [0] * len(done.sizes)
            self.output_bytes = [a + b for a, b in zip(before, done.sizes, strict=True)]
