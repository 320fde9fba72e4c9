"""What object stores have in common: listing, conditional writes, staged files and the build lock, over a few requests.

    GcsStorage ───────────────────┐
    S3Storage ────┬─ EtagStorage ─┼──► ObjectStorage ──► Storage         what the cache asks for
    AzureStorage ─┘               │        │
    web: HttpsStorage, HubStorage ┘        └── put, status, pages, …     what a service answers

An object appears whole or not at all; writing, replacing and deleting are each one step for all readers. There are no
directories (a path with objects below it counts as one) and no links: sharing a file is a copy inside the service.

The build lock is a lease, an object that its holder renews. Taking it is put-if-absent; renewing and taking over are
compare-and-swap on the generation that was seen. Only one of several can win, whatever is lost on the way: an answer
that did not come is settled by reading whose token is there. Time is the service's own (`Date` of an answer against
when the object was written), so clocks need not agree.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import IO, ClassVar, NamedTuple, TypeVar

from beam_pipes.errors import CacheBusyError, CacheNotFoundError, ChangedMeanwhileError, StorageError
from beam_pipes.storage.locks import in_words, is_dead, reached, this_process
from beam_pipes.storage.protocol import FileStatus, in_parallel
from beam_pipes.storage.requests import RequestOptions, Service, retrying
from beam_pipes.storage.transfer import ObjectReader, ObjectStatus, Page, StagedObject, list_directory, list_tree

T = TypeVar("T")

# Up to this size an object is written with one request; what is larger is sent in parts.
SINGLE_REQUEST_BYTES = 4 << 20


class ObjectStorage(ABC):
    """The part of the `Storage` protocol that object stores share. Thread-safe, picklable, safe to fork."""

    SCHEME: ClassVar[str]
    options: RequestOptions
    parallel: int

    # What a service answers.

    @abstractmethod
    def status(self, path: str) -> ObjectStatus:
        """Size, generation and digest of an object. Raises `CacheNotFoundError` if there is none."""

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

        Raises `ChangedMeanwhileError` if the present generation (0: no object) is another one: also where an
        earlier attempt has written it, and its answer was lost.
        """

    @abstractmethod
    def _upload(self, path: str, file: IO[bytes], size: int, crc32c: int) -> None:
        """Makes a large object of a local file in several requests; whole, or not at all."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Deletes an object; it is not an error if there is none."""

    @abstractmethod
    def delete_generation(self, path: str, generation: int, *, deadline_secs: float | None = None) -> None:
        """Deletes an object if it is this generation of it; it is not an error if it is not."""

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

    @abstractmethod
    def _service(self, path: str, doing: str) -> Service:
        """How retries understand what this service answers to "read", "write", "list", … of a path."""

    def _retrying(self, attempt: Callable[[], T], path: str, doing: str, *, deadline_secs: float | None = None) -> T:
        options = self.options
        if deadline_secs is not None:
            options = dataclasses.replace(options, deadline_secs=deadline_secs)
        return retrying(attempt, options=options, path=path, doing=doing, service=self._service(path, doing))

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
        return StagedObject(functools.partial(self.upload, path))

    def upload(self, path: str, file: IO[bytes], *, size: int, crc32c: int) -> None:
        """Makes an object of `size` bytes of a local file; whole, or not at all."""
        if size <= SINGLE_REQUEST_BYTES:
            file.seek(0)
            self.put(path, file.read(size))
        else:
            self._upload(path, file, size, crc32c)
            reached("object/uploaded")

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
        """Nothing: uploads that nobody finishes have no name. Services forget them, s3:// by a rule of the bucket."""
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
        """(bucket, key): `gs://bucket/a/b` → `("bucket", "a/b")`. Raises `StorageError` if there is no bucket."""
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


class EtagStorage(ObjectStorage):
    """Object stores that know what they hold by its ETag, which conditions of requests name: S3 and Azure."""

    def open_read(self, path: str) -> IO[bytes]:
        """A reader of the present object; it fails, and mixes nothing, when another one is written meanwhile."""
        etag, status = self._head(path)

        def fetch(start: int, size: int) -> bytes:
            return self._range(path, start, size, etag, status.size)

        return ObjectReader(  # type: ignore[return-value]
            fetch,
            path=path,
            size=status.size,
            crc32c=None,
            content_digest=status.content_digest,
            chunk_bytes=self.options.chunk_bytes,
        )

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        etag, status = self._head(path)
        size = min(size, status.size - offset)
        return self._range(path, offset, size, etag, status.size) if size > 0 else b""

    def status(self, path: str) -> ObjectStatus:
        return self._head(path)[1]

    @abstractmethod
    def _head(self, path: str) -> tuple[str, ObjectStatus]:
        """The ETag of an object, and its status. Raises `CacheNotFoundError` if there is none."""

    @abstractmethod
    def _get_range(self, path: str, start: int, size: int, etag: str, total: int) -> bytes:
        """Bytes of the object of `total` bytes with this ETag. Raises `ChangedMeanwhileError` if it has another one."""

    def _range(self, path: str, start: int, size: int, etag: str, total: int) -> bytes:
        try:
            return self._get_range(path, start, size, etag, total)
        except ChangedMeanwhileError as error:
            raise CacheNotFoundError(
                f"{path}: another object was written there while this one was read. Open it again.", path=path
            ) from error


def status_by_etag(path: str, etag: str, size: int, modified: datetime, *, digest: str | None = None) -> ObjectStatus:
    """What a service that has ETags says of an object; `digest` of its content, where it says more than its ETag."""
    bare = etag.strip(chr(34))
    return ObjectStatus(
        path=path,
        size=int(size),
        generation=int.from_bytes(hashlib.sha256(bare.encode()).digest()[:7], "big"),
        crc32c=None,
        content_digest=f"{digest or f'etag:{bare}'}:{int(size)}",
        modified_ns=int(modified.astimezone(timezone.utc).timestamp() * 1_000_000) * 1000,
    )


def generation_of(etag: str) -> int:
    """An ETag as the number that a lease keeps; `etag_of` is the inverse."""
    return int.from_bytes(etag.encode(), "big")


def etag_of(generation: int) -> str:
    return generation.to_bytes(-(-generation.bit_length() // 8), "big").decode()


class Seen(NamedTuple):
    """A lease as it is now: who holds it, its generation, and for how many seconds more."""

    who: dict[str, object]
    generation: int
    secs_left: float


class Lease:
    """Held from `take` to `release`; renewed on a thread meanwhile."""

    def __init__(self, storage: ObjectStorage, path: str, where: str) -> None:
        self._storage = storage
        self._path = path
        self._where = where
        self._secs = storage.options.lease_secs
        self._who = {**this_process(), "token": secrets.token_hex(8), "lease_secs": self._secs}
        self._written = 0
        self._generation = 0
        self._renewed = 0.0
        self._lost: str | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self) -> None:
        """Raises `CacheBusyError`, naming who holds it."""
        begun = time.monotonic()
        if not self._put(0):
            seen = look(self._storage, self._path)
            if seen is not None and seen.secs_left > 0 and not is_over(seen.who):
                raise self._busy(seen)
            # Its holder is dead, or has not been heard of for longer than its lease.
            if not self._put(0 if seen is None else seen.generation):
                raise self._busy(look(self._storage, self._path))
        self._renewed = begun
        reached("lease/taken")
        self._thread = threading.Thread(target=self._renew, name="beam_pipes build lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises `CacheBusyError` if the lease was lost: somebody else may be building there now."""
        if self._lost is None and time.monotonic() > self._renewed + self._secs:
            self._lost = "it was not renewed in time"
        if self._lost is not None:
            raise CacheBusyError(
                f"the build lock of {self._where!r} was lost: {self._lost}. Nothing was published; run the build again "
                "to continue from the finished shards.",
                path=self._where,
            )

    def release(self) -> None:
        """Lets go; what cannot be deleted now ends on its own."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        _given_up.add(str(self._who["token"]))
        if self._lost is None:
            with contextlib.suppress(StorageError, OSError):
                self._storage.delete_generation(self._path, self._generation, deadline_secs=self._secs / 4)
        reached("lease/released")

    def _put(self, generation: int) -> bool:
        """Writes our name over the given generation (0: over nothing); False if another one is there."""
        # No two writes are alike: where a generation is a hash of the content, whoever takes over would miss a renewal.
        self._written += 1
        data = json.dumps({**self._who, "written": self._written}, sort_keys=True).encode()
        try:
            # No longer than the lease itself: a later answer would not help.
            most = min(self._storage.options.deadline_secs, self._secs if generation else float("inf"))
            self._generation = self._storage.put(self._path, data, if_generation_match=generation, deadline_secs=most)
            return True
        except ChangedMeanwhileError:
            seen = look(self._storage, self._path)
            if seen is not None and seen.who.get("token") == self._who["token"]:
                self._generation = seen.generation  # the answer to our own request was lost
                return True
            return False

    def _renew(self) -> None:
        while not self._ended.wait(self._secs / 3):
            begun = time.monotonic()
            try:
                if not self._put(self._generation):
                    seen = look(self._storage, self._path)
                    self._lost = f"{in_words(seen.who)} has taken it over" if seen is not None else "it was deleted"
                    return
                self._renewed = begun
            except Exception as error:  # the next try may succeed; `check` knows how long that is good enough
                if time.monotonic() > self._renewed + self._secs:
                    self._lost = f"it could not be renewed ({error})"
                    return

    def _busy(self, seen: Seen | None) -> CacheBusyError:
        holder = in_words(seen.who) if seen is not None else "it has just ended"
        until = f" If that process is dead, its lease ends in {seen.secs_left:.0f} s." if seen is not None else ""
        return CacheBusyError(
            f"another build is writing to {self._where!r} ({holder}). Wait for it, stop it, or build to another "
            f"directory.{until}",
            path=self._where,
        )


# The tokens of leases that this process held, and could perhaps not delete.
_given_up: set[str] = set()


def is_over(who: dict[str, object]) -> bool:
    """Whether a lease that has not ended is held by nobody all the same."""
    return str(who.get("token")) in _given_up or is_dead(who)


def look(storage: ObjectStorage, path: str) -> Seen | None:
    """The lease at `path`; None if there is none."""
    try:
        data, generation, updated, now = storage.get_dated(path)
    except CacheNotFoundError:
        return None
    try:
        who = dict(json.loads(data))
        secs = float(who["lease_secs"])
    except (ValueError, KeyError, TypeError):
        who, secs = {}, storage.options.lease_secs
    return Seen(who, generation, secs - (now - updated).total_seconds())


def date_of(text: str) -> datetime:
    """The `Date` of an answer."""
    return parsedate_to_datetime(text)


@contextlib.contextmanager
def held_lease(storage: ObjectStorage, path: str, where: str) -> Iterator[Lease]:
    """Holds the lease while the block runs."""
    lease = Lease(storage, path, where)
    lease.take()
    try:
        yield lease
    finally:
        lease.release()
