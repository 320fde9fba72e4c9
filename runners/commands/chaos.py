"""`beam-pipes chaos`."""

from __future__ import annotations

from typing import Annotated

import typer

from beam_pipes.cache.checked_json import strict_json
from beam_pipes.runners.commands.tables import console
from beam_pipes.testing import check_declaration


def chaos_command(
    declaration: Annotated[str, typer.Argument(help="package.module:name of a Declaration")],
    max_records: Annotated[int, typer.Option(help="about so many records are tried")] = 256,
    beam: Annotated[bool, typer.Option("--beam", help="retry bundles on Beam's BundleBasedDirectRunner too")] = False,
    timeout_secs: Annotated[float, typer.Option(help="how long each process may take")] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Try a declaration on a sample of its input in every way that must change nothing; exits with 1 where one does.

    Example: beam-pipes chaos examples.python_source:declaration
    """
    verdict = check_declaration(declaration, max_records=max_records, beam=beam, timeout_secs=timeout_secs)
    if as_json:
        console.print_json(strict_json(verdict.to_json()))
    else:
        console.print(str(verdict), markup=False)
    if not verdict.robust:
        raise typer.Exit(1)
