"""What object stores have in common: listing, conditional writes, staged files and the build lock, over a few requests.

    GcsStorage ───────────────┐
    S3Storage ────────────────┼──► ObjectStorage ──► Storage      what the cache asks for
    AzureStorage ─────────────┤        │
    HttpsStorage, HubStorage ─┘        └── _get, _put, _page, …   one attempt at a service, through its own client

An object appears whole or not at all; writing, replacing and deleting are each one step for all readers. There are no
directories (a path with objects below it counts as one) and no links: sharing a file is a copy inside the service.

A *version* distinguishes two objects at one path, and conditions of requests name it: the generation on gs://, the ETag
elsewhere.

The build lock is a lease, an object that its holder renews. Taking it is put-if-absent; renewing and taking over are
compare-and-swap on the version that was seen. Only one of several can win, whatever is lost on the way: if no answer
came, reading the token that is there settles it. Time is the service's own (`Date` of an answer against when the object
was written), so clocks need not agree.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import secrets
import threading
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import IO, NamedTuple

from beam_pipes.errors import CacheBusyError, CacheNotFoundError, ChangedMeanwhileError, StorageError
from beam_pipes.storage.locks import busy, in_words, is_dead, reached, this_process
from beam_pipes.storage.protocol import FileStatus, in_parallel, replaced_meanwhile
from beam_pipes.storage.requests import Requests
from beam_pipes.storage.transfer import (
    GetPage,
    ObjectReader,
    ObjectStatus,
    Page,
    StagedObject,
    list_directory,
    list_tree,
)

# Up to this size an object is written with one request; what is larger is sent in parts.
SINGLE_REQUEST_BYTES = 4 << 20

#: The version of an object that is not there.
NO_OBJECT = ""
#: The version of an answer that names none.
UNNAMED_VERSION = "-1"


class Answer(NamedTuple):
    """Bytes of one version of an object; when it was written (None: unknown), and the time now, by its clock."""

    data: bytes
    version: str
    modified: datetime | None
    now: datetime


class ObjectStorage(Requests):
    """The `Storage` protocol over an object store. Thread-safe, picklable, safe to fork."""

    writable = True

    # One attempt each. They raise what the client raises, and `retrying` translates it.

    @abstractmethod
    def _get(self, path: str, start: int, size: int | None, version: str | None, /) -> Answer:
        """At most `size` bytes from `start` (None: the whole object, with its checksum checked) of this version."""

    @abstractmethod
    def _head(self, path: str, /) -> tuple[str, ObjectStatus]:
        """The version of an object, and its status."""

    @abstractmethod
    def _put(self, path: str, data: bytes, version: str | None, /) -> str:
        """Writes an object in place of this version with one request; returns its new version.

        The service compares the checksum that is sent with it.
        """

    @abstractmethod
    def _send(self, path: str, file: IO[bytes], size: int, crc32c: int, /) -> None:
        """Makes a large object from a local file in several requests; whole, or not at all."""

    @abstractmethod
    def _copy(self, source: str, target: str, size: int | None, /) -> None:
        """A copy inside the service: nothing is downloaded."""

    @abstractmethod
    def _delete(self, path: str, version: str | None, /) -> None:
        """Deletes an object, if it is this version of it."""

    @abstractmethod
    def _page(self, path: str, prefix: str, delimiter: str | None, token: str | None, most: int, /) -> Page:
        """A page of a listing of the bucket of `path`."""

    # Reading.

    def fetch(self, path: str) -> Answer:
        """A whole object, with one request. Raises `CacheNotFoundError` if there is none."""
        return self.retrying(functools.partial(self._get, path, 0, None, None), path, "read")

    def read_bytes(self, path: str) -> bytes:
        return self.fetch(path).data

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset`; fewer at the end of the object."""
        try:
            return self._range(path, offset, size, None) if size > 0 else b""
        except StorageError as error:
            if error.status == 416:  # there is no byte at `offset`
                return b""
            raise

    def open_read(self, path: str) -> IO[bytes]:
        """A reader of the present version; it fails, and never mixes versions, if the service forgets it meanwhile."""
        version, status = self._look(path)

        def fetch(start: int, size: int) -> bytes:
            return self._range(path, start, size, version)

        return ObjectReader(fetch, status, chunk_bytes=self.options.chunk_bytes)  # type: ignore[return-value]

    def status(self, path: str) -> ObjectStatus:
        """Size, generation and digest of an object. Raises `CacheNotFoundError` if there is none."""
        return self._look(path)[1]

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
        prefix = self._directory_key(path)
        return bool(self.retrying(functools.partial(self._page, path, prefix, None, None, 1), path, "list").objects)

    def modified_ns(self, path: str) -> int:
        """When something below a path was last written."""
        return max((status.modified_ns for status in self.objects(path)), default=0)

    # Writing.

    def put(self, path: str, data: bytes, version: str | None = None, *, deadline_secs: float | None = None) -> str:
        """Writes an object with one request, in place of this version (`NO_OBJECT`: if there is none); its new version.

        Raises `ChangedMeanwhileError` if another version is there, even if an earlier attempt wrote it and its answer
        was lost.
        """
        attempt = functools.partial(self._put, path, data, version)
        made = self.retrying(attempt, path, "write", deadline_secs=deadline_secs)
        reached("object/put")
        return made

    def stage(self, path: str) -> StagedObject:
        self.split_path(path)
        return StagedObject(functools.partial(self.upload, path))

    def upload(self, path: str, file: IO[bytes], *, size: int, crc32c: int) -> None:
        """Makes an object of `size` bytes from a local file; whole, or not at all."""

        def attempt() -> None:
            file.seek(0)
            self._send(path, file, size, crc32c)

        if size <= SINGLE_REQUEST_BYTES:
            file.seek(0)
            self.put(path, file.read(size))
        else:
            self.retrying(attempt, path, "write")
            reached("object/uploaded")

    def write_new(self, path: str, data: bytes) -> None:
        try:
            self.put(path, data, NO_OBJECT)
        except ChangedMeanwhileError as error:
            raise FileExistsError(f"there is an object at {path!r} already") from error

    def replace(self, path: str, data: bytes) -> None:
        self.put(path, data)

    def replace_if(self, path: str, data: bytes, expected: bytes | None) -> None:
        """Compare-and-swap: raises `ChangedMeanwhileError` unless the object holds `expected` (None: is not there)."""
        found, version = self._read_or_none(path)
        if found == data:
            return
        if found == expected:
            try:
                self.put(path, data, version)
                return
            except ChangedMeanwhileError:
                # By another process, or by our own attempt whose answer was lost.
                if self._read_or_none(path)[0] == data:
                    return
        raise replaced_meanwhile(path)

    def link_or_copy(self, source: str, target: str, *, size: int | None = None) -> None:
        """A copy inside the service: nothing is downloaded."""
        self.retrying(functools.partial(self._copy, source, target, size), source, "copy")
        reached("object/copied")

    def delete(self, path: str, version: str | None = None, *, deadline_secs: float | None = None) -> None:
        """Deletes an object, or only this version of it; it is not an error if it is not there."""
        # Without a version, no condition can fail.
        with contextlib.suppress(CacheNotFoundError, ChangedMeanwhileError):
            attempt = functools.partial(self._delete, path, version)
            self.retrying(attempt, path, "delete", deadline_secs=deadline_secs)

    def delete_tree(self, path: str, first: Iterable[str] = ()) -> None:
        """Deletes all objects below a path, those named by `first` (relative to it) before all others."""
        for name in first:
            self.delete(f"{path}/{name}")
        in_parallel(self, self.delete, [status.path for status in self.objects(path)])

    def makedirs(self, path: str, /) -> None:
        """Does nothing: there are no directories."""
        return

    def sweep(self, path: str, *, depth: int) -> None:
        """Does nothing: unfinished uploads have no name. Services discard them, s3:// by a rule of the bucket."""
        return

    def local_path(self, path: str) -> str | None:
        return None

    # The build lock.

    def lock(self, path: str, where: str) -> contextlib.AbstractContextManager[Lease]:
        return held_lease(self, path, where)

    def lock_holder(self, path: str) -> str | None:
        seen = look(self, path)
        return None if seen is None or seen.secs_left <= 0 or is_over(seen.who) else in_words(seen.who)

    # Requests.

    @classmethod
    def _directory_key(cls, path: str) -> str:
        _, key = cls.split_path(path)
        return key.rstrip("/") + "/" if key.rstrip("/") else ""

    def _look(self, path: str) -> tuple[str, ObjectStatus]:
        return self.retrying(functools.partial(self._head, path), path, "read")

    def _range(self, path: str, start: int, size: int, version: str | None) -> bytes:
        try:
            found = self.retrying(functools.partial(self._get, path, start, size, version), path, "read")
            # Compared here too: not every service that speaks a protocol honours its conditions.
            if version is None or (len(found.data) == size and found.version in (version, UNNAMED_VERSION)):
                return found.data
            cause = None
        except ChangedMeanwhileError as error:
            cause = error
        raise CacheNotFoundError(
            f"{path}: another object was written there while this one was read. Open it again.", path=path
        ) from cause

    def _pages(self, path: str) -> GetPage:
        def get_page(prefix: str, delimiter: str | None, token: str | None) -> Page:
            attempt = functools.partial(self._page, path, prefix, delimiter, token, self.options.page_names)
            return self.retrying(attempt, path, "list")

        return get_page

    def _read_or_none(self, path: str) -> tuple[bytes | None, str]:
        """The bytes of an object, or None, and its version."""
        try:
            return self.fetch(path)[:2]
        except CacheNotFoundError:
            return None, NO_OBJECT


def status_by_etag(path: str, etag: str, size: int, modified: datetime, *, digest: str | None = None) -> ObjectStatus:
    """What a service with ETags says about an object; `digest` of its content, if it says more than its ETag."""
    bare = etag.strip(chr(34))
    return ObjectStatus(
        path=path,
        size=int(size),
        generation=number_of(bare),
        crc32c=None,
        content_digest=f"{digest or f'etag:{bare}'}:{int(size)}",
        modified_ns=int(modified.astimezone(timezone.utc).timestamp() * 1_000_000) * 1000,
    )


def number_of(version: str) -> int:
    """A version as a number of 56 bits."""
    return int.from_bytes(hashlib.sha256(version.encode()).digest()[:7], "big")


def date_of(text: str) -> datetime:
    """A date of HTTP, as `Date` and `Last-Modified` are."""
    return parsedate_to_datetime(text)


class Seen(NamedTuple):
    """A lease as it is now: its holder, its version, and how many seconds are left."""

    who: dict[str, object]
    version: str
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
        self._version = NO_OBJECT
        self._renewed = 0.0
        self._lost: str | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self) -> None:
        """Raises `CacheBusyError`, naming who holds it."""
        begun = time.monotonic()
        if not self._put(NO_OBJECT):
            seen = look(self._storage, self._path)
            if seen is not None and seen.secs_left > 0 and not is_over(seen.who):
                raise self._busy(seen)
            # Its holder is dead, or was not heard from for longer than its lease.
            if not self._put(NO_OBJECT if seen is None else seen.version):
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
        """Lets go; what cannot be deleted now expires."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        _given_up.add(str(self._who["token"]))
        if self._lost is None:
            with contextlib.suppress(StorageError, OSError):
                self._storage.delete(self._path, self._version, deadline_secs=self._secs / 4)
        reached("lease/released")

    def _put(self, version: str) -> bool:
        """Writes our name over the given version; False if another one is there."""
        # Every write differs: if versions are hashes of the content, a process that takes over would miss a renewal.
        self._written += 1
        data = json.dumps({**self._who, "written": self._written}, sort_keys=True).encode()
        try:
            # No longer than the lease itself: a later answer would not help.
            most = min(self._storage.options.deadline_secs, self._secs if version else float("inf"))
            self._version = self._storage.put(self._path, data, version, deadline_secs=most)
            return True
        except ChangedMeanwhileError:
            seen = look(self._storage, self._path)
            if seen is not None and seen.who.get("token") == self._who["token"]:
                self._version = seen.version  # the answer to our own request was lost
                return True
            return False

    def _renew(self) -> None:
        while not self._ended.wait(self._secs / 3):
            begun = time.monotonic()
            try:
                if not self._put(self._version):
                    seen = look(self._storage, self._path)
                    self._lost = f"{in_words(seen.who)} has taken it over" if seen is not None else "it was deleted"
                    return
                self._renewed = begun
            except Exception as error:  # the next attempt may succeed; `check` decides how long failures are tolerable
                if time.monotonic() > self._renewed + self._secs:
                    self._lost = f"it could not be renewed ({error})"
                    return

    def _busy(self, seen: Seen | None) -> CacheBusyError:
        holder = in_words(seen.who) if seen is not None else "it has just ended"
        until = f" If that process is dead, its lease ends in {seen.secs_left:.0f} s." if seen is not None else ""
        return busy(self._where, holder, until)


# The tokens of leases that this process held, and could perhaps not delete.
_given_up: set[str] = set()


def is_over(who: dict[str, object]) -> bool:
    """Whether a lease that has not expired is nevertheless held by nobody."""
    return str(who.get("token")) in _given_up or is_dead(who)


def look(storage: ObjectStorage, path: str) -> Seen | None:
    """The lease at `path`; None if there is none."""
    try:
        found = storage.fetch(path)
    except CacheNotFoundError:
        return None
    try:
        who = dict(json.loads(found.data))
        secs = float(who["lease_secs"])
    except (ValueError, KeyError, TypeError):
        who, secs = {}, storage.options.lease_secs
    try:
        modified = found.modified.timestamp() if found.modified else storage.status(path).modified_ns / 1e9
    except CacheNotFoundError:
        return None
    return Seen(who, found.version, secs - (found.now.timestamp() - modified))


@contextlib.contextmanager
def held_lease(storage: ObjectStorage, path: str, where: str) -> Iterator[Lease]:
    """Holds the lease while the block runs."""
    lease = Lease(storage, path, where)
    lease.take()
    try:
        yield lease
    finally:
        lease.release()
