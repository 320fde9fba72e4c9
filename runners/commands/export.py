"""`beam-pipes export`."""

from __future__ import annotations

from typing import Annotated

import typer

from beam_pipes.export import FORMATS, export
from beam_pipes.runners.commands.tables import console


def export_command(
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    to: Annotated[str, typer.Option("--to", help="directory to write; it must not be there yet")],
    format: Annotated[str, typer.Option("--format", help=f"one of: {', '.join(sorted(FORMATS))}")],
) -> None:
    """Write a cache in the format of another system.

    Example: beam-pipes export .demo/python_source --format parquet --to python_source-parquet
    """
    console.print(export(path, to, format=format), markup=False)
