"""Leftovers: what builds that died have left half written, and snapshots that nobody wants any more.

Only the holder of the build lock removes anything, so nothing is taken from a build that is alive.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from beam_pipes.cache.publish import SNAPSHOTS
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.storage import TEMPORARY_PREFIX
from beam_pipes.errors import CacheNotFoundError, DeclarationError
from beam_pipes.offline.lock import build_lock


def remove_temporaries(root: str | os.PathLike[str]) -> None:
    """Removes every temporary file, and half-removed snapshot, of a cache directory; for the holder of its lock."""
    for directory in (str(root), os.path.join(root, SNAPSHOTS), *_snapshot_directories(root)):
        for entry in _entries(directory):
            if entry.name.startswith(TEMPORARY_PREFIX):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    Path(entry.path).unlink(missing_ok=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collected:
    """What `collect` removed (or would remove) and kept: ids of snapshots, and the bytes that this frees.

    A shard that a kept snapshot shares (a hard link) frees nothing and is not counted.
    """

    published: str | None
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    bytes: int


def collect(path: str | os.PathLike[str], *, keep: int = 1, dry_run: bool = False) -> Collected:
    """Removes the snapshots of a cache directory except the published one and the `keep` most recent others.

    Unfinished snapshots count as others: what an interrupted build has done is kept while it is among the recent ones.
    A reader that has a removed snapshot open keeps the files it has mapped, and finds the others gone.

    Raises `CacheNotFoundError` where there is no directory, `CacheBusyError` while a build is writing there.
    """
    if keep < 0:
        raise DeclarationError(f"keep should be a number of snapshots, 0 or more, got {keep}.")
    if not os.path.isdir(path):
        raise CacheNotFoundError(f"there is no directory {str(path)!r}: nothing was built there.", path=str(path))
    with build_lock(path):
        if not dry_run:
            remove_temporaries(path)
        published = None
        with contextlib.suppress(CacheNotFoundError):
            published = Cache.open(path).manifest.snapshot
        snapshots = [
            entry
            for entry in _entries(os.path.join(path, SNAPSHOTS))
            if entry.name != published and not entry.name.startswith(TEMPORARY_PREFIX)
        ]
        snapshots.sort(key=lambda entry: (_last_written(entry.path), entry.name), reverse=True)
        removed = snapshots[keep:]
        freed = sum(map(_freed_bytes, removed))
        if not dry_run:
            for entry in removed:
                # Renamed first: a snapshot is there as a whole, or not at all.
                doomed = os.path.join(path, SNAPSHOTS, TEMPORARY_PREFIX + entry.name)
                os.rename(entry.path, doomed)
                shutil.rmtree(doomed)
    return Collected(
        published=published,
        kept=tuple(entry.name for entry in snapshots[:keep]),
        removed=tuple(entry.name for entry in removed),
        bytes=freed,
    )


def _snapshot_directories(root: str | os.PathLike[str]) -> Iterator[str]:
    for entry in _entries(os.path.join(root, SNAPSHOTS)):
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(TEMPORARY_PREFIX):
            yield entry.path
            yield from (inner.path for inner in _entries(entry.path) if inner.is_dir(follow_symlinks=False))


def _entries(directory: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(os.fspath(directory)) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _last_written(directory: str) -> int:
    return max(os.stat(each).st_mtime_ns for each in (directory, *(e.path for e in _entries(directory) if e.is_dir())))


def _freed_bytes(snapshot: os.DirEntry[str]) -> int:
    files = (Path(parent, name) for parent, _, names in os.walk(snapshot.path) for name in names)
    return sum(status.st_size for file in files if (status := file.stat()).st_nlink == 1)
