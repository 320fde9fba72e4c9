"""Publishing is atomic: readers see the old snapshot or the new one; storage keeps its promises."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cache_examples import FIXED, MIXED, SNAPSHOT, build, fixed_example, mixed_example, write_shards

from beam_pipes.cache import (
    Cache,
    ExampleCodec,
    FileEntry,
    LocalStorage,
    Manifest,
    ProtoCodec,
    ShardWriter,
    SplitManifest,
    publish,
    shard_file_name,
    snapshot_directory,
    storage_for,
)
from beam_pipes.errors import CacheError, CacheNotFoundError, SplitNotFoundError, StaleCacheError
from beam_pipes.format.messages import SequenceExample
from beam_pipes.lineage.reader import DEAD_LETTER_CODEC, DeadLetter
from beam_pipes.storage.local import TEMPORARY_PREFIX

OTHER = "fedcba9876543210"


def test_a_snapshot_has_its_own_files_and_the_current_manifest_lies_above(tmp_path: Path) -> None:
    entries = write_shards(tmp_path, FIXED, [[fixed_example(0)]])
    manifest = Manifest(
        name="demo",
        snapshot=SNAPSHOT,
        splits={"train": SplitManifest.from_entries(entries, spec=FIXED)},
        statistics=[{"name": "lines", "value": 3}],
    )

    manifest_id = publish(tmp_path, manifest, build={"runner": "local", "secs": 1.5})

    assert sorted(os.listdir(tmp_path)) == ["manifest.json", "snapshots"]
    assert sorted(os.listdir(tmp_path / "snapshots" / SNAPSHOT)) == [
        "build.json",
        "demo-train.tfrecord-00000-of-00001",
        "demo-train.tfrecord-00000-of-00001.index",
        "manifest.json",
        "schema.pbtxt",
        "statistics.json",
    ]
    cache = Cache.open(tmp_path)
    assert cache.manifest.id == manifest_id == cache["train"].manifest_id
    assert cache.splits == ("train",) and cache.statistics == [{"name": "lines", "value": 3}]
    assert cache.build_info == {"runner": "local", "secs": 1.5}
    assert Cache.open(tmp_path / "snapshots" / SNAPSHOT).path == str(tmp_path)


def test_a_reader_keeps_the_snapshot_that_it_opened(tmp_path: Path) -> None:
    build(tmp_path, FIXED, [[fixed_example(0)]])
    before = Cache.open(tmp_path)
    old_files = tmp_path / "snapshots" / SNAPSHOT
    new_files = tmp_path / "snapshots" / OTHER
    new_files.mkdir()
    name = shard_file_name("demo", "train", 0, 1)
    storage = LocalStorage()
    storage.link_or_copy(str(old_files / name), str(new_files / name))
    storage.link_or_copy(str(old_files / (name + ".index")), str(new_files / (name + ".index")))
    assert os.path.samefile(old_files / name, new_files / name)

    publish(tmp_path, Manifest(name="demo", snapshot=OTHER, splits=before.manifest.splits))

    assert Cache.open(tmp_path).manifest.snapshot == OTHER
    assert len(Cache.open(tmp_path)["train"]) == len(before["train"]) == 1
    assert before["train"][0]["id"] == Cache.open(tmp_path, snapshot=SNAPSHOT)["train"][0]["id"] == -5


def test_publishing_the_same_again_changes_nothing_and_something_else_is_refused(tmp_path: Path) -> None:
    build(tmp_path, FIXED, [[fixed_example(0)]])
    manifest = Cache.open(tmp_path).manifest

    assert publish(tmp_path, manifest) == manifest.id
    with pytest.raises(
        CacheError, match="expected no manifest or the same one, found another of snapshot.*deterministic"
    ):
        publish(tmp_path, Manifest(name="demo", snapshot=SNAPSHOT, splits=manifest.splits, statistics=[1]))
    assert Cache.open(tmp_path).manifest.id == manifest.id


def test_splits_of_different_features_have_a_schema_each(tmp_path: Path) -> None:
    train = SplitManifest.from_entries(write_shards(tmp_path, FIXED, [[]]), spec=FIXED)
    eval_ = SplitManifest.from_entries(write_shards(tmp_path, MIXED, [[]], split="eval"), spec=MIXED)

    publish(tmp_path, Manifest(name="demo", snapshot=SNAPSHOT, splits={"train": train, "eval": eval_}))

    files = tmp_path / "snapshots" / SNAPSHOT
    assert 'name: "tokens"' in (files / "schema.pbtxt").read_text()
    assert 'name: "gr\\303\\266\\303\\237en"' in (files / "schema-eval.pbtxt").read_text()


@pytest.mark.parametrize(
    ("prepare", "snapshot", "words"),
    [
        (
            lambda path: None,
            None,
            r"expected a cache, a directory with manifest.json, and there is none. Build it first",
        ),
        (
            lambda path: (path / "snapshots" / OTHER).mkdir(parents=True),
            None,
            f"nothing is published yet.*{OTHER} was started",
        ),
        (lambda path: None, OTHER, f"expected the snapshot '{OTHER}', but it is not published; there are no snapshots"),
        (
            lambda path: build(path, FIXED, []),
            OTHER,
            f"expected the snapshot '{OTHER}'.*the snapshots there are .'{SNAPSHOT}'",
        ),
    ],
    ids=["nothing", "begun", "no snapshots", "other snapshots"],
)
def test_opening_what_is_not_there_says_what_is(
    tmp_path: Path, prepare: Callable[[Path], object], snapshot: str | None, words: str
) -> None:
    prepare(tmp_path)

    with pytest.raises(CacheNotFoundError, match=words):
        Cache.open(tmp_path, snapshot=snapshot)


def test_unknown_splits_and_assets_are_named_with_those_there_are(tmp_path: Path) -> None:
    files = Path(snapshot_directory(tmp_path, SNAPSHOT))
    (files / "assets").mkdir(parents=True)
    (files / "assets" / "v").write_text("x")
    publish(
        tmp_path,
        Manifest(name="demo", snapshot=SNAPSHOT, splits={}, assets=[FileEntry(file="assets/v", bytes=1, crc32c=0)]),
    )
    cache = Cache.open(tmp_path)

    assert Path(cache.asset_path("v")).read_text() == "x" and cache.asset_path("assets/v") == cache.asset_path("v")
    with pytest.raises(CacheNotFoundError, match=r"expected one of the assets \['assets/v'\], got 'w'"):
        cache.asset_path("w")
    with pytest.raises(SplitNotFoundError, match=r"expected one of the splits \[\], got 'train'") as caught:
        cache["train"]
    assert isinstance(caught.value, KeyError) and isinstance(caught.value, CacheNotFoundError)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), KeyError)


def test_a_split_of_protos_is_read_with_its_class(tmp_path: Path) -> None:
    proto = SequenceExample()
    proto.context.feature["x"].int64_list.value.append(3)
    files = Path(snapshot_directory(tmp_path, SNAPSHOT))
    files.mkdir(parents=True)
    with ShardWriter(files, shard_file_name("demo", "train", 0, 1), codec=ProtoCodec(SequenceExample)) as writer:
        writer.write(proto, ordinal=4)
        entries = [writer.commit()]
    for name, full_name in (("train", "beam_pipes.SequenceExample"), ("other", "some.unknown.Message")):
        split = SplitManifest.from_entries(entries, kind="proto", proto=full_name)
        publish(tmp_path, Manifest(name="demo", snapshot=SNAPSHOT, splits={"train": split}))
        (files / "manifest.json").unlink()
        cache = Cache.open(tmp_path)
        assert cache["train"].record_bytes(0) == proto.SerializeToString()
        if name == "train":
            assert cache["train"][0] == proto and list(cache["train"]) == [proto]
            assert cache["train"].proto is SequenceExample and cache["train"].source_ordinals.tolist() == [4]
            with pytest.raises(CacheError, match="holds records of kind 'proto', which have no features"):
                cache["train"].gather([0])
        else:
            with pytest.raises(CacheError, match="the records are some.unknown.Message, but no such message class"):
                cache["train"][0]
            with pytest.raises(
                CacheError, match="records are some.unknown.Message, got proto=beam_pipes.SequenceExample"
            ):
                Cache.open(tmp_path, proto=SequenceExample)["train"]


def test_a_pickled_split_of_a_snapshot_that_was_rebuilt_is_stale(tmp_path: Path) -> None:
    import pickle

    build(tmp_path, FIXED, [[fixed_example(0)]])
    pickled = pickle.dumps(Cache.open(tmp_path)["train"])
    (tmp_path / "snapshots" / SNAPSHOT / "manifest.json").unlink()
    build(tmp_path, FIXED, [[fixed_example(1)]])

    with pytest.raises(
        StaleCacheError, match="expected manifest .* of snapshot 0123456789abcdef, found .*Open the cache again"
    ):
        pickle.loads(pickled)


def test_dead_letters_are_ordinary_examples(tmp_path: Path) -> None:
    letter = DeadLetter(
        record=b"\xff\x00",
        source="a/b.txt",
        position=17,
        ordinal=3,
        stage="Decode",
        error_type="UnicodeDecodeError",
        message="invalid start byte",
        traceback="decode.py, line 3",
    )

    payload = DEAD_LETTER_CODEC.encode(letter.to_example())

    assert DeadLetter.from_example(ExampleCodec(DEAD_LETTER_CODEC.spec).decode(payload)) == letter


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 100_000])
def test_a_file_of_any_size_is_read_whole(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)

    assert LocalStorage().read_bytes(str(tmp_path / "f")) == data


def test_only_one_of_many_writers_creates_a_new_file(tmp_path: Path) -> None:
    storage, path, won = LocalStorage(), str(tmp_path / "f"), []

    def write(name: int) -> None:
        try:
            storage.write_new(path, b"%d" % name)
            won.append(name)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=write, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(won) == 1 and storage.read_bytes(path) == b"%d" % won[0]
    assert os.listdir(tmp_path) == ["f"]


def test_a_staged_file_appears_on_commit_and_not_before(tmp_path: Path) -> None:
    storage = LocalStorage()
    storage.replace(str(tmp_path / "f"), b"old")
    staged = storage.stage(str(tmp_path / "f"))
    staged.write(b"new")

    assert storage.read_bytes(str(tmp_path / "f")) == b"old" and staged.read_back() == b"new"
    assert storage.list(str(tmp_path)) == ["f"]
    assert [name for name in os.listdir(tmp_path) if name.startswith(f"{TEMPORARY_PREFIX}{os.getpid()}-")]
    staged.commit()
    staged.abort()
    assert storage.read_bytes(str(tmp_path / "f")) == b"new" and os.listdir(tmp_path) == ["f"]


def test_local_files_are_read_listed_measured_linked_and_deleted(tmp_path: Path) -> None:
    storage = storage_for(tmp_path)
    path = str(tmp_path / "a")
    storage.write_new(path, b"0123456789")

    assert storage.read_range(path, 3, 4) == b"3456" and storage.read_range(path, 8, 100) == b"89"
    assert storage.size(path) == 10 and storage.exists(path) and storage.local_path(path) == path
    with storage.open_read(path) as file:
        assert file.read() == b"0123456789"
    storage.link_or_copy(path, path + "b")
    storage.link_or_copy(path, path + "b")
    assert storage.list(str(tmp_path)) == ["a", "ab"] and storage.list(str(tmp_path / "none")) == []
    assert sorted(os.listdir(tmp_path)) == ["a", "ab"]
    storage.delete(path)
    storage.delete(path)
    for read in (storage.read_bytes, storage.size, storage.open_read):
        with pytest.raises(CacheNotFoundError, match="expected a file at .*, and there is none"):
            read(path)
    with pytest.raises(CacheNotFoundError, match="expected a file at"):
        storage.link_or_copy(path, path + "c")


def test_a_scheme_that_is_not_served_is_refused() -> None:
    with pytest.raises(
        CacheError,
        match="'ftp://b/c': caches and inputs are on file systems, gs://, s3:// or az://, got the scheme 'ftp'",
    ):
        storage_for("ftp://b/c")


def test_mixed_examples_survive_publishing(tmp_path: Path) -> None:
    build(tmp_path, MIXED, [[mixed_example(i) for i in range(3)]])

    assert Cache.open(tmp_path, verify=True)["train"][2]["text"] == "ää"
