"""Progress of a build: one line that changes on a terminal, JSON lines otherwise."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Protocol, TextIO

# JSON lines are for logs: one every few seconds tells as much as many.
JSON_EVERY_SECS = 2.0
LINE_EVERY_SECS = 0.1


class Counts:
    """What a build has done so far."""

    def __init__(self, *, num_shards: int, done_shards: int = 0) -> None:
        self.num_shards = num_shards
        self.done_shards = done_shards
        self.reused_shards = done_shards
        self.records = 0
        self.dropped = 0
        self.dead = 0
        self._started = time.monotonic()

    def to_json(self) -> dict[str, Any]:
        """All counts, with the rate (records a second) and the seconds left (None before the first shard is done)."""
        elapsed = time.monotonic() - self._started
        built = self.done_shards - self.reused_shards
        left = self.num_shards - self.done_shards
        return {
            "shards_done": self.done_shards,
            "shards": self.num_shards,
            "records": self.records,
            "records_per_sec": round(self.records / elapsed, 1) if elapsed > 0 else 0.0,
            "dropped": self.dropped,
            "dead": self.dead,
            "elapsed_secs": round(elapsed, 1),
            "eta_secs": round(elapsed / built * left, 1) if built else None,
        }


class Progress(Protocol):
    """Where counts are shown."""

    def update(self, counts: Counts) -> None: ...
    def close(self, counts: Counts) -> None: ...


class Silent:
    """Shows nothing."""

    def update(self, counts: Counts) -> None:
        pass

    def close(self, counts: Counts) -> None:
        pass


class TerminalLine:
    """One line that is rewritten in place."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0.0

    def update(self, counts: Counts) -> None:
        now = time.monotonic()
        if now - self._shown >= LINE_EVERY_SECS:
            self._shown = now
            self._write(counts)

    def close(self, counts: Counts) -> None:
        self._write(counts)
        self._stream.write("\n")
        self._stream.flush()

    def _write(self, counts: Counts) -> None:
        now = counts.to_json()
        eta = (
            ""
            if now["eta_secs"] is None or now["shards_done"] == now["shards"]
            else f", {_clock(now['eta_secs'])} left"
        )
        self._stream.write(
            f"\r\x1b[K{now['shards_done']}/{now['shards']} shards, {now['records']:,} records "
            f"({now['records_per_sec']:,.0f}/s), {now['dropped']:,} dropped, {now['dead']:,} dead, "
            f"{_clock(now['elapsed_secs'])}{eta}"
        )
        self._stream.flush()


class JsonLines:
    """One JSON object a line, every two seconds and at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = time.monotonic()

    def update(self, counts: Counts) -> None:
        now = time.monotonic()
        if now - self._shown >= JSON_EVERY_SECS:
            self._shown = now
            self.close(counts)

    def close(self, counts: Counts) -> None:
        self._stream.write(json.dumps(counts.to_json()) + "\n")
        self._stream.flush()


def progress_for(stream: TextIO | None = None) -> Progress:
    """A line that changes where `stream` (default: standard error) is a terminal, JSON lines otherwise."""
    stream = sys.stderr if stream is None else stream
    return TerminalLine(stream) if stream.isatty() else JsonLines(stream)


def _clock(secs: float) -> str:
    minutes, rest = divmod(round(secs), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
