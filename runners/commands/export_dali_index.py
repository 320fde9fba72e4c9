"""`beam-pipes export-dali-index`."""

from __future__ import annotations

from typing import Annotated

import typer

from beam_pipes.cache import Cache
from beam_pipes.cache.dali_index import export_dali_index
from beam_pipes.runners.commands.tables import console


def export_dali_index_command(
    path: Annotated[str, typer.Argument(help="directory of a cache")],
    to: Annotated[str, typer.Option("--to", help="directory for the index files")],
) -> None:
    """Write the index of every shard as DALI reads it, so that its reader opens the cache.

    Example: beam-pipes export-dali-index .demo/python_source --to .demo/dali
    """
    made = export_dali_index(Cache.open(path), to)
    console.print(f"{len(made)} index files in {to}, for fn.readers.tfrecord(path=…, index_path=…) of DALI.")
