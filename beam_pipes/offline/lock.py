"""One builder at a time writes to a cache directory; the other one is told who."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from beam_pipes.cache.kill_points import reached
from beam_pipes.errors import CacheBusyError
from beam_pipes.offline.write_errors import writing

LOCK_NAME = ".build.lock"


@contextlib.contextmanager
def build_lock(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Holds the build lock of a local cache directory; the kernel lets go of it when the process dies, however it dies.

    Raises `CacheBusyError`, naming the process that holds it.
    """
    path = Path(directory) / LOCK_NAME
    with writing(directory):
        path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with writing(directory):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        reached("lock/opened")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(descriptor)
            os.close(descriptor)
            raise CacheBusyError(
                f"another build is writing to {str(directory)!r} ({holder}). Wait for it, stop it, or build to another "
                "directory.",
                path=str(directory),
            ) from None
        # The holder before us may have unlinked the file between our open and our lock: then it guards nothing.
        try:
            same = os.fstat(descriptor).st_ino == os.stat(path).st_ino
        except FileNotFoundError:
            same = False
        if same:
            break
        os.close(descriptor)
    try:
        reached("lock/taken")
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with contextlib.suppress(OSError):  # the name is a courtesy: what a full disk stops should be the build itself
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(who).encode(), 0)
        reached("lock/named")
        yield
    finally:
        path.unlink(missing_ok=True)
        reached("lock/unlinked")
        os.close(descriptor)


def lock_holder(directory: str | os.PathLike[str]) -> str | None:
    """Who holds the build lock of a directory, in words; None where nobody does."""
    try:
        descriptor = os.open(Path(directory) / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
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
        who = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {who['pid']} on {who['host']}, since {who['since']}"
    except (ValueError, KeyError):
        return "it has just started"
