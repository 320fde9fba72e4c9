"""Source records by their ids, as they are in the input: read again, without running any stage."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

from beam_pipes.building.declaration import Declaration
from beam_pipes.cache.lineage_reader import split_id
from beam_pipes.sources.digest_cache import DigestCache
from beam_pipes.sources.source import SourceShard


def source_records(
    declaration: Declaration, record_ids: Iterable[str], *, cache: str | os.PathLike[str] | None = None
) -> dict[str, bytes]:
    """Record id → the bytes of the record in the source; an id that is not found is left out.

        source_records(declaration, ["a.txt@14"])  →  {"a.txt@14": b"to be"}

    Each source shard that may hold one is read once, and only as far as needed. `cache`: a cache that was built from
    the same input, whose digests of input files save reading all of them. Raises `SourceError` for input that cannot be
    read.
    """
    wanted = {split_id(record_id) for record_id in record_ids}
    digests = None if cache is None else DigestCache.load(os.path.join(cache, ".digests.json"))
    plan = declaration.source.plan(target_shard_bytes=declaration.target_shard_bytes, digests=digests)
    slices = Counter(piece.file for shard in plan.shards for piece in shard.slices)
    found: dict[str, bytes] = {}
    for shard in plan.shards:
        here = {(file, position) for file, position in wanted if _may_hold(shard, file, position, slices[file])}
        if here:
            found |= _read(declaration, shard, here)
    return found


def _may_hold(shard: SourceShard, file: str, position: int, num_slices: int) -> bool:
    # A file that is read whole may be compressed: positions are those of what is in it.
    return any(
        piece.file == file and (num_slices == 1 or piece.start <= position < piece.end) for piece in shard.slices
    )


def _read(declaration: Declaration, shard: SourceShard, wanted: set[tuple[str, int]]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for batch in declaration.source.read(shard):
        ordinal = batch.first_ordinal
        for file, positions in batch.places():
            for position in {position for name, position in wanted if name == file}.intersection(positions):
                at = ordinal + positions.index(position)
                if at in batch.ordinals:
                    found[f"{file}@{position}"] = batch.raw(batch.ordinals.index(at))
            ordinal += len(positions)
        if len(found) == len(wanted):
            break
    return found
