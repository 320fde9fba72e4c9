"""`table`: rows of CSV, TSV, JSON Lines and Parquet to features of their own types.

    length,wings,species          {"length": 5.1, "wings": 2, "label": 0}
    5.1,2,bee                ──▶  {"length": nan, "wings": 2, "label": 1}
    ,2,wasp

Types of Parquet are those of the file. Those of text are inferred from the first 4 MiB of the first and the last file:
"int64", "float32" or "float64" (also where integers are missing), "bool" or "str". No integer of these rows becomes
another one: from 2**24 on, which is where float32 begins to skip integers, numbers are float64, and a column with
integers beyond 2**53, which float64 does not hold either, is text unless all of it is int64. In later rows, an integer
that float32 does not hold is an error; one beyond 2**53 in a float64 column is rounded, as `float` rounds it. Numbers
with leading zeros are text too: `02139` is not a quantity.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipes.analysis import Result
from beam_pipes.cache.dtypes import FLOATS, INTEGERS, NAMES
from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.extras import require
from beam_pipes.recipes.texts import format_of, source_of
from beam_pipes.recipes.written import Code, Common, CommonOptions, Module, Recipe, call
from beam_pipes.sources import CSV, TSV, JSONLines
from beam_pipes.sources.byte_stream import codec_of, decompressed, open_input, read_range
from beam_pipes.sources.selection import FoundFile, Paths, select
from beam_pipes.typed import stage

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import Unpack

    from beam_pipes.transforms.analyzers.vocabulary import TokenTable

#: Bytes of a file that types are inferred from.
INFERRED_FROM = 4 << 20
LABEL = "label"

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)", re.ASCII)
# Up to which integer a float dtype holds all of them.
_EXACT = {"float32": 1 << 24, "float64": 1 << 53}
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]+", re.ASCII)


@stage(batched=True)
def row_example(
    rows: list[object],
    *,
    types: Mapping[str, str],
    label: str | None = None,
    classes: Result | None = None,
    left_out: Sequence[str] | None = None,
) -> list[dict[str, object]]:
    """Rows to examples: `{"wings": 2, "species": "bee"}` with `label="species"` → `{"wings": 2, "label": 0}`.

    Args:
        types: column → dtype, of the columns that are stored. Missing values are NaN in floats and `""` in text.
        label: the column that is stored as `label`.
        classes: the values of this column, if they are text; a label is a position in their sorted list.
        left_out: columns that are not stored; a row with others than these and `types` fails. None: any may be there.

    Raises `TaskError` if an integer or a bool is missing.
    """
    numbers = None if classes is None else class_numbers(classes)
    known = None if left_out is None else {*types, *left_out}
    examples = []
    for row in rows:
        assert isinstance(row, Mapping)  # sources of tables give nothing else
        if known is not None and not known.issuperset(row):
            name = next(name for name in row if name not in known)
            raise TaskError(
                f"the row has the column {name!r}, which has no type, because none of the rows that types were "
                f"inferred from has it. Leave it out (--type {name}=skip), or give it a type in the declaration "
                "(--print-python)."
            )
        example = {name: _value(row.get(name), name, dtype) for name, dtype in types.items()}
        if label is not None:
            value = example.pop(label)
            if numbers is not None and value not in numbers:
                raise TaskError(
                    f"the column {label!r} is the label, but has no value here. Drop such rows (--on-error)."
                )
            example[LABEL] = value if numbers is None else numbers[str(value)]
        examples.append(example)
    return examples


def class_numbers(classes: Result) -> Mapping[str, int]:
    """Class → number, in the order of their names: `{"bee": 0, "wasp": 1}`."""
    return _numbers(classes.value())


@functools.lru_cache(maxsize=8)  # a stage asks for each record
def _numbers(table: TokenTable) -> Mapping[str, int]:
    return {name: number for number, name in enumerate(sorted(map(str, table.tokens)))}


def _value(value: object, name: str, dtype: str) -> object:
    if dtype == "str" and not isinstance(value, str):
        return "" if value is None else json.dumps(value) if isinstance(value, dict | list) else str(value)
    if value is not None:
        if dtype == "float32" and isinstance(value, float | int) and abs(value) > _EXACT["float32"]:
            stored = float(np.float32(value))
            if stored != value and value == value // 1:
                raise TaskError(
                    f"the column {name!r} is float32, which does not hold {value:.0f}: it would become "
                    f"{stored:.0f}. Declare a different type (--type {name}=float64)."
                )
        return value
    if dtype in FLOATS:
        return math.nan
    if dtype.endswith("[]"):
        return [] if dtype == "str[]" else np.empty(0, dtype[:-2])
    raise TaskError(
        f"the column {name!r} is {dtype} and has no value here. Declare a different type (--type {name}=float32)."
    )


def table(
    data: Paths,
    *,
    label: str | None = None,
    types: Mapping[str, str] | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    **options: Unpack[CommonOptions],
) -> Recipe:
    """From rows to a cache of their columns: `5.1,2,bee` → `{"length": 5.1, "wings": 2, "label": 0}`.

        table("insects.csv", label="species", splits={"train": 0.9, "eval": 0.1}).declaration()

    Args:
        data: files, directories or globs of CSV, TSV, JSON Lines or Parquet.
        label: the column that is stored as `label`; text becomes numbers, in the order of the classes' names.
        types: column → dtype, to override the inferred one; "skip" omits a column.
        format: "csv", "json", "parquet" or "tsv". Default: by suffix.
        delimiter: between the fields of CSV, such as ";". Default: a comma.
        options: see `Common`. `by` is a column.

    Raises `DeclarationError` if a column does not exist, types are unknown, or there are no rows.
    """
    common = Common.of("table", options)
    by = common.by
    kind = format_of(data, format)
    if kind not in ("csv", "json", "parquet", "tsv"):
        raise DeclarationError(f"a table is CSV, TSV, JSON Lines or Parquet, and {kind!r} has no columns.")
    if delimiter is not None and kind != "csv":
        raise DeclarationError(f"delimiter is for CSV, and these files are {kind}. Omit it.")
    reading = {} if delimiter is None else {"delimiter": delimiter}
    inferred = _types_of_parquet(data) if kind == "parquet" else infer_types(_sampled(data, kind, **reading))
    chosen = _chosen(inferred, types or {}, label=label, by=by, may_skip_others=kind == "json")
    if by is not None and by == label:
        common = dataclasses.replace(common, by=LABEL)
    module = Module()
    is_text = kind in ("csv", "tsv")
    schema = {column: _schema(dtype) for column, dtype in chosen.items()} if is_text else None
    columns = [*chosen] if kind == "parquet" else None
    module.assign("source", source_of(data, kind, columns=columns, schema=schema, **reading), "beam_pipes.sources")
    module.assign("types", chosen)
    features = {column: _feature(dtype) for column, dtype in chosen.items() if column != label}
    is_named = label is not None and chosen[label] == "str"
    if is_named:
        module.use("beam_pipes", "stage")
        module.use("beam_pipes.recipes", "text_of")
        of = call("stage", Code("text_of"), field=label)
        module.assign(
            "classes", call("Vocabulary", "classes", of=of, split=Code("None")), "beam_pipes.transforms.analyzers"
        )
        features[LABEL] = call("FeatureSpec", "int64", minimum=0)
    elif label is not None:
        features[LABEL] = _feature(chosen[label])
    module.use("beam_pipes.recipes", "row_example")
    making = call(
        "stage",
        Code("row_example"),
        types=Code("types"),
        label=label,
        classes=Code("classes.result") if is_named else None,
        # Rows of JSON lines have columns of their own; all others have those of the source.
        left_out=sorted({*inferred, *(types or {})} - {*chosen}) if kind == "json" else None,
    )
    module.declare(common, [making], features=features, analyzers=[Code("classes")] if is_named else None)
    shown = ", ".join([*features][:6]) + (", …" if len(features) > 6 else "")
    loads = f"from beam_pipes.loader import Loader\nfor batch in Loader(SPLIT, batch_size=ROWS): ...  # {shown}"
    return Recipe(module.text("Rows and their types, as `beam-pipes table` declares them."), loads, rows=256)


def _chosen(
    inferred: Mapping[str, str], given: Mapping[str, str], *, label: str | None, by: str | None, may_skip_others: bool
) -> dict[str, str]:
    """Column → dtype of what is stored. `may_skip_others`: rows that were not sampled may have more columns."""
    checked = [column for column, dtype in given.items() if dtype != "skip" or not may_skip_others]
    for option, column in (("label", label), ("by", by), *(("types", column) for column in checked)):
        if column is not None and column not in inferred:
            raise DeclarationError(
                f"{option}: there is no column {column!r}; there are {', '.join(inferred) or 'none'}."
            )
    for column, dtype in given.items():
        if dtype != "skip" and dtype not in NAMES:
            raise DeclarationError(
                f"types: {dtype!r} of the column {column!r} is no dtype. Choose one of: {', '.join(NAMES)}, skip."
            )
    chosen = {column: given.get(column, dtype) for column, dtype in inferred.items()}
    chosen = {column: dtype for column, dtype in chosen.items() if dtype != "skip"}
    for option, column in (("label", label), ("by", by)):
        if column is not None and column not in chosen:
            raise DeclarationError(f"{option}: the column {column!r} is skipped by its type. Keep it.")
    if label is not None and label != LABEL and LABEL in chosen:
        raise DeclarationError(
            f"the column {label!r} is to be stored as {LABEL!r}, and there is a column of this name. Leave it out: "
            f"types={{{LABEL!r}: 'skip'}} (--type {LABEL}=skip)."
        )
    return chosen


def _schema(dtype: str) -> Code:
    """The type of a column for a text source; values that may be missing are then None."""
    if dtype in FLOATS:
        return Code("float | None")
    if dtype in INTEGERS:
        return Code("int")
    return Code("bool") if dtype == "bool" else Code("str | None")


def _feature(dtype: str) -> Code:
    scalar, brackets, _ = dtype.partition("[]")
    return call("FeatureSpec", scalar, shape=(None,) if brackets else None)


# Types of text.


def infer_types(rows: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Column → dtype: `[{"a": "1", "b": ""}, {"a": "2", "b": "x"}]` → `{"a": "int64", "b": "str"}`."""
    values: dict[str, list[object]] = {}
    num_rows = 0
    for row in rows:
        num_rows += 1
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    if not num_rows:
        raise DeclarationError("there are no rows to infer the column types from. Give files with rows.")
    return {name: _type_of(column, is_whole=len(column) == num_rows) for name, column in values.items()}


def _type_of(column: list[Any], *, is_whole: bool) -> str:
    there = [value for value in column if value is not None and value != ""]
    is_whole = is_whole and len(there) == len(column)
    if not there:
        return "str"
    if all(_is_bool(value) for value in there):
        return "bool" if is_whole else "str"
    if not all(_is_integer(value) or _is_number(value) for value in there):
        return "str"
    integers = [_magnitude(value) for value in there if _is_integer(value)]
    if is_whole and len(integers) == len(there) and max(integers) < 1 << 63:
        return "int64"
    if max(integers, default=0) > _EXACT["float64"]:
        return "str"
    largest = max((size for size in map(_magnitude, there) if math.isfinite(size)), default=0)
    return "float32" if largest <= _EXACT["float32"] else "float64"


def _magnitude(value: str | float) -> float:
    if isinstance(value, str):
        is_short = len(value) < 40
        value = int(value) if is_short and _INTEGER.fullmatch(value.strip()) else float(value)
    return abs(value)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in ("true", "false"))


def _is_integer(value: object) -> bool:
    if isinstance(value, str):
        return _INTEGER.fullmatch(value.strip()) is not None
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    if not isinstance(value, str):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if "_" in value or _LEADING_ZERO.fullmatch(value.strip()):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def _sampled(data: Paths, kind: str, **reading: str) -> Iterator[Mapping[str, object]]:
    """The first rows of the first file and of the last. Raises `DeclarationError` for CSV without commas."""
    files = select(data).find()
    for file in {each.name: each for each in (files[0], files[-1])}.values():
        with tempfile.TemporaryDirectory(prefix="beam-pipes-") as directory:
            name = PurePosixPath(file.name)
            # Under its own name, which messages tell, but for the suffix of what is already decompressed.
            head = Path(directory) / (name.name if codec_of(file.name) is None else name.stem)
            content = _head(file)
            head.write_bytes(content)
            if kind == "csv" and not reading:
                _check_commas(content, file.name)
            source = {"csv": CSV, "json": JSONLines, "tsv": TSV}[kind](head, **reading)
            for shard in source.plan(target_shard_bytes=1 << 30).shards:
                yield from (row for batch in source.read(shard) for row in batch.values)


def _check_commas(content: bytes, name: str) -> None:
    header = content.partition(b"\n")[0].decode(errors="replace")
    other = max(";\t|", key=header.count)
    if "," not in header and other in header:
        raise DeclarationError(
            f"the header of {name!r} has no comma, but {header.count(other)} times {other!r}. Name what is between its "
            f"fields: delimiter={other!r} (--delimiter {other!r})."
        )


def _head(file: FoundFile) -> bytes:
    """The first lines of a file. A row that contains a newline may be cut; then it is omitted."""
    chunks = decompressed(read_range(file.path, file.name, 0, file.size), codec=codec_of(file.name), file=file.name)
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= INFERRED_FROM:
            return head[: head.rfind(b"\n", 0, INFERRED_FROM) + 1] or head
    return head


# Types of Parquet.


def _types_of_parquet(data: Paths) -> dict[str, str]:
    parquet = require("pyarrow.parquet", purpose="Parquet")
    files = select(data).find()
    types: dict[str, str] = {}
    for path in (files[-1].path, files[0].path):  # where both have a column, its type is that of the first file
        with open_input(path) as handle:
            types = {**types, **{field.name: _type_of_arrow(field.type) for field in parquet.read_schema(handle)}}
    return types


def _type_of_arrow(kind: pyarrow.DataType) -> str:
    types = require("pyarrow", purpose="Parquet").types
    if (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)) and (
        types.is_integer(kind.value_type)
        or types.is_floating(kind.value_type)
        or types.is_string(kind.value_type)
        or types.is_large_string(kind.value_type)
    ):
        return f"{_type_of_arrow(kind.value_type)}[]"
    if types.is_boolean(kind):
        return "bool"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "bytes"
    if types.is_integer(kind) or types.is_floating(kind):
        # Not `kind.to_pandas_dtype()`, which imports pandas.
        name = "float" if types.is_floating(kind) else "int" if types.is_signed_integer(kind) else "uint"
        return f"{name}{kind.bit_width}"
    return "str"
