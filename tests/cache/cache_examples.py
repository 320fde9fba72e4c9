"""Small caches for the tests of this room: specs, examples, and a builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.cache import (
    ExampleCodec,
    ExampleSpec,
    FeatureSpec,
    Manifest,
    ShardEntry,
    ShardWriter,
    SplitManifest,
    publish,
    shard_file_name,
    snapshot_directory,
)

SNAPSHOT = "0123456789abcdef"

FIXED = ExampleSpec(
    {
        "id": FeatureSpec("int64"),
        "mask": FeatureSpec("bool", shape=(3,)),
        "tokens": FeatureSpec("int32", shape=(4,), minimum=0, maximum=60_000),
        "weights": FeatureSpec("float32", shape=(2, 2), encoding="list"),
    }
)
MIXED = ExampleSpec(
    {
        "blob": FeatureSpec("bytes"),
        "grid": FeatureSpec("int16", shape=(None, 2)),
        "image": FeatureSpec("uint8", shape=(None, None)),
        "label": FeatureSpec("int8"),
        "list": FeatureSpec("int64", shape=(None,), encoding="list"),
        "text": FeatureSpec("str"),
        "words": FeatureSpec("str", shape=(None,)),
        "größen": FeatureSpec("float64", shape=(None,)),
    }
)


def fixed_example(i: int) -> dict[str, Any]:
    return {
        "id": np.int64(i - 5),
        "mask": np.array([i % 2 == 0, True, False]),
        "tokens": np.arange(i, i + 4, dtype=np.int32),
        "weights": np.full((2, 2), i / 4, np.float32),
    }


def mixed_example(i: int) -> dict[str, Any]:
    return {
        "blob": bytes(range(i % 5)),
        "grid": np.arange(i % 4 * 2, dtype=np.int16).reshape(-1, 2),
        "image": np.full((i % 3, i % 2 + 1), i % 256, np.uint8),
        "label": np.int8(i % 100),
        "list": np.array([i, -i, 1 << 40][: i % 4], np.int64),
        "text": "ä" * (i % 6),
        "words": np.array(["x", "yé", ""][: i % 4], object),
        "größen": np.linspace(0, 1, i % 7),
    }


def write_shards(
    directory: Path, spec: ExampleSpec, shards: Sequence[Sequence[Mapping[str, Any]]], *, split: str = "train"
) -> list[ShardEntry]:
    """Writes one shard for each list of examples into the directory of the snapshot."""
    files = Path(snapshot_directory(directory, SNAPSHOT))
    files.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, examples in enumerate(shards):
        name = shard_file_name("demo", split, number, len(shards))
        with ShardWriter(files, name, codec=ExampleCodec(spec)) as writer:
            for ordinal, example in enumerate(examples):
                writer.write(example, ordinal * 2)
            entries.append(writer.commit())
    return entries


def build(directory: Path, spec: ExampleSpec, shards: Sequence[Sequence[Mapping[str, Any]]]) -> Path:
    """A published cache with one split, `train`, of the given examples by shard."""
    entries = write_shards(directory, spec, shards)
    split = SplitManifest.from_entries(entries, spec=spec)
    publish(directory, Manifest(name="demo", snapshot=SNAPSHOT, splits={"train": split}))
    return directory


def shard_path(directory: Path, number: int, count: int) -> Path:
    return Path(snapshot_directory(directory, SNAPSHOT)) / shard_file_name("demo", "train", number, count)


def assert_same_example(expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    assert sorted(expected) == sorted(found)
    for name, value in expected.items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value), err_msg=name)
        assert getattr(found[name], "dtype", None) == getattr(value, "dtype", None), name
