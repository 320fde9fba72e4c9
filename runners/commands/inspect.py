"""`beam-pipes inspect`."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import numpy as np
import typer

from beam_pipes.cache import Cache
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.commands.inspect_task import show_task
from beam_pipes.runners.commands.tables import console
from beam_pipes.runners.commands.task_options import MODULES_HELP


def inspect_command(
    path: Annotated[str | None, typer.Argument(help="directory of a cache")] = None,
    split: Annotated[str | None, typer.Option(help="one split [all; of a task the first]")] = None,
    count: Annotated[int, typer.Option("-n", "--num-examples", min=0, help="examples of each split")] = 3,
    start: Annotated[int, typer.Option(min=0, help="index of the first example")] = 0,
    task: Annotated[str | None, typer.Option("--task", help="a registered task instead of a cache")] = None,
    module_import: Annotated[list[str] | None, typer.Option("--module-import", help=MODULES_HELP)] = None,
    sequence_length: Annotated[
        str | None, typer.Option(help="longest lengths, inputs=512,targets=128 [the longest shown]")
    ] = None,
    converter: Annotated[
        str, typer.Option(help="feature converter by name, or none [by the task's features]")
    ] = "auto",
    html: Annotated[str | None, typer.Option(help="write one self-contained page to this file")] = None,
) -> None:
    """Show the examples of a cache, decoded; or those of a task, raw, behind each of its steps, converted and decoded.

    Example: beam-pipes inspect .demo/python_source --split eval -n 1

    Example: beam-pipes inspect --task wmt_de_en --module-import my.tasks --html wmt.html
    """
    if (path is None) == (task is None):
        raise DeclarationError("name what to inspect: either the directory of a cache, or --task NAME.")
    if path is None:
        assert task is not None
        show_task(
            task,
            modules=module_import or (),
            split=split,
            num_examples=count,
            sequence_length=sequence_length,
            converter=converter,
            html=html,
        )
        return
    of_tasks = {"--sequence-length": sequence_length, "--html": html, "--converter": converter}
    if given := [name for name, value in of_tasks.items() if value not in (None, "auto")]:
        raise DeclarationError(
            f"{', '.join(given)} belong to --task NAME, and {path!r} is a cache, whose examples are shown as they are. "
            f"`beam-pipes report {path}` writes a page about it."
        )
    cache = Cache.open(path)
    if split is None:
        for entry in cache.manifest.assets:
            console.print(f"{entry.file}: {entry.bytes:,} bytes", markup=False)
    for name in cache.splits if split is None else [split]:
        examples = cache[name]
        console.print(f"{name}: {len(examples):,} records")
        for index in itertools.islice(range(start, len(examples)), count):
            console.print(f"  [{index}]", markup=False)
            value = examples[index]
            for line in _lines(value):
                console.print(f"    {line}", markup=False)


def _lines(value: Any) -> list[str]:
    if not isinstance(value, dict):
        return str(value).splitlines() if not isinstance(value, bytes) else [repr(value[:200])]
    return [f"{name}: {_short(feature)}" for name, feature in value.items()]


def _short(feature: Any) -> str:
    if isinstance(feature, np.ndarray):
        text = np.array2string(feature, threshold=12, edgeitems=6, max_line_width=10**6)
        return f"{feature.dtype}{list(feature.shape)} {text}"
    text = repr(feature)
    return text if len(text) <= 200 else text[:199] + "…"
