"""`beam-pipes verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from beam_pipes.cache import Cache
from runners.commands.tables import console


def verify_command(path: Annotated[str, typer.Argument(help="directory of a cache")]) -> None:
    """Check every byte of a cache against its checksums; exits with 1 and names every problem.

    Example: beam-pipes verify .demo/python_source
    """
    report = Cache.open(path).verify()
    for problem in report.problems:
        console.print(str(problem), markup=False)
    found = f"{len(report.problems)} problems" if report.problems else "no problem"
    console.print(f"{report.records:,} records in {report.shards} shards, {report.bytes:,} bytes read: {found}.")
    if report.problems:
        raise typer.Exit(1)
