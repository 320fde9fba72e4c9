"""What object stores have in common: listing, conditional writes, staged files and the build lock, over a few requests.

    GcsStorage ─┐
                ├──► ObjectStorage ──► Storage         what the cache asks for
    S3Storage ──┘        │
                         └── put, status, pages, …     what a service answers

An object appears whole or not at all; writing, replacing and deleting are each one step for all readers. There are no
directories (a path with objects below it counts as one) and no links: sharing a file is a copy inside the service.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import IO, ClassVar, NamedTuple

import google_crc32c

from beam_pipes.cache.gcs.lease import Lease, held_lease, is_over, look
from beam_pipes.cache.gcs.requests import RequestOptions
from beam_pipes.cache.gcs.transfer import Page, list_directory, list_tree
from beam_pipes.cache.locks import in_words
from beam_pipes.cache.storage_protocol import FileStatus, in_parallel
from beam_pipes.errors import CacheNotFoundError, ChangedMeanwhileError, StorageError


class ObjectStatus(NamedTuple):
    """One generation of an object. `content_digest` is equal for equal content, whenever it was written.

    On gs:// it is the md5 where the service keeps one; objects that were composed of others have none, and are told by
    their crc32c together with their generation. On s3:// it is the ETag.
    """

    path: str
    size: int
    generation: int
    crc32c: int | None
    content_digest: str
    modified_ns: int


class ObjectStorage(ABC):
    """The part of the `Storage` protocol that object stores share. Thread-safe, picklable, safe to fork."""

    SCHEME: ClassVar[str]
    options: RequestOptions
    parallel: int

    # What a service answers.

    @abstractmethod
    def status(self, path: str) -> ObjectStatus:
        """Size, generation and digest of an object. Raises `CacheNotFoundError` where there is none."""

    @abstractmethod
    def open_read(self, path: str) -> IO[bytes]:
        """One generation of an object as a file, never a mixture of two."""

    @abstractmethod
    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer at the end of the object."""

    @abstractmethod
    def link_or_copy(self, source: str, target: str) -> None:
        """A copy inside the service: no byte comes here."""

    @abstractmethod
    def put(
        self, path: str, data: bytes, *, if_generation_match: int | None = None, deadline_secs: float | None = None
    ) -> int:
        """Writes an object with one request; its generation. The service checks the checksum that goes with it.

        Raises `ChangedMeanwhileError` where the present generation (0: no object) is another one: also where an
        earlier attempt has written it, and its answer was lost.
        """

    @abstractmethod
    def upload(self, path: str, file: IO[bytes], *, size: int, crc32c: int) -> None:
        """Makes an object of `size` bytes of a local file; whole, or not at all."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Deletes an object; it is no error if there is none."""

    @abstractmethod
    def delete_generation(self, path: str, generation: int, *, deadline_secs: float | None = None) -> None:
        """Deletes an object if it is this generation of it; it is no error if it is not."""

    @abstractmethod
    def get_dated(self, path: str) -> tuple[bytes, int, datetime, datetime]:
        """Content, generation, when it was written, and the time now: both by the service's clock."""

    @abstractmethod
    def _read_whole(self, path: str) -> tuple[bytes, int]:
        """(bytes, generation), with one request; the checksum is checked."""

    @abstractmethod
    def _page(
        self, path: str, prefix: str, delimiter: str | None, token: str | None, *, most: int | None = None
    ) -> Page:
        """A page of a listing of the bucket of `path`."""

    # Reading.

    def read_bytes(self, path: str) -> bytes:
        return self._read_whole(path)[0]

    def exists(self, path: str) -> bool:
        try:
            self.status(path)
        except CacheNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        return self.status(path).size

    # Listing.

    def list(self, path: str) -> list[str]:
        objects, directories = list_directory(self._pages(path), self._directory_key(path))
        names = [status.path.rpartition("/")[2] for status in objects]
        names += [name.rstrip("/").rpartition("/")[2] for name in directories]
        return sorted(name for name in set(names) if name)

    def sizes(self, path: str) -> dict[str, int]:
        objects, _ = list_directory(self._pages(path), self._directory_key(path))
        return {status.path.rpartition("/")[2]: status.size for status in objects}

    def tree(self, path: str) -> dict[str, FileStatus]:
        top = len(path.rstrip("/")) + 1
        return {one.path[top:]: FileStatus(one.size, one.modified_ns, shared=False) for one in self.objects(path)}

    def objects(self, path: str, *, recursive: bool = True) -> Iterable[ObjectStatus]:
        """The objects below a path, or those directly in it; listed in parallel, in no particular order."""
        prefix = self._directory_key(path)
        if recursive:
            found = list_tree(self._pages(path), prefix, num_threads=self.parallel)
        else:
            found = list_directory(self._pages(path), prefix)[0]
        return [status for status in found if not status.path.endswith("/")]

    def is_directory(self, path: str) -> bool:
        return bool(self._page(path, self._directory_key(path), None, None, most=1).objects)

    def modified_ns(self, path: str) -> int:
        """When something below a path was last written."""
        return max((status.modified_ns for status in self.objects(path)), default=0)

    # Writing.

    def stage(self, path: str) -> StagedObject:
        self.split_path(path)
        return StagedObject(self, path)

    def write_new(self, path: str, data: bytes) -> None:
        try:
            self.put(path, data, if_generation_match=0)
        except ChangedMeanwhileError as error:
            raise FileExistsError(f"there is an object at {path!r} already") from error

    def replace(self, path: str, data: bytes) -> None:
        self.put(path, data)

    def replace_if(self, path: str, data: bytes, expected: bytes | None) -> None:
        """Compare-and-swap: raises `ChangedMeanwhileError` unless the object holds `expected` (None: is not there)."""
        found, generation = self._read_or_none(path)
        if found == data:
            return
        if found == expected:
            try:
                self.put(path, data, if_generation_match=generation)
                return
            except ChangedMeanwhileError:
                # By another process, or by an attempt of ours whose answer was lost.
                if self._read_or_none(path)[0] == data:
                    return
        raise ChangedMeanwhileError(
            f"{path}: expected the version from the start of this build, but another process has replaced it. "
            "What it published stays; run the build again to publish on top of it.",
            path=path,
        )

    def delete_tree(self, path: str, first: Iterable[str] = ()) -> None:
        """Deletes all objects below a path, those named by `first` (relative to it) before all others."""
        for name in first:
            self.delete(f"{path}/{name}")
        in_parallel(self, self.delete, [status.path for status in self.objects(path)])

    def makedirs(self, path: str) -> None:
        """Nothing: there are no directories."""
        return

    def sweep(self, path: str, *, depth: int) -> None:
        """Nothing: uploads that nobody finishes have no name. gs:// forgets them, s3:// by a rule of the bucket."""
        return

    def local_path(self, path: str) -> str | None:
        return None

    # The build lock.

    def lock(self, path: str, where: str) -> contextlib.AbstractContextManager[Lease]:
        return held_lease(self, path, where)

    def lock_holder(self, path: str) -> str | None:
        seen = look(self, path)
        return None if seen is None or seen.secs_left <= 0 or is_over(seen.who) else in_words(seen.who)

    # Paths.

    @classmethod
    def split_path(cls, path: str) -> tuple[str, str]:
        """(bucket, key): `gs://bucket/a/b` → `("bucket", "a/b")`. Raises `StorageError` where there is no bucket."""
        bucket, _, key = os.fspath(path).removeprefix(cls.SCHEME).partition("/")
        if not path.startswith(cls.SCHEME) or not bucket:
            raise StorageError(f"expected a path {cls.SCHEME}bucket/directory, got {path!r}", path=path)
        return bucket, key

    @classmethod
    def _directory_key(cls, path: str) -> str:
        _, key = cls.split_path(path)
        return key.rstrip("/") + "/" if key.rstrip("/") else ""

    def _pages(self, path: str) -> Callable[[str, str | None, str | None], Page]:
        return functools.partial(self._page, path)

    def _read_or_none(self, path: str) -> tuple[bytes | None, int]:
        """(bytes, generation) of an object; (None, 0) where there is none."""
        try:
            return self._read_whole(path)
        except CacheNotFoundError:
            return None, 0


class StagedObject:
    """Written to a temporary file of this machine that has no name; an object of the service on commit."""

    def __init__(self, storage: ObjectStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._size = 0
        self._crc32c = 0
        self._file: IO[bytes] | None = tempfile.TemporaryFile()  # noqa: SIM115

    def write(self, data: bytes, /) -> int:
        assert self._file is not None
        self._file.write(data)
        self._size += len(data)
        self._crc32c = google_crc32c.extend(self._crc32c, bytes(data))
        return len(data)

    def read_back(self) -> bytes:
        assert self._file is not None
        self._file.seek(0)
        data = self._file.read()
        self._file.seek(0, os.SEEK_END)
        return data

    def commit(self) -> None:
        assert self._file is not None
        self._file.flush()
        self._storage.upload(self._path, self._file, size=self._size, crc32c=self._crc32c)
        self.abort()

    def abort(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self.abort()
