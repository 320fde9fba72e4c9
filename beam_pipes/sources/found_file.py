"""`FoundFile`: a file of an input, as it was when it was found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read. `name` is relative to the base; the rest is what `stat` said when it was found.

    Of an object `content_digest` is what its store says of its content, `inode` its generation, and `mtime_ns` 0.
    """

    name: str
    path: str
    size: int
    mtime_ns: int
    inode: int
    content_digest: str | None = None
