"""Caches with lineage, built from every kind of source; every example names its source record."""

from __future__ import annotations

import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.building import Declaration
from beam_pipes.cache import Cache, FeatureSpec, RecordWriter
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import CSV, Files, JSONLines, Memory, Parquet, TextLines, TFRecords
from beam_pipes.typed import Pipeline

FEATURES = {"tokens": FeatureSpec("int32", shape=(None,)), "number": FeatureSpec("int64")}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Repeat(Pipeline):
    """Number n gives n % 3 examples (none: "third"), and number 13 fails; its tokens are its own n, up to 12 times."""

    output_type = dict
    input_type = object

    def transform(self, value: Any) -> list[dict[str, Any]]:
        number = number_of(value)
        if number == 13:
            raise ValueError(f"number {number} is unlucky")
        if number % 3 == 0:
            return self.drop("third")
        tokens = np.full(1 + number % 12, number, np.int32)
        return [{"tokens": tokens, "number": number}] * (number % 3)


def number_of(value: Any) -> int:
    """The number represented by a value of any source."""
    if isinstance(value, dict):
        return int(value["number"])
    if isinstance(value, bytes):
        return int(struct.unpack("<q", value)[0])
    return int(getattr(value, "content", value))


def source_of(kind: str, root: Path, numbers: list[int]) -> Any:
    """The numbers as input of one kind, in two files of two thirds and one third."""
    root.mkdir(parents=True, exist_ok=True)
    cut = len(numbers) * 2 // 3
    for name, part in (("a", numbers[:cut]), ("b", numbers[cut:])):
        if kind == "text":
            (root / f"{name}.txt").write_text("".join(f"{number}\n" for number in part))
        elif kind == "jsonl":
            lines = [json.dumps({"number": number}) for number in part]
            (root / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        elif kind == "csv":
            (root / f"{name}.csv").write_text("number\n" + "".join(f"{number}\n" for number in part))
        elif kind == "tfrecords":
            with RecordWriter(root / f"{name}.tfrecord") as writer:
                for number in part:
                    writer.write(struct.pack("<q", number))
        elif kind == "parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({"number": part}), root / f"{name}.parquet", row_group_size=7)
        elif kind == "files":
            (root / name).mkdir(exist_ok=True)
            for number in part:
                (root / name / f"{number:04d}").write_text(str(number))
    sources = {
        "text": TextLines,
        "jsonl": JSONLines,
        "csv": CSV,
        "tfrecords": TFRecords,
        "parquet": Parquet,
        "files": Files,
    }
    if kind == "memory":
        return Memory([str(number) for number in numbers], records_per_shard=11)
    return sources[kind](str(root))


def declaration_of(kind: str, root: Path, count: int = 40, **options: Any) -> Declaration:
    """Numbers 0 to `count` - 1 from a source of this kind, through `Repeat`."""
    options = {"on_error": "dead_letter", "target_shard_bytes": 60, **options}
    return Declaration(
        name="origin",
        source=source_of(kind, root, list(range(count))),
        pipeline=Repeat(),
        features=FEATURES,
        **options,
    )


def build_origins(path: Path, kind: str = "text", count: int = 40, **options: Any) -> Cache:
    """A cache at `path/cache` of input at `path/input`."""
    build(declaration_of(kind, path / "input", count, **options), path / "cache", options=LocalOptions(workers=1))
    return Cache.open(path / "cache")
