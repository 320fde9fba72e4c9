"""The lengths of the records of a split, from the index; for a very large split, from some of its shards.

The waste of rows of a few lengths, packed and unpacked.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.index import decode_index, index_path
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.storage import storage_for
from beam_pipes.loader.packing import ALGORITHMS

# Indices of that many records are read in about 50 ms from a local disk.
MAX_RECORDS = 1_000_000
# Requests to an object store, at most.
MAX_SHARDS = 64


class Lengths(NamedTuple):
    """`values`: (n,) int64, one per record. `of`: the records in the split, more than n if some are left out."""

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
    parts: dict[str, list[np.ndarray]] = {name: [] for name in features}
    for shard in chosen:
        path = index_path(os.path.join(cache.directory, manifest.file_name(cache.manifest.name, split, shard)))
        columns = decode_index(storage.read_bytes(path), path=path)
        for name in features:
            parts[name].append(columns[f"length/{name}"])
    return {name: Lengths(np.concatenate(found).astype(np.int64), total) for name, found in parts.items()}


class Waste(NamedTuple):
    """Rows of `sequence_length` places. `packed` and `padded` are the shares of positions without a token: with rows
    packed by best-fit, and with one record per row. `cut` is the share of tokens beyond the end of a row."""

    sequence_length: int
    packed_rows: int
    packed: float
    padded: float
    cut: float


def packing_waste(lengths: npt.NDArray[np.int64], *, sequence_lengths: list[int] | None = None) -> list[Waste]:
    """The waste at each sequence length; by default powers of two from the median to the longest record, five at most.

    Lengths 6, 4, 3, 3, 2, 2 at 10 → packed 0.0 in 2 rows, padded 0.667, cut 0.0.
    """
    filled = lengths[lengths > 0]
    if not len(filled):
        return []
    wanted = sequence_lengths if sequence_lengths is not None else _powers(filled)
    made = []
    for length in wanted:
        kept = np.minimum(filled, length)
        rows = int(ALGORITHMS["best_fit"](kept, length).max()) + 1
        tokens, places = int(kept.sum()), rows * length
        made.append(
            Waste(
                sequence_length=length,
                packed_rows=rows,
                packed=1 - tokens / places,
                padded=1 - tokens / (len(kept) * length),
                cut=1 - tokens / int(filled.sum()),
            )
        )
    return made


def _powers(lengths: npt.NDArray[np.int64]) -> list[int]:
    low = max(3, math.ceil(math.log2(max(1.0, float(np.median(lengths))))))
    high = max(low, math.ceil(math.log2(float(lengths.max()))))
    return sorted({2 ** int(round(power)) for power in np.linspace(low, high, min(5, high - low + 1))})
