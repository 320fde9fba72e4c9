"""`beam-pipes when`."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from runners.commands.loader_options import (
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
from runners.commands.tables import console


def when_command(
    record: Annotated[str, typer.Argument(help="id of a source record, such as books/emma.txt@1024")],
    paths: Paths,
    batch_size: BatchSize,
    epochs: Annotated[int, typer.Option("--epochs", help="how many epochs to look at, from the first")] = 1,
    last_step: Annotated[
        int | None, typer.Option("--last-step", help="up to which step, of a mixture without end")
    ] = None,
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
    """List the training steps at which a source record is delivered: the inverse of `who`.

    Example: beam-pipes when abc.py@0 .demo/python_source --split train --batch-size 32 --seed 1 --epochs 3
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
    first = loader.epoch if loader.steps_per_epoch is None else 0
    found = loader.when_record(record, first_epoch=first, epochs=epochs, last_step=last_step)
    if as_json:
        console.print_json(json.dumps([dataclasses.asdict(each) for each in found]))
        return
    for each in found:
        console.print(
            f"epoch {each.epoch}, step {each.step}: host {each.host_index}, row {each.index} of its batch", markup=False
        )
    console.print(f"{record}: delivered {len(found)} times.", markup=False)
