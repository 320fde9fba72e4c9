"""Objects as files: writing, reading, listing, preconditions, the lease, and errors in words."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import pytest
from fault_proxy import CUT_UPLOAD, DRIP, FLIP, LOST_RESPONSE, FaultProxy, at_random
from gcs_emulator import new_bucket, running
from object_stores import check_directories, check_faults, check_files, check_ranges, check_swaps, upload

from beam_pipes.cache import storage_for
from beam_pipes.errors import (
    BucketNotFoundError,
    CacheBusyError,
    CacheNotFoundError,
    StorageError,
    StorageForbiddenError,
    StorageUnavailableError,
)
from beam_pipes.storage import GcsOptions, GcsStorage
from beam_pipes.storage.gcs import session_for
from beam_pipes.storage.local import directory_path

pytestmark = pytest.mark.gcs

MIB = 1 << 20


def options(**changed) -> GcsOptions:
    return GcsOptions(**{"most_backoff_secs": 0.05, "chunk_bytes": 256 << 10, **changed})


def test_an_object_is_a_file(storage, bucket):
    check_files(storage, bucket)


def test_what_is_staged_is_invisible_until_it_is_committed_whole(storage, bucket):
    path, data = f"{bucket}/shard", random.Random(1).randbytes(6 * MIB + 17)
    staged = storage.stage(path)
    staged.write(data[: 3 * MIB])

    assert staged.read_back() == data[: 3 * MIB] and storage.list(bucket) == []
    staged.write(data[3 * MIB :])
    staged.commit()

    status = storage.status(path)
    assert (status.size, status.crc32c) == (len(data), google_crc32c.value(data))
    assert storage.read_bytes(path) == data
    aborted = storage.stage(f"{bucket}/other")
    aborted.write(b"x")
    aborted.abort()
    assert storage.list(bucket) == ["shard"]


def test_reading_jumps_and_reads_ahead_and_is_checked(storage, bucket):
    path, data = f"{bucket}/shard", random.Random(2).randbytes(3 * MIB + 5)
    upload(storage, path, data)
    draw = random.Random(3)

    with storage.open_read(path) as file:
        assert file.seek(-7, io.SEEK_END) == len(data) - 7 and file.read() == data[-7:] and file.read(1) == b""
        for _ in range(50):
            start, size = draw.randrange(len(data)), draw.randrange(1, 400_000)
            file.seek(start)
            assert file.read(size) == data[start : start + size]
    with io.BufferedReader(storage.open_read(path)) as file:
        assert hashlib.sha256(file.read()).digest() == hashlib.sha256(data).digest()
    empty = f"{bucket}/empty"
    storage.replace(empty, b"")
    with storage.open_read(empty) as file:
        assert file.read() == b"" and file.read(10) == b""


def test_a_reader_keeps_to_its_generation(storage, bucket):
    path = f"{bucket}/shard"
    upload(storage, path, b"a" * MIB)
    with storage.open_read(path) as file:
        assert file.read(10) == b"a" * 10
        storage.replace(path, b"b" * MIB)
        # The service forgets a generation that was replaced: an error, and never a mixture of both.
        with pytest.raises(CacheNotFoundError):
            file.seek(900_000)
            assert file.read(10) != b"b" * 10


def test_directories_are_listed_by_name_and_as_trees(bucket):
    check_directories(GcsStorage(options(page_names=20)), bucket)


def test_compare_and_swap_lets_one_of_many_win(storage, bucket):
    check_swaps(storage, bucket)


def test_a_lost_answer_does_not_make_a_swap_lose(emulator, monkeypatch):
    lose = {"left": 0}

    def plan(number: int, method: str, path: str) -> str | None:
        if method == "POST" and lose["left"]:
            lose["left"] -= 1
            return LOST_RESPONSE
        return None

    with FaultProxy(emulator, plan) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        storage, path = GcsStorage(options()), f"gs://{new_bucket(emulator)}/m"
        lose["left"] = 1
        storage.replace_if(path, b"new", None)
        lose["left"] = 1
        storage.replace_if(path, b"newer", b"new")
        lose["left"] = 1
        with storage.lock(f"{path}.lock", path) as lock:
            lock.check()
        assert storage.read_bytes(path) == b"newer" and proxy.done[LOST_RESPONSE] == 3


def test_an_answer_with_another_range_is_not_an_answer(emulator, monkeypatch):
    def go_to(url: str) -> None:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)

    check_ranges(emulator, go_to, lambda: GcsStorage(options()), f"gs://{new_bucket(emulator)}")


@pytest.mark.parametrize("server", ["fake-gcs-server", "gcp-storage-emulator"])
def test_uploads_continue_after_broken_connections(server, monkeypatch):
    """Chunks are lost before and within the service, and sent again; one that comes twice starts the upload again.

    Google's service knows such a chunk by its place; one emulator refuses it, the other one takes it for two.
    """
    data = random.Random(4).randbytes(9 * MIB + 3)
    broken = {3: CUT_UPLOAD, 6: "503", 9: LOST_RESPONSE, 22: CUT_UPLOAD, 24: "429"}
    with running(server) as url:
        name = new_bucket(url)
        with FaultProxy(url, lambda number, method, path: broken.get(number)) as proxy:
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
            storage, path = GcsStorage(options()), f"gs://{name}/shard"
            upload(storage, path, data)
            assert storage.read_bytes(path) == data
            assert sum(proxy.done.values()) >= 4
            sessions = sum("uploadType=resumable" in path for method, path in proxy.requests if method == "POST")
    assert sessions == 2


@pytest.mark.parametrize("server", ["fake-gcs-server", "gcp-storage-emulator"])
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_or_half_written_under_random_faults(server, monkeypatch, seed):
    with running(server) as url, FaultProxy(url, at_random(0.3, seed=seed)) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        storage = GcsStorage(options(deadline_secs=60, chunk_bytes=8 * MIB))
        check_faults(storage, f"gs://{new_bucket(url)}", sizes=[0, 10, 70_000, 4 * MIB + 300_001, 8 * MIB + 300_001])
        assert sum(proxy.done.values()) >= 3


def test_a_bit_that_flips_on_the_way_is_noticed(emulator, monkeypatch):
    flips = {"left": 0}

    def plan(number: int, method: str, path: str) -> str | None:
        if method == "GET" and "alt=media" in path and flips["left"]:
            flips["left"] -= 1
            return FLIP
        return None

    with FaultProxy(emulator, plan) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        storage, path = GcsStorage(options()), f"gs://{new_bucket(emulator)}/f"
        storage.replace(path, bytes(1000))
        flips["left"] = 2
        assert storage.read_bytes(path) == bytes(1000) and proxy.done[FLIP] == 2
        flips["left"] = 1
        with pytest.raises(ValueError, match="expected 1000 bytes with checksum .* They changed on their way here"):
            with storage.open_read(path) as file:
                file.read()


def test_a_service_that_drips_or_never_answers_ends_in_an_error_in_time(emulator, monkeypatch):
    name = new_bucket(emulator)
    with FaultProxy(emulator, lambda n, method, path: DRIP if "alt=media" in path else None, slow_secs=0.02) as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        storage, path = GcsStorage(options(attempt_timeout_secs=2.0, deadline_secs=5.0)), f"gs://{name}/f"
        upload(GcsStorage(options()), path, bytes(100_000))
        with pytest.raises(
            StorageUnavailableError, match="cannot read: .* attempts in .* failed, the last with: Incom"
        ):
            storage.read_range(path, 0, 100_000)
    with FaultProxy(emulator, lambda n, method, path: "503") as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        storage = GcsStorage(options(deadline_secs=0.5))
        for operation in (
            lambda: storage.list(f"gs://{name}"),
            lambda: storage.replace(path, b""),
            lambda: storage.delete(path),
        ):
            with pytest.raises(
                StorageUnavailableError,
                match="Nothing half done is visible; try again later, or allow more than deadline_secs=0.5",
            ):
                operation()
        assert proxy.done["503"] > 3


def test_mistakes_are_reported_in_words(bucket, emulator, monkeypatch):
    storage = GcsStorage(options())
    for operation in (
        lambda: storage.read_bytes("gs://no-such-bucket/f"),
        lambda: storage.replace("gs://no-such-bucket/f", b""),
        lambda: storage.list("gs://no-such-bucket/d"),
        lambda: upload(storage, "gs://no-such-bucket/f", bytes(5 * MIB)),
    ):
        with pytest.raises(BucketNotFoundError, match="there is no bucket 'no-such-bucket'. Check its name, or create"):
            operation()
    with pytest.raises(StorageError, match="expected a path gs://bucket/directory, got 'gs://'"):
        storage.read_bytes("gs://")
    with FaultProxy(emulator, lambda number, method, path: "403") as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        for operation in (lambda: storage.read_bytes(f"{bucket}/f"), lambda: storage.replace(f"{bucket}/f", b"")):
            with pytest.raises(
                StorageForbiddenError,
                match=r"an anonymous caller may not (read|write) there .*roles/storage.objectViewer on the bucket, "
                r"building roles/storage.objectUser: gcloud storage buckets add-iam-policy-binding gs://b-",
            ):
                operation()
        assert len([path for _, path in proxy.requests if "/o" in path]) == 2  # never tried again


def test_options_come_from_the_environment_and_are_checked(monkeypatch):
    monkeypatch.setenv("BEAM_PIPES_GCS_ANONYMOUS", "1")
    monkeypatch.setenv("BEAM_PIPES_GCS_DEADLINE_SECS", "7.5")
    assert GcsOptions.from_environment().anonymous and GcsOptions.from_environment().deadline_secs == 7.5
    monkeypatch.setenv("BEAM_PIPES_GCS_DEADLINE_SECS", "soon")
    with pytest.raises(StorageError, match="the variable BEAM_PIPES_GCS_DEADLINE_SECS should be a number, got 'soon'"):
        GcsOptions.from_environment()
    with pytest.raises(StorageError, match="chunk_bytes should be a multiple of 262144"):
        GcsOptions(chunk_bytes=1000)
    with pytest.raises(StorageError, match="lease_secs should be a number above 0, got 0"):
        GcsOptions(lease_secs=0)


def test_a_machine_without_credentials_is_reported_at_once(tmp_path):
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE", "STORAGE_EMULATOR"))},
        "HOME": str(tmp_path),
        "CLOUDSDK_CONFIG": str(tmp_path),
        "GCE_METADATA_HOST": "127.0.0.1:9",
    }
    code = "from beam_pipes.cache import storage_for; storage_for('gs://b').list('gs://b')"
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "there are no credentials for gs:// paths on this machine. Run: gcloud auth application" in found.stderr
    assert "BEAM_PIPES_GCS_ANONYMOUS=1" in found.stderr


def test_storages_travel_to_other_processes(storage, bucket):
    storage.replace(f"{bucket}/f", b"x")
    assert pickle.loads(pickle.dumps(storage)).read_bytes(f"{bucket}/f") == b"x"
    assert isinstance(storage_for(f"{bucket}/f"), GcsStorage)
    assert directory_path(f"{bucket}/d/") == f"{bucket}/d"
    assert session_for(storage.options) is session_for(storage.options)


def test_the_error_of_a_second_builder_names_the_first(storage, bucket):
    path = f"{bucket}/.build.lock"
    assert storage.lock_holder(path) is None
    with storage.lock(path, bucket):
        assert storage.lock_holder(path).startswith(f"process {os.getpid()} on ")
        with pytest.raises(
            CacheBusyError,
            match=rf"another build is writing to '{bucket}' \(process {os.getpid()} on .*If that process is dead, its "
            r"lease ends in \d+ s",
        ):
            with storage.lock(path, bucket):
                pass
    assert storage.lock_holder(path) is None and not storage.exists(path)


def test_of_many_builders_one_gets_the_lock(storage, bucket):
    barrier, held = threading.Barrier(8), threading.Event()

    def take(number: int) -> bool:
        barrier.wait()
        try:
            with storage.lock(f"{bucket}/.build.lock", bucket):
                held.wait(120)
                return True
        except CacheBusyError:
            return False

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(take, number) for number in range(8)]
        while sum(future.done() for future in futures) < 7:
            time.sleep(0.01)
        held.set()
    assert [future.result() for future in futures].count(True) == 1


def test_a_lease_is_renewed_and_one_that_is_lost_is_noticed(bucket):
    storage = GcsStorage(options(lease_secs=3.0))
    path = f"{bucket}/.build.lock"
    with storage.lock(path, bucket) as lock:
        before = storage.status(path).generation
        deadline = time.monotonic() + 60
        while storage.status(path).generation == before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        lock.check()
        storage.replace(path, b'{"pid": 1, "host": "elsewhere", "since": "now", "lease_secs": 600}')
        with pytest.raises(
            CacheBusyError, match="the build lock of .* was lost: process 1 on elsewhere, since now has taken it over"
        ):
            while time.monotonic() < deadline:
                lock.check()
                time.sleep(0.02)
    assert b"elsewhere" in storage.read_bytes(path)  # what belongs to another one stays


def test_the_lease_of_a_dead_process_of_this_machine_is_taken_over_at_once(storage, bucket):
    code = (
        "import os; from beam_pipes.cache import storage_for\n"
        f"with storage_for('{bucket}').lock('{bucket}/l', '{bucket}'): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 9
    assert storage.exists(f"{bucket}/l") and storage.lock_holder(f"{bucket}/l") is None
    with storage.lock(f"{bucket}/l", bucket) as lock:
        lock.check()


def test_the_lease_of_a_machine_that_is_silent_ends(bucket):
    storage = GcsStorage(options())
    silent = b'{"pid": 1, "host": "elsewhere", "since": "now", "lease_secs": %s}'
    storage.replace(f"{bucket}/l", silent % b"600")
    with pytest.raises(CacheBusyError, match="process 1 on elsewhere, since now.*its lease ends in (600|599|601) s"):
        with storage.lock(f"{bucket}/l", bucket):
            pass
    storage.replace(f"{bucket}/l", silent % b"0.001")
    time.sleep(2.1)  # the service tells its time in whole seconds
    with storage.lock(f"{bucket}/l", bucket) as lock:
        lock.check()


def test_a_lease_ends_where_an_answer_does_not_say_when_it_was_written(bucket, monkeypatch):
    storage = GcsStorage(options())
    get = storage._get
    monkeypatch.setattr(storage, "_get", lambda *asked: get(*asked)._replace(modified=None))
    with storage.lock(f"{bucket}/l", bucket):
        assert storage.lock_holder(f"{bucket}/l")
    storage.replace(f"{bucket}/l", b'{"pid": 1, "host": "elsewhere", "since": "now", "lease_secs": 0.001}')
    time.sleep(2.1)  # the service gives its time in whole seconds
    assert storage.lock_holder(f"{bucket}/l") is None


def test_the_error_without_credentials_says_what_is_missing(emulator, monkeypatch):
    with FaultProxy(emulator, lambda number, method, path: "401") as proxy:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        storage = GcsStorage(options(anonymous=True))
        with pytest.raises(StorageForbiddenError, match=r"gs://b/f.*an anonymous caller may not read there"):
            storage.read_bytes("gs://b/f")
