"""One builder at a time writes to a cache directory; the other one is told who."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from beam_pipes.building.write_errors import writing
from beam_pipes.cache.storage import HeldLock, storage_for

LOCK_NAME = ".build.lock"


@contextlib.contextmanager
def build_lock(directory: str | os.PathLike[str]) -> Iterator[HeldLock]:
    """Holds the build lock of a cache directory.

    On a file system the kernel lets go of it when the process dies, however it dies; on an object store it is a lease
    that is renewed, and ends a minute after its holder (at once, for a builder on the same machine).

    Raises `CacheBusyError`, naming the process that holds it.
    """
    path = os.fspath(directory)
    with contextlib.ExitStack() as stack:
        with writing(path):
            held = stack.enter_context(storage_for(path).lock(f"{path.rstrip('/')}/{LOCK_NAME}", path))
        yield held


def lock_holder(directory: str | os.PathLike[str]) -> str | None:
    """Who holds the build lock of a directory, in words; None where nobody does."""
    path = os.fspath(directory)
    return storage_for(path).lock_holder(f"{path.rstrip('/')}/{LOCK_NAME}")
