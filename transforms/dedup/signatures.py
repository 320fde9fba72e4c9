"""Signatures of single records, read from the accumulators when two records are to be compared."""

from __future__ import annotations

import os
from collections import OrderedDict
from types import TracebackType
from typing import Any

import numpy as np

from beam_pipes.transforms.dedup.places import Places

Array = np.ndarray[Any, Any]

# Accumulators that are open at the same time.
_MAX_OPEN = 128


class Signatures:
    """Rows of the column `signatures` by the ordinals of records; open files are few, and nothing is held in memory."""

    def __init__(self, places: Places, *, count: int) -> None:
        self._places = places
        self.count = count
        self._open: OrderedDict[int, int] = OrderedDict()

    def __enter__(self) -> Signatures:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def of(self, ordinals: Array) -> Array:
        """(records, count) uint32; each record is read once, whatever the order of `ordinals`."""
        wanted, back = np.unique(ordinals, return_inverse=True)
        found = np.empty((len(wanted), self.count), "<u4")
        bounds = np.searchsorted(wanted, self._places.firsts)
        for index in np.flatnonzero(np.diff(bounds)).tolist():
            low, high = int(bounds[index]), int(bounds[index + 1])
            rows = wanted[low:high] - self._places.firsts[index]
            offsets, size = self._places.shards[index].offsets("signatures", rows)
            file = self._file(index)
            data = b"".join([os.pread(file, size, offset) for offset in offsets.tolist()])
            found[low:high] = np.frombuffer(data, "<u4").reshape(-1, self.count)
        return found[back]

    def _file(self, index: int) -> int:
        file = self._open.get(index)
        if file is None:
            if len(self._open) == _MAX_OPEN:
                os.close(self._open.popitem(last=False)[1])
            file = os.open(self._places.shards[index].path, os.O_RDONLY)
        self._open[index] = file
        self._open.move_to_end(index)
        return file
