"""`beam-pipes inspect`."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import numpy as np
import typer

from beam_pipes.cache import Cache
from runners.commands.tables import console


def inspect_command(
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    split: Annotated[str | None, typer.Option(help="one split [all]")] = None,
    count: Annotated[int, typer.Option("-n", help="examples of each split")] = 3,
    start: Annotated[int, typer.Option(help="index of the first example")] = 0,
) -> None:
    """Show examples, decoded.

    Example: beam-pipes inspect .demo/python_source --split eval -n 1
    """
    cache = Cache.open(path)
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
