from __future__ import annotations

import errno
import gc
import glob
import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from loader_caches import DOCUMENTS, documents, write_split
from waiting import eventually

from beam_pipes.cache import LocalStorage, local_copies
from beam_pipes.cache.local_copies import ShardStore
from beam_pipes.errors import CacheReadError, CorruptRecordError, ExampleIndexError, LoaderError, SplitNotFoundError
from beam_pipes.loader import BlockShuffle, Loader, open_remote, pack
from beam_pipes.loader.order import BlockOrder
from beam_pipes.storage.local import storage_for

SHARDS = 12


class FarStorage(LocalStorage):
    """A local directory that answers slowly and counts what is read; files cannot be mapped from it."""

    def __init__(self, delay_secs: float = 0.0) -> None:
        self.delay_secs = delay_secs
        self.reads: list[str] = []
        self._lock = threading.Lock()

    def open_read(self, path):
        with self._lock:
            self.reads.append(os.path.basename(path))
        time.sleep(self.delay_secs)
        return super().open_read(path)

    def local_path(self, path):
        return None


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """A cache of 240 documents in 12 shards: its path, its split opened locally, the bytes of its largest shard."""
    path = tmp_path_factory.mktemp("far") / "cache"
    split = write_split(path, documents(240), DOCUMENTS, shards=SHARDS)
    largest = max(file.stat().st_size for file in path.glob("snapshots/*/*.tfrecord-*"))
    return str(path), split, largest


def same(expected, found):
    return expected.keys() == found.keys() and all(np.array_equal(expected[name], found[name]) for name in expected)


def test_a_remote_split_reads_like_the_local_one(far, tmp_path):
    path, local, largest = far
    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=4 * largest, storage=FarStorage())
    indices = [239, 0, 17, 17, 121]

    assert (len(remote), remote.num_shards, remote.manifest_id) == (240, SHARDS, local.manifest_id)
    assert same(local.gather(indices), remote.gather(indices))
    assert same(local.gather(indices, ragged="values"), remote.gather(indices, ragged="values"))
    assert same(local.gather([], features=["id"]), remote.gather([], features=["id"]))
    assert np.array_equal(local.lengths("tokens"), remote.lengths("tokens"))
    assert all(map(np.array_equal, local.gather_values("tokens", indices), remote.gather_values("tokens", indices)))
    assert remote[33]["id"] == 33 and remote.shard_of(239) == SHARDS - 1
    with pytest.raises(ExampleIndexError, match="240 records, but there is no record 240"):
        remote.gather([240])


def test_a_cache_on_a_mounted_disk_is_copied_where_a_directory_is_given(far, tmp_path):
    path, local, largest = far
    near = open_remote(path, "train", local_directory=tmp_path, max_bytes=20 * largest)

    assert same(local.gather([5, 200]), near.gather([5, 200]))

    copies = {copy.name for copy in tmp_path.rglob("*-of-00012")}
    assert copies == {f"demo-train.tfrecord-{shard:05}-of-00012" for shard in (0, 10)}


def test_lengths_fetch_no_records(far, tmp_path):
    path, local, largest = far
    storage = FarStorage()
    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=4 * largest, storage=storage)

    remote.lengths("tokens")

    assert len(storage.reads) == SHARDS and all(name.endswith(".index") for name in storage.reads)


def test_the_rows_of_other_hosts_cost_their_index_only(far, tmp_path):
    path, local, largest = far
    storage = FarStorage()
    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=4 * largest, storage=storage)
    loader = Loader(remote, batch_size=40, shuffle=False, host_index=0, host_count=2)

    batch = loader.batch_at(0)

    assert batch["tokens"].shape == (20, local.lengths("tokens")[:40].max())
    assert sorted(name.rpartition("-train.tfrecord-")[2] for name in storage.reads) == [
        "00000-of-00012",
        "00000-of-00012.index",
        "00001-of-00012.index",
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_block_shuffle_fetches_every_shard_once_an_epoch_within_the_bound(far, tmp_path, workers):
    path, local, largest = far
    storage = FarStorage()
    max_bytes = 8 * largest
    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=max_bytes, storage=storage)
    directory = ShardStore(tmp_path, max_bytes=max_bytes, storage=storage)
    options = {"batch_size": 10, "shuffle": BlockShuffle(window=2), "seed": 3, "last": "partial"}
    expected = list(Loader(local, **options))

    used, found = [], []
    for batch in Loader(remote, workers=workers, **options):
        found.append(batch)
        used.append(directory.used_bytes())

    assert all(map(same, expected, found)) and len(expected) == len(found)
    records = [name for name in storage.reads if not name.endswith(".index")]
    assert sorted(records) == sorted(set(records)) and len(records) == SHARDS
    assert 0 < max(used) <= max_bytes


def test_the_next_window_arrives_while_the_present_one_is_read(far, tmp_path):
    path, local, largest = far
    storage = FarStorage(delay_secs=0.02)
    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=40 * largest, storage=storage)
    loader = Loader(remote, batch_size=5, shuffle=BlockShuffle(window=3))

    next(iter(loader))
    eventually(lambda: len(storage.reads) >= 12)

    assert len([name for name in storage.reads if not name.endswith(".index")]) == 6


def test_a_directory_too_small_for_two_windows_is_refused(far, tmp_path):
    path, local, largest = far
    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=3 * largest, storage=FarStorage())

    with pytest.raises(LoaderError, match="two windows of shards take .* choose a smaller window or raise max_bytes"):
        next(iter(Loader(remote, batch_size=4, shuffle=BlockShuffle(window=4))))
    with pytest.raises(LoaderError, match="the largest shard of split 'train' has .* raise max_bytes"):
        open_remote(path, "train", local_directory=tmp_path, max_bytes=10, storage=FarStorage())
    with pytest.raises(SplitNotFoundError, match="there is no split 'test'. There are: train"):
        open_remote(path, "test", local_directory=tmp_path, max_bytes=10**6)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_directory_that_just_holds_two_windows_is_enough(far, tmp_path, workers):
    path, local, _ = far
    snapshot = glob.glob(f"{path}/snapshots/*")[0]
    pairs = [  # bytes of two neighbouring windows, with their indexes
        sum(
            os.path.getsize(os.path.join(snapshot, f"demo-train.tfrecord-{shard:05}-of-{SHARDS:05}{suffix}"))
            for shard in (*order.blocks_of_window(window), *order.blocks_of_window(window + 1))
            for suffix in ("", ".index")
        )
        for order in [BlockOrder(local.shard_sizes, window=2, seed=3)]
        for window in range(order.num_windows - 1)
    ]
    options = {"batch_size": 10, "shuffle": BlockShuffle(window=2), "seed": 3, "last": "partial", "workers": workers}
    enough, short = (
        open_remote(path, "train", local_directory=tmp_path / name, max_bytes=most, storage=FarStorage())
        for name, most in (("enough", max(pairs)), ("short", max(pairs) - 1))
    )

    found = list(Loader(enough, **options))

    assert all(map(same, Loader(local, **options), found)) and len(found) == 24
    assert pairs[0] < max(pairs)  # so that only a later window does not fit, which is said before the first batch
    with pytest.raises(LoaderError, match=f"two windows of shards take {max(pairs)} bytes with their indexes"):
        next(iter(Loader(short, **options)))


def test_a_global_shuffle_over_a_small_directory_is_slow_but_right(far, tmp_path):
    path, local, largest = far
    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=3 * largest, storage=FarStorage())

    for expected, found in zip(Loader(local, batch_size=40), Loader(remote, batch_size=40), strict=True):
        assert same(expected, found)


def test_packing_plans_read_remote_splits(far, tmp_path):
    path, local, largest = far
    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=100 * largest, storage=FarStorage())
    plan = pack(local, sequence_length=64)

    expected, found = Loader(plan, batch_size=4).batch_at(3), Loader(plan.bind(remote), batch_size=4).batch_at(3)

    assert same(expected, found)
    with pytest.raises(LoaderError, match="a block-wise shuffle cannot bound what they read"):
        Loader(plan.bind(remote), batch_size=4, shuffle=BlockShuffle())


def test_a_state_moves_between_local_and_remote(far, tmp_path):
    path, local, largest = far
    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=9 * largest, storage=FarStorage())
    options = {"batch_size": 16, "shuffle": BlockShuffle(window=2)}
    first, second = Loader(remote, **options), Loader(local, **options)
    next(iter(first))

    second.set_state(first.get_state())

    assert same(next(iter(first)), next(iter(second)))


def test_other_bytes_than_the_manifest_says_are_refused(far, tmp_path):
    path, local, largest = far

    class Flipping(FarStorage):
        def open_read(self, path):
            file = super().open_read(path)
            if path.endswith(".index"):
                return file
            import io

            data = bytearray(file.read())
            file.close()
            data[40] ^= 1
            return io.BytesIO(bytes(data))

    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=9 * largest, storage=Flipping())

    with pytest.raises(CorruptRecordError, match="as the manifest says, found .* copy the shard again"):
        remote.gather([0])
    assert not list(tmp_path.rglob("*.part")) and not list(tmp_path.rglob("*-of-00012"))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, BlockShuffle(window=3)], ids=["stored", "blocks"])
def test_a_shard_that_cannot_be_fetched_is_an_error_of_its_batch_and_reading_continues_once_it_can(
    far, tmp_path, workers, shuffle
):
    path, local, largest = far
    failing = threading.Event()

    class Failing(FarStorage):
        def open_read(self, path):
            if failing.is_set() and path.endswith("-00007-of-00012"):
                raise OSError(errno.EIO, "Input/output error", path)
            return super().open_read(path)

    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=9 * largest, storage=Failing())
    options = {"batch_size": 5, "shuffle": shuffle, "pad_to": 40, "seed": 2, "workers": workers}
    whole = [batch["id"].tolist() for batch in Loader(local, **options)]
    due = next(step for step, batch in enumerate(whole) if any(140 <= index < 160 for index in batch))
    loader = Loader(remote, **options)
    failing.set()
    seen = []
    for _ in range(2):  # it stays in front of that batch
        with pytest.raises(
            CacheReadError, match="Input/output error.* This is record 1[45]. of split 'train'"
        ) as caught:
            seen.extend(batch["id"].tolist() for batch in loader)
        assert seen == whole[:due] and loader.step == due
    assert caught.value.file == "demo-train.tfrecord-00007-of-00012"

    failing.clear()
    assert [batch["id"].tolist() for batch in loader] == whole[due:]


def test_a_file_left_half_written_by_a_crash_is_fetched_again(far, tmp_path):
    path, local, largest = far
    remote = open_remote(path, "train", local_directory=tmp_path, max_bytes=9 * largest, storage=FarStorage())
    directory = tmp_path / local.manifest_id[:16]
    directory.mkdir()
    (directory / "demo-train.tfrecord-00000-of-00012.part").write_bytes(b"half")
    (directory / "demo-train.tfrecord-00007-of-00012.part").write_bytes(bytes(9 * largest))

    assert same(local.gather([0]), remote.gather([0]))
    assert not list(tmp_path.rglob("*.part"))


def _read_all(path, directory, max_bytes, queue):
    remote = open_remote(path, "train", local_directory=directory, max_bytes=max_bytes, storage=FarStorage())
    ids = [int(index) for batch in Loader(remote, batch_size=24) for index in batch["id"]]
    queue.put(sorted(ids))


def test_processes_share_a_directory_that_is_too_small_for_both(far, tmp_path):
    path, local, largest = far
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    arguments = (path, str(tmp_path), 4 * largest, queue)
    processes = [context.Process(target=_read_all, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()

    results = [queue.get(timeout=120) for _ in processes]

    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert results == [list(range(240))] * 2


def test_the_least_recently_used_file_goes_first(tmp_path):
    import google_crc32c

    far = tmp_path / "far"
    far.mkdir()
    crcs = {}
    for name in "abc":
        (far / name).write_bytes(name.encode() * 100)
        crcs[name] = google_crc32c.value(name.encode() * 100)
    store = ShardStore(tmp_path / "near", max_bytes=250, storage=LocalStorage())

    locks = set()
    for name in ("a", "b", "a", "c"):
        store.fetch(str(far / name), name, size=100, crc32c=crcs[name])
        locks.add((store.directory / ".lock").stat().st_ino)
        time.sleep(0.01)

    assert len(locks) == 1  # a lock that went like other files would be held by two at once
    assert sorted(path.name for path in store.directory.iterdir() if path.name != ".lock") == ["a", "c"]
    assert store.used_bytes() == 200
    with pytest.raises(LoaderError, match="bounded to 250; raise max_bytes"):
        store.fetch(str(far / "a"), "d", size=300, crc32c=0)


def test_an_epoch_of_an_older_snapshot_fetches_the_shards_that_hold_its_blocks(tmp_path):
    """Blocks are numbered as in the older snapshot, and its shards have other numbers in the newer one."""
    examples = documents(120)
    old = write_split(tmp_path / "cache", examples, DOCUMENTS, shards=6)
    # Shards of 20 records: three new ones in front, so that every older one moves.
    more = [{**each, "id": each["id"] + 1000} for each in documents(60, seed=1)]
    new = write_split(tmp_path / "cache", [*more, *examples], DOCUMENTS, shards=9, snapshot="fedcba9876543210")
    options = {"batch_size": 10, "shuffle": BlockShuffle(window=1), "seed": 3, "epochs": 2}
    run = Loader(old, **options)
    next(iter(run))
    expected = [batch["id"].tolist() for batch in run]
    storage = FarStorage()
    far = open_remote(str(tmp_path / "cache"), "train", local_directory=tmp_path / "local", max_bytes=1 << 20,
                      storage=storage)  # fmt: skip
    loader = Loader(far, **options, appended="next_epoch", workers=1)
    loader.restore(Loader(old, **options).state)  # of the start: nothing to continue, all records from epoch 0 on
    assert loader.rows_per_epoch == len(new) == 180 and loader.state.appended == ()

    run = Loader(old, **options)
    next(iter(run))
    loader.restore(run.state)
    storage.reads.clear()
    found = [batch["id"].tolist() for _, batch in zip(range(3), loader, strict=False)]

    assert found == expected[:3]
    shards = {int(name.partition("-of-")[0][-5:]) for name in storage.reads if "-train.tfrecord-" in name}
    assert shards and min(shards) >= 3  # none of the new ones, which are numbers 0 to 2


def test_the_processes_of_a_machine_share_one_directory_and_the_last_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    remote = tmp_path / "remote"
    remote.write_bytes(b"a shard")
    crc32c = google_crc32c.value(b"a shard")
    stores = [
        local_copies._store_of_the_machine(max_bytes=1 << 20, storage=storage_for(str(tmp_path))) for _ in range(2)
    ]

    path = stores[0].fetch(str(remote), "key/remote", size=7, crc32c=crc32c)
    remote.unlink()

    assert stores[1].fetch(str(remote), "key/remote", size=7, crc32c=crc32c) == path
    for is_left in (True, False):
        stores.pop()
        gc.collect()
        assert Path(path).exists() is is_left
    (tmp_path / f"beam-pipes-shards-of-{os.getuid()}").write_text("something else of this name")
    alone = local_copies._store_of_the_machine(max_bytes=1 << 20, storage=storage_for(str(tmp_path)))
    assert alone.directory.name.startswith("beam-pipes-shards-") and "-of-" not in alone.directory.name
