"""Commands about single records: `trace`, `why` and `takedown`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.table import Table

from beam_pipes.building.care.takedown import (
    TakedownReport,
    learned_line,
    mark_gone,
    resolve_takedowns,
    states_of_takedowns,
    take_down,
    undo_takedown,
)
from beam_pipes.building.care.taken_down_records import SHOWN, TakedownState
from beam_pipes.building.care.trace import RecordReport, RecordTrace, StageTrace, explain_record, trace_record
from beam_pipes.building.declaration import load_declaration
from beam_pipes.cache import Cache
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.commands.stats import console, statistics_text
from beam_pipes.transforms.dedup import Duplicate, cache_duplicates
from beam_pipes.transforms.dedup.duplicates import Kind

_WIDTH = 120
_SHOWN = 5


def trace_command(
    record: Annotated[str, typer.Argument(help="id of a source record, such as books/emma.txt@1024")],
    declaration: Annotated[str, typer.Argument(help="package.module:name of a Declaration")],
    cache: Annotated[
        str | None,
        typer.Option("--cache", help="the declaration's cache, for analyzer results and input digests"),
    ] = None,
) -> None:
    """Run one source record through a declaration; show each stage's input, output, drops, counts and errors.

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


def why_command(
    record: Annotated[str, typer.Argument(help="id of a source record, such as books/emma.txt@1024")],
    path: Annotated[str, typer.Argument(help="cache directory")],
    declaration: Annotated[
        str | None, typer.Argument(help="package.module:name of a Declaration to rerun the record through")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show whether a source record was written (and where), dropped (and why) or became a dead letter.

    Example: beam-pipes why abc.py@0 .demo/python_source
    """
    report = explain_record(path, record)
    if as_json:
        console.print_json(strict_json(report.to_json()))
        return
    for line in report_lines(report):
        console.print(line, markup=False)
    for each in _duplicates(path, report):
        console.print(f"  {each.reason} of {each.kept} (similarity {each.similarity:.2f})", markup=False)
    if declaration is not None:
        print_trace(trace_record(load_declaration(declaration), record, cache=path))


def _duplicates(path: str, report: RecordReport) -> list[Duplicate]:
    """What the record is a duplicate of, where that is why it was dropped."""
    reasons = {reason.rpartition("/")[2] for _, reason in report.fate.drops}
    if not reasons & {f"{kind} duplicate" for kind in get_args(Kind)}:
        return []
    results = cache_duplicates(Cache.open(path)).values()
    return [found for each in results if each.reason in reasons and (found := each.find(report.record_id))]


def report_lines(report: RecordReport) -> list[str]:
    """The report in words."""
    where = f"record {report.ordinal} of source shard {report.source_shard}, snapshot {report.snapshot}"
    lines = [f"{report.record_id}: {report.status} ({where})"]
    for stage, reason in report.fate.drops:
        lines.append(f"  dropped by {stage}: {reason}")
    if report.status == "dead":
        letter = report.dead_letter
        lines.append(f"  failed in {report.fate.stage}: {report.fate.error}{f': {letter.message}' if letter else ''}")
        lines += [f"    {line}" for line in letter.traceback.splitlines()] if letter else []
    for row in report.rows:
        taken_down = " (taken down)" if row.taken_down else ""
        lines.append(f"  {row.split}[{row.row}]: {row.shard}, record {row.position}{taken_down}")
    return lines


_BY_POSITION = (
    "built by a version that kept no digests of records, so ids are looked up where they stood. Build again to follow "
    "records by their content."
)


def takedown_command(
    path: Annotated[str, typer.Argument(help="cache directory")],
    ids: Annotated[
        Path | None, typer.Argument(help="file with one id per line: file@position, or a file name for all its records")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="reason to store in the audit record")] = "",
    by: Annotated[str | None, typer.Option("--by", help="name to store in the audit record [the user's name]")] = None,
    next_build: Annotated[
        bool, typer.Option("--next", help="ids refer to the current input; apply them in the next build")
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="list takedowns and what each hides now, without changes")
    ] = False,
    undo: Annotated[int | None, typer.Option("--undo", help="number of the takedown to undo")] = None,
    gone: Annotated[
        int | None, typer.Option("--gone", help="number of the takedown whose records may be missing from the input")
    ] = None,
    resolve: Annotated[bool, typer.Option("--resolve", help="recompute the hidden rows of all snapshots")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Hide source records from every reader at once, without a build. Their bytes stay on disk: see docs/takedown.md.

    Example: beam-pipes takedown .demo/python_source ids.txt --reason "request 4711"
    """
    if sum([ids is not None, listing, undo is not None, gone is not None, resolve]) != 1:
        raise DeclarationError("give a file of ids, or one of --list, --undo NUMBER, --gone NUMBER, --resolve.")
    if next_build and ids is None:
        raise DeclarationError("--next says what the ids in a file mean: give the file too.")
    if listing:
        _print_list(path, as_json=as_json)
        return
    if undo is not None:
        report = undo_takedown(path, undo, by=by)
    elif gone is not None:
        report = mark_gone(path, gone, by=by)
    elif resolve:
        report = resolve_takedowns(path)
    else:
        assert ids is not None
        report = take_down(path, read_ids(ids), reason=reason, by=by, next_build=next_build)
    if as_json:
        console.print_json(strict_json(report.to_json()))
        return
    for line in _lines(report):
        console.print(line, markup=False)


def read_ids(file: Path) -> list[str]:
    """The ids in a file, one a line; empty lines and those that begin with `#` are left out."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(
            f"expected a text file with one record id a line, and {file} is none: {error}"
        ) from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _lines(report: TakedownReport) -> list[str]:
    lines = [f"{report.action} {report.number or ''}".strip() + f" (revision {report.revision}):"]
    if report.ids:
        lines[0] += f" {len(report.ids):,} ids, {report.matched_records:,} source records matched."
    if report.equal_records:
        lines.append(f"{report.equal_records:,} other source records have the same content and are hidden too.")
    for snapshot, splits in report.removed_rows.items():
        rows = ", ".join(f"{split} {count:,}" for split, count in splits.items()) or "none"
        lines.append(f"snapshot {snapshot}: rows removed now: {rows}")
    lines += [f"matches nothing yet: {each}" for each in report.unmatched]
    lines += [f"snapshot {each} was built without lineage and is not read any more" for each in report.unresolved]
    lines += [f"snapshot {each}: {_BY_POSITION}" for each in report.by_position]
    lines += [learned_line(snapshot, assets) for snapshot, assets in report.learned.items()]
    return lines


def _print_list(path: str, *, as_json: bool) -> None:
    states = states_of_takedowns(path)
    if as_json:
        console.print_json(strict_json([state.to_json() for state in states]))
        return
    for state in states:
        for line in _lines_of_state(state):
            console.print(line, markup=False)
    in_force = [state for state in states if state.takedown.undone is None]
    failing = sum(bool(state.pending or state.missing) and state.takedown.gone is None for state in in_force)
    incomplete = f"; {failing} of them did not find all of their records" if failing else ""
    console.print(f"{len(in_force)} of {len(states)} takedowns are in force{incomplete}.")


def _lines_of_state(state: TakedownState) -> list[str]:
    takedown = state.takedown
    reason = f", {takedown.reason}" if takedown.reason else ""
    head = f"{takedown.number}: {takedown.at}, by {takedown.by}: {len(takedown.ids):,} ids{reason}"
    if takedown.undone is not None:
        return [f"{head}; undone {takedown.undone}"]
    lines = [f"{head}; hides {state.records:,} source records of what is published"]
    if state.by_position:
        lines.append(f"  {_BY_POSITION}")
    lines += [f"  the content of {each} is at {', '.join(at)}" for each, at in list(state.followed.items())[:SHOWN]]
    if len(state.followed) > SHOWN:
        lines.append(f"  and of {len(state.followed) - SHOWN:,} more ids elsewhere")
    noted = f", noted as gone {takedown.gone}" if takedown.gone is not None else ""
    for each, count in list(state.missing.items())[:SHOWN]:
        lines.append(f"  not found: {each} ({count:,} records{noted})")
    if len(state.missing) > SHOWN:
        lines.append(f"  not found: {len(state.missing) - SHOWN:,} more ids")
    waits = "matches nothing yet" if takedown.gone is None else f"never matched anything{noted}"
    lines += [f"  {waits}: {each}" for each in state.pending[:SHOWN]]
    if len(state.pending) > SHOWN:
        lines.append(f"  {waits}: {len(state.pending) - SHOWN:,} more ids")
    return lines
