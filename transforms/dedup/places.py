"""Places of records by their ordinal: the number of a record among all records of all source shards, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from beam_pipes.transforms.dedup.row_file import BLOCK_ROWS, POSITIONS, RowFile

Array = np.ndarray[Any, Any]


class Places:
    """The rows of all source shards as one sequence; `names` collects the files of the places that were asked for."""

    def __init__(self, accumulators: Sequence[str]) -> None:
        self.shards = [RowFile(path) for path in accumulators]
        self.firsts = np.cumsum([0, *(shard.num_rows for shard in self.shards)], dtype=np.int64)
        self.names: dict[str, int] = {}

    @property
    def num_rows(self) -> int:
        return int(self.firsts[-1])

    def blocks(self, column: str, *, value: int | None = None) -> Iterator[tuple[Array, Array]]:
        """(ordinals, values) of a column, block by block, in order."""
        for shard, first in zip(self.shards, self.firsts[:-1].tolist(), strict=True):
            for index, block in enumerate(shard.blocks(column, value=value)):
                start = first + index * BLOCK_ROWS
                yield np.arange(start, start + len(block)), block

    def of(self, ordinals: Array) -> tuple[Array, Array]:
        """(numbers of files in `names`, positions) of records; `ordinals` in any order."""
        wanted, back = np.unique(ordinals, return_inverse=True)
        files = np.empty(len(wanted), np.int64)
        positions = np.empty(len(wanted), np.uint64)
        bounds = np.searchsorted(wanted, self.firsts)
        for index, shard in enumerate(self.shards):
            low, high = int(bounds[index]), int(bounds[index + 1])
            if low == high:
                continue
            rows = wanted[low:high] - self.firsts[index]
            positions[low:high] = _at(shard, rows)
            starts = np.array([first for _, first in shard.files])
            numbers, inverse = np.unique(np.searchsorted(starts, rows, side="right") - 1, return_inverse=True)
            known = [self.names.setdefault(shard.files[number][0], len(self.names)) for number in numbers.tolist()]
            files[low:high] = np.array(known)[inverse]
        return files[back], positions[back]


def _at(shard: RowFile, rows: Array) -> Array:
    """The positions of single rows, `rows` in ascending order."""
    found = []
    for index, block in enumerate(shard.blocks(POSITIONS.name)):
        low, high = np.searchsorted(rows, [index * BLOCK_ROWS, (index + 1) * BLOCK_ROWS])
        if low < high:
            found.append(block[rows[low:high] - index * BLOCK_ROWS, 0])
    return np.concatenate(found)
