"""A split whose shards come from a storage when they are needed, and ahead of it, into a bounded local directory.

Use it with `Loader(…, shuffle=BlockShuffle(window=…))`: a window of shards is read while the next one arrives. A global
shuffle works too and fetches every shard again and again, unless the directory holds them all.
"""

from __future__ import annotations

import os

from beam_pipes.cache import Cache, Split, Storage
from beam_pipes.errors import CacheNotFoundError


def open_remote(
    path: str,
    split: str,
    *,
    local_directory: str | os.PathLike[str],
    max_bytes: int,
    storage: Storage | None = None,
) -> Split:
    """Opens a split of the cache at `path` for reading through a local directory of at most `max_bytes`.

    `open_remote("gs://bucket/books", "train", local_directory="shards", max_bytes=10 << 30)` is
    `Cache.open("gs://bucket/books", local_directory="shards", max_local_bytes=10 << 30)["train"]`.

    `storage` is found by the path's scheme if left out. Only the manifest is read now. The directory may be shared by
    processes and by caches; it should hold two windows of shards at least. Raises `CacheNotFoundError` where there is
    no cache or no such split, `LoaderError` for a bound below the largest shard.
    """
    cache = Cache.open(path, local_directory=local_directory, max_local_bytes=max_bytes, storage=storage)
    if split not in cache.splits:
        raise CacheNotFoundError(f"{path} has no split {split!r}; it has: {', '.join(cache.splits)}", path=path)
    return cache[split]
