"""`FoundFile`: a file of an input, as it was when it was found."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read. `name` is relative to the base; the rest is what `stat` said when it was found.

    Of an object `content_digest` is what its store says of its content, `inode` its generation, and both times are 0.
    """

    name: str
    path: str
    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int = 0
    content_digest: str | None = None

    @classmethod
    def of(cls, name: str, path: str, status: os.stat_result) -> FoundFile:
        """A file on a file system, with what `stat` says of it."""
        return cls(name, path, status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)
