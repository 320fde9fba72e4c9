"""Brings equal keys together in bounded memory: partitions by the first bits of keys, each sorted by itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Any

import numpy as np

Array = np.ndarray[Any, Any]

# Rows sorted at once. A row of two words and its ordinal takes 24 bytes, and sorting holds it about three times: 9 MB.
ROWS_IN_MEMORY = 1 << 17

# Each partition is an open file.
MAX_PARTITIONS = 256


class KeyGroups:
    """An external sort of (key, ordinal) by key; ordinals are added in ascending order and stay so among equal keys.

    Keys are one or two words of 64 bits, distributed evenly, as digests are. Up to `rows_in_memory` rows nothing is
    written; more go to temporary files in `directory` that have no names, so that nothing is left behind. Memory grows
    with the largest partition: beyond 256 × `rows_in_memory` rows, or where very many keys are equal, partitions are
    larger.

        with KeyGroups(num_rows=3, words=1, directory="/tmp") as groups:
            groups.add(np.array([[7], [5], [7]], np.uint64), np.array([0, 1, 2]))
            list(groups.partitions())  →  [([[5], [7], [7]], [1, 0, 2])]
    """

    def __init__(self, *, num_rows: int, words: int, directory: str, rows_in_memory: int = ROWS_IN_MEMORY) -> None:
        self._words = words
        partitions = 1
        while partitions < MAX_PARTITIONS and partitions * rows_in_memory < num_rows:
            partitions *= 2
        self._shift = np.uint64(64 - (partitions.bit_length() - 1))
        self._files: list[IO[bytes]] = []
        self._rows: list[Array] = []
        self._stack = ExitStack()
        if partitions > 1:
            files = (tempfile.TemporaryFile(dir=directory) for _ in range(partitions))
            self._files = [self._stack.enter_context(file) for file in files]

    def __enter__(self) -> KeyGroups:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, keys: Array, ordinals: Array) -> None:
        """Takes keys, (rows, words) uint64, and ordinals, (rows,), all greater than those before."""
        rows = np.empty((len(keys), self._words + 1), np.uint64)
        rows[:, : self._words] = keys
        rows[:, self._words] = ordinals
        if not self._files:
            self._rows.append(rows)
            return
        partition = rows[:, 0] >> self._shift
        order = np.argsort(partition, kind="stable")
        rows = rows[order]
        bounds = np.searchsorted(partition[order], np.arange(len(self._files) + 1))
        for index, file in enumerate(self._files):
            if bounds[index] < bounds[index + 1]:
                file.write(rows[bounds[index] : bounds[index + 1]].tobytes())

    def partitions(self) -> Iterator[tuple[Array, Array]]:
        """(keys, ordinals) of each partition, in the order of keys; equal keys are neighbours, first ordinal first."""
        if not self._files:
            rows = np.concatenate(self._rows) if self._rows else np.empty((0, self._words + 1), np.uint64)
            self._rows = []
            yield self._sorted(rows)
            return
        for file in self._files:
            file.seek(0)
            rows = np.frombuffer(file.read(), np.uint64).reshape(-1, self._words + 1)
            file.truncate(0)
            yield self._sorted(rows)

    def _sorted(self, rows: Array) -> tuple[Array, Array]:
        order = np.lexsort(rows.T[self._words - 1 :: -1])
        rows = rows[order]
        return rows[:, : self._words], rows[:, self._words].astype(np.int64)


def group_starts(keys: Array) -> Array:
    """Where each run of equal keys begins, one more for the end: `[[5], [7], [7]]` → `[0, 1, 3]`."""
    if not len(keys):
        return np.zeros(1, np.int64)
    changes = np.flatnonzero((keys[1:] != keys[:-1]).any(axis=1)) + 1
    return np.concatenate([[0], changes, [len(keys)]]).astype(np.int64)
