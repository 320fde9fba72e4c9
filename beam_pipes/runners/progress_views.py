"""Progress on a terminal, or in a notebook with ipywidgets: a bar, and a table of the stages, redrawn in place."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from beam_pipes.errors import OutputError, visible
from beam_pipes.runners.progress import Counts

# Drawing costs about 3 ms, so 1.5 % of a core.
DRAW_EVERY_SECS = 0.2

_BAR_WIDTH = 40
_SHARE_WIDTH = 10
# Lines besides the rows of stages: words, bar, frame and head of the table, what is left out, and one below all.
_OTHER_LINES = 8


class StagesView:
    """A bar and a table of the stages. When all shards are done, one line of it remains; else the last state.

    Lines that others print to standard error appear above it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = Terminal(file=stream, highlight=False, emoji=False)
        self._live: Live | None = None
        self._shown = 0.0

    def update(self, counts: Counts) -> None:
        now = time.monotonic()
        if now - self._shown >= DRAW_EVERY_SECS:
            self._shown = now
            self._draw(counts)

    def close(self, counts: Counts) -> None:
        if self._live is None and not counts.all_done:
            return  # it ended before there was anything to see
        live = self._draw(counts)
        live.transient = counts.all_done
        live.stop()
        if counts.all_done:
            self._console.print(counts.in_words(), soft_wrap=True, markup=False)

    def _draw(self, counts: Counts) -> Live:
        if self._live is None:
            # Standard output goes through the view only if it would write into it.
            self._live = Live(
                console=self._console, auto_refresh=False, redirect_stdout=sys.stdout.isatty(), redirect_stderr=True
            )
            self._live.start()
            self._console.show_cursor(True)  # a killed build leaves the terminal as it should be
        self._live.update(stages_view(counts, most_lines=self._console.height), refresh=True)
        return self._live


def stages_view(counts: Counts, *, most_lines: int) -> RenderableType:
    """The words, a bar of shards and the table of stages, in at most `most_lines` lines of a terminal that is wide."""
    bar = ProgressBar(total=max(1, counts.num_shards), completed=counts.done_shards, width=_BAR_WIDTH)
    return Group(
        Text(counts.in_words()), Padding(bar), *stages_table(counts, most_rows=max(3, most_lines - _OTHER_LINES))
    )


def stages_table(counts: Counts, *, most_rows: int) -> list[RenderableType]:
    """stage | in | out | dropped | dead | in/s | time, and a note about the rows beyond `most_rows`.

    `in/s` is inputs in a second of the stage's own time on one worker, `time` its share of the time of all stages; a
    runner that reports no times has neither.
    """
    whole = sum(stage.secs for stage in counts.stages.values())
    table = Table("stage")
    for heading in ("in", "out", "dropped", "dead"):
        table.add_column(heading, justify="right")
    if whole:
        table.add_column("in/s", justify="right")
        table.add_column("time", justify="right")
        table.add_column("")
    shown = list(counts.stages)
    if len(shown) > most_rows:
        costly = sorted(shown, key=lambda name: -counts.stages[name].secs)[:most_rows]
        shown = [name for name in shown if name in costly]
    for name in shown:
        stage = counts.stages[name]
        cells: list[RenderableType] = [escape(name), f"{stage.inputs:,}", f"{stage.outputs:,}", f"{stage.dropped:,}"]
        cells.append(Text(f"{stage.dead:,}", style="bold red" if stage.dead else ""))
        if whole:
            share = stage.secs / whole
            cells += [
                f"{stage.inputs / stage.secs:,.0f}" if stage.secs and stage.inputs else "–",
                f"{share:.0%}",
                ProgressBar(total=1.0, completed=share, width=_SHARE_WIDTH),
            ]
        table.add_row(*cells)
    left_out = len(counts.stages) - len(shown)
    return [table, Text(f"{left_out} more stages, each faster.")] if left_out else [table]


class Terminal(Console):
    """The output of commands. Text from data never controls the terminal.

    Raises `BrokenPipeError` if the reader is gone; rich's own console would exit the process.
    """

    def on_broken_pipe(self) -> None:
        raise  # the error that is being handled

    def print(self, *objects: Any, **options: Any) -> None:
        try:
            super().print(*objects, **options)
        except BrokenPipeError:
            raise
        except OSError as error:  # a full disk behind `> file`
            raise OutputError(
                f"what this command prints cannot be written to its output: {error.strerror or error}. Free some "
                "space, or redirect it to another place; apart from that the command did what it does.",
                errno=error.errno,
            ) from error

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Texts with their control characters escaped: names and messages come from data, which is not trusted."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
