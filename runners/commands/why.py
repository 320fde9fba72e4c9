"""`beam-pipes why`."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from beam_pipes.building.care.trace import trace_record
from beam_pipes.building.care.why import RecordReport, explain_record
from beam_pipes.building.reference import load_declaration
from beam_pipes.cache import Cache
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.runners.commands.tables import console
from beam_pipes.runners.commands.trace import print_trace
from beam_pipes.transforms.dedup import Duplicate, cache_duplicates
from beam_pipes.transforms.dedup.duplicates import Kind


def why_command(
    record: Annotated[str, typer.Argument(help="id of a source record, such as books/emma.txt@1024")],
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    declaration: Annotated[
        str | None, typer.Argument(help="package.module:name of a Declaration, to run the record through it again")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Say what became of a source record: written where, dropped by which stage and why, or a dead letter.

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
