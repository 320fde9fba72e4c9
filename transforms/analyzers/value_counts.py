"""How often each value was seen: an accumulator in bounded memory, whose files are merged as streams.

A file is a line that names the kind of values (`str`, `bytes` or `int`), then a run of rows in the order of keys.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import struct
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from beam_pipes.analysis import Accumulator
from beam_pipes.errors import SpecError
from beam_pipes.transforms.analyzers.count_runs import BLOCK_ROWS, Row, merged_files, read_run, write_run

Value = str | bytes | int

# Distinct values in memory, about 40 MB of words; beyond, a sorted run goes to a temporary file.
MOST_DISTINCT = 1 << 18

# Of these the items are counted.
LISTS = (list, tuple, np.ndarray)
# What `ValueCounts` can count, for `Analyzer.accepts`.
COUNTED: tuple[type, ...] = (str, bytes, int, np.integer, *LISTS)

_INT = struct.Struct(">Q")
_SIGN = 1 << 63


def _key_of_str(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _key_of_int(value: int) -> bytes:
    try:
        return _INT.pack(int(value) + _SIGN)  # keys are in the order of numbers
    except struct.error:
        raise SpecError(f"expected integers of 64 bits, got {value}. Count them as str.") from None


def value_of(kind: str, key: bytes) -> Value:
    """The value that a key stands for."""
    if kind == "str":
        return key.decode("utf-8", "surrogatepass")
    return key if kind == "bytes" else int(_INT.unpack(key)[0] - _SIGN)


def key_of(value: Value) -> bytes:
    """The bytes that stand for a value in files: in the order of values."""
    return _KEYS[kind_of(value)](value)


_KEYS: dict[str, Callable[[Any], bytes]] = {"str": _key_of_str, "bytes": bytes, "int": _key_of_int}


class ValueCounts(Accumulator):
    """Counts values: str, bytes or int; of a value that is a list, a tuple or an array, its items.

    All of them are of one kind. Raises `SpecError` for anything else.
    """

    def __init__(self, *, most_distinct: int = MOST_DISTINCT) -> None:
        self._most_distinct = most_distinct
        self._counts: collections.Counter[Value] = collections.Counter()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._runs: list[str] = []
        self._kind = ""
        self._lists: bool | None = None

    def add(self, values: Sequence[Any], record_ids: Sequence[str]) -> None:
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

    def _are_lists(self, values: Sequence[Any]) -> bool:
        """Whether the values are lists, whose items count. Of a text among lists the letters would be counted."""
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

        Values are sorted, not keys: that is the same order, and no second table of them is needed.
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
        values: list[Any] = sorted(counts)  # all of one kind
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

    The rows can be read until the `with` block ends. Passes, where there have to be some, go beside `target`.
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
    """The kind that a file names, and where its rows begin."""
    with open(path, "rb") as file:
        line = file.readline()
    return line[:-1].decode("ascii"), len(line)


def _items(value: Any) -> Any:
    return value.ravel().tolist() if isinstance(value, np.ndarray) else value


def kind_of(value: Any) -> str:
    """`str`, `bytes` or `int`; raises `SpecError` for anything else."""
    for kind, cls in (("str", str), ("bytes", bytes), ("int", (int, np.integer))):
        if isinstance(value, cls) and not isinstance(value, bool):
            return kind
    raise SpecError(
        f"expected values to count (str, bytes or int, or lists of them), got {type(value).__name__} {value!r:.60}. "
        "Give of=..., a pipeline that ends in such values."
    )
