"""Verification finds every kind of damage, and names file and offset."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from pathlib import Path

import numpy as np
import pytest
from cache_examples import FIXED, MIXED, SNAPSHOT, fixed_example, mixed_example, write_shards
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes.cache import Cache, FileEntry, Manifest, SplitManifest, publish
from beam_pipes.cache.local_copies import LocalCopies, ShardStore
from beam_pipes.errors import CacheError, CorruptCacheError, CorruptIndexError, CorruptRecordError
from beam_pipes.format import framing
from beam_pipes.format.index import WHOLE_INDEX_CRC32C, encode_index, index_checksum, index_path
from beam_pipes.storage.local import LocalStorage


def make_cache(directory: Path) -> Path:
    fixed = write_shards(directory, FIXED, [[fixed_example(i) for i in range(5)], [fixed_example(9)]])
    mixed = write_shards(directory, MIXED, [[mixed_example(i) for i in range(6)]], split="eval")
    files = directory / "snapshots" / SNAPSHOT
    (files / "assets").mkdir()
    (files / "assets" / "vocab.txt").write_bytes(b"a\nb\n")
    publish(
        directory,
        Manifest(
            name="demo",
            snapshot=SNAPSHOT,
            splits={
                "train": SplitManifest.from_entries(fixed, spec=FIXED),
                "eval": SplitManifest.from_entries(mixed, spec=MIXED),
            },
            assets=[FileEntry(file="assets/vocab.txt", bytes=4, crc32c=framing.google_crc32c.value(b"a\nb\n"))],
        ),
    )
    return directory


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_cache(tmp_path / "cache")


def files_of(cache: Path) -> dict[str, Path]:
    """The files that the manifest answers for, by short name, and the manifest."""
    snapshot = cache / "snapshots" / SNAPSHOT
    return {
        "train 0": snapshot / "demo-train.tfrecord-00000-of-00002",
        "train 1": snapshot / "demo-train.tfrecord-00001-of-00002",
        "eval": snapshot / "demo-eval.tfrecord-00000-of-00001",
        "train index": snapshot / "demo-train.tfrecord-00000-of-00002.index",
        "eval index": snapshot / "demo-eval.tfrecord-00000-of-00001.index",
        "asset": snapshot / "assets" / "vocab.txt",
        "manifest": cache / "manifest.json",
        "snapshot manifest": snapshot / "manifest.json",
    }


def test_an_undamaged_cache_has_no_problems(cache: Path) -> None:
    report = Cache.open(cache, verify=True).verify()

    assert report.ok and (report.shards, report.records) == (3, 12)
    assert report.bytes == sum(files_of(cache)[name].stat().st_size for name in ("train 0", "train 1", "eval"))


def test_each_damaged_record_is_reported_with_shard_and_offset(cache: Path) -> None:
    path = files_of(cache)["train 0"]
    data = bytearray(path.read_bytes())
    stride = len(data) // 5
    data[stride + 20] ^= 1
    data[3 * stride + 20] ^= 1
    path.write_bytes(data)

    report = Cache.open(cache).verify()

    assert [(problem.file, problem.offset) for problem in report.problems] == [
        (path.name, stride),
        (path.name, 3 * stride),
    ]
    assert f"{path}: the payload of the record at offset {stride}" in str(report.problems[0])
    with pytest.raises(CorruptCacheError, match=rf"expected an undamaged cache, found 2 problems:\n.*offset {stride}"):
        Cache.open(cache, verify=True)


@pytest.mark.parametrize("name", ["train 0", "eval", "train index", "eval index", "asset"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "longer", "empty", "swapped"])
def test_damaged_files_are_reported_by_name(cache: Path, name: str, damage: str) -> None:
    path = files_of(cache)[name]
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        other = files_of(cache)["train 1"].read_bytes()
        path.write_bytes({"truncated": data[:-1], "longer": data + b"\0", "empty": b"", "swapped": other}[damage])

    report = Cache.open(cache).verify()

    assert report.problems and {problem.file for problem in report.problems} <= {
        str(path.relative_to(cache / "snapshots" / SNAPSHOT)),
        str(path.relative_to(cache / "snapshots" / SNAPSHOT)) + ".index",
    }


def test_records_that_were_exchanged_are_reported_although_each_is_whole(cache: Path) -> None:
    path = files_of(cache)["train 0"]
    data = path.read_bytes()
    stride = len(data) // 5
    path.write_bytes(data[stride : 2 * stride] + data[:stride] + data[2 * stride :])

    (problem,) = Cache.open(cache).verify().problems

    assert "expected checksum" in str(problem) and problem.file == path.name


def test_an_index_that_contradicts_its_shard_is_reported_row_by_row(cache: Path) -> None:
    manifest = Cache.open(cache).manifest
    columns = {
        name: Cache.open(cache)["eval"]._files.whole_column(name).copy()
        for name in Cache.open(cache)["eval"]._files.columns
    }
    columns["offset"][2] += 8
    data = encode_index(columns)
    files_of(cache)["eval index"].write_bytes(data)
    entries = write_shards(cache / "again", MIXED, [[mixed_example(i) for i in range(6)]], split="eval")
    split = SplitManifest.from_entries(entries, spec=MIXED)
    object.__setattr__(split, "index_crc32c", [index_checksum(data)])
    changed = Manifest(name="demo", snapshot=SNAPSHOT, splits={**manifest.splits, "eval": split}).to_bytes()
    files_of(cache)["manifest"].write_bytes(changed)
    files_of(cache)["snapshot manifest"].write_bytes(changed)

    (problem,) = Cache.open(cache).verify().problems

    offset = int(columns["offset"][2]) - 8
    assert problem.offset == offset and f"expected record 2 at offset {offset}" in str(problem)
    with pytest.raises(CacheError):
        Cache.open(cache)["eval"][2]


def swap_train_indexes(cache: Path) -> None:
    first = files_of(cache)["train index"]
    second = Path(index_path(str(files_of(cache)["train 1"])))
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


def alike_cache(directory: Path) -> Path:
    """Two shards of equally many records, whose indexes differ by the source ordinals alone."""
    entries = write_shards(directory, FIXED, [[fixed_example(i) for i in range(4)] for _ in range(2)])
    for shard, entry in enumerate(entries):
        path = directory / "snapshots" / SNAPSHOT / (entry.file + ".index")
        data = encode_index({"ordinal": np.arange(4, dtype=np.uint64) * (shard + 2)})
        path.write_bytes(data)
        entries[shard] = dataclasses.replace(entry, index_crc32c=index_checksum(data))
    split = SplitManifest.from_entries(entries, spec=FIXED)
    publish(directory, Manifest(name="demo", snapshot=SNAPSHOT, splits={"train": split}))
    return directory


def local_copies(cache: Path, directory: Path) -> LocalCopies:
    store = ShardStore(directory, max_bytes=1 << 20, storage=LocalStorage())
    shards = Cache.open(cache).manifest.splits["train"]
    return LocalCopies(store, str(cache / "snapshots" / SNAPSHOT), "demo", "demo", "train", shards)


def test_an_index_that_was_exchanged_with_that_of_another_shard_is_noticed(tmp_path: Path) -> None:
    cache = alike_cache(tmp_path / "cache")
    assert Cache.open(cache).verify().ok
    index = files_of(cache)["train index"].read_bytes()
    assert Path(local_copies(cache, tmp_path / "first").index(0)).read_bytes() == index

    swap_train_indexes(cache)

    problems = Cache.open(cache).verify().problems
    assert [problem.file[-len("00000-of-00002.index") :] for problem in problems] == [
        "00000-of-00002.index",
        "00001-of-00002.index",
    ]
    assert all("expected checksum" in str(problem) for problem in problems)
    with pytest.raises(CorruptIndexError, match="as the manifest says"):
        list(Cache.open(cache)["train"].source_ordinals)

    with pytest.raises(CorruptRecordError, match="as the manifest says"):
        local_copies(cache, tmp_path / "copies").index(0)


def test_a_manifest_with_the_checksum_of_whole_indexes_reads_and_verifies(tmp_path: Path) -> None:
    cache = alike_cache(tmp_path / "cache")
    manifest = Cache.open(cache).manifest
    old = dataclasses.replace(manifest.splits["train"], index_crc32c=[WHOLE_INDEX_CRC32C] * 2)
    changed = dataclasses.replace(manifest, splits={"train": old}).to_bytes()
    files_of(cache)["manifest"].write_bytes(changed)
    files_of(cache)["snapshot manifest"].write_bytes(changed)

    opened = Cache.open(cache)

    assert opened.verify().ok
    assert opened["train"].source_ordinals.tolist() == [0, 2, 4, 6, 0, 3, 6, 9]
    index = files_of(cache)["train index"]
    assert Path(local_copies(cache, tmp_path / "copies").index(0)).read_bytes() == index.read_bytes()
    index.write_bytes(index.read_bytes()[:-1] + b"?")
    (problem,) = Cache.open(cache).verify().problems
    assert "expected checksum 0x3a470bc8" in str(problem)


@functools.cache
def shared_cache(directory: Path) -> Path:
    return make_cache(directory)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_flipped_byte_in_any_file_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    cache = shared_cache(tmp_path_factory.getbasetemp() / "flipped")
    name = data.draw(st.sampled_from(sorted(files_of(cache))))
    path = files_of(cache)[name]
    content = path.read_bytes()
    position = data.draw(st.integers(0, len(content) - 1))
    flip = data.draw(st.integers(1, 255))

    path.write_bytes(content[:position] + bytes([content[position] ^ flip]) + content[position + 1 :])
    try:
        with pytest.raises(CacheError):
            Cache.open(cache, verify=True)
    finally:
        path.write_bytes(content)


def test_reading_through_a_damaged_index_is_an_error_and_never_a_crash(cache: Path) -> None:
    path = files_of(cache)["eval index"]
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(content), 60).tolist():
        path.write_bytes(content[:position] + b"\xff" + content[position + 1 :])
        if content[position] == 0xFF:
            continue
        split = Cache.open(cache)["eval"]
        for read in (lambda: split.gather([0, 5]), lambda: split.lengths("grid"), lambda: split[1]):  # noqa: B023
            with pytest.raises(CorruptCacheError, match="the index is damaged: expected checksum"):
                read()


def test_a_manifest_that_points_to_another_snapshot_finds_nothing(cache: Path) -> None:
    shutil.move(cache / "snapshots" / SNAPSHOT, cache / "snapshots" / "fedcba9876543210")

    assert len(Cache.open(cache).verify().problems) == 2 * 3 + 1 + 1
