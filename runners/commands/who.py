"""`beam-pipes who`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer
from rich.table import Table

from beam_pipes.cache.checked_json import strict_json
from beam_pipes.runners.commands.loader_options import (
    BatchSize,
    Exhausted,
    HostCount,
    Last,
    Paths,
    Plan,
    Rate,
    Seed,
    ShuffleName,
    SplitName,
    State,
    make_loader,
)
from beam_pipes.runners.commands.tables import console


def who_command(
    paths: Paths,
    step: Annotated[int, typer.Option("--step", help="number of the training step, from 0")],
    batch_size: BatchSize,
    state: State = None,
    host_count: HostCount = 1,
    last: Last = "drop",
    plan: Plan = None,
    split: SplitName = None,
    seed: Seed = 0,
    shuffle: ShuffleName = "global",
    rate: Rate = None,
    exhausted: Exhausted = "repeat",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """List the source records of a training step, from the cache's index and the loader's state alone.

    Example: beam-pipes who .demo/python_source --split train --step 100 --batch-size 32 --seed 1
    """
    loader = make_loader(
        paths,
        state=state,
        batch_size=batch_size,
        host_count=host_count,
        last=last,
        plan=plan,
        split=split,
        seed=seed,
        shuffle=shuffle,
        rate=rate,
        exhausted=exhausted,
    )
    found = loader.who(step)
    if as_json:
        console.print_json(strict_json([dataclasses.asdict(each) for each in found]))
        return
    table = Table("host", "row", "segment", "source record", title_justify="left")
    if len(paths) > 1:
        table.add_column("source")
    for heading in ("split", "record", "note"):
        table.add_column(heading)
    for each in found:
        note = ""
        if each.taken_down:
            note = f"taken down; in its place: {each.stands_in}" if each.stands_in else "taken down; left out"
        segment = "" if each.segment is None else str(each.segment)
        source = [str(each.source)] if len(paths) > 1 else []
        where = [str(each.host_index), str(each.index), segment, each.record_id, *source, each.split, str(each.record)]
        table.add_row(*where, note)
    console.print(table)
    for number, path in enumerate(paths if len(paths) > 1 else []):
        console.print(f"source {number}: {path}", markup=False)
    rows = len({each.position for each in found})
    epoch = f"epoch {found[0].epoch}" if found else "no epoch"
    gone = sum(each.taken_down for each in found)
    taken_down = f", {gone} of them taken down" if gone else ""
    console.print(f"step {step} ({epoch}): {len(found)} records in {rows} rows{taken_down}.")
