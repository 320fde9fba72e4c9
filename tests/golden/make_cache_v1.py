"""Writes `tests/golden/cache_v1`, a cache in format version 1: run as `python tests/golden/make_cache_v1.py`.

The directory is kept as it was first written; later versions of the library must read it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.cache import (
    ExampleCodec,
    ExampleSpec,
    FeatureSpec,
    Manifest,
    ShardWriter,
    SplitManifest,
    publish,
    shard_file_name,
    snapshot_directory,
)

SNAPSHOT = "00000000000000a1"
SPECS = {
    "train": ExampleSpec(
        {
            "image": FeatureSpec("uint8", shape=(None, None)),
            "label": FeatureSpec("int64", encoding="list"),
            "text": FeatureSpec("str"),
            "tokens": FeatureSpec("int32", shape=(None,), minimum=0, maximum=50_000),
        }
    ),
    "eval": ExampleSpec({"id": FeatureSpec("int64"), "vector": FeatureSpec("float32", shape=(3,))}),
}
SHARDS: dict[str, list[list[dict[str, Any]]]] = {
    "train": [
        [
            {"image": np.array([[1, 2], [3, 4]], np.uint8), "label": 7, "text": "größe", "tokens": [5, 50_000]},
            {"image": np.zeros((0, 3), np.uint8), "label": -1, "text": "", "tokens": []},
        ],
        [],
    ],
    "eval": [[{"id": 1 << 40, "vector": np.array([0.5, -1, 2], np.float32)}]],
}


def write(directory: Path) -> None:
    files = Path(snapshot_directory(directory, SNAPSHOT))
    files.mkdir(parents=True)
    splits = {}
    for split, shards in SHARDS.items():
        entries = []
        for number, examples in enumerate(shards):
            name = shard_file_name("golden", split, number, len(shards))
            with ShardWriter(files, name, codec=ExampleCodec(SPECS[split])) as writer:
                for ordinal, example in enumerate(examples):
                    writer.write(example, ordinal)
                entries.append(writer.commit())
        splits[split] = SplitManifest.from_entries(entries, spec=SPECS[split])
    publish(directory, Manifest(name="golden", snapshot=SNAPSHOT, splits=splits, statistics=[{"records": 3}]))


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "cache_v1"))
