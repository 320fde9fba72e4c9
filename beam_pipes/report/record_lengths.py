"""The lengths of the records of a split, from the index; of a very large split from some of its shards."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.index import decode_index, index_path
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.storage import storage_for

# Indices of so many records are read in about 50 ms from a local disk.
MAX_RECORDS = 1_000_000
# Requests to an object store, at most.
MAX_SHARDS = 64


class Lengths(NamedTuple):
    """`values`: (n,) int64, one a record. `of`: how many records the split has, more than n where some are left out."""

    values: npt.NDArray[np.int64]
    of: int


def features_with_lengths(cache: Cache, split: str) -> list[str]:
    """The features of a split whose lengths the index holds: ragged ones and texts."""
    return sorted(cache.manifest.splits[split].lengths)


def record_lengths(
    cache: Cache, split: str, features: list[str], *, max_records: int = MAX_RECORDS, max_shards: int = MAX_SHARDS
) -> dict[str, Lengths]:
    """Feature → lengths: the leading dimension in every record, bytes of a text.

    Beyond `max_records` records or `max_shards` shards, those of shards that are spread evenly over the split.
    """
    manifest = cache.manifest.splits[split]
    filled = [shard for shard, records in enumerate(manifest.records) if records]
    total = manifest.num_records
    if not filled or not features:
        return {name: Lengths(np.zeros(0, np.int64), total) for name in features}
    fitting = max(1, int(len(filled) * min(1.0, max_records / total)))
    chosen = [filled[i] for i in np.linspace(0, len(filled) - 1, min(fitting, max_shards), dtype=np.int64)]
    storage = storage_for(cache.directory)
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in features}
    for shard in chosen:
        path = index_path(os.path.join(cache.directory, manifest.file_name(cache.manifest.name, split, shard)))
        columns = decode_index(storage.read_bytes(path), path=path)
        for name in features:
            parts[name].append(columns[f"length/{name}"])
    return {name: Lengths(np.concatenate(found).astype(np.int64), total) for name, found in parts.items()}
