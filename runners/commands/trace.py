"""`beam-pipes trace`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from beam_pipes.building.care.trace import RecordTrace, StageTrace, trace_record
from beam_pipes.building.reference import load_declaration
from beam_pipes.runners.commands.tables import console, statistics_text

_WIDTH = 120
_SHOWN = 5


def trace_command(
    record: Annotated[str, typer.Argument(help="id of a source record, such as books/emma.txt@1024")],
    declaration: Annotated[str, typer.Argument(help="package.module:name of a Declaration")],
    cache: Annotated[
        str | None,
        typer.Option("--cache", help="the declaration's cache: results of its analyzers, digests of its input"),
    ] = None,
) -> None:
    """Run one source record through a declaration and show what each stage takes, gives, drops, counts and raises.

    Example: beam-pipes trace abc.py@0 examples.python_source:declaration
    """
    print_trace(trace_record(load_declaration(declaration), record, cache=cache))


def print_trace(trace: RecordTrace) -> None:
    """The trace as a table, and the traceback of what failed."""
    console.print(f"{trace.record_id}: {len(trace.raw):,} bytes: {short(trace.raw)}", markup=False)
    table = Table("stage", "in", "out", "dropped", "statistics", title_justify="left", show_lines=True)
    for stage in trace.stages:
        table.add_row(*_cells(stage))
    console.print(table)
    failure = trace.failure
    if failure is not None:
        console.print(f"failed in {failure.stage}: {failure.error_type}: {failure.message}", markup=False)
        console.print(failure.traceback, markup=False)
    for split, payloads in trace.written.items():
        console.print(f"{split}: {len(payloads)} records, {sum(map(len, payloads)):,} bytes", markup=False)


def short(value: Any) -> str:
    """`repr` of a value, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _cells(stage: StageTrace) -> tuple[str, ...]:
    if not stage.reached:
        return stage.name, "nothing is left", "", "", ""
    outputs = f"{stage.failure.error_type}" if stage.failure is not None else _values(stage.outputs)
    return stage.name, _values(stage.inputs), outputs, ", ".join(stage.drops), statistics_text(stage.statistics)


def _values(columns: Any) -> str:
    lines = []
    for name, values in columns.items():
        prefix = "" if name is None else f"{name}: "
        lines += [f"{prefix}{short(value)}" for value in values[:_SHOWN]]
        if len(values) > _SHOWN:
            lines.append(f"{prefix}… {len(values)} in all")
        elif not values:
            lines.append(f"{prefix}nothing")
    return "\n".join(lines)
