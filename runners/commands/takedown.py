"""`beam-pipes takedown`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from beam_pipes.cache.checked_json import strict_json
from beam_pipes.errors import DeclarationError
from beam_pipes.offline.takedown import TakedownReport, resolve_takedowns, take_down, takedowns_at, undo_takedown
from runners.commands.tables import console


def takedown_command(
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    ids: Annotated[
        Path | None, typer.Argument(help="file with one id a line: file@position, or a file for all of its records")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="why, for the audit record")] = "",
    by: Annotated[str | None, typer.Option("--by", help="who, for the audit record [the user's name]")] = None,
    listing: Annotated[bool, typer.Option("--list", help="list the takedowns; change nothing")] = False,
    undo: Annotated[int | None, typer.Option("--undo", help="number of a takedown to take back")] = None,
    resolve: Annotated[bool, typer.Option("--resolve", help="look up the rows of all snapshots again")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Hide source records from every reader at once, without a build. Their bytes stay on disk: see docs/takedown.md.

    Example: beam-pipes takedown .demo/python_source ids.txt --reason "request 4711"
    """
    if sum([ids is not None, listing, undo is not None, resolve]) != 1:
        raise DeclarationError("give a file of ids, or one of --list, --undo NUMBER, --resolve.")
    if listing:
        _print_list(path, as_json=as_json)
        return
    if undo is not None:
        report = undo_takedown(path, undo, by=by)
    elif resolve:
        report = resolve_takedowns(path)
    else:
        assert ids is not None
        report = take_down(path, read_ids(ids), reason=reason, by=by)
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
    for snapshot, splits in report.removed_rows.items():
        rows = ", ".join(f"{split} {count:,}" for split, count in splits.items()) or "none"
        lines.append(f"snapshot {snapshot}: rows removed now: {rows}")
    lines += [f"matches nothing: {each}" for each in report.unmatched]
    lines += [f"snapshot {each} was built without lineage and is not read any more" for each in report.unresolved]
    return lines


def _print_list(path: str, *, as_json: bool) -> None:
    overlay = takedowns_at(path)
    if as_json:
        console.print_json(strict_json([takedown.to_json() for takedown in overlay.takedowns]))
        return
    for takedown in overlay.takedowns:
        undone = f"; undone {takedown.undone}" if takedown.undone else ""
        console.print(
            f"{takedown.number}: {takedown.at}, by {takedown.by}: {len(takedown.ids):,} ids"
            f"{f', {takedown.reason}' if takedown.reason else ''}{undone}",
            markup=False,
        )
    console.print(f"{len(overlay.in_force)} of {len(overlay.takedowns)} takedowns are in force.")
