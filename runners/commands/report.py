"""`beam-pipes report`."""

from __future__ import annotations

from typing import Annotated

import typer

from beam_pipes.building.reference import load_declaration
from beam_pipes.cache.storage import directory_path
from beam_pipes.errors import BeamPipesError, DeclarationError
from beam_pipes.report import cache_directories, write_overview, write_report
from beam_pipes.runners.commands.tables import console


def report_command(
    path: Annotated[str, typer.Argument(help="directory of a cache, or of caches")],
    to: Annotated[str | None, typer.Option("--to", help="file to write [report.html beside the snapshot]")] = None,
    against: Annotated[str | None, typer.Option(help="snapshot to compare with [the previous one]")] = None,
    declaration: Annotated[
        str | None,
        typer.Option(help="package.module:name: show source records beside the examples; reads the input, runs stages"),
    ] = None,
) -> None:
    """Write one self-contained page about a cache: graph, counts, statistics, lengths, examples, timing, changes.

    For a directory of caches: the page of each, and one that leads to them.

    Example: beam-pipes report .demo/python_source --to report.html
    """
    directories = cache_directories(path)
    if not directories or directories == [directory_path(path)]:
        resolved = None if declaration is None else load_declaration(declaration)
        console.print(write_report(path, to=to, against=against, declaration=resolved), markup=False)
        return
    if against is not None or declaration is not None:
        raise DeclarationError(
            f"--against and --declaration belong to the report of one cache, and {path} holds {len(directories)}: "
            f"{', '.join(directories[:3])}{'…' if len(directories) > 3 else ''}. Name one of them."
        )
    for directory in directories:
        try:
            write_report(directory)
        except (BeamPipesError, OSError) as error:  # the overview names what cannot be read
            console.print(f"No report was written for {directory}: {error}", markup=False)
    console.print(write_overview(path, to=to), markup=False)
