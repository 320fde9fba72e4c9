"""The duplicates that the build of a cache has found."""

from __future__ import annotations

from beam_pipes.cache import Cache
from beam_pipes.transforms.dedup.duplicates import MAGIC, Duplicates


def cache_duplicates(cache: Cache) -> dict[str, Duplicates]:
    """Name of the analyzer → what it has found, for every asset of the cache that holds duplicates.

        cache_duplicates(Cache.open("cache"))["near"].find("b.txt@0")

    Of a cache on an object store, assets are fetched.
    """
    found = {}
    for entry in cache.manifest.assets:
        path = cache.asset_path(entry.file)
        with open(path, "rb") as file:
            holds = file.read(len(MAGIC)) == MAGIC
        if holds:
            found[entry.file.removeprefix("assets/")] = Duplicates(path)
    return found
