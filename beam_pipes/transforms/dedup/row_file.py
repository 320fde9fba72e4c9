"""The place of a record in the input: its file, and its position in it.

Rows of fixed size for the records of one source shard, in a file of blocks.

A *block* holds 4,096 rows (the last one fewer), column after column: first the positions of the records in their files,
then the requested columns. A column *by value* is stored transposed, so that one of its values is read for all rows of
the block at once. The blocks are followed by JSON with the layout and the first row of each input file.

Places of records by their ordinal: the number of a record among all records of all source shards, in order.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, NamedTuple

import numpy as np

from beam_pipes.errors import CorruptCacheError, DeclarationError


class RecordPlace(NamedTuple):
    """`books/emma.txt@1024` as its parts."""

    file: str
    position: int

    def __str__(self) -> str:
        return f"{self.file}@{self.position}"


def record_place(record_id: str) -> RecordPlace:
    """The place in a record's id: `"a@b.txt@1024"` → `("a@b.txt", 1024)`.

    Inside nested DAGs an id continues (`a.txt@1024/0`): it is still the same record.

    Raises `DeclarationError` for ids that name no place, such as those of values that did not come from a source.
    """
    file, at, position = record_id.rpartition("@")
    try:
        if not at:
            raise ValueError("no position")
        return RecordPlace(file, int(position.partition("/")[0]))
    except ValueError:
        raise DeclarationError(
            f"expected the id of a source record, file@position, got {record_id!r}. Records have ids in a build; to "
            "try a stage out, build a declaration over Memory([...]).",
            record=record_id,
        ) from None


BLOCK_ROWS = 4096
MAGIC = b"BPROWS01"

# Maximum size of a shard's rows in memory; more go to an unnamed temporary file.
MEMORY_BYTES = 8 << 20

Array = np.ndarray


class Column(NamedTuple):
    """`width` values of `dtype` per row."""

    name: str
    dtype: str
    width: int = 1
    by_value: bool = False

    @property
    def row_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * self.width


POSITIONS = Column("positions", "<u8")


class RowWriter:
    """Collects the rows of one source shard: `add(record_ids, {"digests": (rows, 2) uint64})`, then `save(path)`."""

    def __init__(self, *columns: Column, owner: str) -> None:
        self._columns = (POSITIONS, *columns)
        self._owner = owner
        self._spool: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
        self._waiting: list[dict[str, Array]] = []
        self._num_waiting = 0
        self._num_rows = 0
        self._files: list[tuple[str, int]] = []
        self._last: RecordPlace | None = None

    def add(self, record_ids: Sequence[str], rows: Mapping[str, Array]) -> None:
        """Takes the rows of consecutive records.

        Raises `DeclarationError` if a record occurs twice: it is kept or removed as a whole, so it must have one
        content.
        """
        positions = []
        file, position = self._last or RecordPlace("", -1)
        for index, record_id in enumerate(record_ids):
            place = record_place(record_id)
            if place == (file, position):
                raise DeclarationError(
                    f"analyzer {self._owner!r}: the record {record_id!r} gives several values to compare, but a record "
                    "is kept or removed as a whole. Let `of` give one value a record, such as a list of its parts.",
                    analyzer=self._owner,
                    record=record_id,
                )
            if place.file != file or not self._files:
                self._files.append((place.file, self._num_rows + index))
            file, position = place
            positions.append(position)
        self._last = RecordPlace(file, position)
        self._waiting.append({POSITIONS.name: np.array(positions, POSITIONS.dtype).reshape(-1, 1), **rows})
        self._num_waiting += len(record_ids)
        self._num_rows += len(record_ids)
        if self._num_waiting >= BLOCK_ROWS:
            self._write(leave_less_than=BLOCK_ROWS)

    def save(self, path: str) -> None:
        """Writes the file and releases the rows."""
        self._write(leave_less_than=1)
        footer = json.dumps(
            {"rows": self._num_rows, "columns": self._columns, "files": self._files}, separators=(",", ":")
        ).encode()
        self._spool.seek(0)
        with open(path, "wb") as file:
            shutil.copyfileobj(self._spool, file, 1 << 20)
            file.write(footer + len(footer).to_bytes(8, "little") + MAGIC)
        self._spool.close()

    def _write(self, *, leave_less_than: int) -> None:
        """Writes blocks while at least this many rows are left."""
        if not self._num_waiting:
            return
        rows = {column.name: np.concatenate([each[column.name] for each in self._waiting]) for column in self._columns}
        start = 0
        while self._num_waiting - start >= leave_less_than:
            stop = min(start + BLOCK_ROWS, self._num_waiting)
            for column in self._columns:
                part = np.asarray(rows[column.name][start:stop], column.dtype)
                self._spool.write(np.ascontiguousarray(part.T if column.by_value else part).tobytes())
            start = stop
            if start == self._num_waiting:
                break
        self._waiting = [{name: values[start:] for name, values in rows.items()}]
        self._num_waiting -= start


class RowFile:
    """Reads the file of a `RowWriter`, block by block or row by row."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 16))
                tail = file.read(16)
                length = int.from_bytes(tail[:8], "little")
                if tail[8:] != MAGIC or length > size - 16:
                    raise ValueError("the file does not end with the footer of rows")
                file.seek(size - 16 - length)
                footer = json.loads(file.read(length))
            self.num_rows: int = footer["rows"]
            self.columns = [Column(*each) for each in footer["columns"]]
            self.files: list[tuple[str, int]] = [(name, first) for name, first in footer["files"]]
            if size - 16 - length != self.num_rows * sum(column.row_bytes for column in self.columns):
                raise ValueError("rows are missing")
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCacheError(
                f"{path!r} does not hold the rows of an accumulator: {error}. Remove it and build again.", path=path
            ) from error

    def blocks(self, name: str, *, value: int | None = None) -> Iterator[Array]:
        """The column `name`, (rows, width), one block after the other; with `value`, that value alone: (rows,)."""
        with open(self.path, "rb") as file:
            for first in range(0, self.num_rows, BLOCK_ROWS):
                rows = min(BLOCK_ROWS, self.num_rows - first)
                offset, column = self._place(name, first, rows)
                dtype = np.dtype(column.dtype)
                if value is not None:
                    assert column.by_value
                    file.seek(offset + value * rows * dtype.itemsize)
                    yield np.frombuffer(file.read(rows * dtype.itemsize), dtype)
                    continue
                file.seek(offset)
                data = np.frombuffer(file.read(rows * column.row_bytes), dtype)
                yield data.reshape(column.width, rows).T if column.by_value else data.reshape(rows, column.width)

    def offsets(self, name: str, rows: Array) -> tuple[Array, int]:
        """The offsets of single rows' values in the file (for a column that is not by value), and their bytes."""
        first = rows // BLOCK_ROWS * BLOCK_ROWS
        in_block = np.minimum(BLOCK_ROWS, self.num_rows - first)
        before, column = self._before(name)
        row_bytes = sum(each.row_bytes for each in self.columns)
        return first * row_bytes + in_block * before + (rows - first) * column.row_bytes, column.row_bytes

    def _place(self, name: str, first: int, rows: int) -> tuple[int, Column]:
        before, column = self._before(name)
        return first * sum(each.row_bytes for each in self.columns) + rows * before, column

    def _before(self, name: str) -> tuple[int, Column]:
        """Bytes per row of the columns before `name`, and that column."""
        before = 0
        for column in self.columns:
            if column.name == name:
                return before, column
            before += column.row_bytes
        raise KeyError(name)


class RowFiles:
    """The rows of all source shards as one sequence; `names` collects the files of the requested places."""

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
