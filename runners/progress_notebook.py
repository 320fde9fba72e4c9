"""Progress in a notebook: a bar, and a table of the stages, in one output that is replaced; no widgets."""

from __future__ import annotations

import html
import importlib
import time
from typing import Any

from beam_pipes.runners.progress import Counts

# A notebook keeps every replacement until it is shown.
SHOW_EVERY_SECS = 0.5


class NotebookView:
    """Shows itself in the output of the cell that runs the build; what was seen last stays, and is saved with it."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = 0.0

    def update(self, counts: Counts) -> None:
        now = time.monotonic()
        if now - self._shown >= SHOW_EVERY_SECS:
            self._shown = now
            self.close(counts)

    def close(self, counts: Counts) -> None:
        display = importlib.import_module("IPython.display")
        page = display.HTML(progress_html(counts))
        if self._handle is None:
            self._handle = display.display(page, display_id=True)
        else:
            self._handle.update(page)


def progress_html(counts: Counts) -> str:
    """A `<progress>` bar, the words, and the table of stages; names are escaped."""
    whole = sum(stage.secs for stage in counts.stages.values())
    columns = ["stage", "in", "out", "dropped", "dead", *(["in/s", "time"] if whole else [])]
    head = "".join(f"<th scope='col'>{name}</th>" for name in columns)
    rows = []
    for name, stage in counts.stages.items():
        cells = [f"{count:,}" for count in (stage.inputs, stage.outputs, stage.dropped, stage.dead)]
        if whole:
            rate = f"{stage.inputs / stage.secs:,.0f}" if stage.secs and stage.inputs else "–"
            cells += [rate, f"{stage.secs / whole:.0%}"]
        values = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f"<tr><th scope='row'>{html.escape(name)}</th>{values}</tr>")
    return (
        f"<div><progress max='{max(1, counts.num_shards)}' value='{counts.done_shards}' "
        f"aria-label='source shards that are done'></progress><p>{html.escape(counts.in_words())}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
