"""The fields of records before anything is declared: whether there are those that options name, and where.

check_fields("a.jsonl", "json", [("by (--by)", "lang")])    →  DeclarationError: … none of the first 5 records has …
columns_of_fields("a.parquet", ["meta.text", "id"])         →  ["meta", "id"]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_pipes.errors import DeclarationError
from beam_pipes.extras import require
from beam_pipes.recipes.row_files import RowFiles, files_of, in_order, sampled
from beam_pipes.sources.selection import Paths
from beam_pipes.sources.tables import opened_parquet, partitions_of
from beam_pipes.sources.tar import has_field


def check_fields(data: Paths | RowFiles, kind: str, named: Sequence[tuple[str, str | None]], **reading: object) -> None:
    """Raises `DeclarationError` if no record has a field; `named` is option and field.

    Records are the first rows of each file, until all fields are found.
    """
    missing = {name: option for option, name in named if name is not None}
    there: dict[str, None] = {}
    around: str | None = None
    num_records = 0
    rows = (row for sample in sampled(data, kind, **reading) for row in sample.rows)
    for row in _columns_of_parquet(data) if kind == "parquet" else rows:
        num_records += 1
        missing = {name: option for name, option in missing.items() if not has_field(row, name)}
        if not missing:
            return
        there.update(dict.fromkeys(_names_of(row)))
        held = {key: value[0] for key, value in row.items() if isinstance(value, list) and value}
        around = around or next((key for key, one in held.items() if all(has_field(one, n) for n in missing)), None)
    for name, option in missing.items():
        if num_records:
            names = [*there]
            shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            looked = "no file has" if kind == "parquet" else f"none of the first {num_records:,} records has"
            flag = re.search(r"\((--[a-z-]+)\)", option)
            advice = f", such as {flag[1]} {names[0]}" if flag is not None and names else ""
            talks = next(filter({"messages", "conversation", "conversations"}.__contains__, names), None)
            is_chat = talks is not None and option.startswith("text_field")
            more = f" If {talks!r} are conversations: --chat --text-field {talks}." if is_chat else ""
            if around is not None and kind == "json":
                more += f" If {around!r} are the records, write one on each line first: jq -c '.{around}[]' FILE > NEW."
            raise DeclarationError(
                f"{option}: {looked} the field {name!r}; there are {shown}. Name one of these{advice}.{more}"
            )


def _names_of(row: Mapping[str, object]) -> Iterator[str]:
    for name, value in row.items():
        if not name.startswith("__"):
            yield name
            if isinstance(value, Mapping):
                yield from (f"{name}.{inner}" for inner in _names_of(value))


def _columns_of_parquet(data: Paths | RowFiles) -> Iterator[Mapping[str, object]]:
    """The columns of each file, with the keys of structs, and those given by its directories."""
    types = require("pyarrow", purpose="Parquet").types
    for file in in_order(files_of(data).files):
        with opened_parquet(file.path, file.name) as parquet:
            schema: Any = parquet.schema_arrow

        def keys(fields: Any) -> dict[str, object]:
            return {each.name: keys(each.type) if types.is_struct(each.type) else None for each in fields}

        yield {**partitions_of(file.name), **keys(schema)}


def columns_of_fields(
    data: Paths | RowFiles, fields: Sequence[str], *, optional: Sequence[str] = ()
) -> list[str] | None:
    """The Parquet columns that hold some fields: `meta.text` is in `meta`, unless there is a column of this name.

    And those of the `optional` ones that there are. None, for all columns, if only some of the files have one of these,
    or the first file lacks one of `fields`: the stage that looks for it then sees what there is.
    """
    schemas = _columns_of_parquet(data)
    there = next(schemas)
    if any(name not in there and name.partition(".")[0] not in there for name in fields):
        return None
    beside = {*optional} & there.keys()
    if optional and any({*optional} & other.keys() != beside for other in schemas):
        return None
    fields = [*fields, *(name for name in optional if name in beside)]
    return list(dict.fromkeys(name if name in there else name.partition(".")[0] for name in fields))
