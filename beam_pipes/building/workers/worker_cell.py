"""The cell: a page of memory in which a worker shows what it is at, and its supervisor looks.

Shared memory and no message, because a worker that hangs sends none: a C call that never returns keeps every thread of
the process waiting, and a signal handler of Python's too. Written with plain stores (about 0.1 µs a record).
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

#: The most records of a batch of which the cell can name the ordinals.
MOST_RECORDS = 256

_UNIT, _RUN, _INDEX, _COUNT, _MEMORY = range(5)
_ORDINALS = 8
_BYTES = 8 * (_ORDINALS + MOST_RECORDS)


class Glimpse(NamedTuple):
    """What a supervisor saw: the position of the unit that runs, how many have been run before, the index of the record
    (-1 for a whole batch), the records of the batch, and the memory that the worker had when the unit began.
    """

    unit: int
    run: int
    record: int
    num_records: int
    memory_bytes: int


class WorkerCell:
    """One end of the cell; `file` is what the other end is made of."""

    def __init__(self, file: int) -> None:
        self._map = mmap.mmap(file, _BYTES)
        self._cells = memoryview(self._map).cast("q")
        #: Where the index of the record being processed is put.
        self.index_cell = self._cells[_INDEX : _INDEX + 1]
        self._runs = 0

    def enter(self, unit: int, ordinals: Sequence[int], memory_bytes: int) -> None:
        """In the worker: the unit at this position begins with a batch of these records."""
        cells = self._cells
        cells[_UNIT] = -1  # nothing of what follows belongs to what stood here before
        for position, ordinal in enumerate(ordinals):
            cells[_ORDINALS + position] = ordinal
        cells[_INDEX] = -1
        cells[_COUNT] = len(ordinals)
        cells[_MEMORY] = memory_bytes
        self._runs += 1
        cells[_RUN] = self._runs
        cells[_UNIT] = unit

    def leave(self) -> None:
        """In the worker: no unit runs."""
        self._cells[_UNIT] = -1

    def look(self) -> Glimpse | None:
        """In the supervisor: what the worker is at; None where that is no stage."""
        cells = self._cells
        seen = Glimpse(cells[_UNIT], cells[_RUN], cells[_INDEX], cells[_COUNT], cells[_MEMORY])
        return seen if seen.unit >= 0 else None

    def ordinals(self, num_records: int) -> list[int]:
        """In the supervisor, of a worker that is dead: the source ordinals of the batch it was at."""
        return self._cells[_ORDINALS : _ORDINALS + min(num_records, MOST_RECORDS)].tolist()

    def close(self) -> None:
        self.index_cell.release()
        self._cells.release()
        self._map.close()


def new_cell() -> tuple[WorkerCell, int]:
    """A cell, and a file descriptor for the other end; the file has no name."""
    with tempfile.TemporaryFile() as file:
        os.ftruncate(file.fileno(), _BYTES)
        cell = WorkerCell(file.fileno())
        cell.leave()
        return cell, os.dup(file.fileno())
