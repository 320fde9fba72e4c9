"""Which storage serves a path: `storage_for`; `LocalStorage`, the one for file systems; and the canonical forms of
paths.

`writing_to`, `output_file`: files and directories that a user names as output.

`storage_for("cache")` → `LocalStorage`; `storage_for("gs://bucket/cache")` → `beam_pipes.storage.gcs.GcsStorage`;
`storage_for("s3://bucket/cache")` → `beam_pipes.storage.s3.S3Storage`; `storage_for("az://container/cache")` →
`beam_pipes.storage.azure.AzureStorage`; for inputs alone `https://` and `hf://`: `beam_pipes.storage.web`
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from beam_pipes.errors import (
    BeamPipesError,
    CacheError,
    CacheNotFoundError,
    CacheReadError,
    OutputError,
)
from beam_pipes.storage.locks import NOT_OFFERED, held_lock, holder_of, reached
from beam_pipes.storage.protocol import FileStatus, HeldLock, Storage, copy_all, replaced_meanwhile, write_all

if TYPE_CHECKING:
    from beam_pipes.storage.objects import ObjectStorage
    from beam_pipes.storage.requests import RequestOptions

TEMPORARY_PREFIX = ".tmp-"


def open_regular(path: str) -> int:
    """A descriptor for reading a file; raises `OSError` at once for anything else: opening a FIFO would block, and
    `/dev/zero` has no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, f"expected a file, found a {_KINDS.get(stat.S_IFMT(mode), 'special file')}", path)


_KINDS = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


# Read without asking for the size first.
_SMALL_BYTES = 1 << 13


class LocalStorage:
    """Files of this machine, or of a file system mounted on it."""

    parallel = 1
    writable = True

    def open_read(self, path: str) -> IO[bytes]:
        try:
            return open(open_regular(path), "rb", buffering=0)
        except OSError as error:
            raise read_error(path, error) from error

    def read_bytes(self, path: str) -> bytes:
        try:
            descriptor = open_regular(path)
            try:
                # A file object makes three more system calls: 2 of the 9 µs that one of 10⁵ completions takes.
                data = os.pread(descriptor, _SMALL_BYTES, 0)
                if len(data) < _SMALL_BYTES and not os.pread(descriptor, 1, len(data)):
                    return data
                with open(descriptor, "rb", buffering=0, closefd=False) as file:
                    return file.read()
            finally:
                os.close(descriptor)
        except OSError as error:
            raise read_error(path, error) from error

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        with self.open_read(path) as file:
            pieces = []
            try:
                while size > 0 and (piece := os.pread(file.fileno(), size, offset)):
                    pieces.append(piece)
                    offset += len(piece)
                    size -= len(piece)
            except OSError as error:
                raise read_error(path, error) from error
            return b"".join(pieces)

    def stage(self, path: str) -> LocalStagedFile:
        return LocalStagedFile(path)

    def write_new(self, path: str, data: bytes) -> None:
        with contextlib.closing(LocalStagedFile(path)) as staged:
            staged.write(data)
            staged.commit_new()

    def replace(self, path: str, data: bytes) -> None:
        with contextlib.closing(LocalStagedFile(path)) as staged:
            staged.write(data)
            staged.commit()

    def list(self, path: str) -> list[str]:
        try:
            return sorted(name for name in os.listdir(path) if not name.startswith(TEMPORARY_PREFIX))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise read_error(path, error) from error

    def replace_if(self, path: str, data: bytes, expected: bytes | None) -> None:
        # Nobody else writes between the check and the rename: whoever replaces files holds the build lock.
        try:
            found: bytes | None = self.read_bytes(path)
        except CacheNotFoundError:
            found = None
        if found != expected and found != data:
            raise replaced_meanwhile(path)
        self.replace(path, data)

    def sizes(self, path: str) -> dict[str, int]:
        return {entry.name: entry.stat().st_size for entry in _entries(path) if entry.is_file()}

    def tree(self, path: str) -> dict[str, FileStatus]:
        found, waiting = {}, [(path, "")]
        while waiting:
            directory, prefix = waiting.pop()
            for entry in _entries(directory):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, f"{prefix}{entry.name}/"))
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:  # a file that was being written has its final name by now
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    found[prefix + entry.name] = FileStatus(status.st_size, status.st_mtime_ns, status.st_nlink > 1)
        return found

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def modified_ns(self, path: str) -> int:
        inner = (entry.path for entry in _entries(path) if entry.is_dir())
        return max(os.stat(each).st_mtime_ns for each in (path, *inner))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except OSError as error:
            raise read_error(path, error) from error

    def delete(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def delete_tree(self, path: str, first: Iterable[str] = ()) -> None:
        # Renamed first: a directory is there completely, or not at all.
        parent, name = os.path.split(path)
        doomed = os.path.join(parent, TEMPORARY_PREFIX + name)
        os.rename(path, doomed)
        shutil.rmtree(doomed)

    def sweep(self, path: str, *, depth: int) -> None:
        for entry in _entries(path):
            is_directory = entry.is_dir(follow_symlinks=False)
            if not entry.name.startswith(TEMPORARY_PREFIX):
                if is_directory and depth > 1:
                    self.sweep(entry.path, depth=depth - 1)
            elif is_directory:
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)

    def link_or_copy(self, source: str, target: str, *, size: int | None = None) -> None:
        temporary = temporary_path(target)
        try:
            try:
                os.link(source, temporary)
            except FileNotFoundError as error:
                raise _not_found(source) from error
            except OSError:  # another device, or a file system without links
                with self.open_read(source) as file, open(temporary, "xb", buffering=0) as copy:
                    copy_all(file, copy.fileno(), size=os.fstat(file.fileno()).st_size)
            reached("storage/link-staged")
            os.replace(temporary, target)
        finally:
            Path(temporary).unlink(missing_ok=True)  # a link onto the same file leaves the temporary name behind
        sync_directory(os.path.dirname(target))

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def local_path(self, path: str) -> str | None:
        return path

    def lock(self, path: str, where: str) -> contextlib.AbstractContextManager[HeldLock]:
        return held_lock(path, where)

    def lock_holder(self, path: str) -> str | None:
        return holder_of(path)


class LocalStagedFile:
    """Written under a temporary name in the same directory; renamed on commit, when the bytes are on the disk."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._temporary = temporary_path(path)
        self._file: IO[bytes] | None = open(self._temporary, "xb", buffering=0)
        self._written = 0

    def write(self, data: bytes, /) -> int:
        assert self._file is not None
        write_all(self._file.fileno(), data)
        self._written += len(data)
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
        """`commit`, or `FileExistsError` if the path is taken."""
        self._finish()
        try:
            os.link(self._temporary, self._path)
        except OSError as error:
            if error.errno not in NOT_OFFERED:
                raise
            # exFAT, SMB and some FUSE have no links. The publisher holds the build lock, so there is no race.
            if os.path.lexists(self._path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._path) from None
            os.rename(self._temporary, self._path)
        else:
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
        found = os.fstat(self._file.fileno()).st_size
        if found != self._written:  # a write failed halfway, and its caller went on
            raise OSError(errno.EIO, f"{self._written} bytes were written, and the file has {found}")
        self._file.close()
        self._file = None


# Kernels stamp files with a clock of 1-10 ms; file systems that store whole seconds may be as coarse as two.
_FINE_NS, _COARSE_NS = 50_000_000, 2_500_000_000


def times_have_settled(changed_ns: int, *, read_at_ns: int) -> bool:
    """Whether any change of a file after `read_at_ns` (`time.time_ns()` before reading it) would show in its times.

    Within the resolution of the file system's clock it could change again without `changed_ns` moving.
    """
    coarse = changed_ns % 1_000_000_000 == 0
    return read_at_ns - changed_ns >= (_COARSE_NS if coarse else _FINE_NS)


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


def sync_tree(path: str) -> None:
    """Makes the files below a directory durable: a later write error of the disk shows up here, or nowhere."""
    for directory, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(directory, name), "rb") as file:
                os.fsync(file.fileno())
        sync_directory(directory)


def storage_for(path: str | os.PathLike[str]) -> Storage:
    """The storage that serves a path: `gs://`, `s3://`, `az://` (`azfs://` too), or local files if it has no scheme.

    `https://` and `hf://` are read-only, for inputs.

    Raises `CacheError` for a scheme that no storage serves.
    """
    text = os.fspath(path)
    if "://" not in text:
        return _LOCAL
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", text)
    if scheme is None:
        return _LOCAL
    if scheme.group(1) in _SERVICES:
        module, name = _SERVICES[scheme.group(1)]
        service: type[ObjectStorage] = getattr(importlib.import_module(module), name)
        return _shared(service, service.OPTIONS.from_environment())
    raise CacheError(
        f"{text!r}: caches and inputs are on file systems, gs://, s3:// or az://, got the scheme {scheme.group(1)!r}. "
        "Give a local path, gs://bucket/directory, s3://bucket/directory or az://container/directory (an input may be "
        "on https:// or hf:// too), or mount the bucket.",
        path=text,
    )


_LOCAL = LocalStorage()

# Scheme → (module, class); imported when a path needs it.
_SERVICES = {
    "gs": ("beam_pipes.storage.gcs", "GcsStorage"),
    "s3": ("beam_pipes.storage.s3", "S3Storage"),
    "az": ("beam_pipes.storage.azure", "AzureStorage"),
    "azfs": ("beam_pipes.storage.azure", "AzureStorage"),
    "https": ("beam_pipes.storage.web", "HttpsStorage"),
    "http": ("beam_pipes.storage.web", "HttpsStorage"),
    "hf": ("beam_pipes.storage.web", "HubStorage"),
}


@functools.lru_cache(maxsize=8)
def _shared(service: Callable[[RequestOptions], Storage], options: RequestOptions) -> Storage:
    return service(options)


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path has a scheme, and so is not a path of this machine."""
    return "://" in os.fspath(path)


def directory_path(path: str | os.PathLike[str]) -> str:
    """A directory under its canonical name: `cache/` → `/home/me/cache`, `gs://bucket/cache/` → `gs://bucket/cache`.

    Raises `CacheError` for ''.
    """
    text = os.fspath(path)
    if not text:
        raise CacheError("expected a directory, got ''. The current directory is '.'.", path=text)
    return text.rstrip("/") if is_remote(text) else absolute_path(text)


def existing_directory(path: str | os.PathLike[str]) -> str:
    """The directory as by `directory_path`. Raises `CacheNotFoundError` if it does not exist, or is a file."""
    root, named = directory_path(path), os.fspath(path)
    if storage_for(root).is_directory(root):
        return root
    if not is_remote(root) and os.path.exists(root):
        raise CacheNotFoundError(f"expected the directory of a cache, and {named!r} is a file.", path=named)
    raise CacheNotFoundError(f"{named!r} does not exist: nothing was built there.", path=named)


def path_below(path: str, top: str) -> str | None:
    """A directory relative to one above it, `a/b/`, however links and mounts lead to it; None if it is not below."""
    if is_remote(top):
        return f"{path.rstrip('/')}/"[len(top) + 1 :] if f"{path}/".startswith(f"{top}/") else None
    above, parts = os.path.realpath(path), ""
    while not (os.path.exists(above) and os.path.exists(top) and os.path.samefile(above, top)):
        above, name = os.path.split(above)
        if not name:
            return None
        parts = f"{name}/{parts}"
    return parts


def absolute_path(path: str | os.PathLike[str]) -> str:
    """A path that stays valid when user code changes the working directory; remote ones are returned as they are.

    `~/cache` → `/home/me/cache`, as in a shell: otherwise a directory called `~` would appear. Called once, where a
    path enters a build, cache, source or asset.
    """
    text = os.fspath(path)
    return text if is_remote(text) else os.path.abspath(os.path.expanduser(text))


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise read_error(path, error) from error


def read_error(path: str, error: OSError) -> CacheError:
    """An `OSError` from reading a path as one of our errors."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return _not_found(path)
    reason = error.strerror or str(error)
    remedy = "Give the user that runs this permission to read it, or repair the file."
    if error.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "Raise the limit (ulimit -n 8192): each cache that is open keeps a file open."
    return CacheReadError(
        f"{path!r} cannot be read: {reason}. {remedy}",
        path=path,
        errno=error.errno,
        strerror=reason,
    )


def _not_found(path: str) -> CacheNotFoundError:
    return CacheNotFoundError(f"expected a file at {path!r}, and there is none", path=path)


#: What file systems report when there is no room.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CHOOSE = "Choose a writable place in an existing directory"


@contextlib.contextmanager
def writing_to(path: str | os.PathLike[str]) -> Iterator[None]:
    """Wraps steps that write `path`: an `OSError` becomes an `OutputError` that names it, our own errors pass."""
    try:
        yield
    except BeamPipesError:
        raise
    except OSError as error:
        target = os.fspath(path)
        advice = "Free space there, or choose another place" if error.errno in FULL else _CHOOSE
        raise OutputError(
            f"{target!r} cannot be written: {error.strerror or error}. {advice}.",
            path=target,
            errno=error.errno,
        ) from error


@contextlib.contextmanager
def output_file(path: str | os.PathLike[str], *, errors: str = "strict") -> Iterator[IO[str]]:
    """A text file that a user names, written whole or not at all; raises `OutputError` as `writing_to` does."""
    target = os.path.realpath(path)
    is_new = os.path.isfile(target) or not os.path.lexists(target)  # else a pipe or a device
    written = temporary_path(target) if is_new else target
    with writing_to(path):
        try:
            with open(written, "w", encoding="utf-8", errors=errors, newline="") as file:
                yield file
                file.flush()
                if is_new:
                    os.fsync(file.fileno())
            if is_new:
                os.replace(written, target)
        except BaseException:
            if is_new:
                Path(written).unlink(missing_ok=True)
            raise
