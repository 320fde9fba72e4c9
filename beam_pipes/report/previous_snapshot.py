"""The snapshot that was published before, as the record of the build names it, and what differs from it."""

from __future__ import annotations

import contextlib

from beam_pipes.cache.reader import Cache
from beam_pipes.errors import CacheNotFoundError
from beam_pipes.report.snapshot_difference import SnapshotDifference, diff_caches


def difference_to_previous(cache: Cache, *, against: str | None = None) -> SnapshotDifference | None:
    """What differs from the snapshot that readers saw before; None for a first one, and where it was collected since.

    `against` is the id of another snapshot of the same cache, which has to be there.
    """
    if against is not None:
        return diff_caches(Cache.open(cache.path, snapshot=against), cache)
    previous = cache.build_info.get("previous")
    if not isinstance(previous, str) or previous == cache.manifest.snapshot:
        return None
    with contextlib.suppress(CacheNotFoundError):
        return diff_caches(Cache.open(cache.path, snapshot=previous), cache)
    return None
