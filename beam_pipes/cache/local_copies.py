"""Shards on local disk: `LocalCopies` brings those of a split from a storage into a bounded directory.

The directory may be shared by any number of processes. A file appears under its name complete, checked and flushed, or
not at all; a process reads it once before using it, and copies it again if its bytes differ. While it is being copied
it is called `<name>.part`, and its writer holds a lock on that file; a lock ends with its process, so leftovers of a
crash are found and removed. A reader that follows the order of shards announces what comes next (`will_need`), and
finds it there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import google_crc32c
import numpy as np

from beam_pipes.cache.regions import refuse_removed
from beam_pipes.errors import (
    BeamPipesError,
    CacheNotFoundError,
    CorruptRecordError,
    LoaderError,
    OutputError,
    StaleCacheError,
    logger,
)
from beam_pipes.format.dtypes import Array
from beam_pipes.format.index import index_path, index_trailer
from beam_pipes.publication.manifest import Manifest, SplitManifest
from beam_pipes.publication.publish import read_manifest, snapshot_directory
from beam_pipes.storage.local import FULL, read_error, storage_for
from beam_pipes.storage.locks import try_lock
from beam_pipes.storage.protocol import Storage, write_all

_PART = ".part"
_LOCK = ".lock"
_CHUNK_BYTES = 1 << 20
_RANGE_BYTES = 4 << 20
_POLL_SECS = 0.02
_LOCK_SECS = 600.0

_log = logger(__name__)


class ShardStore:
    """Files of `storage`, copied to `directory` when asked for; the least recently used go when `max_bytes` are full.

    Files that are being read may be removed: what is mapped or open stays readable, and its bytes no longer count.
    """

    def __init__(self, directory: str | os.PathLike[str], *, max_bytes: int, storage: Storage) -> None:
        self.directory = Path(directory).expanduser()
        self.storage = self._storage = storage
        #: (directory, bound), for other processes that want the same store; None if it belongs to this process alone.
        self.place: tuple[str, int] | None = (str(self.directory), max_bytes)
        #: Files that this process has verified, and the (device, inode) of each at that time.
        self._whole: dict[Path, tuple[int, int]] = {}
        with self._writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            room = self._free_bytes() + sum(size for _, size, _ in self._files())
        self.max_bytes = min(max_bytes, room)
        #: Advice for users who need a larger store.
        self.more = "raise max_bytes" if max_bytes <= room else "free space on its disk"

    def fetch(self, remote: str, name: str, *, size: int | None, crc32c: int, trailer: bytes = b"") -> str:
        """The local path of a file of known checksum; copies it if it is not there. `size=None` asks the storage.

        The file ends with `trailer`; `crc32c` covers what stands before it.

        Raises `CorruptRecordError` if the storage gives other bytes, `LoaderError` for a file larger than the store,
        `OutputError` where the directory cannot be written.
        """
        path = self.directory / name
        if self._is_whole(path, size, crc32c, trailer):
            return str(path)
        if size is None:
            size = self._storage.size(remote)
        if size > self.max_bytes:
            raise LoaderError(
                f"{remote} has {size} bytes, and the local directory {self.directory} is bounded to {self.max_bytes}; "
                f"{self.more} to hold two windows of shards",
                path=remote,
            )
        with self._writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked(path.with_name(path.name + _PART)) as part:
                if not self._is_whole(path, size, crc32c, trailer):  # another reader may have copied it meanwhile
                    self._copy(remote, part, path, size, crc32c, trailer)
        return str(path)

    def touch(self, name: str) -> None:
        """Marks a file as wanted soon, if it exists: unmarked ones are removed first."""
        self._touch(self.directory / name)

    def used_bytes(self) -> int:
        """Bytes of all files, including those being fetched."""
        with self._unchanged():
            return sum(size for _, size, _ in self._files())

    def _unchanged(self) -> contextlib.AbstractContextManager[int]:
        """While held, no file appears, grows or is renamed."""
        return self._locked(self.directory / _LOCK)

    def _copy(self, remote: str, part: int, path: Path, size: int, crc32c: int, trailer: bytes) -> None:
        with self._unchanged():
            os.ftruncate(part, 0)
            self._make_room(size)
            os.ftruncate(part, size)  # others count it from now on
        found_size = found_crc = 0
        covered, end = size - len(trailer), b""
        for chunk in self._chunks(remote):
            write_all(part, chunk, at=found_size)
            before = max(0, covered - found_size)
            found_crc = google_crc32c.extend(found_crc, chunk[:before] if before < len(chunk) else chunk)
            end += chunk[before:]
            found_size += len(chunk)
        if (found_size, found_crc, end) != (size, crc32c, trailer):
            path.with_name(path.name + _PART).unlink(missing_ok=True)
            other = "" if end == trailer else " and another trailer"
            raise CorruptRecordError(
                f"{remote}: expected {size} bytes with checksum {crc32c:#010x}, as the manifest says, found "
                f"{found_size} with {found_crc:#010x}{other}. Build the cache again, or copy the shard again.",
                path=remote,
                expected=crc32c,
                found=found_crc,
            )
        os.fsync(part)
        if _contents(part, len(trailer)) != (size, crc32c, trailer):
            raise OSError(errno.EIO, "what was written there reads back as other bytes")
        self._whole[path] = _identity(os.fstat(part))
        with self._unchanged():
            os.replace(path.with_name(path.name + _PART), path)

    def _chunks(self, remote: str) -> Iterator[bytes]:
        with _reading(remote), self._storage.open_read(remote) as source:
            while chunk := source.read(_CHUNK_BYTES):
                yield chunk

    def ranges(self, remote: str, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to `end` of a file where it is, 4 MiB at a time; nothing is copied."""
        with _reading(remote):
            for at in range(start, end, _RANGE_BYTES):
                yield self._storage.read_range(remote, at, min(_RANGE_BYTES, end - at))

    def _make_room(self, size: int) -> None:
        files = sorted(self._files())
        used = sum(file_size for _, file_size, _ in files)
        most = min(self.max_bytes, used + self._free_bytes())  # what is removed makes room on the disk too
        for _, file_size, path in files:
            if used + size <= most:
                return
            if not path.name.endswith(_PART) or self._is_abandoned(path):
                path.unlink(missing_ok=True)
                used -= file_size
        if used + size > most < self.max_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if used + size > most:
            raise LoaderError(
                f"{self.directory}: {used} of {self.max_bytes} bytes belong to files that other readers are fetching "
                f"now, and {size} more are needed; {self.more}",
                path=str(self.directory),
            )

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """(time of last use, size, path) of every file but the lock, which must stay the same file."""
        for root, _, names in os.walk(self.directory):
            for name in names:
                if name == _LOCK:
                    continue
                path = Path(root, name)
                with contextlib.suppress(FileNotFoundError):
                    found = path.stat()
                    yield found.st_mtime_ns, found.st_size, path

    def _free_bytes(self) -> int:
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    @staticmethod
    def _touch(path: Path) -> bool:
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def _is_whole(self, path: Path, size: int | None, crc32c: int, trailer: bytes) -> bool:
        """Whether the file is there with the right bytes: they are read once per process, 0.1 s for a GiB in memory.

        A disk that was full, or lost what it had not written yet, may have left a file with holes.
        """
        try:
            os.utime(path)
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            identity = _identity(os.fstat(descriptor))
            if self._whole.get(path) != identity:
                found = _contents(descriptor, len(trailer))
                if found != (found[0] if size is None else size, crc32c, trailer):
                    _log.warning("%s: the local copy is damaged, and is copied again.", path)
                    return False
                self._whole[path] = identity
        finally:
            os.close(descriptor)
        return True

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """Wraps steps that write to the directory: an `OSError` gets advice on what to do, our own errors pass."""
        try:
            yield
        except BeamPipesError:
            raise
        except OSError as error:
            if error.errno in FULL:
                free = self._free_bytes() >> 20
                advice = f"{free} MiB are free. Free space there, or lower max_bytes, which is {self.max_bytes}"
            else:
                advice = "Make it writable, or repair the disk"
            raise OutputError(
                f"the local copy {os.fspath(path)!r} cannot be written: {error.strerror or error}. {advice}; or give a "
                "directory on another disk: local_directory=… (TMPDIR where none is given).",
                path=os.fspath(path),
                errno=error.errno,
            ) from error

    @staticmethod
    def _is_abandoned(path: Path) -> bool:
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            return try_lock(descriptor) is True  # without locks it is unknown
        finally:
            os.close(descriptor)

    @staticmethod
    @contextlib.contextmanager
    def _locked(path: Path) -> Iterator[int]:
        """Holds the lock of a file; yields its descriptor."""
        deadline = time.monotonic() + _LOCK_SECS
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            locked = try_lock(descriptor)
            # The file may have been renamed or removed between opening and locking it.
            if locked and _is_still(path, descriptor):
                break
            os.close(descriptor)
            if locked is None:
                raise LoaderError(
                    f"{os.fspath(path.parent)!r} is on a file system without locks (flock), which processes that share "
                    "local copies need. Give a directory on another disk: local_directory=…, or none, so that this "
                    "process keeps its own copies."
                )
            if time.monotonic() > deadline:
                raise LoaderError(
                    f"{path} has been locked by another process for {_LOCK_SECS:.0f} seconds; is it alive?"
                )
            time.sleep(_POLL_SECS)
        try:
            yield descriptor
        finally:
            if path.name.endswith(_PART) and _is_still(path, descriptor):
                path.unlink(missing_ok=True)
            os.close(descriptor)


@contextlib.contextmanager
def _reading(remote: str) -> Iterator[None]:
    try:
        yield
    except CacheNotFoundError as error:
        refuse_removed(remote, error)
        raise
    except BeamPipesError:
        raise
    except OSError as error:
        raise read_error(remote, error) from error


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one at a path now."""
    try:
        return os.fstat(descriptor).st_ino == os.stat(path).st_ino
    except FileNotFoundError:
        return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _contents(descriptor: int, trailer_bytes: int) -> tuple[int, int, bytes]:
    """(bytes of the file, checksum of those before its trailer, the trailer)."""
    size = os.fstat(descriptor).st_size
    covered = max(0, size - trailer_bytes)
    at = crc32c = 0
    while data := os.pread(descriptor, min(_CHUNK_BYTES, covered - at), at):
        crc32c = google_crc32c.extend(crc32c, data)
        at += len(data)
    return size, crc32c, os.pread(descriptor, trailer_bytes, covered)


# Room for several hundred shards of the default size.
MAX_LOCAL_BYTES = 16 << 30

_FETCHING_THREADS = 2


class LocalCopies:
    """`data` and `index` return the local path of a shard's file, copying it first if needed. Thread-safe.

    `directory` is the snapshot's in the storage, `key` a name for it that is unique among caches.
    """

    def __init__(
        self, store: ShardStore, directory: str, key: str, name: str, split: str, shards: SplitManifest
    ) -> None:
        self._store = store
        self._directory = directory
        self._key = key
        self._split = split
        self._shards = shards
        self._files = [shards.file_name(name, split, shard) for shard in range(len(shards.numbers))]
        self._queue: deque[int] = deque()
        self._fetching = 0
        self._lock = threading.Lock()
        if len(shards.bytes) and max(shards.bytes) > store.max_bytes:
            raise LoaderError(
                f"the largest shard of split {split!r} has {max(shards.bytes)} bytes, and the local directory is "
                f"bounded to {store.max_bytes}; {store.more} to hold two windows of shards"
            )

    @property
    def max_bytes(self) -> int:
        return self._store.max_bytes

    @property
    def are_private(self) -> bool:
        """Whether nobody chose a directory for them: one reading needs no copies then."""
        return self._store.place is not None and self._store.place[0] == _OF_THE_MACHINE

    def ranges(self, shard: int, start: int, end: int) -> Iterator[bytes]:
        """These bytes of a shard's records, read from the storage."""
        return self._store.ranges(os.path.join(self._directory, self._files[shard]), start, end)

    def data(self, shard: int) -> str:
        """The local path of a shard's records, whose checksum was compared with the manifest when they were copied."""
        size, crc32c = self._shards.bytes[shard], self._shards.crc32c[shard]
        return self._fetch(self._files[shard], size, crc32c)

    def index(self, shard: int) -> str:
        """The local path of the index of a shard."""
        crc32c = self._shards.index_crc32c[shard]
        return self._fetch(index_path(self._files[shard]), None, crc32c, index_trailer(crc32c))

    def will_need(self, blocks: Array) -> None:
        """Fetches these shards in the background, in this order, and cancels earlier requests that are still waiting.

        Shards that exist locally are removed last. A failure is raised when the shard is read.
        """
        for shard in blocks.tolist():
            for file in (self._files[shard], index_path(self._files[shard])):
                self._store.touch(os.path.join(self._key, file))
        with self._lock:
            self._queue = deque(blocks.tolist())
            starting = min(_FETCHING_THREADS - self._fetching, len(self._queue))
            self._fetching += starting
        for _ in range(starting):
            threading.Thread(target=self._fetch_queued, name="beam_pipes-fetch", daemon=True).start()

    def check_room(self, windows: Sequence[Array], index_bytes: Array | int) -> None:
        """Raises `LoaderError` if two neighbouring windows of shards do not fit into the directory together."""
        shard_bytes = np.asarray(self._shards.bytes, np.int64) + index_bytes
        taken = [int(shard_bytes[window].sum()) for window in windows]
        wanted = max(map(sum, zip(taken, [*taken[1:], 0], strict=True)), default=0)
        if wanted > self._store.max_bytes:
            raise LoaderError(
                f"two windows of shards take {wanted} bytes with their indexes, and the local directory is bounded to "
                f"{self._store.max_bytes}: choose a smaller window or {self._store.more}"
            )

    def _fetch_queued(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._fetching -= 1
                    return
                shard = self._queue.popleft()
            try:
                self.index(shard)
                self.data(shard)
            except Exception:
                continue  # raised again where the reader waits for this shard

    def _fetch(self, file: str, size: int | None, crc32c: int, trailer: bytes = b"") -> str:
        remote = os.path.join(self._directory, file)
        return self._store.fetch(remote, os.path.join(self._key, file), size=size, crc32c=crc32c, trailer=trailer)


def store_for(
    directory: str,
    local_directory: str | os.PathLike[str] | None = None,
    max_local_bytes: int = MAX_LOCAL_BYTES,
    *,
    storage: Storage,
) -> ShardStore | None:
    """The store for copies of the shards in a snapshot's `directory`; None if they are read in place.

    With a `local_directory` files of this machine are copied too: they may be on a network disk. Without one it is a
    private directory of this process, removed with the store.
    """
    if local_directory in (None, _OF_THE_MACHINE) and storage.local_path(directory) is not None:
        return None
    if local_directory is None:
        return temporary_store(max_bytes=max_local_bytes, storage=storage)
    if local_directory == _OF_THE_MACHINE:
        return _store_of_the_machine(max_bytes=max_local_bytes, storage=storage)
    return ShardStore(local_directory, max_bytes=max_local_bytes, storage=storage)


@functools.lru_cache(maxsize=8)
def reopened_snapshot(
    path: str, snapshot: str, manifest_id: str, place: tuple[str, int] | None
) -> tuple[Manifest, ShardStore | None]:
    """A manifest and the copies of its shards, shared by all splits that this process unpickles.

    Raises `StaleCacheError` if the snapshot holds other data by now.
    """
    storage = storage_for(path)
    manifest = read_manifest(path, snapshot, storage=storage)
    if manifest.id != manifest_id:
        raise StaleCacheError(
            f"{path}: expected manifest {manifest_id} of snapshot {snapshot}, found {manifest.id}: the snapshot was "
            "deleted and rebuilt. Open the cache again.",
            path=path,
            expected=manifest_id,
            found=manifest.id,
        )
    return manifest, store_for(snapshot_directory(path, snapshot), *(place or ()), storage=storage)


def temporary_store(*, max_bytes: int, storage: Storage) -> ShardStore:
    """A store in a private directory of this process, removed with the store or at the end of the process.

    Other processes that receive a reader of it, such as the workers of a job, share one directory per machine.
    """
    directory = tempfile.mkdtemp(prefix="beam-pipes-shards-")
    store = ShardStore(directory, max_bytes=max_bytes, storage=storage)
    store.place = (_OF_THE_MACHINE, max_bytes)
    weakref.finalize(store, _remove, directory, os.getpid())
    return store


# Given instead of a directory: the one that this user's processes share on the machine.
_OF_THE_MACHINE = "(of the machine)"


def _store_of_the_machine(*, max_bytes: int, storage: Storage) -> ShardStore:
    """A store in a directory that the processes of this user share on this machine; the last of them removes it."""
    directory = os.path.join(tempfile.gettempdir(), f"beam-pipes-shards-of-{os.getuid()}")
    users = None
    try:
        users = os.open(f"{directory}.users", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(users, fcntl.LOCK_SH)  # waits for a process that is removing the directory
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if os.lstat(directory).st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "it is somebody else's", directory)
    except OSError:  # no locks there, or a directory that is not ours
        if users is not None:
            os.close(users)
        return temporary_store(max_bytes=max_bytes, storage=storage)
    store = ShardStore(directory, max_bytes=max_bytes, storage=storage)
    store.place = (_OF_THE_MACHINE, max_bytes)
    weakref.finalize(store, _leave, directory, users, os.getpid())
    return store


def _leave(directory: str, users: int, pid: int) -> None:
    if os.getpid() != pid:
        return
    with contextlib.suppress(OSError):  # still in use by others
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    os.close(users)


def _remove(directory: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child does not take the directory away from its parent
        shutil.rmtree(directory, ignore_errors=True)
