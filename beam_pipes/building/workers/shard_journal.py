"""The journal of a shard job under limits: parts that are done, so that killing the worker does not lose them.

It lies in a file without a name, which the supervisor opens and hands to the worker: it goes when they are gone, and
nothing is ever unpickled that somebody else could have written. Only parts whose work took much longer than writing
them down are in it; the others are quicker made again.
"""

from __future__ import annotations

import os
import pickle
import struct

from beam_pipes.building.part import Part

_HEAD = struct.Struct("<QQQ")  # bytes of the pickled part, first ordinal, records

# Writing a part down takes about 50 µs, 1 µs a record and 3 ns a byte. At 200 times that a journal costs 0.5 %.
_WORTH = 200.0
_COST_SECS, _COST_SECS_A_RECORD, _COST_SECS_A_BYTE = 50e-6, 1e-6, 3e-9


class ShardJournal:
    """Parts by their first source ordinal; `file` is a descriptor of its own, at any position."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._end = 0
        self.parts = dict(self._read())

    def _read(self) -> list[tuple[int, tuple[int, Part]]]:
        found = []
        while len(head := os.pread(self._file, _HEAD.size, self._end)) == _HEAD.size:
            size, first, count = _HEAD.unpack(head)
            data = os.pread(self._file, size, self._end + _HEAD.size)
            if len(data) < size:  # the worker was killed while it wrote this one
                break
            found.append((first, (count, pickle.loads(data))))
            self._end += _HEAD.size + size
        return found

    def add(self, part: Part, *, first_ordinal: int, num_records: int, secs: float) -> None:
        """Writes down a part that took `secs` to make, where that is worth it."""
        records = [payload for each in part.records.values() for payload, _, _ in each]
        cost = _COST_SECS + len(records) * _COST_SECS_A_RECORD + sum(map(len, records)) * _COST_SECS_A_BYTE
        if secs < _WORTH * cost:
            return
        data = pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL)
        block = _HEAD.pack(len(data), first_ordinal, num_records) + data
        done = 0
        while done < len(block):
            done += os.pwrite(self._file, memoryview(block)[done:], self._end + done)
        self._end += len(block)

    def close(self) -> None:
        os.close(self._file)
