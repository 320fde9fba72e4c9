"""Exports as tables: Parquet.

It has one file for each split and one column for each feature; records that are not examples are a single column
`record` of bytes. Rows that are taken down are left out.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from beam_pipes.cache.reader import Cache
from beam_pipes.cache.split import Split
from beam_pipes.extras import require
from beam_pipes.format import dtypes
from beam_pipes.format.spec import DecodedExample, ExampleSpec, FeatureSpec

if TYPE_CHECKING:
    import pyarrow as pa


def kept_rows(split: Split) -> Iterator[int]:
    """The indices of the rows that are not taken down, ascending."""
    removed = iter(split.removed_rows.tolist())
    gone = next(removed, None)
    for row in range(len(split)):
        if row == gone:
            gone = next(removed, None)
        else:
            yield row


def rows_of_files(split: Split, records_of_a_file: int) -> Iterator[tuple[int, int, Iterator[int]]]:
    """For each file: its number, the number of files, and its rows, to be read before the next file. At least one file.

    Five rows, two to a file → (0, 3, rows 0 and 1), (1, 3, rows 2 and 3), (2, 3, row 4).
    """
    rows = kept_rows(split)
    num_files = max(1, -(-num_kept(split) // records_of_a_file))
    for number in range(num_files):
        yield number, num_files, itertools.islice(rows, records_of_a_file)


def num_kept(split: Split) -> int:
    """The number of rows that are kept."""
    return len(split) - len(np.unique(split.removed_rows))


def examples_of(split: Split) -> Iterator[DecodedExample]:
    """The decoded examples, in order."""
    for row in kept_rows(split):
        yield split[row]


T = TypeVar("T")
RECORD = "record"

# Rows per row group, which is what memory holds at a time.
_ROWS = 1024


def write_parquet(cache: Cache, directory: str) -> None:
    """Writes `SPLIT.parquet` for each split. bfloat16 becomes float32, which holds it exactly; all else is kept."""
    pyarrow = require("pyarrow", purpose="export to Parquet")
    parquet = require("pyarrow.parquet", purpose="export to Parquet")
    for name in cache.splits:
        split = cache[name]
        spec = split.spec if split.kind == "example" else None
        schema = arrow_schema(spec)
        with parquet.ParquetWriter(os.path.join(directory, f"{name}.parquet"), schema) as writer:
            for rows in _groups(_rows(split)):
                columns = [
                    pyarrow.array([_plain(row[field.name], spec) for row in rows], type=field.type) for field in schema
                ]
                writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))


def arrow_schema(spec: ExampleSpec | None) -> pa.Schema:
    """The Arrow schema of a spec: `int32[None, 3]` → `list<list<int32>>`; without a spec, one binary column."""
    pyarrow = require("pyarrow", purpose="export to Parquet")
    if spec is None:
        return pyarrow.schema([pyarrow.field(RECORD, pyarrow.binary(), nullable=False)])
    return pyarrow.schema(
        [pyarrow.field(name, _type(pyarrow, feature), nullable=False) for name, feature in spec.items()]
    )


def _type(pyarrow: ModuleType, feature: FeatureSpec) -> pa.DataType:
    if feature.dtype == dtypes.STR:
        found = pyarrow.string()
    elif feature.dtype == dtypes.BYTES:
        found = pyarrow.binary()
    elif feature.dtype == dtypes.BFLOAT16:
        found = pyarrow.float32()
    else:
        found = pyarrow.from_numpy_dtype(feature.numpy_dtype)
    for _ in feature.shape:
        found = pyarrow.list_(found)
    return found


def _rows(split: Split) -> Iterator[dict[str, object]]:
    if split.kind == "example":
        return examples_of(split)
    return ({RECORD: split.record_bytes(row)} for row in kept_rows(split))


def _groups(rows: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(rows)
    while group := list(itertools.islice(iterator, _ROWS)):
        yield group


def _plain(value: object, spec: ExampleSpec | None) -> object:
    """What Arrow takes: arrays of one dimension unchanged, others as nested lists."""
    if spec is None or isinstance(value, (bytes, str)):
        return value
    array = np.asarray(value)
    if array.dtype.name == dtypes.BFLOAT16:
        array = array.astype(np.float32)
    if array.ndim == 1 and array.dtype.kind != "O":
        return array
    return array.tolist() if array.dtype != np.float16 else _halves(array)


def _halves(array: np.ndarray) -> object:
    """Nested lists whose leaves stay NumPy half floats, as Arrow needs for its float16."""
    return [_halves(each) for each in array] if array.ndim else array[()]
