"""Groups small files into source shards so that a changed file changes its own group only.

Group boundaries are defined by content: a file begins a group by a hash of its own name and its own size, not by how
many files came before it. (Content-defined chunking, as in rsync-like tools, over file names instead of bytes.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

# No group holds more than this many times the target.
MAX_TARGETS = 4


def group_small_files(files: Sequence[tuple[str, int]], *, target_shard_bytes: int) -> list[list[int]]:
    """Indices of `files` (name, bytes), in order, cut into groups of about `target_shard_bytes`.

    A file begins a group iff hash64(name) / 2⁶⁴ < weight / target, or the group would exceed 4 × target. The weight is
    its size plus target / 16384, so that a group of tiny files holds no more of them than a worker opens in seconds.
    """
    groups: list[list[int]] = []
    room = 0
    for index, (name, size) in enumerate(files):
        weight = size + target_shard_bytes // 16384
        if not groups or weight > room or _begins_group(name, weight, target_shard_bytes):
            groups.append([])
            room = MAX_TARGETS * target_shard_bytes
        groups[-1].append(index)
        room -= weight
    return groups


def _begins_group(name: str, weight: int, target_shard_bytes: int) -> bool:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") * target_shard_bytes < weight << 64
