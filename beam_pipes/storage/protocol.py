"""What the cache needs from a place for files: the protocol `Storage`, and what its methods return.

`in_parallel` runs many operations of a storage at once, where that pays.

It needs only what object stores also offer: whole objects that appear at once, put-if-absent, ranged reads.
`beam_pipes.storage.local` implements it on file systems, `beam_pipes.storage` on Google Cloud Storage; everything
else reads and writes through it:

    staged = storage.stage("cache/shard-0")    nothing is at that path yet
    staged.write(b"…")
    staged.commit()                            now all of it is

`write_all`: every writer to a file goes through it. A file system may take less than it is given: what is left of an
almost full disk, or 2 GiB. Only the number that the call returns says so. If the file already has its size, what was
not taken reads as zeros.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, NamedTuple, Protocol, TypeVar

from beam_pipes.errors import ChangedMeanwhileError


class RecordSink(Protocol):
    """Where bytes go: a binary file."""

    def write(self, data: bytes, /) -> object: ...

    def close(self) -> None: ...


class StagedFile(Protocol):
    """A file being written: nothing is at its path before `commit`, and nothing remains after `abort`."""

    def write(self, data: bytes, /) -> int: ...

    def read_back(self) -> bytes:
        """What was written so far."""

    def commit(self) -> None:
        """Makes the file appear at its path, complete and durable; replaces an existing one."""

    def abort(self) -> None:
        """Removes what was written. After `commit`, or a second time, it does nothing."""

    def close(self) -> None:
        """The same as `abort`."""


class FileStatus(NamedTuple):
    """A file in a listing. `shared`: its bytes also belong to a file elsewhere, and deleting it frees nothing."""

    size: int
    modified_ns: int
    shared: bool


class HeldLock(Protocol):
    """A lock that is held."""

    def check(self) -> None:
        """Raises `CacheBusyError` if the lock was lost."""


class Storage(Protocol):
    """What the cache needs from a place for files; paths are strings with `/`."""

    #: How many operations at once pay off: 1 for a disk, more for anything over a network.
    parallel: int

    #: False where nothing can be written: web servers.
    writable: bool

    def open_read(self, path: str) -> IO[bytes]: ...

    def read_bytes(self, path: str) -> bytes: ...

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer at the end of the file."""

    def stage(self, path: str) -> StagedFile: ...

    def write_new(self, path: str, data: bytes) -> None:
        """Writes a file atomically, or raises `FileExistsError` and leaves the existing one (put-if-absent)."""

    def replace(self, path: str, data: bytes) -> None:
        """Writes a file atomically, replacing an existing one."""

    def replace_if(self, path: str, data: bytes, expected: bytes | None) -> None:
        """Writes a file atomically, in place of one that holds `expected` (None: where there is none).

        Raises `ChangedMeanwhileError`, and leaves the file alone, if it holds something else.
        """

    def list(self, path: str) -> list[str]:
        """The sorted names in a directory, without temporary ones; empty if there is none."""

    def sizes(self, path: str) -> dict[str, int]:
        """Name → bytes of the files in a directory, not of those below it; empty if there is none."""

    def tree(self, path: str) -> dict[str, FileStatus]:
        """All files below a directory, by their names relative to it."""

    def is_directory(self, path: str) -> bool: ...

    def modified_ns(self, path: str) -> int:
        """When something was last written to a directory or its subdirectories; nanoseconds since 1970."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def delete(self, path: str) -> None:
        """Deletes a file; a missing file is not an error."""

    def delete_tree(self, path: str, first: Iterable[str] = ()) -> None:
        """Deletes a directory with its contents. If that takes several steps, the files `first` are deleted first."""

    def sweep(self, path: str, *, depth: int) -> None:
        """Deletes what dead writers left under temporary names, `depth` levels of directories deep."""

    def link_or_copy(self, source: str, target: str, *, size: int | None = None) -> None:
        """Makes `target` hold the bytes of `source`, without copying if the storage can.

        `size`, in bytes, saves a question if it is known.
        """

    def makedirs(self, path: str, /) -> None: ...

    def lock(self, path: str, where: str) -> contextlib.AbstractContextManager[HeldLock]:
        """Holds the lock file `path`; it ends with its holder, however that ends. `where` is for messages.

        Raises `CacheBusyError`, naming who holds it.
        """

    def lock_holder(self, path: str) -> str | None:
        """Who holds a lock, in words; None if nobody does."""

    def local_path(self, path: str) -> str | None:
        """The path of a file that can be memory-mapped, or None if there is none."""


_T = TypeVar("_T")
_R = TypeVar("_R")


def in_parallel(storage: Storage, function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """`[function(item) for item in items]`: in `storage.parallel` threads, or sequentially if that is 1.

    Raises what the first failing item raises.
    """
    if storage.parallel <= 1:
        return [function(item) for item in items]
    # Threads of this call alone: they cost less than one request, and end with the call.
    with ThreadPoolExecutor(storage.parallel, thread_name_prefix="beam_pipes-requests") as pool:
        return list(pool.map(function, items))


def replaced_meanwhile(path: str) -> ChangedMeanwhileError:
    """What `replace_if` raises."""
    return ChangedMeanwhileError(
        f"{path}: expected the version from the start of this build, but another process has replaced it. "
        "What it published stays; run the build again to publish on top of it.",
        path=path,
    )


COPY_BYTES = 1 << 20
_MOST_BYTES = 1 << 30


def write_all(target: int | RecordSink, data: bytes, *, at: int | None = None) -> None:
    """Writes all of `data` to a descriptor, at its position or `at` an offset, or to a file object.

    Raises `OSError` if the file system does not take it, or takes nothing and gives no reason.
    """
    view = memoryview(data)
    done = 0
    while done < len(view):
        piece = view[done : done + _MOST_BYTES]
        if not isinstance(target, int):
            taken = target.write(data if len(piece) == len(view) else bytes(piece))
        elif at is None:
            taken = os.write(target, piece)
        else:
            taken = os.pwrite(target, piece, at + done)
        if not isinstance(taken, int):  # a file-like object that returns nothing
            taken = len(piece)
        if taken <= 0:
            raise OSError(errno.EIO, f"the file system took none of {len(view) - done} bytes")
        done += taken


def copy_all(source: IO[bytes], target: int, *, size: int) -> None:
    """Copies a file of `size` bytes to a descriptor, durably. Raises `OSError` if it had another number of bytes."""
    done = 0
    while data := source.read(COPY_BYTES):
        write_all(target, data)
        done += len(data)
    if done != size:
        raise OSError(errno.EIO, f"expected {size} bytes to copy, found {done}")
    os.fsync(target)
