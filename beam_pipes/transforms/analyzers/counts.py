"""Counts how often each value occurs: an accumulator in bounded memory, whose files are merged as streams.

A file is a line that names the kind of values (`str`, `bytes` or `int`), then a *run*: rows in the order of keys. A run
is blocks of up to 1,024 rows: the number of rows and the bytes of all keys (uint32 each), the counts (uint64), the
lengths of keys (uint32), the keys; little-endian. Blocks are read and written as arrays, and merged as sorted lists, so
a row costs less than a microsecond, and any number of runs are merged without holding them in memory.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import itertools
import os
import struct
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from beam_pipes.analysis import Accumulator
from beam_pipes.analysis.analyzer import Values
from beam_pipes.errors import SpecError

Value = str | bytes | int

# Maximum number of distinct values in memory, about 40 MB of words; then a sorted run goes to a temporary file.
MOST_DISTINCT = 1 << 18

# Types whose items are counted.
LISTS = (list, tuple, np.ndarray)
# What `ValueCounts` can count, for `Analyzer.accepts`.
COUNTED: tuple[type, ...] = (str, bytes, int, np.integer, *LISTS)

_INT = struct.Struct(">Q")
_SIGN = 1 << 63


def _key_of_str(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _key_of_int(value: int) -> bytes:
    try:
        return _INT.pack(int(value) + _SIGN)  # keys sort like the numbers
    except struct.error:
        raise SpecError(f"expected integers of 64 bits, got {value}. Count them as str.") from None


def value_of(kind: str, key: bytes) -> Value:
    """The value of a key."""
    if kind == "str":
        return key.decode("utf-8", "surrogatepass")
    return key if kind == "bytes" else int(_INT.unpack(key)[0] - _SIGN)


def key_of(value: Value) -> bytes:
    """The key of a value in files; keys sort like the values."""
    return _KEYS[kind_of(value)](value)


_KEYS: dict[str, Callable[[Any], bytes]] = {"str": _key_of_str, "bytes": bytes, "int": _key_of_int}


class ValueCounts(Accumulator):
    """Counts values: str, bytes or int, or the items of lists, tuples and arrays.

    All must be of one kind. Raises `SpecError` for anything else.
    """

    def __init__(self, *, most_distinct: int = MOST_DISTINCT) -> None:
        self._most_distinct = most_distinct
        self._counts: collections.Counter[Value] = collections.Counter()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._runs: list[str] = []
        self._kind = ""
        self._lists: bool | None = None

    def add(self, values: Values, record_ids: Sequence[str]) -> None:
        counts = self._counts
        lists = self._are_lists(values)
        try:
            if lists:
                for value in values:
                    counts.update(_items(value))
            else:
                counts.update(values)
        except TypeError:  # an item that is a list or a dict itself
            for item in itertools.chain.from_iterable(map(_items, values)):
                if not isinstance(item, Hashable):
                    kind_of(item)
            raise
        if len(counts) > self._most_distinct:
            self._spill()

    def _are_lists(self, values: Sequence[object]) -> bool:
        """Whether the values are lists, whose items are counted; in a text among lists, letters would be counted."""
        classes = {type(value): value for value in values}
        lists = {issubclass(cls, LISTS) for cls in classes} | (set() if self._lists is None else {self._lists})
        if len(lists) > 1:
            found = next(iter(classes.values()))
            raise SpecError(
                "expected values that are all lists (or tuples, arrays), or all str, bytes or int, got both; one is "
                f"{type(found).__name__} {found!r:.60}. Of a list the items are counted, and a text would be one item. "
                "Give of=..., a pipeline that ends in one of them."
            )
        (self._lists,) = lists
        if not self._lists:
            for value in classes.values():
                kind_of(value)
        return self._lists

    def save(self, path: str) -> None:
        rows = self._sorted_rows()
        if self._runs:
            self._spill()
            assert self._scratch is not None
            rows = merged_files(self._runs, self._scratch.name, read=read_run)
        first = next(rows, None)  # from here on the kind is known
        with open(path, "wb") as file:
            file.write(f"{self._kind}\n".encode())
            write_run(file, itertools.chain(() if first is None else (first,), rows))
        if self._scratch is not None:
            self._scratch.cleanup()

    def _sorted_rows(self) -> Iterator[list[Row]]:
        """The rows of the table in blocks; it is empty after the last one.

        Values are sorted instead of keys: the order is the same, and no second table is needed.
        """
        examples = {type(value): value for value in self._counts}
        kinds = set(map(kind_of, examples.values())) | ({self._kind} if self._kind else set())
        if len(kinds) > 1:
            raise SpecError(
                f"expected values of one kind, got {' and '.join(sorted(kinds))}. Give of=..., a pipeline that ends in "
                "one of str, bytes, int."
            )
        if not kinds:
            return
        (self._kind,) = kinds
        key, counts = _KEYS[self._kind], self._counts
        values = sorted(counts)  # all of one kind
        for start in range(0, len(values), BLOCK_ROWS):
            yield [(key(value), counts[value]) for value in values[start : start + BLOCK_ROWS]]
        counts.clear()

    def _spill(self) -> None:
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="beam-pipes-counts-")
        path = os.path.join(self._scratch.name, f"run-{len(self._runs)}")
        with open(path, "wb") as file:
            write_run(file, self._sorted_rows())
        self._runs.append(path)


@contextlib.contextmanager
def merged_counts(paths: Sequence[str], target: str) -> Iterator[tuple[str, Iterator[list[Row]]]]:
    """(kind, blocks of rows in the order of keys) of many files.

    The rows can be read until the `with` block ends. Extra passes, if needed, write files next to `target`.
    """
    heads = {path: _head(path) for path in paths}
    kinds = {kind for kind, _ in heads.values() if kind}
    if len(kinds) > 1:
        raise SpecError(
            f"expected values of one kind, and source shards have {' and '.join(sorted(kinds))}. Give of=..., a "
            "pipeline that ends in one of str, bytes, int."
        )
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as scratch:
        rows = merged_files(paths, scratch, read=lambda path: read_run(path, start=heads[path][1]))
        yield next(iter(kinds), "str"), rows


def _head(path: str) -> tuple[str, int]:
    """The kind named by a file, and the offset of its rows."""
    with open(path, "rb") as file:
        line = file.readline()
    return line[:-1].decode("ascii"), len(line)


def _items(value: object) -> Any:
    return value.ravel().tolist() if isinstance(value, np.ndarray) else value


def kind_of(value: object) -> str:
    """`str`, `bytes` or `int`; raises `SpecError` for anything else."""
    for kind, cls in (("str", str), ("bytes", bytes), ("int", (int, np.integer))):
        if isinstance(value, cls) and not isinstance(value, bool):
            return kind
    raise SpecError(
        f"expected values to count (str, bytes or int, or lists of them), got {type(value).__name__} {value!r:.60}. "
        "Give of=..., a pipeline that ends in such values."
    )


Row = tuple[bytes, int]

BLOCK_ROWS = 1024

_HEAD = struct.Struct("<II")

# Files merged at once: below all limits on open files, and two passes suffice for 4,096 files.
FAN_IN = 64


def write_run(file: BinaryIO, blocks: Iterable[Sequence[Row]]) -> None:
    """Writes rows with ascending keys, given in blocks of any size."""
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
    """The blocks of a run that begins `start` bytes into the file. Raises `SpecError` if it is truncated."""
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

    Memory holds one block of each run: rows up to the smallest last key are sorted and yielded.
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
    """Rows in the order of keys, with equal keys merged."""
    rows.sort()  # sorted pieces, so rows are compared once
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
    """Like `merged_runs`, for any number of files, at most 64 open at once; passes use the directory."""
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
