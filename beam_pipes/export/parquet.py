"""Parquet: one file a split, a column a feature; records that are no examples are one column `record` of bytes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from beam_pipes.cache import dtypes
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.spec import ExampleSpec, FeatureSpec
from beam_pipes.cache.split import Split
from beam_pipes.export.kept_rows import examples_of, kept_rows
from beam_pipes.extras import require

RECORD = "record"

# Rows of a row group: what is held in memory at a time.
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


def arrow_schema(spec: ExampleSpec | None) -> Any:
    """The Arrow schema of a spec: `int32[None, 3]` → `list<list<int32>>`; without a spec, one binary column."""
    pyarrow = require("pyarrow", purpose="export to Parquet")
    if spec is None:
        return pyarrow.schema([pyarrow.field(RECORD, pyarrow.binary(), nullable=False)])
    return pyarrow.schema(
        [pyarrow.field(name, _type(pyarrow, feature), nullable=False) for name, feature in spec.items()]
    )


def _type(pyarrow: Any, feature: FeatureSpec) -> Any:
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


def _rows(split: Split) -> Iterator[dict[str, Any]]:
    if split.kind == "example":
        return examples_of(split)
    return ({RECORD: split.record_bytes(row)} for row in kept_rows(split))


def _groups(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    iterator = iter(rows)
    while group := list(itertools.islice(iterator, _ROWS)):
        yield group


def _plain(value: Any, spec: ExampleSpec | None) -> Any:
    """What Arrow takes: arrays of one dimension as they are, others as nested lists."""
    if spec is None or isinstance(value, (bytes, str)):
        return value
    array = np.asarray(value)
    if array.dtype.name == dtypes.BFLOAT16:
        array = array.astype(np.float32)
    if array.ndim == 1 and array.dtype.kind != "O":
        return array
    return array.tolist() if array.dtype != np.float16 else _halves(array)


def _halves(array: Any) -> Any:
    """Nested lists whose leaves stay NumPy's half floats, which Arrow wants for its own."""
    return [_halves(each) for each in array] if array.ndim else array[()]
