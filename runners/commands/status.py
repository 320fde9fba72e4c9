"""`beam-pipes status`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from beam_pipes.offline.status import read_status
from runners.commands.tables import console


def status_command(
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Say, from the files alone, what is published and what a build is doing or has left unfinished.

    Example: beam-pipes status .demo/python_source
    """
    status = read_status(path)
    if as_json:
        console.print_json(json.dumps(status.to_json()))
    else:
        console.print(str(status), markup=False)
