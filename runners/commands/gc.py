"""`beam-pipes gc`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from beam_pipes.building.leftovers import collect
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.runners.commands.tables import console


def gc_command(
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    keep: Annotated[int, typer.Option("--keep", help="most recent snapshots to keep besides the published one")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be removed, remove nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Remove old and unfinished snapshots, and what dead builds have left; never while a build is writing there.

    Example: beam-pipes gc .demo/python_source --keep 0
    """
    collected = collect(path, keep=keep, dry_run=dry_run)
    if as_json:
        console.print_json(strict_json(dataclasses.asdict(collected)))
        return
    for snapshot in collected.removed:
        console.print(f"snapshot {snapshot}: {'would be removed' if dry_run else 'removed'}.", markup=False)
    if collected.unused:
        removed = "would be removed" if dry_run else "removed"
        console.print(f"{collected.unused} results and accumulators of analyzers: {removed}.")
    kept = ", ".join(filter(None, [collected.published and f"{collected.published} (published)", *collected.kept]))
    console.print(f"{collected.bytes:,} bytes {'to be ' if dry_run else ''}freed; kept: {kept or 'nothing'}.")
