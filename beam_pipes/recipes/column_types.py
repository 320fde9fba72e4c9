"""The types of columns: for rows of text and JSON by their values, for Parquet by the files.

    [{"a": "1", "b": ""}, {"a": "2", "b": "x"}]      →  {"a": "int64", "b": "str"}
    [{"v": [0.5, 1]}, {"v": []}]                     →  {"v": "float32[]"}

An integer becomes a float only if that is exact for all of a column's integers: a column is "int64" if nothing is
missing, else "float32" up to 2**24, "float64" up to 2**53, and text beyond. Text of JSON stays text.
"""

from __future__ import annotations

import functools
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipes.engine.records import columns_of_rows
from beam_pipes.errors import DeclarationError, SourceError
from beam_pipes.extras import require
from beam_pipes.format.dtypes import FLOATS, INTEGERS, Array, integer_range
from beam_pipes.recipes.row_files import RowFiles, Sample, files_of, sampled
from beam_pipes.sources import CSV, TSV
from beam_pipes.sources.selection import FoundFile, Paths
from beam_pipes.sources.tables import columns_of_leaves, opened_parquet, partitions_of
from beam_pipes.sources.tar import values_at

if TYPE_CHECKING:
    import pyarrow

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)", re.ASCII)
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+", re.ASCII)
_WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)
# How numbers, infinities, NaN, true and false begin.
_MAY_BE_READ = re.compile(r"\s*[-+.0-9iInNtTfF]")
# Integers beyond it are left to `_of_text`, which takes those of many digits for text.
_LONG = 10**29
#: The bound up to which a float dtype holds all integers.
EXACT = {"bfloat16": 1 << 8, "float16": 1 << 11, "float32": 1 << 24, "float64": 1 << 53}
# Of more files, each is taken for a row if it has only one.
_FEW_FILES = 8
# Below it, float32 loses digits, and finally all of them.
_SMALLEST_FLOAT32 = 2.0**-126


# Rows of text and of JSON.


def types_of_rows(
    data: Paths | RowFiles,
    kind: str,
    *,
    declared: Collection[str] = (),
    among: Collection[str] | None = None,
    kinds: dict[str, str] | None = None,
    nested: set[str] | None = None,
    **reading: object,
) -> dict[str, str]:
    """Column → dtype, by the first rows of the first and the last file, and of others while a column has no value.

    Columns that are `declared`, or not `among` those to store, may hold anything. `kinds` takes column → "an object",
    "a list", "a number" or "true or false", for columns of JSON that are stored as text and hold none. `nested` are
    keys within columns, which are columns too, such as "meta.y"; it loses those that rows have themselves. Raises
    `DeclarationError` if there are no rows, with the error of the first invalid one; if a column holds several
    types; and if a file of text has a column that the sampled ones lack.
    """
    names, bad, samples = dict[str, bool](), None, list[Sample]()
    for number, sample in enumerate(sampled(data, kind, **reading)):
        if number > 1 and names and all(names.values()):
            break
        samples.append(sample)
        if nested:
            nested -= {name for row in sample.rows for name in row}
            sample.rows = [with_nested(row, nested) for row in sample.rows]
            sample.columns = columns_of_rows(sample.rows)
        bad = bad or sample.bad
        if sample.numbers is not None:
            names |= dict.fromkeys(sample.numbers, True)
            continue
        for name, column in sample.columns.items():
            names[name] = names.get(name, False) or any(value not in (None, "", []) for value in column)
    if num_rows := sum(map(len, samples)):
        if kind == "json" and len(files_of(data).files) <= _FEW_FILES:
            _refuse_records_within(samples, declared)
        decimal = str(reading.get("decimal", "."))
        types = _types_of_numbers(samples)
        if types is None:
            columns: dict[str, list[Any]] = {}
            for sample in samples:
                for name, column in sample.columns.items():
                    columns.setdefault(name, []).extend(column)
            types = types_of_columns(columns, num_rows, is_text=kind != "json", decimal=decimal)
        separator = str(reading.get("delimiter", "," if kind == "csv" else "\t"))
        for name, dtype in types.items():
            if dtype == "str" and name not in declared and (among is None or name in among):
                found = _one_kind(name, samples, is_text=kind != "json", decimal=decimal, separator=separator)
                if kinds is not None and kind == "json" and found not in (None, _KINDS[str]):
                    kinds[name] = found
        others = {} if kind == "json" or among is not None else _other_columns(data, kind, types, declared, reading)
        return types | others
    why = ""
    if bad is not None:
        error = bad if isinstance(bad, SourceError) else bad.error
        why = f" The first invalid one, {getattr(bad, 'record_id', bad)!r}: {error}."
    files = ", ".join(repr(file.name) for file in files_of(data).files[:3])
    raise DeclarationError(f"there are no rows to infer the column types from in {files}. Give files with rows.{why}")


def with_nested(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """A row with keys within its columns as columns: `{"m": {"y": 1}}` and `["m.y"]` → `{"m": {"y": 1}, "m.y": 1}`."""
    return {**row, **{name: found[0] for name in names if (found := values_at(row, name))}}


def _refuse_records_within(samples: list[Sample], declared: Collection[str]) -> None:
    """Raises `DeclarationError` for files of one object each that seems to hold all rows: `{"data": [{…}, {…}]}`, or a
    frame as pandas writes it.
    """
    if any(len(sample) != 1 for sample in samples):
        return
    file, [row] = samples[0].file.name, samples[0].rows
    for name, value in row.items():
        if name not in declared and type(value) is list and len(value) > 1 and {*map(type, value)} == {dict}:
            key = f".{name}" if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) else f".[{json.dumps(name)}]"
            raise DeclarationError(
                f"{file!r} is one object, whose {name!r} holds {len(value):,}. If these are the rows, write one on "
                f"each line: jq -c {shlex.quote(f'{key}[]')} FILE > NEW. If each file is a row, store it as text "
                f"(--type {shlex.quote(name)}=str)."
            )
    parts = [(*value,) for value in row.values() if type(value) is dict and value]
    outer, inner = [*row], [*parts[0]] if parts else []
    counted = [outer == [*map(str, range(len(outer)))], inner == [*map(str, range(len(inner)))]]
    is_split = {"columns", "data"} <= row.keys() and type(row["data"]) is list
    is_frame = len(parts) == len(row) and len({*parts}) == 1 and (any(counted) or len(row) > 2)
    if (is_split or is_frame) and not row.keys() & {*declared}:
        orient = "split" if is_split else "index" if counted[0] and not counted[1] else "columns"
        raise DeclarationError(
            f"{file!r} is one object with all rows, as pandas writes a frame. Write one row on each line: python -c "
            f"\"import pandas; pandas.read_json('FILE', orient='{orient}').to_json('NEW.jsonl', orient='records', "
            f'lines=True)". If each file is a row, store its columns as text (--type {shlex.quote(outer[0])}=str).'
        )


def _types_of_numbers(samples: list[Sample]) -> dict[str, str] | None:
    """What `types_of_columns` says of files of nothing but numbers, with the same columns; None for others."""
    found = [sample.numbers for sample in samples if sample.numbers is not None]
    if len(found) < len(samples) or len({tuple(numbers) for numbers in found}) > 1:
        return None
    types: dict[str, str] = {}
    for name in found[0]:
        values, is_whole = (np.concatenate(each) for each in zip(*(numbers[name] for numbers in found), strict=True))
        integers = values[is_whole]
        bounds = [int(integers.min()), int(integers.max())] if len(integers) else []
        types[name] = _type_of_numbers(bounds, values[~is_whole], True)
    return types


def _one_kind(name: str, samples: list[Sample], *, is_text: bool, decimal: str, separator: str) -> str | None:
    """What the values of a column of JSON are; None for text files, or without a value.

    Raises `DeclarationError` for a column of numbers, or of bools, in which some values are something else.

    In files of text, a column is one of numbers if most of its values are, or if all others are marks such as "NA"; but
    not if one has leading zeros. In JSON no column may hold values of two kinds.
    """

    def kind_of(value: Any) -> str:
        read = _of_text(_with_point(value, decimal)) if is_text else value
        return _KINDS[type(read)]

    column: list[Any] = [
        value for sample in samples for value in sample.columns.get(name, ()) if not _is_missing(value, is_text)
    ]
    counts = Counter[str]()
    if is_text:
        different = Counter(column)
        if any(_LEADING_ZERO.fullmatch(text.strip()) for text in different):
            return None
        for text, count in different.items():
            counts[kind_of(text)] += count
        main = max(("a number", "true or false"), key=counts.__getitem__)
        others = {text.strip().lower() for text in different if kind_of(text) != main}
        if not others or counts[main] == 0 or (2 * counts[main] <= len(column) and not others <= _MARKS):
            return None
    else:
        counts.update(_KINDS[kind] for kind in map(type, column))
        if len(counts) < 2:
            return next(iter(counts), None)
        main = counts.most_common(1)[0][0]
    usual = [value for value in column if kind_of(value) == main]
    dtype = _type_of([_with_point(value, decimal) for value in usual] if is_text else usual, 0, is_text)
    sample, number = next(
        (sample, number)
        for sample in samples
        for number, row in enumerate(sample.rows)
        if not _is_missing(value := row.get(name), is_text) and kind_of(value) != main
    )
    value, column_name = sample.rows[number][name], shlex.quote(name)
    mark = f"If it stands for a missing value: --null {shlex.quote(str(value))}. " if is_text else ""
    if mark and decimal == "." and separator != "," and type(_of_text(str(value).replace(",", "."))) in (int, float):
        mark = f"If its comma is a decimal one: --decimal ,. {mark}"
    # A bool is stored in a column of numbers, if this is declared.
    can_drop = dtype != "str" and type(value) is not bool
    drop = f"or drop such rows (--type {column_name}={dtype} --on-error drop), " if can_drop else ""
    kind = _KINDS[str] if is_text else kind_of(value)
    raise DeclarationError(
        f"the column {name!r} holds {main} in {counts[main]:,} of the first {len(column):,} rows that have a value, "
        f"but {kind} in {sample.place(number)!r}: {value!r:.60}. {mark}Store all of it as text "
        f"(--type {column_name}=str), {drop}or leave the column out (--type {column_name}=skip)."
    )


def _is_missing(value: object, is_text: bool) -> bool:
    return value is None or (is_text and value == "")


_KINDS = {
    **dict.fromkeys((int, float), "a number"),
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "an object",
}
# What people and programs write where there is no value.
_MARKS = frozenset(
    "na|n/a|n.a.|#n/a|<na>|nan|nat|nil|null|<null>|(null)|\\n|none|missing|unknown|undefined|not available|-|--|.|..|"
    "...|?|#div/0!|#value!|#ref!|#num!".split("|")
)


def _with_point(text: Any, decimal: str) -> Any:
    return text if decimal == "." else str(text).translate(str.maketrans(f"{decimal}.", f".{decimal}"))


def _other_columns(
    data: Paths | RowFiles, kind: str, types: Mapping[str, str], declared: Collection[str], reading: Mapping[str, Any]
) -> dict[str, str]:
    """Declared columns that only the headers of other files have. Raises `DeclarationError` for others."""
    files = files_of(data).files
    if not reading.get("header", True) or len(files) == 1:
        return {}

    def header(file: FoundFile) -> tuple[str, ...]:
        source = (CSV if kind == "csv" else TSV)(file.path, **reading)
        first = source.header_line(file.path, file.name)
        return source.columns_in(first, file.name) if first else ()

    others: dict[str, str] = {}
    with ThreadPoolExecutor(8) as pool:
        for file, names in zip(files, pool.map(header, files), strict=True):
            for name in names:
                if name not in types and name not in declared:
                    raise _only_in_some(name, file.name, files[0].name)
                if name not in types:
                    others[name] = "str"
    return others


def _only_in_some(name: str, file: str, lacking: str) -> DeclarationError:
    return DeclarationError(
        f"the column {name!r} is in {file!r}, and {lacking!r} has none. Leave it out (--type {name}=skip), or write "
        "the files with the same columns."
    )


def types_of_columns(
    columns: Mapping[str, list[Any]], num_rows: int, *, is_text: bool = True, decimal: str = "."
) -> dict[str, str]:
    """Column → dtype, from its values in the rows that have it; `is_text`: they are text, which may be numbers, and is
    empty if missing.
    """
    if decimal != ".":
        columns = {name: [_with_point(value, decimal) for value in column] for name, column in columns.items()}
    return {name: _type_of(column, num_rows - len(column), is_text) for name, column in columns.items()}


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
        plain = _numbers_of_texts(there)
        if plain is not None:
            return _type_of_numbers(*plain, is_whole)
        read = []
        for value in there:
            read.append(_of_text(value))
            if type(read[-1]) is str:  # so are the others
                return "str"
        there = read
    kinds = {*map(type, there)}
    if kinds == {bool}:
        return "bool" if is_whole else "str"
    if not kinds <= {int, float}:
        return "str"
    integers = [number for number in there if type(number) is int]
    return _type_of_numbers(integers, np.array([number for number in there if type(number) is float]), is_whole)


def _numbers_of_texts(texts: list[Any]) -> tuple[list[int], Array] | None:
    """The integers and the floats that `_of_text` makes of texts, at a fifth of the time, if all are numbers in the
    usual form; else None.
    """
    if not texts or {*map(type, texts)} != {str}:
        return None
    joined = "".join(texts)
    if not joined.isascii() or joined.encode().translate(None, b"0123456789.-e"):
        return None
    try:
        if "." not in joined and "e" not in joined:
            found = list(map(int, texts))
            is_short = -_LONG < min(found) and max(found) < _LONG
            return (found, np.empty(0)) if is_short and "".join(map(str, found)) == joined else None  # leading zeros
        numbers = np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return None
    if not np.isfinite(numbers).all():
        return None
    whole = np.flatnonzero(numbers == np.floor(numbers)).tolist()
    if any(len(texts[at]) > 30 or _LEADING_ZERO.fullmatch(texts[at]) for at in whole):
        return None
    integers = [at for at in whole if _INTEGER.fullmatch(texts[at])]
    return [int(texts[at]) for at in integers], np.delete(numbers, integers)


def _of_text(text: Any) -> object:
    """The number or bool spelled by a text, else the text."""
    if type(text) is not str:
        return text
    if not _MAY_BE_READ.match(text):
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


def _type_of_numbers(integers: list[int], floats: Array, is_whole: bool) -> str:
    bounds = (min(integers), max(integers)) if integers else (0, 0)
    if is_whole and not floats.size and type_holds("int64", bounds):
        return "int64"
    floats = np.abs(floats[np.isfinite(floats)])
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
# That of a column of lists without an element.
_UNKNOWN_LIST = "[]"


@dataclass
class _Seen:
    """A column in the files read so far: its dtype, whether a value is missing, the bounds of its integers."""

    dtype: str
    is_missing: bool
    bounds: tuple[int, int]
    file: str
    #: What it is in the file, if it is stored as text: "text", "date", "timestamp without a time zone", …
    kind: str = ""
    is_nested: bool = False


def types_of_parquet(
    data: Paths | RowFiles,
    *,
    declared: Collection[str] = (),
    among: Collection[str] | None = None,
    nested: set[str] | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Column → dtype, from the files and their directories (partitions).

    Files without rows and columns without values are ignored. `nested`: as of `types_of_rows`. Raises
    `DeclarationError` if files disagree about a column that is not `declared`, and `among` those to store.
    """
    row_files = files_of(data)
    files = row_files.files
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(functools.partial(_columns_of, nested=nested or ()), files))
    if nested:
        nested &= {name for each in found for name, column in each.items() if column.is_nested}
    seen: dict[str, _Seen] = {}
    free = {name for each in found for name in each if name in declared or (among is not None and name not in among)}
    for columns in found:
        for name, column in columns.items():
            is_first = name not in seen or name in free
            seen[name] = column if is_first else _joined(name, seen[name], column)
    for file, columns in zip(files, found, strict=True):
        missing = next((name for name in seen if columns and name not in columns and name not in free), None)
        if missing is not None:
            raise _only_in_some(missing, seen[missing].file, file.name)
    types = {name: _stored_as(column) for name, column in seen.items()}
    return types, {name: dtype for name, dtype in types_of_partitions(row_files).items() if name not in types}


def _columns_of(file: FoundFile, *, nested: Iterable[str] = ()) -> dict[str, _Seen]:
    types = require("pyarrow", purpose="Parquet").types
    columns: dict[str, _Seen] = {}
    with opened_parquet(file.path, file.name) as parquet:
        opened: Any = parquet
        for field in opened.schema_arrow if opened.metadata.num_rows else ():
            dtype = type_of_arrow(field.type)
            is_missing, bounds = False, (0, 0)
            if types.is_null(field.type):
                dtype, is_missing = _UNKNOWN, True
            elif types.is_list(field.type) and types.is_null(field.type.value_type):
                dtype = _UNKNOWN_LIST
            elif dtype in INTEGERS or dtype == "bool":
                is_missing, bounds = _facts(opened, field.name)
            kind = _kind_of_arrow(field.type) if dtype in ("str", _UNKNOWN_LIST) else ""
            columns[field.name] = _Seen(dtype, is_missing, bounds, file.name, kind)
        for name in nested:
            outer, *inner = name.split(".")
            if name not in columns and outer in columns and (leaf := _within(opened.schema_arrow.field(outer), inner)):
                values = require("pyarrow.compute", purpose="Parquet").struct_field(opened.read([outer])[outer], inner)
                dtype = type_of_arrow(leaf.type)
                facts = _facts_of(values) if dtype in INTEGERS or dtype == "bool" else (False, (0, 0))
                kind = _kind_of_arrow(leaf.type) if dtype == "str" else ""
                columns[name] = _Seen(dtype, *facts, file.name, kind, is_nested=True)
    return columns


def _within(field: Any, keys: list[str]) -> Any:
    """The field of a key within structs; None if there is none."""
    for key in keys:
        is_struct = require("pyarrow", purpose="Parquet").types.is_struct(field.type)
        if not is_struct or field.type.get_field_index(key) < 0:
            return None
        field = field.type.field(key)
    return field


def _kind_of_arrow(kind: Any) -> str:
    """`timestamp[us]` → "timestamp without a time zone", `large_string` → "text"."""
    if hasattr(kind, "value_type") and str(kind).startswith("dictionary"):
        return _kind_of_arrow(kind.value_type)
    name = re.split("[^a-z_]", str(kind).removeprefix("large_"))[0].rstrip("0123456789")
    if name == "timestamp":
        return f"timestamp {'without' if kind.tz is None else 'with'} a time zone"
    return {"string": "text", "string_view": "text"}.get(name, name)


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
    return _facts_of(opened.read([name])[name])


def _facts_of(column: Any) -> tuple[bool, tuple[int, int]]:
    extremes = require("pyarrow.compute", purpose="Parquet").min_max(column)
    return bool(column.null_count), _around([(extremes["min"].as_py(), extremes["max"].as_py())])


def _around(bounds: Iterable[tuple[Any, Any]]) -> tuple[int, int]:
    known = [(int(low), int(high)) for low, high in bounds if low is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else (0, 0)


def _joined(name: str, one: _Seen, other: _Seen) -> _Seen:
    """A column of two files. Integers take the wider type; integers and floats become floats that hold both."""
    bounds = min(one.bounds[0], other.bounds[0]), max(one.bounds[1], other.bounds[1])
    is_missing = one.is_missing or other.is_missing
    if _UNKNOWN_LIST in (one.dtype, other.dtype):
        known = other if one.dtype == _UNKNOWN_LIST else one
        if known.dtype.endswith("[]") or known.kind == "list":
            return _Seen(known.dtype, is_missing, bounds, known.file, known.kind)
    if one.dtype == other.dtype or _UNKNOWN in (one.dtype, other.dtype):
        known = other if one.dtype == _UNKNOWN else one
        if one.kind == other.kind or _UNKNOWN in (one.dtype, other.dtype):
            return _Seen(known.dtype, is_missing, bounds, known.file, known.kind)
    kinds = {each.dtype in INTEGERS for each in (one, other)}, {each.dtype in FLOATS for each in (one, other)}
    if kinds[0] == {True}:
        wide = "int64" if type_holds("int64", bounds) else "uint64"
        if type_holds(wide, bounds):
            return _Seen(wide, is_missing, bounds, one.file)
    elif one.dtype != other.dtype and all(each.dtype in INTEGERS or each.dtype in FLOATS for each in (one, other)):
        return _Seen("float64", is_missing, bounds, one.file)
    elements = {each.dtype.removesuffix("[]") for each in (one, other) if each.dtype.endswith("[]")}
    if len(elements) == 2 and elements <= {*INTEGERS} - {"uint64"}:
        return _Seen("int64[]", is_missing, bounds, one.file)
    if len(elements) == 2 and elements <= {*FLOATS, *INTEGERS} - {"int64", "uint64"}:
        return _Seen("float64[]", is_missing, bounds, one.file)
    found = [each.dtype if each.kind in ("", "text") else each.kind for each in (one, other)]
    fits = "float64[]" if len(elements) == 2 and elements <= {*FLOATS, *INTEGERS} else "str"
    raise DeclarationError(
        f"the column {name!r} is {found[0]} in {one.file!r} and {found[1]} in {other.file!r}. Declare the type "
        f"that all of its values fit (--type {name}={fits}), or leave it out (--type {name}=skip)."
    )


def _stored_as(column: _Seen) -> str:
    """The stored dtype of a column: integers with gaps become floats, bools with gaps text."""
    if column.dtype in (_UNKNOWN, _UNKNOWN_LIST) or (column.dtype == "bool" and column.is_missing):
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
    types = {}
    for name, found in values.items():
        there = [text for text in found if text is not None]
        is_whole = there and len(found) == len(files.files) and all(map(_WHOLE.fullmatch, there))
        numbers = [int(text) for text in there] if is_whole else []
        types[name] = _type_of_numbers(numbers, np.empty(0), len(there) == len(found)) if numbers else "str"
    return types


def type_of_arrow(kind: pyarrow.DataType) -> str:
    """`int16` → "int16", `list<float>` → "float32[]"; "str" for types stored as text, such as dates and structs."""
    types = require("pyarrow", purpose="Parquet").types
    if types.is_dictionary(kind):
        return type_of_arrow(kind.value_type)
    if hasattr(kind, "storage_type"):  # an extension; those of pandas are none where it is not imported
        own = {"arrow.bool8": "bool", "arrow.json": "str", "arrow.uuid": "str"}
        return own.get(kind.extension_name) or type_of_arrow(kind.storage_type)
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
