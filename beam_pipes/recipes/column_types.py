"""The types of columns: for rows of text and JSON by their values, for Parquet by the files.

    [{"a": "1", "b": ""}, {"a": "2", "b": "x"}]      →  {"a": "int64", "b": "str"}
    [{"v": [0.5, 1]}, {"v": []}]                     →  {"v": "float32[]"}

An integer becomes a float only if that is exact for all of a column's integers: a column is "int64" if nothing is
missing, else "float32" up to 2**24, "float64" up to 2**53, and text beyond. Text of JSON stays text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipes.errors import DeclarationError, SourceError
from beam_pipes.extras import require
from beam_pipes.format.dtypes import FLOATS, INTEGERS, integer_range
from beam_pipes.recipes.row_files import RowFiles, files_of, sampled
from beam_pipes.sources.selection import FoundFile, Paths
from beam_pipes.sources.tables import columns_of_leaves, opened_parquet, partitions_of

if TYPE_CHECKING:
    import pyarrow

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)", re.ASCII)
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+", re.ASCII)
#: The bound up to which a float dtype holds all integers.
EXACT = {"float32": 1 << 24, "float64": 1 << 53}
# Below it, float32 loses digits, and finally all of them.
_SMALLEST_FLOAT32 = 2.0**-126


# Rows of text and of JSON.


def types_of_rows(data: Paths | RowFiles, kind: str, **reading: object) -> dict[str, str]:
    """Column → dtype, by the first rows of the first and the last file, and of others while a column has no value.

    Raises `DeclarationError` if there are no rows, with the error of the first invalid one.
    """
    rows, names, bad = list[Mapping[str, object]](), dict[str, bool](), None
    for number, sample in enumerate(sampled(data, kind, **reading)):
        if number > 1 and rows and all(names.values()):
            break
        rows += sample.rows
        bad = bad or sample.bad
        for name, column in _columns_of_rows(sample.rows).items():
            names[name] = names.get(name, False) or any(value not in (None, "", []) for value in column)
    if rows:
        return infer_types(rows, is_text=kind != "json", decimal=str(reading.get("decimal", ".")))
    why = ""
    if bad is not None:
        error = bad if isinstance(bad, SourceError) else bad.error
        why = f" The first invalid one, {getattr(bad, 'record_id', bad)!r}: {error}."
    files = ", ".join(repr(file.name) for file in files_of(data).files[:3])
    raise DeclarationError(f"there are no rows to infer the column types from in {files}. Give files with rows.{why}")


def infer_types(rows: Iterable[Mapping[str, object]], *, is_text: bool = True, decimal: str = ".") -> dict[str, str]:
    """Column → dtype; `is_text`: values are text, which may be numbers, and is empty if missing."""
    rows = list(rows)
    columns = _columns_of_rows(rows)
    if decimal != ".":
        swapped = str.maketrans({decimal: ".", ".": decimal})
        columns = {name: [str(value).translate(swapped) for value in column] for name, column in columns.items()}
    return {name: _type_of(column, len(rows) - len(column), is_text) for name, column in columns.items()}


def _columns_of_rows(rows: list[Mapping[str, object]]) -> dict[str, list[object]]:
    """Column → its values in the rows that have it."""
    names = [*rows[0]] if rows else []
    if all(map(names.__eq__, map(list, rows))):
        return dict(zip(names, map(list, zip(*(row.values() for row in rows), strict=True)), strict=True))
    values: dict[str, list[object]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    return values


def _type_of(column: list[Any], num_missing: int, is_text: bool) -> str:
    there = list(filter(None, column)) if is_text else [value for value in column if value is not None]
    is_whole = not num_missing and len(there) == len(column)
    if there and all(type(value) is list for value in there):
        elements = [element for value in there for element in value]
        of_elements = "str" if any(type(each) in (list, dict) for each in elements) else _type_of(elements, 0, False)
        is_nested = of_elements == "str" and not all(type(each) in (str, type(None)) for each in elements)
        return "str" if is_nested or not elements else f"{of_elements}[]"
    if not there:
        return "str"
    if is_text:
        there = _numbers_of_texts(there) or [_of_text(value) for value in there]
    kinds = {*map(type, there)}
    if kinds == {bool}:
        return "bool" if is_whole else "str"
    return _type_of_numbers(there, is_whole) if kinds <= {int, float} else "str"


def _numbers_of_texts(texts: list[Any]) -> list[Any] | None:
    """What `_of_text` makes of each, at a third of the time, for numbers in the usual form; else None."""
    if not texts or {*map(type, texts)} != {str} or max(map(len, texts)) > 30:
        return None
    joined = "".join(texts)
    if not joined.isascii() or joined.encode().translate(None, b"0123456789.-e"):
        return None
    try:
        if "." not in joined and "e" not in joined:
            found: list[Any] = list(map(int, texts))
            return found if "".join(map(str, found)) == joined else None  # leading zeros
        numbers = np.array(list(map(float, texts)))
    except ValueError:
        return None
    if not np.isfinite(numbers).all():
        return None
    found = numbers.tolist()
    for at in np.flatnonzero(numbers == np.floor(numbers)).tolist():
        text = texts[at]
        if _LEADING_ZERO.fullmatch(text):
            return None
        if _INTEGER.fullmatch(text):
            found[at] = int(text)
    return found


def _of_text(text: Any) -> object:
    """The number or bool spelled by a text, else the text."""
    if type(text) is not str:
        return text
    word = text.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if not word.isascii() or "_" in word or _LEADING_ZERO.fullmatch(word):
        return text
    if _INTEGER.fullmatch(word):
        return int(word) if len(word) < 40 else text
    try:
        number = float(word)
    except ValueError:
        return text
    return text if math.isinf(number) and any(map(str.isdigit, word)) else number


def _type_of_numbers(numbers: list[Any], is_whole: bool) -> str:
    integers = [number for number in numbers if type(number) is int]
    bounds = (min(integers), max(integers)) if integers else (0, 0)
    floats = np.abs(np.array([number for number in numbers if type(number) is float]))
    floats = floats[np.isfinite(floats)]
    if is_whole and not floats.size and len(integers) == len(numbers) and type_holds("int64", bounds):
        return "int64"
    outside = (floats > EXACT["float32"]) | ((floats < _SMALLEST_FLOAT32) & (floats != 0))
    wanted = "float64" if outside.any() else ""
    return float_for(bounds, at_least=wanted or "float32")


def type_holds(dtype: str, bounds: tuple[int, int]) -> bool:
    """Whether a dtype holds all integers within bounds exactly."""
    low, high = (-EXACT[dtype], EXACT[dtype]) if dtype in EXACT else integer_range(dtype)
    return low <= bounds[0] and bounds[1] <= high


def float_for(bounds: tuple[int, int], *, at_least: str = "float32") -> str:
    """The float dtype that holds all integers within bounds; "str" if none does."""
    dtypes = ("float32", "float64") if at_least == "float32" else ("float64",)
    return next((dtype for dtype in dtypes if type_holds(dtype, bounds)), "str")


# Columns of Parquet files.

# The type of a column without a value.
_UNKNOWN = ""


@dataclass
class _Seen:
    """A column in the files read so far: its dtype, whether a value is missing, the bounds of its integers."""

    dtype: str
    is_missing: bool
    bounds: tuple[int, int]
    file: str


def types_of_parquet(data: Paths | RowFiles, declared: Collection[str] = ()) -> tuple[dict[str, str], dict[str, str]]:
    """Column → dtype, from the files and their directories (partitions).

    Files without rows and columns without values are ignored. Raises `DeclarationError` if files disagree about a
    column that is not `declared`.
    """
    row_files = files_of(data)
    files = row_files.files
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(_columns_of, files))
    seen: dict[str, _Seen] = {}
    for columns in found:
        for name, column in columns.items():
            is_first = name not in seen or name in declared
            seen[name] = column if is_first else _joined(name, seen[name], column)
    for file, columns in zip(files, found, strict=True):
        missing = next((name for name in seen if columns and name not in columns and name not in declared), None)
        if missing is not None:
            raise DeclarationError(
                f"the column {missing!r} is in {seen[missing].file!r}, and {file.name!r} has none. Leave it out "
                f"(--type {missing}=skip), or write the files with the same columns."
            )
    types = {name: _stored_as(column) for name, column in seen.items()}
    return types, {name: dtype for name, dtype in types_of_partitions(row_files).items() if name not in types}


def _columns_of(file: FoundFile) -> dict[str, _Seen]:
    types = require("pyarrow", purpose="Parquet").types
    columns: dict[str, _Seen] = {}
    with opened_parquet(file.path, file.name) as parquet:
        opened: Any = parquet
        for field in opened.schema_arrow if opened.metadata.num_rows else ():
            dtype = type_of_arrow(field.type)
            is_missing, bounds = False, (0, 0)
            if types.is_null(field.type):
                dtype, is_missing = _UNKNOWN, True
            elif dtype in INTEGERS or dtype == "bool":
                is_missing, bounds = _facts(opened, field.name)
            columns[field.name] = _Seen(dtype, is_missing, bounds, file.name)
    return columns


def _facts(opened: Any, name: str) -> tuple[bool, tuple[int, int]]:
    """Whether a column of integers or bools has nulls, and the bounds of its values: by statistics, else by reading."""
    groups = [opened.metadata.row_group(index) for index in range(opened.metadata.num_row_groups)]
    path = columns_of_leaves(opened.schema_arrow, groups[0].num_columns).index(name)
    facts = [(group.num_rows, group.column(path).statistics) for group in groups]
    if all(
        found is not None and found.has_null_count and (found.has_min_max or found.null_count == num_rows)
        for num_rows, found in facts
    ):
        within = [(found.min, found.max) for _, found in facts if found.has_min_max]
        return any(found.null_count for _, found in facts), _around(within)
    column = opened.read([name])[name]
    extremes = require("pyarrow.compute", purpose="Parquet").min_max(column)
    return bool(column.null_count), _around([(extremes["min"].as_py(), extremes["max"].as_py())])


def _around(bounds: Iterable[tuple[Any, Any]]) -> tuple[int, int]:
    known = [(int(low), int(high)) for low, high in bounds if low is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else (0, 0)


def _joined(name: str, one: _Seen, other: _Seen) -> _Seen:
    """A column of two files. Integers take the wider type; integers and floats become floats that hold both."""
    bounds = min(one.bounds[0], other.bounds[0]), max(one.bounds[1], other.bounds[1])
    is_missing = one.is_missing or other.is_missing
    if one.dtype == other.dtype or _UNKNOWN in (one.dtype, other.dtype):
        known = other if one.dtype == _UNKNOWN else one
        return _Seen(known.dtype, is_missing, bounds, known.file)
    kinds = {each.dtype in INTEGERS for each in (one, other)}, {each.dtype in FLOATS for each in (one, other)}
    if kinds[0] == {True}:
        wide = "int64" if type_holds("int64", bounds) else "uint64"
        if type_holds(wide, bounds):
            return _Seen(wide, is_missing, bounds, one.file)
    elif all(each.dtype in INTEGERS or each.dtype in FLOATS for each in (one, other)):
        return _Seen("float64", is_missing, bounds, one.file)
    elements = {each.dtype.removesuffix("[]") for each in (one, other) if each.dtype.endswith("[]")}
    if len(elements) == 2 and (elements <= {*FLOATS} or elements <= {*INTEGERS} - {"uint64"}):
        return _Seen("float64[]" if elements <= {*FLOATS} else "int64[]", is_missing, bounds, one.file)
    raise DeclarationError(
        f"the column {name!r} is {one.dtype} in {one.file!r} and {other.dtype} in {other.file!r}. Declare the type "
        f"that all of its values fit (--type {name}=str), or leave it out (--type {name}=skip)."
    )


def _stored_as(column: _Seen) -> str:
    """The stored dtype of a column: integers with gaps become floats, bools with gaps text."""
    if column.dtype == _UNKNOWN or (column.dtype == "bool" and column.is_missing):
        return "str"
    if column.dtype in INTEGERS and column.is_missing:
        return float_for(column.bounds)
    if column.dtype == "float64" and not type_holds("float64", column.bounds):
        return "str"  # integers of another file
    return column.dtype


def types_of_partitions(files: RowFiles) -> dict[str, str]:
    """Column → dtype, for columns given by directories: `year=2024/a.parquet` → `{"year": "int64"}`."""
    values: dict[str, list[str | None]] = {}
    for file in files.files:
        for name, value in partitions_of(file.name).items():
            values.setdefault(name, []).append(value)
    return {
        name: "int64" if len(found) == len(files.files) and all(map(_is_int64, found)) else "str"
        for name, found in values.items()
    }


def _is_int64(text: str | None) -> bool:
    return text is not None and re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII) is not None


def type_of_arrow(kind: pyarrow.DataType) -> str:
    """`int16` → "int16", `list<float>` → "float32[]"; "str" for types stored as text, such as dates and structs."""
    types = require("pyarrow", purpose="Parquet").types
    if types.is_dictionary(kind):
        return type_of_arrow(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_type
        is_text = types.is_string(inner) or types.is_large_string(inner) or types.is_string_view(inner)
        of_elements = type_of_arrow(inner)
        return f"{of_elements}[]" if is_text or (of_elements != "str" and "[" not in of_elements) else "str"
    if types.is_boolean(kind):
        return "bool"
    if any(
        check(kind)
        for check in (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    ):
        return "bytes"
    if types.is_integer(kind) or types.is_floating(kind):
        # Not `kind.to_pandas_dtype()`, which imports pandas.
        name = "float" if types.is_floating(kind) else "int" if types.is_signed_integer(kind) else "uint"
        return f"{name}{kind.bit_width}"
    return "str"
