"""`beam-pipes replay-dead`."""

from __future__ import annotations

from typing import Annotated

import typer

from beam_pipes.runners.commands.tables import console
from beam_pipes.runners.options import LocalOptions
from beam_pipes.runners.progress import progress_for
from beam_pipes.runners.replay import replay_dead
from beam_pipes.sources.repaired import read_repairs


def replay_dead_command(
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    declaration: Annotated[str, typer.Argument(help="package.module:name of its Declaration, as it is now")],
    to: Annotated[str | None, typer.Option("--to", help="directory for the result [the same]")] = None,
    repairs: Annotated[
        str | None, typer.Option("--repairs", help="file of repaired records, exported by beam-pipes dead --export")
    ] = None,
    accept_code_change: Annotated[
        bool,
        typer.Option(
            "--accept-code-change", help="the stages that changed give the same as before for all other records"
        ),
    ] = False,
    workers: Annotated[int | None, typer.Option(help="worker processes [all cores]")] = None,
) -> None:
    """Run the dead letters of a cache again, and publish what a build of the repaired declaration would give.

    Example: beam-pipes replay-dead .demo/python_source examples.python_source:declaration --accept-code-change
    """
    result = replay_dead(
        declaration,
        path,
        to=to,
        repairs=None if repairs is None else read_repairs(repairs),
        accept_code_change=accept_code_change,
        options=LocalOptions(workers=workers),
        progress=progress_for(),
    )
    if result.up_to_date:
        console.print(f"{result.path} is up to date (snapshot {result.snapshot}), with {result.dead:,} dead letters.")
        return
    console.print(
        f"{result.replayed:,} dead letters run again in {result.replayed_shards} source shards, "
        f"{result.rebuilt_shards} built anew, {result.kept_shards} kept; {result.dead:,} dead letters are left; "
        f"{result.secs:.1f} s."
    )
    console.print(f"The cache lies in {result.path} (snapshot {result.snapshot}).")
