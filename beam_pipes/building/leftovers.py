"""Leftovers: what builds that died have left half written, and snapshots that nobody wants any more.

Only the holder of the build lock removes anything, so nothing is taken from a build that is alive.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os

from beam_pipes.building.analysis.analysis_plan import DIRECTORY as ANALYSIS
from beam_pipes.building.analysis.stored import discard
from beam_pipes.building.lock import build_lock
from beam_pipes.building.uses import Uses, unfinished_uses, unused_places, uses_of
from beam_pipes.cache.manifest import FILE_NAME
from beam_pipes.cache.publish import SNAPSHOTS, snapshot_directory
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.storage import Storage, directory_path, storage_for
from beam_pipes.errors import CacheNotFoundError, DeclarationError

# accumulators/<analyzer>/<source shard>/content, and the directories that an analyzer may have made in it.
_DEEPEST_CONTENT = 8


def remove_temporaries(root: str | os.PathLike[str]) -> None:
    """Removes every temporary file, and half-removed snapshot, of a cache directory; for the holder of its lock."""
    storage, path = storage_for(root), directory_path(root)
    storage.sweep(path, depth=1)
    storage.sweep(f"{path}/{SNAPSHOTS}", depth=3)  # snapshots, their files, and those in their directories
    storage.sweep(f"{path}/{ANALYSIS}", depth=_DEEPEST_CONTENT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collected:
    """What `collect` removed (or would remove) and kept: ids of snapshots, and the bytes that this frees.

    A shard that a kept snapshot shares (a hard link) frees nothing and is not counted. `unused` counts the accumulators
    and results of analyzers that no kept snapshot was built with.
    """

    published: str | None
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    bytes: int
    unused: int = 0


def collect(path: str | os.PathLike[str], *, keep: int = 1, dry_run: bool = False) -> Collected:
    """Removes the snapshots of a cache directory except the published one and the `keep` most recent others.

    Unfinished snapshots count as others: what an interrupted build has done is kept while it is among the recent ones.
    What analyzers have left behind is kept for the snapshots that are kept, and for an analysis that is unfinished,
    unless `keep` is 0. A reader that has a removed snapshot open keeps the files it has mapped, and finds the others
    gone.

    Raises `CacheNotFoundError` where there is no directory, `CacheBusyError` while a build is writing there.
    """
    if keep < 0:
        raise DeclarationError(f"keep should be a number of snapshots, 0 or more, got {keep}.")
    storage, root = storage_for(path), directory_path(path)
    if not storage.is_directory(root):
        raise CacheNotFoundError(f"there is no directory {str(path)!r}: nothing was built there.", path=str(path))
    with build_lock(root):
        if not dry_run:
            remove_temporaries(root)
        published = None
        with contextlib.suppress(CacheNotFoundError):
            published = Cache.open(root).manifest.snapshot
        names = [name for name in storage.list(f"{root}/{SNAPSHOTS}") if name != published]
        written = {name: storage.modified_ns(snapshot_directory(root, name)) for name in names}
        names.sort(key=lambda name: (written[name], name), reverse=True)
        removed = names[keep:]
        freed = sum(_freed_bytes(storage, snapshot_directory(root, name)) for name in removed)
        kept = [name for name in (published, *names[:keep]) if name is not None]
        uses = [uses_of(snapshot_directory(root, name)) for name in kept] + [unfinished_uses(root) if keep else None]
        unused = unused_places(root, [each for each in uses if isinstance(each, Uses)])
        freed += sum(_freed_bytes(storage, place) for place in unused)
        if not dry_run:
            for name in removed:
                remove_snapshot(root, name)
            for place in unused:
                discard(place)
    return Collected(
        published=published, kept=tuple(names[:keep]), removed=tuple(removed), bytes=freed, unused=len(unused)
    )


def remove_snapshot(root: str | os.PathLike[str], snapshot: str) -> None:
    """Removes a snapshot that nobody was told of; for the holder of the build lock."""
    with contextlib.suppress(FileNotFoundError):
        # Where this is not one step, its manifest goes first: what is there without one is not published.
        storage_for(root).delete_tree(snapshot_directory(directory_path(root), snapshot), first=[FILE_NAME])


def _freed_bytes(storage: Storage, directory: str) -> int:
    return sum(file.size for file in storage.tree(directory).values() if not file.shared)
