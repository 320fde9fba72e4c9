"""Commands about loading: `who`, `when` and `doctor-loader`."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from beam_pipes.cache.checked_json import strict_json
from beam_pipes.engine.graph import brief
from beam_pipes.errors import BeamPipesError, LoaderError
from beam_pipes.identity.source_code import import_user_module
from beam_pipes.loader import Loader, RowPlace
from beam_pipes.loader.loader import first_known_step
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
from beam_pipes.runners.commands.stats import console
from beam_pipes.telemetry import diagnose_loader


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


FRAMEWORKS = {"jax": "JaxDataLoader", "torch": "TorchDataLoader", "numpy": "NumpyDataLoader"}


def doctor_loader_command(
    paths: Paths,
    batch_size: BatchSize = 32,
    step_ms: Annotated[
        float | None, typer.Option("--step-ms", help="what a training step takes, without input")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help=f"convert batches: {', '.join(FRAMEWORKS)}")] = None,
    prefetch: Annotated[int, typer.Option("--prefetch", help="with --to: batches kept ready on the device")] = 0,
    workers: Annotated[int, typer.Option("--workers", help="threads that make batches ahead")] = 0,
    transform: Annotated[str | None, typer.Option("--transform", help="package.module:function of a batch")] = None,
    batches: Annotated[int, typer.Option("--batches", help="batches to measure")] = 20,
    last: Last = "drop",
    plan: Plan = None,
    split: SplitName = None,
    seed: Seed = 0,
    shuffle: ShuffleName = "global",
    rate: Rate = None,
    exhausted: Exhausted = "repeat",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Say in one line whether training from a cache would be input-bound, and which stage of loading costs most.

    Example: beam-pipes doctor-loader .demo/python_source --split train --batch-size 32 --step-ms 20
    """
    loader: Any = make_loader(
        paths,
        state=None,
        batch_size=batch_size,
        host_count=1,
        last=last,
        plan=plan,
        split=split,
        seed=seed,
        shuffle=shuffle,
        rate=rate,
        exhausted=exhausted,
        workers=workers,
        transform=None if transform is None else _function(transform),
    )
    if to is not None:
        loader = _converted(loader, to, prefetch)
    elif prefetch:
        raise LoaderError("--prefetch keeps batches ready on a device: choose one with --to, or take --workers.")
    found = diagnose_loader(loader, step_ms=step_ms, batches=batches)
    if as_json:
        console.print_json(strict_json(found.to_json()))
    else:
        console.print(str(found), markup=False)


def _converted(loader: Any, to: str, prefetch: int) -> Any:
    if to not in FRAMEWORKS:
        raise LoaderError(f"unknown framework --to {to}; choose one of: {', '.join(FRAMEWORKS)}.")
    made = getattr(importlib.import_module("beam_pipes.on_device"), FRAMEWORKS[to])(loader)
    if not prefetch:
        return made
    if to == "numpy":
        raise LoaderError("--prefetch goes with --to jax or torch; batches of NumPy are made ahead with --workers.")
    return made.prefetch_to_devices(prefetch)


def _function(reference: str) -> Callable[..., Any]:
    name, colon, attribute = reference.partition(":")
    function = getattr(import_user_module(name, reference=reference), attribute, None) if colon and name else None
    if not callable(function):
        raise LoaderError(f"expected --transform to name a function as package.module:function, got {reference!r}.")

    def transformed(batch: Any) -> Any:
        try:
            made = function(batch)
        except BeamPipesError:
            raise
        except Exception as error:
            raise LoaderError(
                f"--transform {reference} fails on a batch of {len(next(iter(batch.values()), ()))} rows: "
                f"{type(error).__name__}: {error}. It should take a dict of arrays, also one without rows, and "
                "return one."
            ) from error
        if not isinstance(made, Mapping):
            raise LoaderError(f"--transform {reference} should return a dict of arrays, got {brief(made)}.")
        return made

    return transformed
