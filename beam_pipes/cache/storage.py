"""Where the files of a cache lie: the `Storage` protocol, and `LocalStorage` for file systems.

The protocol asks only what object stores offer too: whole objects that appear at once, put-if-absent, ranged reads.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from pathlib import Path
from typing import IO, Protocol

from beam_pipes.cache.kill_points import reached
from beam_pipes.errors import CacheError, CacheNotFoundError

TEMPORARY_PREFIX = ".tmp-"


class StagedFile(Protocol):
    """A file that is being written: nothing is at its path before `commit`, and nothing remains after `abort`."""

    def write(self, data: bytes, /) -> int: ...

    def read_back(self) -> bytes:
        """What was written so far."""

    def commit(self) -> None:
        """Makes the file appear at its path, whole and durable; replaces what was there."""

    def abort(self) -> None:
        """Removes what was written. After `commit`, or a second time, it does nothing."""

    def close(self) -> None:
        """The same as `abort`."""


class Storage(Protocol):
    """What the cache needs of a place for files; paths are strings with `/`."""

    def open_read(self, path: str) -> IO[bytes]: ...

    def read_bytes(self, path: str) -> bytes: ...

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer at the end of the file."""

    def stage(self, path: str) -> StagedFile: ...

    def write_new(self, path: str, data: bytes) -> None:
        """Writes a file atomically, or raises `FileExistsError` and leaves what is there (put-if-absent)."""

    def replace(self, path: str, data: bytes) -> None:
        """Writes a file atomically, in place of what is there."""

    def list(self, path: str) -> list[str]:
        """The sorted names in a directory, without temporary ones; empty where there is none."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def delete(self, path: str) -> None:
        """Deletes a file; it is no error if there is none."""

    def link_or_copy(self, source: str, target: str) -> None:
        """Makes `target` hold the bytes of `source`, without copying them where the storage can."""

    def makedirs(self, path: str) -> None: ...

    def local_path(self, path: str) -> str | None:
        """The path of a file that can be memory-mapped, or None where there is none."""


class LocalStorage:
    """Files of this machine, or of a file system mounted on it."""

    def open_read(self, path: str) -> IO[bytes]:
        try:
            return open(path, "rb", buffering=0)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _not_found(path) from error

    def read_bytes(self, path: str) -> bytes:
        try:
            return Path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _not_found(path) from error

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        with self.open_read(path) as file:
            pieces = []
            while size > 0 and (piece := os.pread(file.fileno(), size, offset)):
                pieces.append(piece)
                offset += len(piece)
                size -= len(piece)
            return b"".join(pieces)

    def stage(self, path: str) -> LocalStagedFile:
        return LocalStagedFile(path)

    def write_new(self, path: str, data: bytes) -> None:
        staged = LocalStagedFile(path)
        try:
            staged.write(data)
            staged.commit_new()
        finally:
            staged.abort()

    def replace(self, path: str, data: bytes) -> None:
        staged = LocalStagedFile(path)
        try:
            staged.write(data)
            staged.commit()
        finally:
            staged.abort()

    def list(self, path: str) -> list[str]:
        try:
            return sorted(name for name in os.listdir(path) if not name.startswith(TEMPORARY_PREFIX))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _not_found(path) from error

    def delete(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def link_or_copy(self, source: str, target: str) -> None:
        temporary = temporary_path(target)
        try:
            try:
                os.link(source, temporary)
            except FileNotFoundError as error:
                raise _not_found(source) from error
            except OSError:  # another device, or a file system without links
                shutil.copyfile(source, temporary)
                with open(temporary, "rb+") as file:
                    os.fsync(file.fileno())
            reached("storage/link-staged")
            os.replace(temporary, target)
        finally:
            Path(temporary).unlink(missing_ok=True)  # a link onto the same file leaves the temporary name behind
        sync_directory(os.path.dirname(target))

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def local_path(self, path: str) -> str | None:
        return path


class LocalStagedFile:
    """Written under a temporary name in the same directory; renamed on commit, when the bytes are on the disk."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._temporary = temporary_path(path)
        self._file: IO[bytes] | None = open(self._temporary, "xb", buffering=0)

    def write(self, data: bytes, /) -> int:
        assert self._file is not None
        view = memoryview(data)
        while len(view):  # a raw file may take less than it is given: on a disk that is about to be full, above 2 GiB
            view = view[self._file.write(view) :]
        return len(data)

    def read_back(self) -> bytes:
        return Path(self._temporary).read_bytes()

    def commit(self) -> None:
        self._finish()
        reached("storage/staged")
        os.replace(self._temporary, self._path)
        reached("storage/renamed")
        sync_directory(os.path.dirname(self._path))

    def commit_new(self) -> None:
        """`commit`, or `FileExistsError` where the path is taken."""
        self._finish()
        os.link(self._temporary, self._path)
        reached("storage/new-linked")
        os.unlink(self._temporary)
        sync_directory(os.path.dirname(self._path))

    def abort(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        Path(self._temporary).unlink(missing_ok=True)

    def close(self) -> None:
        self.abort()

    def _finish(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None


def temporary_path(path: str) -> str:
    """A name beside `path` that no reader looks at: `.tmp-<pid>-<random>-<name>`."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(4)}-{name}")


def sync_directory(path: str) -> None:
    """Makes renames within a directory durable."""
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def storage_for(path: str | os.PathLike[str]) -> Storage:
    """The storage that serves a path. Raises `CacheError` for a scheme that none serves."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", os.fspath(path))
    if scheme is None:
        return LocalStorage()
    raise CacheError(
        f"{os.fspath(path)!r}: this version reads and writes caches on file systems only, got the scheme "
        f"{scheme.group(1)!r}. Give a local path, or mount the bucket.",
        path=os.fspath(path),
    )


def _not_found(path: str) -> CacheNotFoundError:
    return CacheNotFoundError(f"expected a file at {path!r}, and there is none", path=path)
