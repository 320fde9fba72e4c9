"""`beam-pipes doctor-loader`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from beam_pipes.cache.checked_json import strict_json
from beam_pipes.engine.signature import brief
from beam_pipes.errors import BeamPipesError, LoaderError
from beam_pipes.identity.user_module import import_user_module
from beam_pipes.runners.commands.loader_options import (
    BatchSize,
    Exhausted,
    Last,
    Paths,
    Plan,
    Rate,
    Seed,
    ShuffleName,
    SplitName,
    make_loader,
)
from beam_pipes.runners.commands.tables import console
from beam_pipes.telemetry import diagnose_loader

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
