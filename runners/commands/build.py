"""`beam-pipes build`."""

from __future__ import annotations

from typing import Annotated

import typer

from beam_pipes.errors import DeclarationError
from runners.build import build
from runners.commands.tables import account_table, console
from runners.options import BeamOptions, LocalOptions
from runners.progress import progress_for

RUNNERS = ("local", "direct")


def options_for(runner: str, *, workers: int | None, beam_args: list[str]) -> LocalOptions | BeamOptions:
    """The options object of a runner, by its name on the command line."""
    if runner not in RUNNERS:
        raise DeclarationError(f"unknown runner {runner!r}; choose one of: {', '.join(RUNNERS)}.")
    if runner == "local":
        if beam_args:
            raise DeclarationError(
                f"options after -- go to Beam, which the local runner does not use: {' '.join(beam_args)}. "
                "Choose --runner direct, or leave them out."
            )
        return LocalOptions(workers=workers)
    if workers is not None:
        raise DeclarationError(f"--workers belongs to --runner local; {runner!r} takes Beam's options after --.")
    return BeamOptions(runner="DirectRunner", beam_args=tuple(beam_args))


def build_command(
    context: typer.Context,
    declaration: Annotated[str, typer.Argument(help="package.module:name of a Declaration")],
    to: Annotated[str, typer.Option("--to", help="directory of the cache")],
    runner: Annotated[str, typer.Option(help=f"who runs it: {', '.join(RUNNERS)}")] = "local",
    workers: Annotated[int | None, typer.Option(help="worker processes of the local runner [all cores]")] = None,
    accept_code_change: Annotated[
        bool, typer.Option("--accept-code-change", help="build although a stage's code changed and its version did not")
    ] = False,
) -> None:
    """Build a cache, or go on where an interrupted build stopped. Options after -- go to Beam.

    Example: beam-pipes build examples.python_source:declaration --to .demo/python_source
    """
    options = options_for(runner, workers=workers, beam_args=context.obj or [])
    result = build(declaration, to, options=options, progress=progress_for(), accept_code_change=accept_code_change)
    if result.up_to_date:
        console.print(f"{result.path} is up to date (snapshot {result.snapshot}): nothing to do.")
        return
    account = result.account
    console.print(account_table(account))
    rate = account.read / result.secs if result.secs else 0.0
    reused = f", {result.reused_shards} of them reused" if result.reused_shards else ""
    console.print(
        f"{account.read:,} records read, {account.written:,} written, {account.dropped:,} dropped, "
        f"{account.dead:,} dead letters; {result.num_shards} source shards{reused}; {result.secs:.1f} s "
        f"({rate:,.0f} records/s)."
    )
    console.print(f"The cache lies in {result.path} (snapshot {result.snapshot}).")
