"""The index of a cache as DALI reads it: a text file a shard, a line `offset size` a record, both of its frame."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from beam_pipes.cache.framing import FRAME_BYTES, scan_records
from beam_pipes.cache.output_file import writing_to
from beam_pipes.cache.reader import Cache
from beam_pipes.errors import CacheNotFoundError

Array = np.ndarray[Any, Any]


def dali_index_text(offsets: Array, payload_bytes: Array) -> str:
    """The text of an index: offsets `[0, 76]`, payloads of `[60, 84]` bytes → `"0 76\\n76 100\\n"`."""
    rows = zip(offsets.tolist(), (payload_bytes + FRAME_BYTES).tolist(), strict=True)
    return "".join(f"{offset} {size}\n" for offset, size in rows)


def export_dali_index(cache: Cache, to: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Writes `to/<shard>.idx` for every shard of a local cache that holds records; returns (shard, index) paths.

    They are what `fn.readers.tfrecord(path=…, index_path=…)` of DALI takes, in this order. Records that are taken down
    have no line, and are not read there. Raises `CacheNotFoundError` where the shards are not on this machine,
    `OutputError` where the directory cannot be written.
    """
    with writing_to(to):
        os.makedirs(to, exist_ok=True)
    made = []
    for name in cache.splits:
        split = cache[name]
        removed = set(split.removed_rows.tolist())
        first = 0
        for size in split.shard_sizes.tolist():
            if size:
                shard = split.place_of(first)[0]
                path = os.path.join(cache.directory, shard)
                if not os.path.isfile(path):
                    raise CacheNotFoundError(
                        f"expected the shard {shard!r} in {cache.directory!r}. Copy the cache to this machine first.",
                        path=path,
                    )
                places = np.array(list(scan_records(path)), np.int64).reshape(-1, 2)
                kept = np.array([first + row not in removed for row in range(size)])
                index = os.path.join(to, f"{shard}.idx")
                with writing_to(index), open(index, "w", encoding="ascii") as file:
                    file.write(dali_index_text(places[kept, 0], places[kept, 1]))
                made.append((path, index))
            first += size
    return made
