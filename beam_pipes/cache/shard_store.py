"""A bounded local directory of files from a storage, shared by any number of processes.

A file appears under its name whole, checked and flushed, or not at all. While it arrives it is called `<name>.part`,
and whoever writes it holds a lock on that file; locks end with their process, so what a crash leaves is found and
removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from beam_pipes.cache.storage import Storage
from beam_pipes.errors import CorruptRecordError, LoaderError

_PART = ".part"
_LOCK = ".lock"
_CHUNK_BYTES = 1 << 20
_POLL_SECS = 0.02
_LOCK_SECS = 600.0


class ShardStore:
    """Files of `storage`, copied to `directory` when asked for; the least recently used go when `max_bytes` are full.

    Files that are being read may be removed: what is mapped or open stays readable, and its bytes count no more.
    """

    def __init__(self, directory: str | os.PathLike[str], *, max_bytes: int, storage: Storage) -> None:
        self.directory = Path(directory)
        self.max_bytes = max_bytes
        self.storage = self._storage = storage
        #: (directory, bound), for another process that wants the same one; None where it is for this process alone.
        self.place: tuple[str, int] | None = (str(self.directory), max_bytes)
        self.directory.mkdir(parents=True, exist_ok=True)

    def fetch(self, remote: str, name: str, *, size: int | None, crc32c: int) -> str:
        """The local path of a file of known checksum; copies it if it is not there. `size=None` asks the storage.

        Raises `CorruptRecordError` where the storage gives other bytes, `LoaderError` for a file larger than the store.
        """
        path = self.directory / name
        if self._touch(path):
            return str(path)
        if size is None:
            size = self._storage.size(remote)
        if size > self.max_bytes:
            raise LoaderError(
                f"{remote} has {size} bytes, and the local directory {self.directory} is bounded to {self.max_bytes}; "
                "raise max_bytes to hold two windows of shards",
                path=remote,
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked(path.with_name(path.name + _PART)) as part:
            if not self._touch(path):  # another reader may have copied it meanwhile
                self._copy(remote, part, path, size, crc32c)
        return str(path)

    def touch(self, name: str) -> None:
        """Says that a file is wanted soon, if it is there: the ones that are not wanted go before it."""
        self._touch(self.directory / name)

    def used_bytes(self) -> int:
        """Bytes of all files, those on their way included."""
        with self._unchanged():
            return sum(size for _, size, _ in self._files())

    def _unchanged(self) -> contextlib.AbstractContextManager[int]:
        """While it is held, no file appears, grows or changes its name."""
        return self._locked(self.directory / _LOCK)

    def _copy(self, remote: str, part: int, path: Path, size: int, crc32c: int) -> None:
        with self._unchanged():
            os.ftruncate(part, 0)
            self._make_room(size)
            os.ftruncate(part, size)  # others count it from now on
        found_size = found_crc = 0
        with self._storage.open_read(remote) as source:
            while chunk := source.read(_CHUNK_BYTES):
                os.pwrite(part, chunk, found_size)
                found_size += len(chunk)
                found_crc = google_crc32c.extend(found_crc, chunk)
        if (found_size, found_crc) != (size, crc32c):
            path.with_name(path.name + _PART).unlink(missing_ok=True)
            raise CorruptRecordError(
                f"{remote}: expected {size} bytes with checksum {crc32c:#010x}, as the manifest says, found "
                f"{found_size} with {found_crc:#010x}. Build the cache again, or copy the shard again.",
                path=remote,
                expected=crc32c,
                found=found_crc,
            )
        os.fsync(part)
        with self._unchanged():
            os.replace(path.with_name(path.name + _PART), path)

    def _make_room(self, size: int) -> None:
        files = sorted(self._files())
        used = sum(file_size for _, file_size, _ in files)
        for _, file_size, path in files:
            if used + size <= self.max_bytes:
                return
            if not path.name.endswith(_PART) or self._is_abandoned(path):
                path.unlink(missing_ok=True)
                used -= file_size
        if used + size > self.max_bytes:
            raise LoaderError(
                f"{self.directory}: {used} of {self.max_bytes} bytes belong to files that other readers fetch at this "
                f"moment, and {size} more are needed; raise max_bytes",
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

    @staticmethod
    def _touch(path: Path) -> bool:
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    @staticmethod
    def _is_abandoned(path: Path) -> bool:
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    @staticmethod
    @contextlib.contextmanager
    def _locked(path: Path) -> Iterator[int]:
        """Holds the lock of a file; gives its descriptor."""
        deadline = time.monotonic() + _LOCK_SECS
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The file may have been renamed or removed between opening and locking it.
                if os.path.exists(path) and os.fstat(descriptor).st_ino == os.stat(path).st_ino:
                    break
            except (BlockingIOError, FileNotFoundError):
                pass
            os.close(descriptor)
            if time.monotonic() > deadline:
                raise LoaderError(
                    f"{path} has been locked by another process for {_LOCK_SECS:.0f} seconds; is it alive?"
                )
            time.sleep(_POLL_SECS)
        try:
            yield descriptor
        finally:
            with contextlib.suppress(FileNotFoundError):
                if path.name.endswith(_PART) and os.fstat(descriptor).st_ino == os.stat(path).st_ino:
                    path.unlink()
            os.close(descriptor)
