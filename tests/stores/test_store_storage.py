"""Objects of S3 and of Azure Blob Storage as files: what gs:// promises, over other protocols."""

from __future__ import annotations

import io
import random
import subprocess
import sys

import pytest
from etag_stores import PART
from fault_proxy import CUT_UPLOAD, DRIP, FLIP, LOST_RESPONSE, FaultProxy, at_random
from object_stores import check_directories, check_faults, check_files, check_ranges, check_swaps, upload

from beam_pipes.cache import storage_for
from beam_pipes.errors import (
    BucketNotFoundError,
    CacheBusyError,
    CacheError,
    CacheNotFoundError,
    StorageError,
    StorageForbiddenError,
    StorageUnavailableError,
)

MIB = 1 << 20


def storage_with(store, **options):
    return store.storage(store.options(**{"most_backoff_secs": 0.05, "chunk_bytes": 256 << 10, **options}))


def test_an_object_is_a_file(storage, bucket):
    check_files(storage, bucket)


def test_a_large_object_appears_whole_in_parts(storage, bucket):
    path, data = f"{bucket}/shard", random.Random(1).randbytes(11 * MIB + 17)
    staged = storage.stage(path)
    staged.write(data[: 3 * MIB])

    assert staged.read_back() == data[: 3 * MIB] and storage.list(bucket) == []
    staged.write(data[3 * MIB :])
    staged.commit()

    assert storage.size(path) == len(data) and storage.read_bytes(path) == data
    with storage.open_read(path) as file:
        assert file.seek(-7, io.SEEK_END) == len(data) - 7 and file.read() == data[-7:] and file.read(1) == b""
        draw = random.Random(3)
        for _ in range(20):
            start, size = draw.randrange(len(data)), draw.randrange(1, 400_000)
            file.seek(start)
            assert file.read(size) == data[start : start + size]
    aborted = storage.stage(f"{bucket}/other")
    aborted.write(b"x")
    aborted.abort()
    assert storage.list(bucket) == ["shard"]


def test_a_reader_never_mixes_two_objects(storage, bucket):
    path = f"{bucket}/shard"
    upload(storage, path, b"a" * MIB)
    with storage.open_read(path) as file:
        assert file.read(10) == b"a" * 10
        storage.replace(path, b"b" * MIB)
        with pytest.raises(CacheNotFoundError, match="another object was written there while this one was read. Open"):
            file.seek(900_000)
            file.read(10)


def test_directories_are_listed_by_name_and_as_trees(store, bucket):
    check_directories(storage_with(store, page_names=20), bucket)


def test_compare_and_swap_lets_one_of_many_win(storage, bucket):
    check_swaps(storage, bucket)


def test_the_build_lock_is_held_once_and_ends_with_its_holder(storage, bucket):
    path = f"{bucket}/.lock"
    with storage.lock(path, bucket) as lock:
        lock.check()
        assert storage.lock_holder(path) is not None
        with (
            pytest.raises(CacheBusyError, match=r"another build is writing to '(s3|az)://"),
            storage.lock(path, bucket),
        ):
            pass
    assert storage.lock_holder(path) is None and not storage.exists(path)


# In a process of its own: this one has threads of JAX and torch, which a forked child would miss.
FORKED = """
import os, sys
from beam_pipes.cache import storage_for

path = sys.argv[1]
assert storage_for(path).read_bytes(path) == b"bytes"
child = os.fork()
if not child:
    os._exit(0 if storage_for(path).read_bytes(path) == b"bytes" else 1)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_process_reads_with_a_client_of_its_own(storage, bucket):
    storage.replace(f"{bucket}/f", b"bytes")

    done = subprocess.run([sys.executable, "-c", FORKED, f"{bucket}/f"], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


def test_lost_answers_lose_no_swap_no_upload_and_no_lock(store, monkeypatch):
    lose = {"commits": False, "left": 0}

    def plan(number, method, path):
        if lose["left"] and method in ("PUT", "POST") and store.is_commit(method, path) == lose["commits"]:
            lose["left"] -= 1
            return LOST_RESPONSE
        return None

    with FaultProxy(store.url, plan) as proxy:
        store.go_to(proxy.url, monkeypatch)
        storage, top = storage_with(store), store.new_bucket()
        for data, before in ((b"new", None), (b"newer", b"new")):
            lose.update(left=1)
            storage.replace_if(f"{top}/m", data, before)
        lose.update(left=1)
        with storage.lock(f"{top}/.lock", top) as lock:
            lock.check()
        lose.update(commits=True, left=1)  # the request that completes an upload
        upload(storage, f"{top}/shard", bytes(6 * MIB))
        assert storage.read_bytes(f"{top}/m") == b"newer" and storage.size(f"{top}/shard") == 6 * MIB
        assert proxy.done[LOST_RESPONSE] == 4


def test_nothing_is_lost_or_half_written_under_random_faults(store, monkeypatch):
    with FaultProxy(store.url, at_random(0.2, seed=3)) as proxy:
        store.go_to(proxy.url, monkeypatch)
        storage, root = storage_with(store, deadline_secs=60), store.new_bucket()
        check_faults(storage, root, sizes=[0, 10, 70_000, 6 * MIB + 300_001])
        assert sum(proxy.done.values()) >= 3


def test_a_part_that_fails_is_sent_again_and_nothing_else(store, monkeypatch):
    part, failing = PART[store.scheme[:-3].replace("az", "azure")], {"left": 2}

    def plan(number, method, path):
        if method == "PUT" and part in f"{path}&" and failing["left"]:
            failing["left"] -= 1
            return ("503", CUT_UPLOAD)[failing["left"]]
        return None

    with FaultProxy(store.url, plan) as proxy:
        store.go_to(proxy.url, monkeypatch)
        storage, path, data = storage_with(store, chunk_bytes=5 * MIB), f"{store.new_bucket()}/shard", bytes(16 * MIB)
        upload(storage, path, data)
        sent = [asked for method, asked in proxy.requests if method == "PUT" and part in f"{asked}&"]
        assert len(sent) == 4 + 2 and proxy.done.total() == 2
        proxy.requests.clear()
        storage.link_or_copy(path, f"{path}-2")
        assert len(proxy.requests) <= 2  # at once, whatever parts it was made of
        assert storage.read_bytes(f"{path}-2") == data


def test_a_bit_that_flips_on_the_way_is_noticed(store, monkeypatch):
    flips = {"left": 0}

    def plan(number, method, path):
        if method == "GET" and path.endswith("/f") and flips["left"]:
            flips["left"] -= 1
            return FLIP
        return None

    with FaultProxy(store.url, plan) as proxy:
        store.go_to(proxy.url, monkeypatch)
        storage, path = storage_with(store), f"{store.new_bucket()}/f"
        storage.replace(path, bytes(1000))
        flips["left"] = 2
        assert storage.read_bytes(path) == bytes(1000) and proxy.done[FLIP] == 2


def test_an_answer_with_another_range_is_not_an_answer(store, monkeypatch):
    check_ranges(store.url, lambda url: store.go_to(url, monkeypatch), lambda: storage_with(store), store.new_bucket())


def test_a_service_that_drips_or_never_answers_ends_in_an_error_in_time(store, monkeypatch):
    name = store.new_bucket()
    path = f"{name}/f"
    with FaultProxy(store.url, lambda n, method, asked: DRIP if method == "GET" else None, slow_secs=0.02) as proxy:
        store.go_to(proxy.url, monkeypatch)
        storage = storage_with(store, attempt_timeout_secs=1.0, deadline_secs=3.0)
        upload(storage, path, bytes(100_000))
        with pytest.raises(StorageUnavailableError, match=r"cannot read: .* attempts in .* failed, the last with: "):
            storage.read_range(path, 0, 100_000)
    with FaultProxy(store.url, lambda n, method, asked: "503") as proxy:
        store.go_to(proxy.url, monkeypatch)
        storage = storage_with(store, deadline_secs=0.5)
        for operation in (lambda: storage.list(name), lambda: storage.replace(path, b"")):
            with pytest.raises(
                StorageUnavailableError, match=rf"deadline_secs=0.5 \({store.options.PREFIX}DEADLINE_SECS\)"
            ):
                operation()
        assert proxy.done["503"] > 3


def test_mistakes_are_reported_in_words(bucket, store, monkeypatch):
    storage, nowhere = storage_with(store), f"{store.scheme}no-such-bucket"
    for operation in (
        lambda: storage.read_bytes(f"{nowhere}/f"),
        lambda: storage.replace(f"{nowhere}/f", b""),
        lambda: storage.list(f"{nowhere}/d"),
        lambda: upload(storage, f"{nowhere}/f", bytes(5 * MIB)),
    ):
        with pytest.raises(BucketNotFoundError, match=store.no_bucket):
            operation()
    with pytest.raises(StorageError, match=f"expected a path {store.scheme}(bucket|container)/directory.*, got '"):
        storage.read_bytes(store.scheme)
    with pytest.raises(
        CacheError, match="caches and inputs are on file systems, gs://, s3:// or az://, got the scheme"
    ):
        storage_for("ftp://host/f")
    with FaultProxy(store.url, lambda number, method, path: "403") as proxy:
        store.go_to(proxy.url, monkeypatch)
        for operation in (lambda: storage.read_bytes(f"{bucket}/f"), lambda: storage.replace(f"{bucket}/f", b"")):
            with pytest.raises(
                StorageForbiddenError, match=rf"these credentials may not (read|write) there .*{store.forbidden}"
            ):
                operation()
        assert len(proxy.requests) == 2  # never tried again
    for name, value in store.no_account().items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(StorageError, match=store.no_credentials):
        storage.read_bytes(f"{bucket}/f")
