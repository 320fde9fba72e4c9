"""`write_cache`: examples at hand become a cache in one call, as a stream, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_pipes import Loader, build, write_cache
from beam_pipes.building.leftovers import build_lock
from beam_pipes.building.takedown import take_down
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.errors import CacheBusyError, CacheError, SpecError


def rows(count: int, first: int = 0) -> Iterator[dict[str, Any]]:
    for number in range(first, first + count):
        yield {"tokens": np.arange(number % 5, dtype=np.int32), "id": number}


def test_splits_are_written_as_streams_and_read_by_loaders(tmp_path: Path) -> None:
    cache = write_cache(tmp_path / "cache", {"train": rows(100), "eval": list(rows(7, first=100))}, num_shards=3)

    assert {split: len(cache[split]) for split in cache.splits} == {"eval": 7, "train": 100}
    assert sorted(int(row["id"]) for row in cache["train"]) == list(range(100))
    assert cache.verify().problems == ()
    batch = next(iter(Loader(tmp_path / "cache" / "train", batch_size=8, seed=1)))
    assert batch["tokens"].dtype == np.int32 and batch["id"].shape == (8,)


def test_one_file_keeps_the_order_and_equal_examples_give_the_same_snapshot(tmp_path: Path) -> None:
    first = write_cache(tmp_path / "a", {"train": rows(300)})
    again = write_cache(tmp_path / "a", {"train": list(rows(300))})
    other = write_cache(tmp_path / "b", {"train": rows(300)})

    assert [int(row["id"]) for row in first["train"]] == list(range(300))
    assert first.manifest.id == again.manifest.id == other.manifest.id
    assert [path.name for path in (tmp_path / "a" / "snapshots").iterdir()] == [first.manifest.snapshot]


@pytest.mark.parametrize("features", [{"x": FeatureSpec("float16")}, {"train": {"x": FeatureSpec("float16")}}])
def test_features_may_be_given(tmp_path: Path, features: Any) -> None:
    cache = write_cache(tmp_path, {"train": [{"x": 0.5}]}, features=features)
    assert cache["train"].spec["x"].dtype == "float16"


def test_an_example_that_does_not_fit_is_named_and_the_old_snapshot_stays(tmp_path: Path) -> None:
    before = write_cache(tmp_path, {"train": rows(10)}).manifest.id

    with pytest.raises(SpecError, match=r"feature 'id'.*It is example 90 of the split 'train'\.$"):
        write_cache(tmp_path, {"train": [*rows(90), {"tokens": np.zeros(1, np.int32), "id": "x"}]})

    assert Cache.open(tmp_path).manifest.id == before
    assert len(list((tmp_path / "snapshots").iterdir())) == 1


@pytest.mark.parametrize(
    ("splits", "options", "words"),
    [
        ({}, {}, "expected split → examples"),
        ({"train": []}, {}, "the split 'train' has no example to infer features from. Give features="),
        ({"train": [{"x": 1}]}, {"num_shards": 0}, "num_shards should be an integer of at least 1, got 0"),
        ({"a": [{"x": 1}]}, {"features": {"b": {}}}, r"given for \['b'\], but not for the split 'a'"),
    ],
)
def test_what_cannot_be_written_is_reported(tmp_path: Path, splits: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        write_cache(tmp_path, splits, **options)
    assert not (tmp_path / "manifest.json").exists()


def test_a_build_that_writes_there_is_named(tmp_path: Path) -> None:
    with (
        build_lock(tmp_path),
        pytest.raises(CacheBusyError, match=f"another build is writing to .*process {os.getpid()} "),
    ):
        write_cache(tmp_path, {"train": rows(3)})


def test_records_that_are_taken_down_do_not_come_back(tmp_path: Path, text_input: Path) -> None:
    build("sample_declarations:words", to=tmp_path, workers=1)
    take_down(tmp_path, ["large.txt@0"])

    with pytest.raises(CacheError, match="are taken down, but write_cache cannot tell which .* another dir"):
        write_cache(tmp_path, {"train": rows(3)})


def filled_again() -> Iterator[dict[str, object]]:
    array = np.zeros(2, np.int64)
    for number in range(5):
        array[:] = number
        yield {"x": array}


@pytest.mark.parametrize("features", [None, {"x": FeatureSpec("int64", shape=(2,))}])
def test_a_generator_may_fill_its_array_again(tmp_path: Path, features: Any) -> None:
    write_cache(tmp_path / "cache", {"train": filled_again()}, features=features)

    train = Cache.open(tmp_path / "cache")["train"]
    assert [example["x"].tolist() for example in train] == [[number, number] for number in range(5)]
