"""Progress of a build: its stages on a terminal and in a notebook with ipywidgets, a few lines otherwise.

| kind | shows | where |
| --- | --- | --- |
| `stages` | a bar and a table of the stages, redrawn in place | terminals and notebooks with ipywidgets, by default |
| `line` | one line that changes | any terminal |
| `log` | a line of text, at each tenth of the shards or every 30 seconds, and at the end | elsewhere, by default |
| `json` | a JSON object a line, every two seconds and at the end | for programs |
| `none` | nothing | |
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TextIO

from beam_pipes.building.reading import ShardFigures, StageFigures
from beam_pipes.checks import choice
from beam_pipes.engine.account import Account
from beam_pipes.errors import visible
from beam_pipes.storage.checked_json import JsonObject, strict_json

JSON_EVERY_SECS = 2.0
# Print rarely to log files: they are kept, and searched for other things.
LOG_EVERY_SECS = 30.0
LOG_LINES = 10
LINE_EVERY_SECS = 0.1


class Counts:
    """The progress of a build; `stages` names its stages in order, so that all are shown from the start.

    Reused shards count as done, but their records do not count.
    """

    def __init__(self, *, num_shards: int, done_shards: int = 0, stages: Iterable[str] = ()) -> None:
        self.num_shards = num_shards
        self.done_shards = done_shards
        self.reused_shards = done_shards
        self._figures = ShardFigures(stages={name: StageFigures() for name in stages})
        self._started = time.monotonic()

    @property
    def records(self) -> int:
        return self._figures.records

    @property
    def dropped(self) -> int:
        return self._figures.dropped

    @property
    def dead(self) -> int:
        return self._figures.dead

    @property
    def stages(self) -> dict[str, StageFigures]:
        """Stage → its figures; the seconds are those of all workers together."""
        return self._figures.stages

    @property
    def all_done(self) -> bool:
        """Whether all source shards are done."""
        return self.done_shards == self.num_shards

    def add(self, figures: ShardFigures, *, times: int = 1) -> None:
        """Adds what a shard job has reported; with `times=-1` subtracts it."""
        self._figures.add(figures, times=times)

    def set_to(self, account: Account) -> None:
        """Replaces all counts by those of the account of the whole build; the seconds of stages stay."""
        secs = {name: stage.secs for name, stage in self.stages.items() if stage.secs}
        stages = {name: StageFigures() for name in self.stages}
        self._figures = ShardFigures(stages=stages)
        self._figures.add(ShardFigures.of(account, secs))

    def to_json(self) -> JsonObject:
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
            "stages": {name: stage.to_json() for name, stage in self.stages.items()},
        }

    def in_words(self) -> str:
        """`12/64 shards, 24,800 records (12,400/s), 4 dropped, 0 dead, 0:02, 0:09 left`."""
        now = self.to_json()
        eta = "" if now["eta_secs"] is None or self.all_done else f", {clock(now['eta_secs'])} left"
        return (
            f"{now['shards_done']}/{now['shards']} shards, {counted(now['records'], 'record')} "
            f"({now['records_per_sec']:,.0f}/s), {now['dropped']:,} dropped, {now['dead']:,} dead, "
            f"{clock(now['elapsed_secs'])}{eta}"
        )


class Progress(Protocol):
    """Where counts are shown. `update` may come from any thread, one at a time; `close` is the last call."""

    def update(self, counts: Counts) -> None: ...
    def close(self, counts: Counts) -> None: ...


class Silent:
    """Shows nothing."""

    def update(self, counts: Counts) -> None:
        pass

    def close(self, counts: Counts) -> None:
        pass


class WhileItCan:
    """Shows progress elsewhere, until that fails: losing a terminal or a pipe does not end a build."""

    def __init__(self, shown: Progress) -> None:
        self.shown = shown

    def update(self, counts: Counts) -> None:
        try:
            self.shown.update(counts)
        except OSError:
            self.shown = Silent()

    def close(self, counts: Counts) -> None:
        try:
            self.shown.close(counts)
        except OSError:
            self.shown = Silent()


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
        self._stream.write(f"\r\x1b[K{visible(counts.in_words())}")
        self._stream.flush()


class LogLines:
    """A line of text at each tenth of the source shards, or every 30 seconds; and one at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = time.monotonic()
        self._tenth: int | None = None

    def update(self, counts: Counts) -> None:
        tenth = LOG_LINES * counts.done_shards // max(1, counts.num_shards)
        if self._tenth is None:
            self._tenth = tenth  # earlier work is not news
        now = time.monotonic()
        if now - self._shown >= LOG_EVERY_SECS or tenth > self._tenth:
            self._shown, self._tenth = now, tenth
            if not counts.all_done:
                self._write(counts)

    def close(self, counts: Counts) -> None:
        self._write(counts)

    def _write(self, counts: Counts) -> None:
        self._stream.write(f"beam-pipes: {visible(counts.in_words())}\n")
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
        self._stream.write(strict_json(counts.to_json()) + "\n")
        self._stream.flush()


def _silent(stream: TextIO) -> Progress:
    return Silent()


def _stages(stream: TextIO) -> Progress:
    made: Progress = importlib.import_module("beam_pipes.runners.progress_views").StagesView(stream)
    return made


# Kind → its display on a stream. A display loads the libraries that it needs when it is created.
KINDS: dict[str, Callable[[TextIO], Progress]] = {
    "stages": _stages,
    "line": TerminalLine,
    "log": LogLines,
    "json": JsonLines,
    "none": _silent,
}


def progress_for(stream: TextIO | None = None, *, kind: str | None = None) -> WhileItCan:
    """The display of a build's progress: `build(declaration, "cache", progress=progress_for())`.

    By default what suits the environment: a table of stages if `stream` (default: standard error) is a terminal, and
        in a notebook with ipywidgets; a few lines of text otherwise. `kind` chooses another of `KINDS`. Raises
        `DeclarationError` for an unknown kind.
    """
    stream = sys.stderr if stream is None else stream
    chosen = _suitable_kind(stream) if kind is None else kind
    return WhileItCan(KINDS[choice(chosen, of=KINDS, what="progress")](stream))


def _suitable_kind(stream: TextIO) -> str:
    if in_notebook():  # rich redraws in a widget
        return "stages" if importlib.util.find_spec("ipywidgets") else "log"
    # A terminal that cannot move its cursor gets lines that follow each other.
    can_draw = stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    return "stages" if can_draw else "log"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def counted(number: int, noun: str) -> str:
    """`1 record`, `1,200 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def clock(secs: float) -> str:
    """`clock(75)` → `1:15`, `clock(3675)` → `1:01:15`."""
    minutes, rest = divmod(round(secs), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
