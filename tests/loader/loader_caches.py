"""Small real caches for the tests of the loader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.cache import (
    Cache,
    ExampleCodec,
    ExampleSpec,
    FeatureSpec,
    Manifest,
    ShardWriter,
    Split,
    SplitManifest,
    publish,
    shard_file_name,
    snapshot_directory,
)

DOCUMENTS = ExampleSpec({"tokens": FeatureSpec("int32", shape=(None,)), "id": FeatureSpec("int64")})
ROWS = ExampleSpec({"x": FeatureSpec("int32", shape=(4,)), "id": FeatureSpec("int64"), "flag": FeatureSpec("bool")})
PAIRS = ExampleSpec({"inputs": FeatureSpec("int32", shape=(None,)), "targets": FeatureSpec("int32", shape=(None,))})


def write_split(
    path: Path,
    examples: Sequence[Mapping[str, Any]],
    spec: ExampleSpec,
    *,
    shards: int = 3,
    name: str = "demo",
    snapshot: str = "0123456789abcdef",
) -> Split:
    """The examples as split "train" of a cache at `path`, in `shards` shards."""
    directory = snapshot_directory(path, snapshot)
    Path(directory).mkdir(parents=True)
    entries = []
    bounds = np.linspace(0, len(examples), shards + 1).astype(int).tolist()
    for number in range(shards):
        file = shard_file_name(name, "train", number, shards)
        with ShardWriter(directory, file, codec=ExampleCodec(spec)) as writer:
            for ordinal, example in enumerate(examples[bounds[number] : bounds[number + 1]]):
                writer.write(example, ordinal=ordinal)
            entries.append(writer.commit())
    train = SplitManifest.from_entries(entries, spec=spec)
    publish(path, Manifest(name=name, snapshot=snapshot, splits={"train": train}))
    return Cache.open(path)["train"]


def documents(count: int, *, seed: int = 0, longest: int = 30) -> list[dict[str, Any]]:
    """Documents of 0 to `longest` tokens; token t of document i is 1000 i + t + 1, so that every token is known."""
    lengths = np.random.default_rng(seed).integers(0, longest + 1, count)
    return [
        {"tokens": np.arange(length, dtype=np.int32) + 1000 * index + 1, "id": index}
        for index, length in enumerate(lengths)
    ]


def rows(count: int) -> list[dict[str, Any]]:
    """Records of a fixed layout: x is four times the record's number."""
    return [{"x": np.full(4, index, np.int32), "id": index, "flag": index % 2 == 0} for index in range(count)]


def pairs(count: int, *, seed: int = 0, longest: tuple[int, int] = (20, 12)) -> list[dict[str, Any]]:
    """Inputs and targets, either of which may be empty; their tokens name the record."""
    lengths = np.random.default_rng(seed).integers(0, (longest[0] + 1, longest[1] + 1), (count, 2))
    return [
        {
            "inputs": np.arange(inputs, dtype=np.int32) + 1000 * index + 1,
            "targets": np.arange(targets, dtype=np.int32) + 1000 * index + 501,
        }
        for index, (inputs, targets) in enumerate(lengths.tolist())
    ]
