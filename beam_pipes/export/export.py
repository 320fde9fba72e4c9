"""`export`: a cache in the format of another system, in a directory that appears when it is complete.

Here are TFX `Examples` (a directory for each split with gzipped TFRecords, numbers as lists) and the index of shards
that DALI reads (a text file for each shard, with a line `offset size` for each record's frame).
"""

from __future__ import annotations

import dataclasses
import gzip
import os
import shutil
from collections.abc import Callable

import numpy as np

from beam_pipes.cache.reader import Cache
from beam_pipes.checks import choice
from beam_pipes.errors import CacheNotFoundError, ExportError, SpecError
from beam_pipes.export.croissant import write_croissant
from beam_pipes.export.tables import rows_of_files, write_parquet
from beam_pipes.export.tfds import write_tfds
from beam_pipes.export.training_formats import write_arrayrecord, write_mds, write_megatron, write_webdataset
from beam_pipes.format.codec import ExampleCodec
from beam_pipes.format.framing import FRAME_BYTES, RecordWriter, scan_records
from beam_pipes.format.spec import ExampleSpec
from beam_pipes.storage.local import is_remote, output_file, sync_tree, temporary_path, writing_to

# Records per file: TFX reads files in parallel, and a gzipped one only from its start.
_RECORDS_OF_A_FILE = 100_000


def write_tfx_examples(cache: Cache, directory: str) -> None:
    """Writes `Split-NAME/data_tfrecord-00000-of-00002.gz`, the layout of TFX's ExampleGen.

    Raises `ExportError` for splits that hold no examples, and for numbers that a list cannot hold exactly (float64).
    """
    for name in cache.splits:
        split = cache[name]
        if split.kind != "example":
            raise ExportError(
                f"split {name!r} holds {split.kind} records, and TFX takes examples. Export it as parquet."
            )
        try:
            spec = ExampleSpec(
                {key: dataclasses.replace(feature, encoding="list") for key, feature in split.spec.items()}
            )
        except SpecError as error:
            raise ExportError(f"split {name!r} does not fit the lists of an Example: {error}") from error
        codec = ExampleCodec(spec)
        target = os.path.join(directory, f"Split-{name}")
        os.makedirs(target)
        for number, num_files, rows in rows_of_files(split, _RECORDS_OF_A_FILE):
            path = os.path.join(target, f"data_tfrecord-{number:05d}-of-{num_files:05d}.gz")
            with gzip.GzipFile(path, "wb", compresslevel=6, mtime=0) as file:
                records = RecordWriter(file)
                for row in rows:
                    records.write(codec.encode(split[row]))
                records.close()


Array = np.ndarray


def dali_index_text(offsets: Array, payload_bytes: Array) -> str:
    """The text of an index: offsets `[0, 76]`, payloads of `[60, 84]` bytes → `"0 76\\n76 100\\n"`."""
    rows = zip(offsets.tolist(), (payload_bytes + FRAME_BYTES).tolist(), strict=True)
    return "".join(f"{offset} {size}\n" for offset, size in rows)


def export_dali_index(cache: Cache, to: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Writes `to/<shard>.idx` for every shard of a local cache that holds records; returns (shard, index) paths.

    They are what `fn.readers.tfrecord(path=…, index_path=…)` of DALI takes, in this order. Records that are taken down
    have no line, and are not read there. Raises `CacheNotFoundError` if the shards are not on this machine,
    `OutputError` if the directory cannot be written.
    """
    to = os.path.expanduser(to)
    with writing_to(to):
        os.makedirs(to, exist_ok=True)
    made = []
    for name in cache.splits:
        split = cache[name]
        removed = set(split.removed_rows.tolist())
        first = 0
        for size in split.shard_sizes.tolist():
            if size:
                shard = split.place_of(first)[0]
                path = os.path.join(cache.directory, shard)
                if not os.path.isfile(path):
                    raise CacheNotFoundError(
                        f"expected the shard {shard!r} in {cache.directory!r}. Copy the cache to this machine first.",
                        path=path,
                    )
                places = np.array(list(scan_records(path)), np.int64).reshape(-1, 2)
                kept = np.array([first + row not in removed for row in range(size)])
                index = os.path.join(to, f"{shard}.idx")
                with output_file(index) as file:
                    file.write(dali_index_text(places[kept, 0], places[kept, 1]))
                made.append((path, index))
            first += size
    return made


FORMATS: dict[str, Callable[[Cache, str], None]] = {
    "arrayrecord": write_arrayrecord,
    "croissant": write_croissant,
    "mds": write_mds,
    "megatron": write_megatron,
    "parquet": write_parquet,
    "tfds": write_tfds,
    "tfx": write_tfx_examples,
    "webdataset": write_webdataset,
}


def export(cache: Cache | str | os.PathLike[str], to: str | os.PathLike[str], *, format: str) -> str:
    """Writes the published snapshot of a cache into the new local directory `to`; returns it.

        export("demo", "demo-parquet", format="parquet")  →  demo-parquet/train.parquet, demo-parquet/eval.parquet

    | format | what is written | who reads it |
    | --- | --- | --- |
    | parquet | one file per split, a column per feature | pyarrow, pandas, `datasets` |
    | croissant | the same, and `croissant.json` about them | mlcroissant |
    | tfds | the shards, `dataset_info.json` and `features.json` | `tfds.builder_from_directory`, RLDS |
    | tfx | `Split-NAME/data_tfrecord-….gz`, features as lists | TFX components that take `Examples` |
    | megatron | `SPLIT_FEATURE_document.bin` and `.idx` for each feature of token ids | Megatron's `IndexedDataset` |
    | arrayrecord | `SPLIT-….array_record`, the stored records | Grain, array_record |
    | webdataset | `SPLIT-000000.tar`, a member for each feature | webdataset |
    | mds | `SPLIT/shard.00000.mds` and `SPLIT/index.json`, a column for each feature | MosaicML Streaming |

    The directory is written under a temporary name and renamed last. Order of records is kept; records that are taken
    down are left out. Needs memory for some thousand records, for the lengths of all of them with
    megatron, and for the records of a shard of 64 MiB with mds.

    Raises:
        ExportError: the format is unknown, the target exists or is not local, or the format cannot hold a split.
        OutputError: the target cannot be written.
        MissingExtraError: the library of the format is not installed.
    """
    choice(format, of=sorted(FORMATS), what="format", error=ExportError)
    target = os.path.expanduser(os.fspath(to))
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
            sync_tree(temporary)
            os.rename(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return target
