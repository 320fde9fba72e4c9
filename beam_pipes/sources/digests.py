"""Digests of files that have not changed since the last plan, so that they are not read again.

An entry is trusted for the same path, size, inode, time of modification and time of change. The last one matters most:
programs set the time of modification freely (`touch -r`, `tar`, `rsync -t`), and a file system gives the
inode of a removed file to the next one. A file that changed within the resolution of its file system's clock before it
was hashed is not entered: it could change again without its times moving.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from beam_pipes.cache.locks import reached
from beam_pipes.cache.storage import is_remote, storage_for, temporary_path, times_have_settled
from beam_pipes.sources.selection import FoundFile

# Version 1 knew no time of change.
_VERSION = 3


class Cut(NamedTuple):
    """One slice of a file at planning: its range, how many stored bytes it stands for, the digest of these."""

    start: int
    end: int
    num_bytes: int
    digest: str


class DigestCache:
    """Slices by file, kept as JSON between builds; safe to lose. Not for use by several processes at once.

    Files are known by a digest of their path: the JSON is kept in a cache, which people copy and publish, and the paths
    of the building machine are private.
    """

    def __init__(self, entries: Mapping[str, Any] | None = None) -> None:
        self._entries: dict[str, Any] = dict(entries or {})
        self._used: set[str] = set()
        self.hits = 0
        self.misses = 0

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DigestCache:
        """From a file that `save` wrote; empty if it is missing or unreadable."""
        try:
            fields = json.loads(storage_for(path).read_bytes(os.fspath(path)))
            return cls(fields["files"] if fields["version"] == _VERSION else None)
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def __len__(self) -> int:
        return len(self._entries)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Atomically; keeps the entries that were looked up or added since `load`."""
        fields = {"version": _VERSION, "files": {key: self._entries[key] for key in sorted(self._used)}}
        if is_remote(path):
            storage_for(path).replace(os.fspath(path), json.dumps(fields, separators=(",", ":")).encode())
            return
        # Not durable, and renamed all the same: what a power cut leaves of it is not understood, hence built anew.
        temporary = temporary_path(os.path.abspath(path))
        try:
            with open(temporary, "x", encoding="utf-8") as file:
                json.dump(fields, file, separators=(",", ":"))
            reached("digests/written")
            os.replace(temporary, path)
            reached("digests/renamed")
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def get(self, file: FoundFile, variant: str) -> list[Cut] | None:
        """The slices of an unchanged file when it is cut in the way called `variant`."""
        entry = self._entries.get(_key_of(file))
        try:
            if entry is None or entry["stat"] != _stat_of(file):
                raise KeyError(variant)
            cuts = [
                Cut(int(start), int(end), int(num_bytes), str(digest))
                for start, end, num_bytes, digest in entry["slices"][variant]
            ]
        except (KeyError, TypeError, ValueError):
            self.misses += 1
            return None
        self.hits += 1
        self._used.add(_key_of(file))
        return cuts

    def put(self, file: FoundFile, variant: str, cuts: list[Cut], *, hashed_at_ns: int) -> None:
        """Stores what was read at `hashed_at_ns` (`time.time_ns()` before reading)."""
        if not all(times_have_settled(each, read_at_ns=hashed_at_ns) for each in (file.mtime_ns, file.ctime_ns)):
            return
        status = _stat_of(file)
        key = _key_of(file)
        entry = self._entries.get(key)
        if not isinstance(entry, dict) or entry.get("stat") != status or not isinstance(entry["slices"], dict):
            entry = self._entries[key] = {"stat": status, "slices": {}}
        entry["slices"][variant] = [list(cut) for cut in cuts]
        self._used.add(key)


def _key_of(file: FoundFile) -> str:
    return hashlib.blake2b(os.fsencode(file.path), digest_size=16).hexdigest()


def _stat_of(file: FoundFile) -> list[int]:
    return [file.size, file.mtime_ns, file.inode, file.ctime_ns]
