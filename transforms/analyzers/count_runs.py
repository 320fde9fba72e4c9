"""Runs: files of (key, count) in the order of keys, and how many of them become one without being held in memory.

A run is blocks of up to 1,024 rows: the number of rows and the bytes of all keys (uint32 each), the counts (uint64),
the lengths of keys (uint32), the keys; little-endian. Blocks are read and written as arrays, and merged as sorted
lists, so a row costs less than a microsecond.
"""

from __future__ import annotations

import bisect
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np

from beam_pipes.errors import SpecError

Row = tuple[bytes, int]

BLOCK_ROWS = 1024

_HEAD = struct.Struct("<II")

# So many files are merged at once: below every limit of open files, and two passes are enough for 4,096 of them.
FAN_IN = 64


def write_run(file: BinaryIO, blocks: Iterable[Sequence[Row]]) -> None:
    """Writes rows whose keys ascend, given in blocks of any size."""
    for given in blocks:
        for start in range(0, len(given), BLOCK_ROWS):
            block = given[start : start + BLOCK_ROWS]
            keys = [key for key, _ in block]
            blob = b"".join(keys)
            file.write(_HEAD.pack(len(block), len(blob)))
            file.write(np.array([count for _, count in block], "<u8").tobytes())
            file.write(np.array(list(map(len, keys)), "<u4").tobytes())
            file.write(blob)


def read_run(path: str, *, start: int = 0) -> Iterator[list[Row]]:
    """The blocks of a run, which begins `start` bytes into the file. Raises `SpecError` where it ends within one."""
    with open(path, "rb") as file:
        file.seek(start)
        while head := file.read(_HEAD.size):
            if len(head) < _HEAD.size:
                raise _torn(path)
            num_rows, num_bytes = _HEAD.unpack(head)
            data = file.read(12 * num_rows + num_bytes)
            if len(data) < 12 * num_rows + num_bytes:
                raise _torn(path)
            counts = np.frombuffer(data, "<u8", num_rows).tolist()
            stops = np.cumsum(np.frombuffer(data, "<u4", num_rows, 8 * num_rows), dtype=np.int64) + 12 * num_rows
            starts = [12 * num_rows, *stops[:-1].tolist()]
            keys = [data[first:stop] for first, stop in zip(starts, stops.tolist(), strict=True)]
            yield list(zip(keys, counts, strict=True))


def merged_runs(runs: Sequence[Iterable[list[Row]]]) -> Iterator[list[Row]]:
    """The rows of all runs in the order of keys, in blocks; equal keys become one row, with the sum of their counts.

    In memory is one block of each run: what is not above the last key of any of them is sorted and given away.
    """
    left = [iter(run) for run in runs]
    blocks: list[list[Row]] = [next(run, []) for run in left]
    while waiting := [block for block in blocks if block]:
        boundary = min(block[-1][0] for block in waiting)
        taken: list[Row] = []
        for number, block in enumerate(blocks):
            if not block:
                continue
            stop = len(block) if block[-1][0] == boundary else bisect.bisect_right(block, boundary, key=_key)
            taken += block[:stop]
            blocks[number] = block[stop:] or next(left[number], [])
        yield _summed(taken) if len(waiting) > 1 else taken


def _summed(rows: list[Row]) -> list[Row]:
    """Rows in the order of keys, those with equal keys as one."""
    rows.sort()  # of sorted pieces: their rows are compared once
    summed: list[Row] = []
    known, total = rows[0][0], 0
    for key, count in rows:
        if key != known:
            summed.append((known, total))
            known, total = key, 0
        total += count
    summed.append((known, total))
    return summed


def merged_files(
    paths: Sequence[str], scratch: str, *, read: Callable[[str], Iterable[list[Row]]]
) -> Iterator[list[Row]]:
    """As `merged_runs`, for any number of files, of which at most 64 are open; passes go through the directory."""
    while len(paths) > FAN_IN:
        following = []
        for start in range(0, len(paths), FAN_IN):
            descriptor, path = tempfile.mkstemp(dir=scratch)
            with os.fdopen(descriptor, "wb") as file:
                write_run(file, merged_runs([read(each) for each in paths[start : start + FAN_IN]]))
            following.append(path)
        paths, read = following, read_run
    yield from merged_runs([read(path) for path in paths])


def _key(row: Row) -> bytes:
    return row[0]


def _torn(path: str) -> SpecError:
    return SpecError(f"{path}: expected whole blocks of counts, found the beginning of one more at its end.")
