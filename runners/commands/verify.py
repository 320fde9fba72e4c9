"""`beam-pipes verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from beam_pipes.cache import Cache
from beam_pipes.runners.commands.tables import console


def verify_command(path: Annotated[str, typer.Argument(help="directory of a cache")]) -> None:
    """Check every byte of a cache against its checksums; exits with 1 and names every problem.

    Example: beam-pipes verify .demo/python_source
    """
    cache = Cache.open(path)
    report = cache.verify()
    for problem in report.problems:
        console.print(str(problem), markup=False)
    found = f"{len(report.problems)} problems" if report.problems else "no problem"
    console.print(f"{report.records:,} records in {report.shards} shards, {report.bytes:,} bytes read: {found}.")
    removed = {name: len(cache[name].removed_rows) for name in cache.splits}
    if any(removed.values()):
        rows = ", ".join(f"{name} {count:,}" for name, count in removed.items() if count)
        console.print(
            f"Taken down, and hidden by every reader of beam-pipes: {rows}. Their bytes are still in the shards, where "
            "any other reader of TFRecords sees them; a build without these records in its input removes them."
        )
    if report.problems:
        raise typer.Exit(1)
