"""The build lock on a file system: a lock of the kernel, which ends with the process that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from beam_pipes.cache.kill_points import reached
from beam_pipes.cache.who import in_words, this_process
from beam_pipes.errors import CacheBusyError


class KernelLock:
    """A lock that cannot be lost while its process lives."""

    def check(self) -> None:
        pass


@contextlib.contextmanager
def held_lock(path: str, where: str) -> Iterator[KernelLock]:
    """Holds the lock file; `where` is what it guards, for messages. Raises `CacheBusyError`, naming who holds it."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        reached("lock/opened")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(descriptor)
            os.close(descriptor)
            raise CacheBusyError(
                f"another build is writing to {where!r} ({holder}). Wait for it, stop it, or build to another "
                "directory.",
                path=where,
            ) from None
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
        with contextlib.suppress(OSError):  # the name is a courtesy: what a full disk stops should be the build itself
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(this_process()).encode(), 0)
        reached("lock/named")
        yield KernelLock()
    finally:
        file.unlink(missing_ok=True)
        reached("lock/unlinked")
        os.close(descriptor)


def holder_of(path: str) -> str | None:
    """Who holds a lock file, in words; None where nobody does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _read_holder(descriptor)
    finally:
        os.close(descriptor)


def _read_holder(descriptor: int) -> str:
    try:
        return in_words(json.loads(os.pread(descriptor, 4096, 0)))
    except ValueError:
        return in_words(None)
