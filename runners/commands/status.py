"""`beam-pipes status`."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from beam_pipes.building.status import Status, read_status
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.runners.commands.tables import account_table, console
from beam_pipes.runners.terminal import Terminal


def status_command(
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    watch: Annotated[bool, typer.Option("--watch", help="show it anew until nobody builds any more")] = False,
    every_secs: Annotated[float, typer.Option("--every-secs", min=0.1, help="with --watch: how often to look")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Say, from the files alone, what is published and what a build is doing or has left unfinished.

    Example: beam-pipes status .demo/python_source
    """
    status = read_status(path)
    if as_json:
        console.print_json(strict_json(status.to_json()))
    elif not watch:
        console.print(status_view(status))
    else:
        wrapping = Terminal(highlight=False, emoji=False, markup=False)  # what is drawn anew has to know its own height
        with Live(status_view(status), console=wrapping, auto_refresh=False) as live:
            while status.builder is not None:
                time.sleep(every_secs)
                status = read_status(path)
                live.update(status_view(status), refresh=True)


def status_view(status: Status) -> RenderableType:
    """A status as a terminal shows it: in words, and for an unfinished build a bar and its stages."""
    parts: list[RenderableType] = [Text(str(status))]
    progress = status.progress
    if progress is not None:
        parts.append(Padding(ProgressBar(total=progress.shards, completed=progress.shards_done, width=40)))
        if progress.account.units:
            parts.append(account_table(progress.account))
    return Group(*parts)
