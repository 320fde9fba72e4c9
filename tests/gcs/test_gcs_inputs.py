"""Inputs on gs://: the records of local files, found by listing, planned without a download."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from fault_proxy import FaultProxy, at_random
from object_stores import check_names

from beam_pipes.building.references import load_declaration
from beam_pipes.cache import Cache, storage_for
from beam_pipes.errors import SourceError
from beam_pipes.format.framing import RecordWriter
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import CSV, DigestCache, Files, JSONLines, Parquet, TextLines, TFRecords
from beam_pipes.storage.gcs import GcsOptions, session_for

pytestmark = pytest.mark.gcs


@pytest.fixture
def inputs(tmp_path: Path, bucket: str) -> tuple[str, str]:
    """A directory of inputs of all kinds, and the same on gs://."""
    draw = random.Random(0)
    top = tmp_path / "in"
    for name in ("text", "csv", "json", "records", "parquet", "text/deep", "text/.hidden"):
        (top / name).mkdir(parents=True)
    for index in range(6):
        lines = "".join(f"line {index} {draw.random()}\n" for _ in range(500))
        (top / f"text/{index}.txt").write_text(lines)
        (top / f"json/{index}.jsonl").write_text("".join(json.dumps({"i": i, "f": index}) + "\n" for i in range(300)))
        (top / f"csv/{index}.csv").write_text("a,b\n" + "".join(f"{i},x{i}\n" for i in range(900)))
        with RecordWriter(top / f"records/{index}.tfrecord") as writer:
            for i in range(400):
                writer.write(b"%d/%d " % (index, i) * draw.randrange(1, 9))
        table = pyarrow.table({"i": list(range(600)), "t": [[i, index] for i in range(600)]})
        pyarrow.parquet.write_table(table, top / f"parquet/{index}.parquet", row_group_size=100)
    (top / "text/deep/more.txt.gz").write_bytes(gzip.compress(b"deep\n" * 9))
    (top / "text/.hidden/no.txt").write_text("hidden\n")
    (top / "text/empty.txt").write_text("")
    copy(top, f"{bucket}/in")
    return str(top), f"{bucket}/in"


def copy(top: Path, to: str) -> None:
    storage = storage_for(to)
    for path in top.rglob("*"):
        if path.is_file():
            storage.replace(f"{to}/{path.relative_to(top).as_posix()}", path.read_bytes())


def records(source, target: int = 4_000):
    shards = source.plan(target_shard_bytes=target).shards
    batches = [batch for shard in shards for batch in source.read(shard)]
    found = [(batch.record_id(i), str(value)) for batch in batches for i, value in enumerate(batch.values)]
    return [[(piece.file, piece.start, piece.end) for piece in shard.slices] for shard in shards], found


SOURCES = {
    "text": lambda top: TextLines(f"{top}/text", pattern="**/*.txt*"),
    "hidden": lambda top: TextLines(f"{top}/text", hidden=True, exclude="deep"),
    "flat": lambda top: Files(f"{top}/text", recursive=False),
    "file": lambda top: TextLines(f"{top}/text/3.txt"),
    "glob": lambda top: TextLines(f"{top}/text/[0-2].txt"),
    "list": lambda top: Files([f"{top}/text/1.txt", f"{top}/json/*.jsonl"], relative_to=top),
    "csv": lambda top: CSV(f"{top}/csv", schema={"a": int, "b": str}, quoted_newlines=False),
    "json": lambda top: JSONLines(f"{top}/json"),
    "records": lambda top: TFRecords(f"{top}/records"),
    "parquet": lambda top: Parquet(f"{top}/parquet", columns=["t"]),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_records_ids_and_shards_are_those_of_local_files(inputs, kind):
    here, there = (records(SOURCES[kind](top)) for top in inputs)

    assert there == here and len(here[1]) > 0


def test_planning_downloads_nothing_but_where_lines_begin(inputs, bucket, emulator, monkeypatch):
    _, there = inputs
    source = TextLines(f"{there}/text", pattern="*.txt")
    with FaultProxy(emulator, lambda number, method, path: None) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        whole = source.plan(target_shard_bytes=1 << 20)
        assert not [path for _, path in proxy.requests if "alt=media" in path]
        digests = DigestCache()
        cut = source.plan(target_shard_bytes=4_000, digests=digests)
        assert len(cut.shards) > len(whole.shards) and (digests.hits, digests.misses) == (0, 6)
        digests.save(f"{bucket}/digests.json")
        proxy.requests.clear()
        again = source.plan(target_shard_bytes=4_000, digests=DigestCache.load(f"{bucket}/digests.json"))
        downloads = [path for _, path in proxy.requests if "alt=media" in path and "digests" not in path]
        assert again == cut and downloads == []


def test_equal_content_is_the_same_input_and_changed_content_is_another(inputs):
    _, there = inputs
    source, storage = TextLines(f"{there}/text", pattern="*.txt"), storage_for(there)
    before = source.plan(target_shard_bytes=1_000)
    storage.replace(f"{there}/text/2.txt", storage.read_bytes(f"{there}/text/2.txt"))

    assert source.plan(target_shard_bytes=1_000) == before
    storage.replace(f"{there}/text/2.txt", b"other\n" + storage.read_bytes(f"{there}/text/2.txt"))
    after = source.plan(target_shard_bytes=1_000)
    changed = {piece.file for shard in set(after.shards) - set(before.shards) for piece in shard.slices}
    assert {shard.fingerprint() for shard in after.shards} != {shard.fingerprint() for shard in before.shards}
    assert "2.txt" in changed
    unchanged = {s.fingerprint() for s in before.shards} & {s.fingerprint() for s in after.shards}
    assert len(unchanged) >= len(before.shards) - sum(p.file == "2.txt" for s in before.shards for p in s.slices)


def test_an_object_that_changes_after_the_plan_is_refused(inputs):
    _, there = inputs
    source, storage = TextLines(f"{there}/text/1.txt"), storage_for(there)
    [shard] = source.plan(target_shard_bytes=1 << 20).shards
    storage.replace(f"{there}/text/1.txt", b"x" * shard.slices[0].end)
    with pytest.raises(SourceError, match=r"input 1.txt changed after it was planned: bytes 0 to \d+ .*; plan again"):
        list(source.read(shard))
    storage.delete(f"{there}/text/1.txt")
    with pytest.raises(SourceError, match="input 1.txt vanished .at byte 0.: No such file or directory"):
        list(source.read(shard))


def test_mistakes_in_inputs_are_reported_in_words(inputs, bucket, tmp_path):
    _, there = inputs
    with pytest.raises(
        SourceError, match="input 'gs://.*/nothing' does not exist: there is no object of this name, nor"
    ):
        Files(f"{there}/nothing").plan(target_shard_bytes=1)
    with pytest.raises(SourceError, match="no file matches: looked in 'gs://.*' for pattern"):
        Files(f"{there}/text", pattern="*.nothing").plan(target_shard_bytes=1)
    with pytest.raises(SourceError, match="input 'gs://no-such-bucket/d' cannot be read: .*there is no bucket"):
        Files("gs://no-such-bucket/d").plan(target_shard_bytes=1)
    with pytest.raises(
        SourceError, match="should all be on one service .gs://, s3:// or az://., or all on this machine"
    ):
        Files([f"{there}/text", str(tmp_path)]).plan(target_shard_bytes=1)
    with pytest.raises(SourceError, match="have no bucket in common: declare one source for each bucket"):
        Files([f"{there}/text", "gs://other/*"]).plan(target_shard_bytes=1)
    with pytest.raises(SourceError, match="expected all inputs to be under relative_to='gs://.*/json'"):
        Files(f"{there}/text", relative_to=f"{there}/json").plan(target_shard_bytes=1)


def test_builds_from_one_bucket_to_another_are_incremental(text_input, bucket, emulator, monkeypatch):
    copy(text_input, f"{bucket}/in")
    declaration = dataclasses.replace(
        load_declaration("sample_declarations:words"), source=TextLines(f"{bucket}/in", pattern="**/*.txt")
    )
    local = build("sample_declarations:words", text_input.parent / "cache", options=LocalOptions(workers=1))
    with FaultProxy(emulator, at_random(0.05, seed=5)) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        first = build(declaration, f"{bucket}/cache", options=LocalOptions(workers=1))
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)

    # Digests of objects are not those of files, so the snapshot has another name; the records are the same.
    here, there = Cache.open(text_input.parent / "cache"), Cache.open(f"{bucket}/cache")
    assert first.snapshot != local.snapshot and first.account.to_json() == local.account.to_json()
    for split in here.splits:
        assert there.manifest.splits[split] == here.manifest.splits[split]
    assert build(declaration, f"{bucket}/cache", options=LocalOptions(workers=1)).up_to_date
    storage_for(bucket).replace(f"{bucket}/in/sub/small-9.txt", b"one more\n")
    second = build(declaration, f"{bucket}/cache", options=LocalOptions(workers=1))
    assert second.num_shards - second.reused_shards <= 2 and second.reused_shards > 0


def test_names_of_objects_are_names_before_they_are_globs(bucket):
    check_names(bucket)


def test_a_name_that_is_another_path_is_reported_not_left_out(bucket):
    for name in ("a/../b.txt", "c.txt"):
        storage_for(bucket).replace(f"{bucket}/in/{name}", b"line\n")

    with pytest.raises(
        SourceError, match=r"object 'gs://.*/in/a/\.\./b.txt' cannot be read: its name has a part '\.' or "
    ):
        records(TextLines(f"{bucket}/in"))
    assert len(records(TextLines(f"{bucket}/in", exclude="a/../b.txt"))[1]) == 1
    assert len(records(TextLines(f"{bucket}/in", pattern="c*"))[1]) == 1


def test_what_the_service_would_decompress_is_read_as_it_is_stored(bucket):
    """An object of `contentEncoding: gzip` has the size, the checksum and the ranges of its compressed bytes."""
    stored = gzip.compress(b"".join(b"line %d\n" % number for number in range(5_000)))
    _, _, name = bucket.partition("://")
    where, _, prefix = name.partition("/")
    blob = session_for(GcsOptions.from_environment()).client.bucket(where).blob(f"{prefix}/a.txt".lstrip("/"))
    blob.content_encoding = "gzip"
    blob.upload_from_string(stored)

    assert storage_for(bucket).read_bytes(f"{bucket}/a.txt") == stored
    assert storage_for(bucket).read_range(f"{bucket}/a.txt", 100, 50) == stored[100:150]
    with pytest.raises(
        SourceError, match="a.txt is not text in UTF-8. It begins as gzip data do: give the file a name"
    ):
        records(TextLines(f"{bucket}/a.txt"))
