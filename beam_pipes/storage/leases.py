"""Leases of readers: small objects beside the snapshots that say which of them are read, by whom and until when.

    DIR/leases/<snapshot>-<token>.json    {"pid": 4711, "host": "trainer-3", "since": …, "lease_secs": 3600, …}

On a file system a reader also holds a lock of the kernel (`locks.hold`), which works at once, but ends with its process
and names nobody. A lease works on every storage and for other machines. It ends `lease_secs` after its reader last
renewed it, so a training that was interrupted finds its snapshot when it is started again within that time. A reader
that is closed, or whose process ends, gives its lease back, unless somebody has taken a state of it.

One thread per process writes all leases, and renews each three times in its time; nobody waits for a lease while a
batch is read. Whoever may not write there reads without a lease.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import secrets
import threading
import time
import weakref
from collections.abc import Container

from beam_pipes.errors import BeamPipesError, DeclarationError, logger, visible
from beam_pipes.storage.locks import in_words, is_dead, this_process
from beam_pipes.storage.protocol import Storage, in_parallel

_log = logger(__name__)

#: Below the directory of a cache.
LEASES = "leases"

#: For how many seconds a lease holds after it was last renewed; 0: readers take none.
VARIABLE = "BEAM_PIPES_READER_LEASE_SECS"
_DEFAULT_SECS = 3600.0

# How long the kernel's lock alone protects what is read from a file system: most readers end sooner.
_LOCAL_DELAY_SECS = 1.0
# How long a process that ends waits until its leases are given back.
_EXIT_SECS = 5.0
# An object whose time of writing is now, by the clock of the storage.
_CLOCK = "clock"


def lease_secs() -> float:
    """The time of a lease of this process, in seconds. Raises `DeclarationError` if the variable holds no number."""
    text = os.environ.get(VARIABLE, "")
    try:
        secs = float(text) if text else _DEFAULT_SECS
    except ValueError:
        secs = -1.0
    if not 0 <= secs < float("inf"):
        raise DeclarationError(f"{VARIABLE} should be a number of seconds, 0 or more, got {text!r}.")
    return secs


@dataclasses.dataclass(eq=False)
class _Entry:
    """What the thread knows of a lease; its reader may be gone."""

    storage: Storage
    root: str
    snapshot: str
    secs: float
    due: float
    token: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    who: dict[str, object] = dataclasses.field(default_factory=this_process)
    stays: bool = False
    ended: bool = False
    written: bool = False
    refused: bool = False

    @property
    def path(self) -> str:
        return f"{self.root}/{LEASES}/{self.snapshot}-{self.token}.json"

    @property
    def _is_local(self) -> bool:
        return self.storage.local_path(self.root) is not None

    def write(self) -> None:
        if self._is_local and not os.path.isdir(f"{self.root}/snapshots/{self.snapshot}"):
            return  # the snapshot, or the whole cache, was removed
        stated = {**self.who, "lease_secs": self.secs, "stays": self.stays}
        data = json.dumps(stated, sort_keys=True).encode()
        try:
            for attempt in (1, 2):
                self.storage.makedirs(f"{self.root}/{LEASES}")
                try:
                    self.storage.replace(self.path, data)
                    break
                except FileNotFoundError:  # another process has removed the empty directory, or swept it
                    if attempt == 2:
                        raise
            self.written = True
        except (BeamPipesError, OSError) as error:
            if not self.refused:  # said once; it is tried again
                say = _log.info if self._is_local else _log.warning
                say(
                    "%s: a lease on snapshot %s cannot be written, so builds elsewhere may remove it while it is read "
                    "(%s). Builds keep more snapshots with --keep; without leases on purpose, set %s=0.",
                    self.root,
                    self.snapshot,
                    visible(str(error)),
                    VARIABLE,
                )
            self.refused = True

    def finish(self) -> None:
        """Gives the lease back, or leaves it to its time."""
        if self.stays:
            self.write()
        elif self.written:
            with contextlib.suppress(BeamPipesError, OSError):
                self.storage.delete(self.path)
                if self._is_local:
                    os.rmdir(f"{self.root}/{LEASES}")  # if no other is there


class ReaderLease:
    """Protects a snapshot until this object is gone, and `stay`ing, for the time of a lease after that."""

    def __init__(self, storage: Storage, root: str, snapshot: str, secs: float) -> None:
        delay = _LOCAL_DELAY_SECS if storage.local_path(root) is not None else 0.0
        self._entry = _Entry(storage, root, snapshot, secs, due=time.monotonic() + delay)
        _keeper.add(self._entry)
        weakref.finalize(self, _keeper.end, self._entry).atexit = False

    def stay(self) -> None:
        """Keeps the lease for its time if this process ends: a state names the snapshot."""
        if not self._entry.stays:
            self._entry.stays = True
            self._entry.due = 0.0
            _keeper.wake.set()


class _Keeper:
    """The thread of a process that writes its leases; it ends with the last of them."""

    def __init__(self) -> None:
        self.wake = threading.Event()
        self._idle = threading.Event()
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []
        self._thread: threading.Thread | None = None
        self._due = 0.0

    def add(self, entry: _Entry) -> None:
        with self._lock:
            self._entries.append(entry)
            if self._thread is None:
                self._idle.clear()
                self._thread = threading.Thread(target=self._run, name="beam_pipes leases", daemon=True)
                self._thread.start()
            if entry.due < self._due:  # else the thread wakes before that by itself
                self.wake.set()

    def end(self, entry: _Entry) -> None:
        # A finalizer runs anywhere, perhaps while this thread holds the lock above.
        entry.ended = True
        self.wake.set()

    def end_all(self) -> None:
        """At the end of the process."""
        for entry in list(self._entries):
            self.end(entry)
        if self._thread is not None:
            self._idle.wait(_EXIT_SECS)

    def _run(self) -> None:
        while True:
            self.wake.clear()
            for entry in list(self._entries):
                if entry.ended:
                    entry.finish()
                    self._entries.remove(entry)
                elif time.monotonic() >= entry.due:
                    entry.due = time.monotonic() + entry.secs / 3
                    entry.write()
            with self._lock:
                if not self._entries:
                    self._thread = None
                    self._idle.set()
                    return
                self._due = min(entry.due for entry in self._entries)
            self.wake.wait(max(0.0, self._due - time.monotonic()))


_keeper = _Keeper()
_leases: weakref.WeakValueDictionary[tuple[str, str], ReaderLease] = weakref.WeakValueDictionary()
atexit.register(lambda: _keeper.end_all())


def _forget() -> None:
    """In a forked child, the leases are those of its parent."""
    global _keeper, _leases
    _keeper, _leases = _Keeper(), weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_forget)


def lease(storage: Storage, directory: str) -> ReaderLease | None:
    """The lease of this process on the snapshot in `directory`; None if it takes none, or nothing is built there."""
    above, _, snapshot = directory.rpartition("/")
    root, _, folder = above.rpartition("/")
    secs = lease_secs()
    if folder != "snapshots" or not secs or not storage.writable:
        return None
    found = _leases.get((root, snapshot))
    if found is None:
        found = _leases[root, snapshot] = ReaderLease(storage, root, snapshot, secs)
    return found


def leased(storage: Storage, root: str, *, besides: Container[str], clean: bool = True) -> dict[str, list[str]]:
    """Snapshot → who reads it, in words, for those with leases that have not expired by the clock of the storage.

    The snapshots `besides` are kept in any case, and nobody asks for theirs.

    `{"1f0c…": ["process 4711 on trainer-3, since 2026-01-31 12:00:00, until 2026-01-31 15:20:00"]}`. Leases that have
    expired, or are of dead processes of this machine, are removed if `clean`. Two requests to list, write and read the
    clock, and one for each lease; one if there is none. For the holder of the build lock.
    """
    directory = f"{root}/{LEASES}"
    if not storage.list(directory):
        return {}
    clock = f"{directory}/{_CLOCK}"
    storage.replace(clock, b"")
    files = storage.tree(directory)
    now_ns = files.pop(_CLOCK).modified_ns
    storage.delete(clock)
    names = [name for name in files if name.endswith(".json") and name.rpartition("-")[0] not in besides]
    whose = in_parallel(storage, lambda name: _read(storage, f"{directory}/{name}"), names)
    found: dict[str, list[str]] = {}
    for name, who in zip(names, whose, strict=True):
        stated = who.get("lease_secs")
        secs = float(stated) if isinstance(stated, (int, float)) else _DEFAULT_SECS
        left = secs - (now_ns - files[name].modified_ns) / 1e9
        if left > 0 and (who.get("stays") or not is_dead(who)):
            until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + left))
            found.setdefault(name.rpartition("-")[0], []).append(f"{in_words(who)}, until {until}")
        elif clean:
            storage.delete(f"{directory}/{name}")
    if clean and storage.local_path(root) is not None:
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    return found


def _read(storage: Storage, path: str) -> dict[str, object]:
    try:
        found = json.loads(storage.read_bytes(path))
    except (BeamPipesError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
