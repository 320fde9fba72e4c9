"""`beam-pipes duplicates`."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer

from beam_pipes.cache import Cache
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.commands.tables import console
from beam_pipes.transforms.dedup import cache_duplicates


def duplicates_command(
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    name: Annotated[str | None, typer.Option(help="one analyzer [all]")] = None,
    count: Annotated[int, typer.Option("-n", "--num-records", min=0, help="removed records to show of each")] = 3,
    tsv: Annotated[str | None, typer.Option(help="write all removed records of the analyzer to this table")] = None,
) -> None:
    """Show which records were found to be duplicates, and of which records that stay.

    Example: beam-pipes duplicates caches/books --name near --tsv near.tsv
    """
    found = cache_duplicates(Cache.open(path))
    if name is not None and name not in found or tsv is not None and name is None and len(found) != 1:
        raise DeclarationError(f"--name should be one of {sorted(found)}, analyzers of {path!r}; got {name!r}.")
    if not found:
        console.print("no analyzer has looked for duplicates.")
    for each, duplicates in found.items() if name is None else [(name, found[name])]:
        counts = f"{len(duplicates):,} {duplicates.kind} duplicates of {duplicates.num_kept:,} records"
        console.print(f"{each}: {counts}", markup=False)
        if cut := duplicates.facts.get("cut_groups"):
            console.print(f"  {cut:,} groups were larger than max_compared: more may be alike", markup=False)
        for row in itertools.islice(duplicates, count):
            console.print(f"  {row.removed} of {row.kept} (similarity {row.similarity:.2f})", markup=False)
        if tsv is not None:
            duplicates.write_tsv(tsv)
