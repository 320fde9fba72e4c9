"""A part of a shard: what consecutive batches of it add to its files, encoded."""

from __future__ import annotations

import dataclasses

from beam_pipes.cache.codec import IndexRow
from beam_pipes.cache.dead_letters import DeadLetter
from beam_pipes.cache.lineage import LineageWriter
from beam_pipes.engine.account import Account


@dataclasses.dataclass(slots=True)
class Part:
    """The encoded records of the batches `first_sequence … next_sequence - 1` of one source shard.

    `records` maps each split to (payload, source ordinal, index row) in order. `lineage` says where each source record
    was, and what became of it.
    """

    first_sequence: int
    next_sequence: int
    records: dict[str, list[tuple[bytes, int, IndexRow]]]
    dead_letters: list[DeadLetter]
    account: Account
    lineage: LineageWriter
