"""From Arrow to Python: the values of columns, exact, and the same whether or not pandas is installed.

Lists of numbers without nulls are NumPy arrays; the rest is what pyarrow's `to_pylist` gives without pandas. Times in
nanoseconds are `datetime`, `time` and `timedelta`, as others are. Where such a value has a part of a microsecond,
which these do not hold, it is a `numpy.datetime64` or `numpy.timedelta64`; a time of a day, and an instant with a time
zone, is text as of the others, with nine digits: `01:00:00.000001001`, `1970-01-01 01:00:00.000001001+01:00`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from beam_pipes.engine.records import Table
from beam_pipes.extras import require
from beam_pipes.format.dtypes import Array
from beam_pipes.format.spec import ColumnValues


class ArrowField(Protocol):
    @property
    def type(self) -> Any: ...


class ArrowSchema(Protocol):
    """What we use of a `pyarrow.Schema`; pyarrow has no types."""

    @property
    def names(self) -> list[str]: ...
    def field(self, name: str | int, /) -> ArrowField: ...
    def remove_metadata(self) -> ArrowSchema: ...


class ArrowBatch(Protocol):
    """What we use of a `pyarrow.RecordBatch`."""

    @property
    def schema(self) -> ArrowSchema: ...
    @property
    def columns(self) -> list[Any]: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def slice(self, offset: int, length: int, /) -> ArrowBatch: ...
    def select(self, names: list[str], /) -> ArrowBatch: ...
    def append_column(self, name: str, column: Any, /) -> ArrowBatch: ...


def rows_of(batch: ArrowBatch) -> list[dict[str, object]]:
    """The rows of an Arrow batch as dicts."""
    names = batch.schema.names
    if not names:
        return [{} for _ in range(batch.num_rows)]
    columns = [_column_values(column) for column in batch.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


class ArrowColumn(NamedTuple):
    """A column of Arrow as one of a `Table`."""

    array: Any

    def __getitem__(self, part: slice) -> ArrowColumn:  # type: ignore[override]
        return ArrowColumn(self.array[part])

    def __len__(self) -> int:
        return len(self.array)

    def tolist(self) -> list[Any]:
        return _column_values(self.array)


def table_of(batch: ArrowBatch) -> Table:
    """The rows of an Arrow batch, those of `rows_of`, kept as columns."""
    return Table(dict(zip(batch.schema.names, map(ArrowColumn, batch.columns), strict=True)), batch.num_rows)


def numbers_in(column: ColumnValues) -> Array | list[Any]:
    """A column of numbers or bools without nulls as an array, nulls of floats as NaN; another one as a list."""
    if isinstance(column, np.ndarray | list):
        return column
    if isinstance(column, ArrowColumn):
        types, kind = require("pyarrow", purpose="Parquet").types, column.array.type
        if types.is_float32(kind) or types.is_float64(kind):
            made: Array = column.array.to_numpy(zero_copy_only=False)
            return made
        if not column.array.null_count and (types.is_integer(kind) or types.is_boolean(kind)):
            made = column.array.to_numpy(zero_copy_only=False)
            return made
    return column.tolist()


def inner_types(kind: Any) -> list[Any]:
    """The types of a nested type's parts, those of a map's entries included; none of a type without parts."""
    if hasattr(kind, "storage_type"):
        return [kind.storage_type]
    types = require("pyarrow", purpose="Parquet").types
    if types.is_dictionary(kind):
        return [kind.value_type]
    return [kind.field(index).type for index in range(kind.num_fields)] if types.is_nested(kind) else []


def num_leaves(kind: Any) -> int:
    """How many columns of Parquet a column of Arrow is: `struct<a: int64, b: list<string>>` → 2."""
    parts = inner_types(kind)
    return sum(map(num_leaves, parts)) if parts else 1


def _column_values(column: Any) -> list[object]:
    types = require("pyarrow", purpose="Parquet").types
    kind = column.type
    is_list = types.is_list(kind) or types.is_large_list(kind)
    if is_list and (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)):
        flat = column.flatten()
        if not flat.null_count:
            # A slice of the batch's buffer each, copied so that a record does not keep the whole batch alive.
            numbers = flat.to_numpy(zero_copy_only=False)
            return [None if at is None else numbers[at[0] : at[1]].copy() for at in _bounds(column)]
    return _with_nanoseconds(column) if _has_nanoseconds(kind) else list(column.to_pylist())


def _bounds(lists: Any) -> list[tuple[int, int] | None]:
    """Where each list begins and ends among the values of all; None for null."""
    lengths = require("pyarrow.compute", purpose="Parquet").list_value_length(lists).to_pylist()
    bounds, at = list[tuple[int, int] | None](), 0
    for length in lengths:
        bounds.append(None if length is None else (at, at + length))
        at += length or 0
    return bounds


def _has_nanoseconds(kind: Any) -> bool:
    return getattr(kind, "unit", None) == "ns" or any(map(_has_nanoseconds, inner_types(kind)))


def _with_nanoseconds(column: Any) -> list[object]:
    """The values of a column with nanoseconds in it: pyarrow makes them with pandas, or not at all."""
    pyarrow = require("pyarrow", purpose="Parquet")
    types, kind = pyarrow.types, column.type
    if hasattr(kind, "storage_type"):
        return _with_nanoseconds(column.storage)
    if types.is_dictionary(kind):
        return _with_nanoseconds(column.dictionary_decode())
    if types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        rows = zip(*map(_column_values, column.flatten()), strict=True)
        valid = column.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, valid, strict=True)]
    if types.is_map(kind):
        entries = pyarrow.list_(pyarrow.struct([("key", kind.key_type), ("value", kind.item_type)]))
        maps: list[Any] = _with_nanoseconds(column.cast(entries))
        return [None if each is None else [(entry["key"], entry["value"]) for entry in each] for each in maps]
    if types.is_nested(kind):
        values = _column_values(column.flatten())
        return [None if at is None else values[at[0] : at[1]] for at in _bounds(column)]
    return _of_nanoseconds(column)


def _of_nanoseconds(column: Any) -> list[object]:
    pyarrow = require("pyarrow", purpose="Parquet")
    kind, numbers = column.type, column.cast(pyarrow.int64())
    zone = getattr(kind, "tz", None)
    is_instant = pyarrow.types.is_timestamp(kind)
    of_unit = pyarrow.duration if pyarrow.types.is_duration(kind) else pyarrow.time64
    coarser = pyarrow.timestamp("us", zone) if is_instant else of_unit("us")
    thousands = require("pyarrow.compute", purpose="Parquet").divide(numbers, 1000)
    values: list[object] = thousands.cast(coarser).to_pylist()
    finer = [at for at, number in enumerate(numbers.to_pylist()) if number is not None and number % 1000]
    for at in finer:
        if zone is not None or pyarrow.types.is_time(kind):  # NumPy has neither zones nor times of a day
            micros, rest = divmod(numbers[at].as_py(), 1000)
            [time] = pyarrow.array([micros]).cast(coarser).to_pylist()
            whole = time.isoformat(**({"sep": " "} if is_instant else {}), timespec="microseconds")
            digits = whole.index(".") + 7
            values[at] = f"{whole[:digits]}{rest:03}{whole[digits:]}"
        else:
            exact = np.datetime64 if is_instant else np.timedelta64
            values[at] = exact(numbers[at].as_py(), "ns")
    return values
