"""`beam-pipes when`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from beam_pipes.cache.checked_json import strict_json
from beam_pipes.loader import Loader, RowPlace
from beam_pipes.loader.delivery import first_known_step
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


def when_command(
    record: Annotated[str, typer.Argument(help="id of a source record, such as books/emma.txt@1024")],
    paths: Paths,
    batch_size: BatchSize,
    epochs: Annotated[
        int,
        typer.Option("--epochs", min=1, help="how many epochs to look at, from the first; not of an endless mixture"),
    ] = 1,
    last_step: Annotated[
        int | None, typer.Option("--last-step", min=0, help="up to which step to look; an endless mixture needs it")
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
    found = loader.when_record(record, epochs=epochs, last_step=last_step)
    if as_json:
        console.print_json(strict_json([dataclasses.asdict(each) for each in found]))
        return
    for each in found:
        place = f"epoch {each.epoch}, step {each.step}: host {each.host_index}, row {each.index} of its batch"
        source = f", source {each.source} ({paths[each.source]})" if len(paths) > 1 else ""
        note = f"; in the place of {each.stands_in_for}, which is taken down" if each.stands_in_for else ""
        note = "; not any more: taken down" if each.taken_down else note
        console.print(f"{place}{source}{note}", markup=False)
    console.print(_in_words(record, found, loader, epochs, last_step), markup=False)


def _in_words(record: str, found: list[RowPlace], loader: Loader, epochs: int, last_step: int | None) -> str:
    """How often, of what: `a.txt@0: delivered 3 times in epochs 0 to 2.`"""
    delivered = sum(not each.taken_down for each in found)
    if loader.steps_per_epoch is None:
        where = f"in steps {first_known_step(loader)} to {last_step}"
    else:
        where = "in epoch 0" if epochs == 1 else f"in epochs 0 to {epochs - 1}"
        where += "" if last_step is None else f" up to step {last_step}"
        where += f" from step {first_known_step(loader)} on" if first_known_step(loader) else ""
    text = f"{record}: delivered {delivered} time{'' if delivered == 1 else 's'} {where}"
    if first_known_step(loader):
        text += "; earlier steps cannot be computed, because the rates of the mixture changed there"
    if len(found) > delivered:
        text += f"; {len(found) - delivered} more before it was taken down"
    return text + "."
