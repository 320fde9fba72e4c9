"""`export`: a cache in the format of another system, in a directory that appears when it is whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from beam_pipes.cache.output_file import writing_to
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.storage import is_remote, temporary_path
from beam_pipes.errors import ExportError
from beam_pipes.export.croissant import write_croissant
from beam_pipes.export.parquet import write_parquet
from beam_pipes.export.tfmd import write_tfmd
from beam_pipes.export.tfx_examples import write_tfx_examples

FORMATS: dict[str, Callable[[Cache, str], None]] = {
    "croissant": write_croissant,
    "parquet": write_parquet,
    "tfmd": write_tfmd,
    "tfx": write_tfx_examples,
}


def export(cache: Cache | str | os.PathLike[str], to: str | os.PathLike[str], *, format: str) -> str:
    """Writes the published snapshot of a cache into the new local directory `to`; returns it.

        export("demo", "demo-parquet", format="parquet")  →  demo-parquet/train.parquet, demo-parquet/eval.parquet

    | format | what is written | who reads it |
    | --- | --- | --- |
    | parquet | one file a split, a column a feature | pyarrow, pandas, `datasets` |
    | croissant | the same, and `croissant.json` about them | mlcroissant |
    | tfmd | `schema-SPLIT.pbtxt` and `statistics.pb`, computed over all records | TensorFlow Data Validation |
    | tfx | `Split-NAME/data_tfrecord-….gz`, features as lists | TFX components that take `Examples` |

    The directory is written under a temporary name and renamed last. Order of records is kept; records that are taken
    down are left out. Needs memory for some thousand records.

    Raises:
        ExportError: the format is not known, the target is there already or not local, or the format cannot hold a
            split.
        OutputError: the target cannot be written.
        MissingExtraError: the library of the format is not installed.
    """
    if format not in FORMATS:
        raise ExportError(f"unknown format {format!r}; choose one of: {', '.join(sorted(FORMATS))}.")
    target = os.fspath(to)
    if is_remote(target):
        raise ExportError(f"exports are written to a local directory, got {target!r}. Export, then copy it there.")
    if os.path.lexists(target):
        raise ExportError(f"{target!r} is there already. Name a directory that is not, or remove it first.")
    opened = cache if isinstance(cache, Cache) else Cache.open(cache)
    temporary = temporary_path(os.path.abspath(target))
    try:
        with writing_to(target):
            os.makedirs(temporary)
            FORMATS[format](opened, temporary)
            os.rename(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return target
