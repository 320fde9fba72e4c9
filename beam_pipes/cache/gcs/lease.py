"""The build lock on an object store: a lease, an object that its holder renews.

Taking it is put-if-absent; renewing and taking over are compare-and-swap on the generation that was seen. Only one of
several can win, whatever is lost on the way: an answer that did not come is settled by reading whose token is there.
Time is the service's own (`Date` of an answer against `updated` of the object), so clocks need not agree.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Protocol

from beam_pipes.cache.gcs.requests import RequestOptions
from beam_pipes.cache.locks import in_words, is_dead, reached, this_process
from beam_pipes.errors import CacheBusyError, CacheNotFoundError, ChangedMeanwhileError, StorageError


class LeaseStorage(Protocol):
    """What a lease needs of the object store."""

    @property
    def options(self) -> RequestOptions: ...

    def put(
        self, path: str, data: bytes, *, if_generation_match: int | None = None, deadline_secs: float | None = None
    ) -> int:
        """Writes the object where its generation is the given one (0: there is none); returns the new generation."""

    def delete_generation(self, path: str, generation: int, *, deadline_secs: float) -> None:
        """Deletes the object where its generation is still the given one."""

    def get_dated(self, path: str) -> tuple[bytes, int, datetime, datetime]:
        """Content, generation, when it was written, and now, both by the service's clock."""


class Seen(NamedTuple):
    """A lease as it is now: who holds it, its generation, and for how many seconds more."""

    who: dict[str, Any]
    generation: int
    secs_left: float


class Lease:
    """Held from `take` to `release`; renewed on a thread meanwhile."""

    def __init__(self, storage: LeaseStorage, path: str, where: str) -> None:
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
        """Raises `CacheBusyError` where the lease was lost: somebody else may be building there now."""
        if self._lost is None and time.monotonic() > self._renewed + self._secs:
            self._lost = "it was not renewed in time"
        if self._lost is not None:
            raise CacheBusyError(
                f"the build lock of {self._where!r} was lost: {self._lost}. Nothing was published; run the build again "
                "to continue from the finished shards.",
                path=self._where,
            )

    def release(self) -> None:
        """Lets go; what cannot be deleted now ends by itself."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        _given_up.add(str(self._who["token"]))
        if self._lost is None:
            with contextlib.suppress(StorageError, OSError):
                self._storage.delete_generation(self._path, self._generation, deadline_secs=self._secs / 4)
        reached("lease/released")

    def _put(self, generation: int) -> bool:
        """Writes our name over the given generation (0: over nothing); False where another one is there."""
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


def is_over(who: dict[str, Any]) -> bool:
    """Whether a lease that has not ended is held by nobody all the same."""
    return str(who.get("token")) in _given_up or is_dead(who)


def look(storage: LeaseStorage, path: str) -> Seen | None:
    """The lease at `path`; None where there is none."""
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
def held_lease(storage: LeaseStorage, path: str, where: str) -> Iterator[Lease]:
    """Holds the lease while the block runs."""
    lease = Lease(storage, path, where)
    lease.take()
    try:
        yield lease
    finally:
        lease.release()
