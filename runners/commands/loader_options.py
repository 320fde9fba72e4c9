"""The loader that `who`, `when` and `doctor-loader` ask: made from a saved state, or from options that say the same.

beam-pipes who cache --state state.json          → the loader that wrote the state
beam-pipes who cache --batch-size 32 --seed 7    → a loader with these options
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, cast

import typer

from beam_pipes.cache import Cache, Split
from beam_pipes.errors import CacheNotFoundError, LoaderError
from beam_pipes.loader import Loader, LoaderState, Mixture, PackingPlan
from beam_pipes.loader.batches import Batch
from beam_pipes.loader.from_state import loader_from_state, shuffle_of_label
from beam_pipes.loader.row_source import RowSource
from beam_pipes.loader.steps import Last as LastRows

Paths = Annotated[list[str], typer.Argument(help="directory of the cache; several for a mixture, in its order")]
State = Annotated[Path | None, typer.Option("--state", help="file with the state of the loader, as JSON")]
BatchSize = Annotated[int, typer.Option("--batch-size", help="rows of a global batch")]
HostCount = Annotated[int, typer.Option("--host-count", help="hosts that share a global batch")]
Last = Annotated[str, typer.Option("--last", help="what the run does with the last rows: drop, pad, partial")]
Plan = Annotated[list[Path] | None, typer.Option("--plan", help="file of a packing plan; one for each source")]
SplitName = Annotated[str | None, typer.Option("--split", help="split of each cache [the only one] (without --state)")]
Seed = Annotated[int, typer.Option("--seed", help="seed of the order (without --state)")]
ShuffleName = Annotated[str, typer.Option("--shuffle", help="global, stored or blocks/<window> (without --state)")]
Rate = Annotated[list[float] | None, typer.Option("--rate", help="rate of each source of a mixture (without --state)")]
Exhausted = Annotated[str, typer.Option("--exhausted", help="repeat, stop or drop, of a mixture (without --state)")]


def make_loader(
    paths: list[str],
    *,
    state: Path | None,
    batch_size: int,
    host_count: int,
    last: str,
    plan: list[Path] | None,
    split: str | None,
    seed: int,
    shuffle: str,
    rate: list[float] | None,
    exhausted: str,
    workers: int = 0,
    transform: Callable[[Batch], Batch] | None = None,
) -> Loader:
    """A loader over the caches; nothing of their records is read."""
    last_rows = cast("LastRows", last)  # the loader checks it
    plans = plan or []
    if state is not None:
        if not state.is_file():
            raise LoaderError(f"expected the state of a loader at {str(state)!r}, and there is no such file.")
        saved = LoaderState.from_json(state.read_bytes())
        return loader_from_state(
            saved, paths, batch_size=batch_size, host_count=host_count, last=last_rows, plans=plans
        )
    if plans and len(plans) != len(paths):
        raise LoaderError(f"pass one --plan for each of the {len(paths)} caches, got {len(plans)}.")
    sources: list[RowSource] = []
    for index, path in enumerate(paths):
        found = _split_of(Cache.open(path), split)
        sources.append(PackingPlan.load(plans[index], found) if plans else found)
    source: RowSource | Mixture
    if len(sources) == 1 and not rate:
        source = sources[0]
    else:
        if len(rate or ()) != len(sources):
            raise LoaderError(f"a mixture of {len(sources)} caches needs as many --rate, got {len(rate or ())}.")
        source = Mixture(list(zip(sources, rate or (), strict=True)), exhausted=exhausted)
    return Loader(
        source,
        batch_size=batch_size,
        seed=seed,
        epochs=None,
        shuffle=shuffle_of_label(shuffle),
        host_index=0,
        host_count=host_count,
        last=last_rows,
        workers=workers,
        transform=transform,
    )


def _split_of(cache: Cache, split: str | None) -> Split:
    if split is not None:
        return cache[split]
    if len(cache.splits) != 1:
        raise CacheNotFoundError(f"{cache.path} has the splits {', '.join(cache.splits)}: choose one with --split.")
    return cache[cache.splits[0]]
