"""The guarantees of all object stores, checked on one: `gs://` and `s3://` have the same tests."""

from __future__ import annotations

import dataclasses
import pickle
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from fault_proxy import (
    COMPRESSED,
    GARBLED_RANGE,
    NO_CONDITION,
    NO_RANGE,
    OTHER_RANGE,
    PART_AS_WHOLE,
    UNSAID_RANGE,
    FaultProxy,
)

from beam_pipes.building.plan import make_plan, prepare
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.cache import Cache, storage_for
from beam_pipes.cache.signature import files_of, sign
from beam_pipes.errors import (
    CacheNotFoundError,
    ChangedMeanwhileError,
    CorruptCacheError,
    SignatureError,
    SourceError,
    StorageError,
)
from beam_pipes.runners.claims import Standing, WorkOrder, work
from beam_pipes.sources import TextLines
from beam_pipes.sources.selection import select
from beam_pipes.storage.objects import ObjectStorage


def check_workers_share(reference: str, to: str) -> None:
    """Two workers without a server build a cache, and no shard twice."""
    handle = DeclarationHandle.of(reference)
    plan = make_plan(handle.get(), to)
    order = WorkOrder.write(handle, plan.header.root, prepare(plan), header=plan.header, is_followed=False)
    with ThreadPoolExecutor(2) as pool:
        built = list(pool.map(lambda name: work(order, worker=name), ["first", "second"]))
    assert sum(built) == plan.header.num_shards
    assert Standing.of(order) is None


def upload(storage: ObjectStorage, path: str, data: bytes, *, piece: int = 300_000) -> None:
    """Writes an object as shards are written."""
    staged = storage.stage(path)
    for start in range(0, len(data), piece):
        staged.write(data[start : start + piece])
    staged.commit()


def check_files(storage: ObjectStorage, bucket: str) -> None:
    """An object is a file."""
    path = f"{bucket}/caches/words/manifest.json"

    assert not storage.exists(path) and storage.list(f"{bucket}/caches") == []
    storage.write_new(path, b"first")
    with pytest.raises(FileExistsError, match=f"there is an object at '{storage.SCHEME}.*manifest.json' already"):
        storage.write_new(path, b"second")
    assert storage.read_bytes(path) == b"first" and storage.size(path) == 5
    storage.replace(path, b"third one")
    assert storage.read_range(path, 6, 100) == b"one" and storage.read_range(path, 9, 5) == b""
    copy = f"{bucket}/caches/words/copy"
    storage.link_or_copy(path, copy)
    storage.delete(path)
    storage.delete(path)
    assert storage.read_bytes(copy) == b"third one"
    missing = f"expected an object at '{storage.SCHEME}.*manifest.json', and there is none"
    for read in (storage.read_bytes, storage.size, storage.open_read):
        with pytest.raises(CacheNotFoundError, match=missing):
            read(path)
    assert storage_for(path).local_path(path) is None
    assert pickle.loads(pickle.dumps(storage)).read_bytes(copy) == b"third one"


def check_directories(storage: ObjectStorage, bucket: str) -> None:
    """Directories are listed by name and as trees; `storage` has pages of 20 names."""
    assert storage.options.page_names == 20
    names = [f"a/{i:02d}/{j}" for i in range(30) for j in range(4)] + ["a/top", "b"]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: storage.replace(f"{bucket}/dir/{name}", name.encode()), names))

    assert storage.list(f"{bucket}/dir") == ["a", "b"] and storage.list(bucket) == ["dir"]
    assert storage.list(f"{bucket}/dir/a")[-2:] == ["29", "top"]
    assert storage.sizes(f"{bucket}/dir/a") == {"top": 5}
    tree = storage.tree(f"{bucket}/dir")  # more than a page: in parallel, directory by directory
    assert sorted(tree) == sorted(names) and {file.size for file in tree.values()} == {6, 5, 1}
    assert storage.is_directory(f"{bucket}/dir/a") and not storage.is_directory(f"{bucket}/di")
    assert storage.modified_ns(f"{bucket}/dir") > 1_600_000_000 * 10**9
    storage.delete_tree(f"{bucket}/dir/a", first=["top"])
    assert list(storage.tree(bucket)) == ["dir/b"]


def check_swaps(storage: ObjectStorage, bucket: str) -> None:
    """Of several concurrent replacements of an object, one wins."""
    path = f"{bucket}/manifest.json"
    storage.replace_if(path, b"0", None)
    barrier = threading.Barrier(8)

    def swap(number: int) -> bool:
        barrier.wait()
        try:
            storage.replace_if(path, b"%d" % number, b"0")
            return True
        except ChangedMeanwhileError as error:
            assert "another process has replaced it. What it published stays" in str(error)
            return False

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(swap, range(1, 9)))

    assert won.count(True) == 1 and storage.read_bytes(path) == b"%d" % (won.index(True) + 1)
    storage.replace_if(path, storage.read_bytes(path), b"whatever")  # it is there already


def check_faults(storage: ObjectStorage, root: str, *, sizes: Sequence[int]) -> None:
    """Behind a proxy that breaks requests, nothing is lost or half written."""
    files = {f"f{i}": random.Random(i).randbytes(size) for i, size in enumerate(sizes)}
    for name, data in files.items():
        upload(storage, f"{root}/d/{name}", data)
        with storage.open_read(f"{root}/d/{name}") as file:
            assert file.read() == data
        storage.link_or_copy(f"{root}/d/{name}", f"{root}/copies/{name}")
    assert storage.sizes(f"{root}/d") == {name: len(data) for name, data in files.items()}
    assert {name: storage.read_bytes(f"{root}/copies/{name}") for name in files} == files
    storage.delete_tree(f"{root}/d")
    assert storage.list(root) == ["copies"]


def check_names(root: str) -> None:
    """Names that look like globs are names first, and no object is omitted silently."""

    def lines(*paths: str, **options: Any) -> list[str]:
        source = TextLines([f"{root}/{path}" for path in paths], **options)
        read = [batch for shard in source.plan(target_shard_bytes=10**9).shards for batch in source.read(shard)]
        return sorted(value for batch in read for value in batch.values)

    storage = storage_for(root)
    names = [
        "in/a[1].txt",
        "in/a1.txt",
        "in/b[2]/c*.txt",
        "in/b[2]/cd.txt",
        "in/b2/e.txt",
        "in/d//f.txt",
    ]
    names += [] if root.startswith("s3:") else ["in/g\nh.txt"]  # which moto does not take
    for name in names:
        storage.replace(f"{root}/{name}", f"{name!r}\n".encode())

    def read(*expected: int) -> list[str]:
        return sorted(repr(names[number]) for number in expected)

    assert lines("in") == read(*range(len(names)))
    assert lines("in/a[1].txt") == read(0) and lines("in/a[1]*.txt") == read(1)
    assert lines("in/b[2]") == read(2, 3) and lines("in/b[2]/") == read(2, 3)
    assert lines("in/b[2]/c*.txt") == read(2) and lines("in/b[2]/c?.txt") == read(2, 3)
    assert lines("in/d//f.txt") == lines("in/d") == lines("in/d/") == read(5)
    assert lines("in/d//f.txt", "in/a1.txt") == read(1, 5)
    assert lines("in/[g]*.txt", "in/a1.txt") == read(1, *range(6, len(names)))
    inside = select(f"{root}/in/b[2]")
    assert inside.entry_that_finds(["manifest.json"], f"{root}/in/b[2]/c") == f"{root}/in/b[2]"
    assert inside.entry_that_finds(["manifest.json"], f"{root}/in/b[2]") == f"{root}/in/b[2]"
    assert inside.entry_that_finds(["manifest.json"], f"{root}/in/b[2]2") is None
    assert select(f"{root}/in/*.txt").entry_that_finds(["manifest.json"], f"{root}/in") is None
    with pytest.raises(SourceError, match=r"in/d/\.\./a1\.txt' cannot be read: its name has a part '\.' or '\.\.'"):
        lines("in/d/../a1.txt")


def check_ranges(url: str, go_to: Callable[[str], None], made: Callable[[], ObjectStorage], root: str) -> None:
    """An answer with another range than requested is refused; one with all bytes is cut if possible."""
    data, fault = random.Random(2).randbytes(1_000_000), {"is": ""}

    def plan(number: int, method: str, path: str) -> str | None:
        return fault["is"] if method == "GET" and fault["is"] else None

    with FaultProxy(url, plan) as proxy:
        go_to(proxy.url)
        storage, path = made(), f"{root}/f"
        upload(storage, path, data)
        storage.exists(path)
        proxy.requests.clear()
        assert storage.read_range(path, 999_990, 100) == data[999_990:] and len(proxy.requests) == 1
        assert storage.read_range(path, 1_000_000, 1) == b"" and len(proxy.requests) == 2
        fault["is"] = OTHER_RANGE
        assert storage.read_range(path, 0, 10) == data[:10]
        words = (
            r"/f: asked for the bytes 500000-500009/(1000000|\*), and the answer holds bytes 0-9/1000000: a server or"
        )
        with pytest.raises(StorageError, match=words):
            storage.read_range(path, 500_000, 10)
        with storage.open_read(path) as file, pytest.raises(StorageError, match="go around the proxy"):
            file.read()
        fault["is"] = NO_RANGE
        assert storage.read_range(path, 500_000, 10) == data[500_000:500_010]
        for wrong in (UNSAID_RANGE, GARBLED_RANGE, PART_AS_WHOLE):
            fault["is"] = wrong
            words = "the answer holds (others|x): a server or proxy on the way mixes up ranges"
            with pytest.raises(StorageError, match=words):
                storage.read_range(path, 500_000, 10)
        fault["is"] = UNSAID_RANGE
        with pytest.raises(StorageError, match=words):
            storage.read_range(path, 0, 10)
        brief = dataclasses.replace(storage.options, deadline_secs=0.1)
        fault["is"] = COMPRESSED
        with pytest.raises(StorageError, match=r"the answer has \d+ bytes, and by its Content-Range 10|MD5 mismatch"):
            type(storage)(brief).read_range(path, 500_000, 10)
        fault["is"] = ""
        if not root.startswith("az:"):  # which signs the conditions
            with storage.open_read(path) as file:
                storage.replace(path, data[::-1])
                fault["is"] = NO_CONDITION
                with pytest.raises(CacheNotFoundError, match="another object was written there while this one was re"):
                    file.read(10)


def check_signatures(cache: str, directory: Path) -> None:
    """A cache on a store is signed there, read with the trusted key, and refused when a shard was changed."""
    key = ed25519.Ed25519PrivateKey.generate()
    openssh, unlocked = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    (directory / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, openssh, unlocked))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (directory / "key.pub").write_bytes(public)
    with pytest.raises(SignatureError, match="this snapshot is not signed"):
        Cache.open(cache, trusted=directory / "key.pub")

    sign(cache, key=directory / "key")

    opened = Cache.open(cache, trusted=directory / "key.pub")
    storage = storage_for(cache)
    shards = [f"{opened.directory}/{file}" for file in files_of(opened.manifest) if ".tfrecord-" in file]
    shard = next(file for file in shards if storage.size(file))
    data = storage.read_bytes(shard)
    storage.replace(shard, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptCacheError, match="which was signed"):
        Cache.open(cache, trusted=directory / "key.pub")
    assert Cache.open(cache, trusted=directory / "key.pub", verify=False).manifest.id == opened.manifest.id
    storage.replace(shard, data)
