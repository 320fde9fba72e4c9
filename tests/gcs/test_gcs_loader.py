"""Loading from gs:// through a bounded local directory."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from fault_proxy import FaultProxy, at_random
from view_pages import answers

from beam_pipes.beam import ReadFromCache
from beam_pipes.cache import Cache, storage_for
from beam_pipes.errors import CacheNotFoundError, CorruptRecordError, LoaderError
from beam_pipes.loader import BlockShuffle, Loader, open_remote
from beam_pipes.runners import LocalOptions, build

pytestmark = pytest.mark.gcs

MIB = 1 << 20


@pytest.fixture
def caches(text_input: Path, tmp_path: Path, bucket: str) -> tuple[str, str]:
    """The same cache on disk and on gs://."""
    for to in (f"{bucket}/words", str(tmp_path / "words")):
        build("sample_declarations:words", to, options=LocalOptions(workers=1))
    return str(tmp_path / "words"), f"{bucket}/words"


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_view_shows_what_it_shows_of_the_local_one(caches):
    here, there = map(answers, caches)
    assert there == here


def test_a_split_reads_like_the_local_one(caches, tmp_path):
    here, there = Cache.open(caches[0]), Cache.open(caches[1], local_directory=tmp_path / "copies")
    assert there.splits == here.splits and there.manifest.id == here.manifest.id
    for split in here.splits:
        one, other = here[split], there[split]
        rows = [0, len(one) - 1, 3, 3]
        assert len(other) == len(one) and same(one.gather(rows), other.gather(rows))
        assert str(other[1]) == str(one[1]) and other.record_bytes(2) == one.record_bytes(2)
        assert [str(example) for example in other] == [str(example) for example in one]
        assert other.record_ids([0, 5]) == one.record_ids([0, 5])
    assert np.array_equal(here["train"].lengths("lengths"), there["train"].lengths("lengths"))
    again = pickle.loads(pickle.dumps(there["train"]))
    assert same(again.gather([4]), here["train"].gather([4]))


def test_the_loader_fetches_each_shard_once_and_resumes_exactly(caches, tmp_path, emulator, monkeypatch):
    local = Cache.open(caches[0])["words"]
    largest = max(local._shards.bytes)
    options = {"batch_size": 16, "shuffle": BlockShuffle(window=2), "seed": 4}
    expected = list(Loader(local, **options))
    with FaultProxy(emulator, lambda number, method, path: None) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        far = open_remote(caches[1], "words", local_directory=tmp_path / "copies", max_bytes=8 * largest)
        loader, found, used = Loader(far, **options), [], []
        for batch in loader:
            found.append(batch)
            files = [file for file in (tmp_path / "copies").rglob("*tfrecord*") if file.exists()]
            used.append(sum(file.stat().st_size for file in files))
        media = [path for _, path in proxy.requests if "alt=media" in path and "tfrecord" in path]
    assert all(map(same, expected, found)) and len(expected) == len(found)
    assert max(used) <= 8 * largest
    shards = [path for path in media if ".index" not in path]
    assert len(shards) == len(set(shards)) == local.num_shards

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    first = Loader(open_remote(caches[1], "words", local_directory=tmp_path / "a", max_bytes=MIB), **options)
    batches = iter(first)
    assert all(same(next(batches), batch) for batch in expected[:5])
    state = first.get_state()
    for split in (local, open_remote(caches[1], "words", local_directory=tmp_path / "b", max_bytes=MIB)):
        resumed = Loader(split, **options)
        resumed.set_state(state)
        assert all(map(same, expected[5:], resumed))


def test_a_network_that_breaks_changes_no_batch(caches, tmp_path, emulator, monkeypatch):
    options = {"batch_size": 32, "shuffle": True, "seed": 1}
    expected = list(Loader(Cache.open(caches[0])["train"], **options))
    with FaultProxy(emulator, at_random(0.2, seed=9)) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        found = list(Loader(Cache.open(caches[1], local_directory=tmp_path / "copies")["train"], **options))
        assert sum(proxy.done.values()) > 0
    assert all(map(same, expected, found)) and len(found) == len(expected)


def test_bounds_and_damage_are_reported(caches, tmp_path):
    with pytest.raises(LoaderError, match="the largest shard of split 'train' has .* raise max_bytes"):
        Cache.open(caches[1], local_directory=tmp_path, max_local_bytes=100)["train"]
    with pytest.raises(CacheNotFoundError, match="there is no split 'test'. .*There are: eval, train, words"):
        open_remote(caches[1], "test", local_directory=tmp_path, max_bytes=MIB)
    with pytest.raises(CacheNotFoundError, match="expected a cache, a directory with manifest.json, and there is none"):
        Cache.open(caches[1] + "-other")
    cache, storage = Cache.open(caches[1]), storage_for(caches[1])
    name = next(name for name in storage.sizes(cache.directory) if "train" in name and not name.endswith(".index"))
    data = bytearray(storage.read_bytes(f"{cache.directory}/{name}"))
    data[-1] ^= 1
    storage.replace(f"{cache.directory}/{name}", bytes(data))
    with pytest.raises(CorruptRecordError, match="gs://.* as the manifest says, found .* copy the shard again"):
        cache["train"].gather(range(len(cache["train"])))


def test_without_a_local_directory_nothing_stays_behind(caches, tmp_path):
    code = f"from beam_pipes.cache import Cache; print(len(list(Cache.open({caches[1]!r})['train'].gather([0]))))"
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert found.stdout.strip() == "3" and list((tmp_path / "tmp").iterdir()) == []


def test_a_split_on_object_storage_is_named_by_its_path(caches):
    found = list(Loader(f"{caches[1]}/train", batch_size=32, seed=1))
    expected = list(Loader(f"{caches[0]}/train", batch_size=32, seed=1))

    assert all(map(same, expected, found)) and len(expected) == len(found) > 0
    with pytest.raises(CacheNotFoundError, match=f"the cache '{caches[1]}' has no split 'test'. Choose one of: 'gs://"):
        Loader(f"{caches[1]}/test", batch_size=32)


def test_a_beam_source_requests_the_parts_that_it_reads_and_copies_no_shard(caches, emulator, tmp_path, monkeypatch):
    here = Cache.open(caches[0])["words"]
    count, middle = len(here), next(shard for shard in range(1, here.num_shards) if here.shard_sizes[shard] > 5)
    begin = int(here.shard_sizes[:middle].sum())
    behind = begin + int(here.shard_sizes[middle])
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with FaultProxy(emulator, lambda number, method, path: None) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        there = Cache.open(caches[1])["words"]

        def read(first: int, last: int, split=there) -> tuple[list, dict[str, int], int]:
            """(records, bytes of each shard that were sent, files of indexes that were requested)"""
            source = pickle.loads(pickle.dumps(ReadFromCache(split)._source))
            source._split.close()
            proxy.sent_bytes.clear()
            found = list(source.read(source.get_range_tracker(first, last)))
            sent = {path.rpartition("%2F")[2].rpartition("/")[2]: size for path, size in proxy.sent_bytes.items()}
            shards = {path: size for path, size in sent.items() if "tfrecord" in path and ".index" not in path}
            return found, shards, sum(".index" in path for path in sent)

        def is_like(found: list, rows) -> bool:
            return len(found) == len(rows) and all(same(one, here[row]) for one, row in zip(found, rows, strict=True))

        found, shards, indexes = read(0, count)
        assert is_like(found, range(count)) and indexes == 0
        assert sorted(shards.values()) == sorted(size for size in here._shards.bytes if size)

        found, shards, indexes = read(begin + 1, begin + 4)
        assert is_like(found, range(begin + 1, begin + 4))
        assert list(shards.values()) == [here.offset_of(begin + 4) - here.offset_of(begin + 1)]

        found, shards, _ = read(begin - 1, behind)  # from the end of one shard to the end of the next
        assert is_like(found, range(begin - 1, behind)) and len(shards) == 2

        copied = (tmp_path / "temporary").rglob("*.tfrecord*")
        assert [file for file in copied if not file.name.endswith(".index")] == []

        chosen = there.where("length > 5")  # which reads a feature of all records, from copies
        found, shards, _ = read(0, len(chosen), chosen)
        assert is_like(found, [row for row in range(count) if here[row]["length"] > 5]) and shards


def test_a_beam_source_reads_a_chosen_directory_and_finds_damage(caches, tmp_path):
    chosen = Cache.open(caches[1], local_directory=tmp_path / "copies")["words"]
    source = ReadFromCache(chosen)._source
    assert len(list(source.read(source.get_range_tracker(0, 3)))) == 3
    assert [file for file in (tmp_path / "copies").rglob("*.tfrecord*") if ".index" not in file.name]

    cache, storage = Cache.open(caches[1]), storage_for(caches[1])
    split = cache["words"]
    name, offset = split.place_of(1)[0], split.offset_of(1)
    path = next(f"{cache.directory}/{each}" for each in storage.sizes(cache.directory) if each in name)
    intact = storage.read_bytes(path)
    source = ReadFromCache(split)._source
    for data, words in [
        (intact[:-1] + bytes([intact[-1] ^ 1]), "checksum"),
        (intact[:-1], "cut short"),
        (intact[:offset], "expected [0-9]+ records in the bytes 0 to [0-9]+, as the manifest says, found 1"),
    ]:
        storage.replace(path, data)
        with pytest.raises(CorruptRecordError, match=words):
            list(source.read(source.get_range_tracker(0, len(split))))
