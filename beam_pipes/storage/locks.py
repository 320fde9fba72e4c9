"""The build lock on a file system, who holds it, and the steps at which tests kill a build.

The lock is the kernel's and ends with the process that holds it. Its holder is named, so that others can report who it
is and, on the same machine, whether it is alive.

*Kill points* are labelled steps at which a test can have the process killed, as losing power would:
`BEAM_PIPES_KILL_AT=shard/renamed` sends SIGKILL when that step is reached, `shard/renamed#3` at the third time. Without
the variable a step costs one comparison.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import signal
import socket
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from beam_pipes.errors import CacheBusyError
from beam_pipes.storage.checked_json import JsonValue
from beam_pipes.storage.protocol import write_all

VARIABLE = "BEAM_PIPES_KILL_AT"

#: Every step, in the order of a build, and what has just happened there.
LABELS = {
    "lock/opened": "the lock file exists, nobody holds it",
    "lock/taken": "the lock is held, its holder is not named yet",
    "lock/named": "the lock names its holder",
    "digests/written": "the digests of input files are under a temporary name",
    "digests/renamed": "the digests of input files are in place",
    "prepare/swept": "leftovers of dead builds are removed",
    "prepare/recorded": "the parts of the fingerprint are beside the snapshot",
    "reuse/index-linked": "the index of a reused shard is linked into the new snapshot",
    "reuse/linked": "a reused shard is linked into the new snapshot, its completion is not written",
    "shard/written": "all records of a shard are under a temporary name",
    "shard/index-renamed": "the index of a shard is in place, the shard is not",
    "shard/renamed": "a shard and its index are in place",
    "shard/dead-letters-renamed": "the dead letters of a shard are in place, its completion is not written",
    "storage/staged": "a file is durable under its temporary name",
    "storage/renamed": "a file has its final name, the directory is not durable",
    "storage/new-linked": "a file that must not replace another is in place, its temporary name remains",
    "storage/link-staged": "a link to a file of another snapshot has a temporary name",
    "shard/completed": "the completion of a shard is in place",
    "publish/described": "schema and statistics of the snapshot are in place",
    "publish/snapshot-manifest-written": "the snapshot has its manifest, readers see the previous one",
    "publish/current-manifest-replaced": "readers see the new snapshot",
    "build/recorded": "the record of the run is written",
    "lock/unlinked": "the lock file is removed, the lock is still held",
}

#: Further steps of builds on an object store, whose lock, staged files and links are different.
OBJECT_STORE_LABELS = {
    "lease/taken": "the build lock is held",
    "object/put": "a small object is in place",
    "object/uploaded": "a large object is in place",
    "object/copied": "an object of another snapshot is copied into this one",
    "lease/released": "the build lock is given back",
}

#: Further steps of builds of declarations with analyzers, before `prepare/swept`.
ANALYSIS_LABELS = {
    "analysis/content-stored": "an accumulator or a result is in place, its record is not written",
    "analysis/recorded": "the record of an accumulator or a result is in place",
}

_label = ""
_visits_left = 0


def arm(where: str) -> None:
    """Sets the step at which this process is killed: a label, or `label#n` for its n-th visit; empty for none."""
    global _label, _visits_left
    _label, _, visit = where.partition("#")
    _visits_left = int(visit or 1)


def reached(label: str) -> None:
    """Marks a step; kills the process if it is the requested one."""
    global _visits_left
    if label == _label:
        _visits_left -= 1
        if _visits_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get(VARIABLE, ""))


def this_process() -> dict[str, object]:
    """This process, for a lock file: pid, host, start time; and what distinguishes it from a later process with the
    same pid.
    """
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        **_of_this_process(),
    }


@functools.cache
def _of_this_process() -> dict[str, object]:
    """Read once in a process: a thousand leases need it at the same time."""
    return {"machine": _machine(), "started": _started(os.getpid())}


os.register_at_fork(after_in_child=_of_this_process.cache_clear)


def in_words(who: JsonValue) -> str:
    """`process 4711 on build-3, since 2026-01-31 12:00:00`."""
    try:
        return f"process {who['pid']} on {who['host']}, since {who['since']}"
    except (KeyError, TypeError):
        return "it has just started"


def is_dead(who: object) -> bool:
    """Whether a process is certainly gone: it ran on this machine and no longer exists. False if unknown."""
    if not isinstance(who, Mapping):
        return False
    machine, pid = _machine(), who.get("pid")
    if not machine or who.get("machine") != machine or not isinstance(pid, int):
        return False
    return _started(pid) != who.get("started")


def _machine() -> str:
    """This boot of this machine, and the PID namespace that we see; empty if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process started, in ticks since boot; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


class KernelLock:
    """A lock that cannot be lost while its process lives."""

    def check(self) -> None:
        pass


#: The lock file of builds, below the directory of a cache.
BUILD_LOCK = ".build.lock"

#: What file systems report if they do not support links or locks.
NOT_OFFERED = {errno.EPERM, errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EINVAL}


def try_lock(descriptor: int, *, shared: bool = False) -> bool | None:
    """Whether we hold the lock of an open file now; False if others do, None if the file system has no locks."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NOT_OFFERED:
            raise
        return None
    return True


class Hold:
    """A file that this process is reading: it `is_held` until this object is gone, or the process ends in any way.

    One per process and file. Without locks, or without such a file, it holds nothing.
    """

    def __init__(self, path: str) -> None:
        self._file: IO[bytes] | None = None
        with contextlib.suppress(OSError):
            self._file = open(path, "rb", buffering=0)
            try_lock(self._file.fileno(), shared=True)

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()


_holds: weakref.WeakValueDictionary[str, Hold] = weakref.WeakValueDictionary()


def hold(path: str) -> Hold:
    """The hold of this process on a file."""
    found = _holds.get(path)
    if found is None:
        found = _holds[path] = Hold(path)
    return found


def is_held(path: str) -> bool:
    """Whether any process, this one included, has the file on `hold`; False where that is unknown."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # network file systems lock what may be written
        with contextlib.closing(os.fdopen(descriptor, "rb+", buffering=0)):
            return try_lock(descriptor) is False
    return False


@contextlib.contextmanager
def held_lock(path: str, where: str) -> Iterator[KernelLock]:
    """Holds the lock file; `where` is what it guards, for messages. Raises `CacheBusyError`, naming who holds it."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        reached("lock/opened")
        try:
            locked = try_lock(descriptor)
            if locked is False:
                raise busy(where, _read_holder(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        if locked is None:
            os.close(descriptor)
            file.unlink(missing_ok=True)
            with _held_by_name(f"{path}{BY_NAME}", where) as lock:
                yield lock
            return
        # The holder before us may have unlinked the file between our open and our lock: then it guards nothing.
        try:
            same = os.fstat(descriptor).st_ino == os.stat(file).st_ino
        except FileNotFoundError:
            same = False
        if same:
            break
        os.close(descriptor)
    try:
        reached("lock/taken")
        with contextlib.suppress(OSError):  # the name is a courtesy: a full disk should stop the build itself, not this
            os.ftruncate(descriptor, 0)
            write_all(descriptor, json.dumps(this_process()).encode(), at=0)
        reached("lock/named")
        yield KernelLock()
    finally:
        file.unlink(missing_ok=True)
        reached("lock/unlinked")
        with contextlib.suppress(OSError):  # whatever the disk reports about the bytes, the lock has ended
            os.close(descriptor)


def busy(where: str, holder: str, then: str = "") -> CacheBusyError:
    return CacheBusyError(
        f"another build is writing to {where!r} ({holder}). Wait for it, stop it, or build to another directory.{then}",
        path=where,
    )


#: Suffix of the file that is the lock where the file system has no `flock`.
BY_NAME = ".held"


@contextlib.contextmanager
def _held_by_name(path: str, where: str) -> Iterator[KernelLock]:
    """Holds a lock that is a separate file: its creator holds it until that process is certainly gone.

    A holder on another machine is never considered gone: the error names the file to remove.
    """
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            break
        except FileExistsError:
            who = _named_holder(path)
            if not is_dead(who) or not _end_of_dead(path):
                then = (
                    f" If no build is running, remove {path!r}: locks on this file system are not released "
                    "automatically."
                )
                raise busy(where, in_words(who), then) from None
    try:
        write_all(descriptor, json.dumps(this_process()).encode())
        os.fsync(descriptor)
        yield KernelLock()
    finally:
        Path(path).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _end_of_dead(path: str) -> bool:
    """Removes a lock whose process is gone; False if another process is removing it.

    Checks once more inside a directory that only one process can create: otherwise the removed lock could belong to a
    process that was quicker to take over the dead one.
    """
    guard = f"{path}.ending"
    try:
        os.mkdir(guard)
    except FileExistsError:
        return False
    try:
        if is_dead(_named_holder(path)):
            Path(path).unlink(missing_ok=True)
    finally:
        os.rmdir(guard)
    return True


def _named_holder(path: str) -> object:
    try:
        return json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return None


def holder_of(path: str) -> str | None:
    """Who holds a lock file, in words; None if nobody does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        locked = try_lock(descriptor)
        if locked is None:
            who = _named_holder(f"{path}{BY_NAME}")
            return None if who is None or is_dead(who) else in_words(who)
        return None if locked else _read_holder(descriptor)
    finally:
        os.close(descriptor)


def _read_holder(descriptor: int) -> str:
    try:
        return in_words(json.loads(os.pread(descriptor, 4096, 0)))
    except ValueError:
        return in_words(None)
