"""`table` works on columns: what it gives is what rows give, one by one, byte for byte."""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipes import build, stage
from beam_pipes.building.declaration import Declaration
from beam_pipes.engine.records import Table
from beam_pipes.errors import BeamPipesError
from beam_pipes.format.codec import ExampleCodec
from beam_pipes.recipes import row_example, table
from beam_pipes.recipes.column_types import _numbers_of_texts, _of_text
from beam_pipes.sources.record_batch import RecordBatch

NUMBERS = ["0", "-7", "16777217", "9007199254740993", "-9223372036854775808", "18446744073709551615", "007", "+3"]
FLOATS = ["0.1", "1e3", ".5", "16777217.5", "1e39", "1e400", "nan", "-inf", " 2.5", "1_0", "٣"]
WORDS = ["x", "é", "a,b", 'say "hi"', "two\nlines", "NA", "2024-01-02", "true", "False", " "]
COLUMNS = [NUMBERS[:2], NUMBERS[:4], NUMBERS, FLOATS[:3], FLOATS[:5], [*NUMBERS[:2], *FLOATS], WORDS, WORDS[7:9]]


@st.composite
def tables_of_text(draw: st.DrawFn) -> str:
    """CSV of 20 to 60 rows, in some of which values are missing, or there are too many."""
    kinds = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4))
    cells = [st.sampled_from([*kind, ""] if draw(st.booleans()) else kind) for kind in kinds]
    rows = draw(st.lists(st.tuples(*cells), min_size=20, max_size=60))
    if draw(st.booleans()):  # wide: few rows of many columns
        kinds, rows = kinds * 9, [row * 9 for row in rows[: draw(st.integers(2, 12))]]
    if draw(st.integers(0, 5)) == 0:
        rows.insert(draw(st.integers(0, len(rows))), ("1",) * draw(st.integers(1, 5)))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=draw(st.sampled_from(["\n", "\r\n"])))
    writer.writerows([[f"c{number}" for number in range(len(kinds))], *rows])
    return text.getvalue()


@st.composite
def tables_of_arrow(draw: st.DrawFn) -> pa.Table:
    gaps = draw(st.booleans())
    kinds: dict[str, tuple[Any, list[Any]]] = {
        "int8": (pa.int8(), [-128, 127]),
        "int64": (pa.int64(), [2**24 + 1, -(2**63), 2**53 + 1]),
        "uint64": (pa.uint64(), [0, 2**64 - 1]),
        "float": (pa.float32(), [0.1, float("nan"), 2.0**25]),
        "double": (pa.float64(), [0.1, 2.0**25, 2.0**24 + 1, 1e39, float("inf")]),
        "half": (pa.float16(), [np.float16(0.5)]),
        "bool": (pa.bool_(), [True, False]),
        "text": (pa.string(), ["", "é"]),
        "coded": (pa.dictionary(pa.int8(), pa.string()), ["x", "y"]),
        "bytes": (pa.binary(), [b"\xff", b""]),
        "date": (pa.date32(), [datetime.date(2024, 1, 2)]),
        "decimal": (pa.decimal128(6, 2), [Decimal("1.10")]),
        "instant": (pa.timestamp("ns"), [1001, 10**18]),
        "numbers": (pa.list_(pa.float32()), [[0.5, 1.5], []]),
        "texts": (pa.list_(pa.string()), [["a"], []]),
        "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}]),
    }
    names = draw(st.lists(st.sampled_from(list(kinds)), min_size=1, max_size=4, unique=True))
    count = draw(st.integers(1, 40))
    cells = {name: st.sampled_from([*kinds[name][1], None] if gaps else kinds[name][1]) for name in names}
    return pa.table({name: pa.array([draw(cells[name]) for _ in range(count)], kinds[name][0]) for name in names})


def batches(declaration: Declaration) -> Iterator[RecordBatch]:
    for shard in declaration.source.plan(target_shard_bytes=1 << 20).shards:
        yield from declaration.source.read(shard)


def check(path: Path) -> None:
    """Values of the source, examples, and their bytes: those of columns are those of each row by itself."""
    try:
        recipe = table(str(path))
        declaration = recipe.declaration()
    except BeamPipesError:
        return  # told before any row is read
    types = recipe.names["types"]
    for batch in batches(declaration):
        columns = batch.table
        if columns is None:
            continue
        places = [position for _, positions in batch.places() for position in positions]
        rows = [
            declaration.source.parse(batch.raw(number), file=path.name, position=places[number])
            for number in range(len(batch))
        ]
        assert repr(columns.rows()) == repr(rows)
        try:
            made = row_example.function.of_columns(columns, types=types)  # type: ignore[attr-defined]
        except Exception:
            continue  # the engine then runs the rows
        examples = row_example(rows, types=types)
        assert repr(made.rows()) == repr(examples)
        codec = ExampleCodec(declaration.declared_specs["train"])
        try:
            encoded = codec.encode_columns(made.columns)
        except Exception:
            with pytest.raises(BeamPipesError):
                [codec.encode(example) for example in examples]
            continue
        assert [*zip(*encoded, strict=True)] == [codec.encode_indexed(example) for example in examples]


@settings(max_examples=25, deadline=None)
@given(text=tables_of_text())
def test_columns_of_text_are_those_of_each_row(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_text(text, encoding="utf-8", newline="")

    check(path)


@settings(max_examples=25, deadline=None)
@given(rows=tables_of_arrow())
def test_columns_of_parquet_are_those_of_each_row(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    pyarrow.parquet.write_table(rows, path)

    check(path)


JSON: list[list[object]] = [
    [1, -7],
    [1, 2**24 + 1],
    [0.5, 3],
    [2.5, 2**53 + 1],
    [0.1, 1e39, float("nan")],
    [2**63, 1],
    [True, False],
    ["x", "é", "1"],
    [[1, 2], []],
    [[0.5, 2], [1]],
    [["a"], ["b", "c"]],
    [[True], [1]],
    [{"a": 1}, {}],
]


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_columns_of_json_are_those_of_each_row(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The first rows decide the types; later ones have values of other kinds, null, or other columns too."""
    kinds = data.draw(st.lists(st.sampled_from(JSON), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.tuples(*map(st.sampled_from, kinds)), min_size=1, max_size=6))
    others = st.sampled_from([None, *(value for values in JSON for value in values)])
    later = [list(data.draw(st.sampled_from(rows))) for _ in range(data.draw(st.integers(1, 3)))]
    for _ in range(data.draw(st.integers(0, 2))):
        later[0][data.draw(st.integers(0, len(kinds) - 1))] = data.draw(others)
    named = [{f"c{number}": value for number, value in enumerate(row)} for row in [*rows, *later]]
    if data.draw(st.integers(0, 3)) == 0:
        named[-1][data.draw(st.sampled_from(["c0", "new"]))] = data.draw(others)
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in named[: len(rows)]))
    try:
        declaration = table(str(path)).declaration()
    except BeamPipesError:
        return  # told before any row is read
    (unit,) = declaration.graph.units
    options = unit.stage.options  # type: ignore[attr-defined]
    read = [json.loads(json.dumps(row)) for row in named[len(rows) :]]
    as_columns = Table.of_rows(read)
    assert as_columns is None or repr(as_columns.rows()) == repr(read)

    try:
        made = row_example.function.of_columns(as_columns, **options) if as_columns else None  # type: ignore[attr-defined]
    except (BeamPipesError, OverflowError, ValueError):
        made = None
    if made is None:
        return  # the engine then runs the rows
    examples = row_example(read, **options)
    assert repr(made.rows()) == repr(examples)
    spec = declaration.declared_specs["train"]
    try:
        encoded = ExampleCodec(spec).encode_columns(made.columns)
    except BeamPipesError:
        with pytest.raises(BeamPipesError):
            [ExampleCodec(spec).encode(example) for example in examples]
        return
    assert [*zip(*encoded, strict=True)] == [ExampleCodec(spec).encode_indexed(example) for example in examples]


class Row(dict[str, object]):
    """A row that is no dict as JSON has them, so that it never becomes part of columns."""


@stage(batched=True)
def as_rows(rows: list[object]) -> list[dict[str, object]]:
    """The same rows: behind it, they are rows and no longer columns."""
    return [Row(row) for row in rows]  # type: ignore[call-overload]


@pytest.mark.parametrize("has_bad_rows", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_cache_made_of_columns_is_the_one_made_of_rows(suffix: str, has_bad_rows: bool, here: Path) -> None:
    """Shards, indexes and the account; with splits, a label, text, and rows that fail in source, stage and write."""
    rows = [f"{number},{number / 7 if number % 5 else ''},{'ab'[number % 2]},w{number}" for number in range(900)]
    if has_bad_rows:
        rows[700:700] = ["x,1,a,bad", "1,16777217,b,whole", "1,1e39,b,large", "1,2,c"]
    if suffix == "csv":
        (here / "a.csv").write_text("n,x,kind,s\n" + "\n".join(rows) + "\n")
    else:
        cells = [[json.loads(cell) if cell[:1].isdigit() else cell or None for cell in row.split(",")] for row in rows]
        texts = [json.dumps(dict(zip(["n", "x", "kind", "s"], row, strict=False))) for row in cells]
        (here / "a.jsonl").write_text("\n".join(texts) + "\n")
    types = {"n": "int64", "x": "float32"}
    options: dict[str, Any] = {"label": "kind", "classes": ["a", "b"], "on_error": "dead_letter", "types": types}
    recipe = table(f"a.{suffix}", splits={"train": 0.8, "eval": 0.2}, **options)
    python = re.sub(r"stage\(\s*row_example,", "as_rows, stage(row_example,", recipe.python)
    assert python != recipe.python
    names: dict[str, Any] = {"as_rows": as_rows, "__name__": "rows"}
    exec(python, names)
    if suffix == "csv":
        assert (next(batches(recipe.declaration())).table is None) == has_bad_rows

    made = [build(each, to=to, workers=1) for each, to in ((recipe.declaration(), "c"), (names["declaration"], "r"))]

    columns, by_row = (
        {path.relative_to(root).as_posix().partition("/")[2]: path.read_bytes() for path in root.rglob("*tfrecord*")}
        for root in (here / "c/snapshots", here / "r/snapshots")
    )
    assert columns == by_row and len(columns) >= 4
    assert made[0].account.dead == made[1].account.dead == (4 if has_bad_rows else 0)
    assert made[0].account.dropped == made[1].account.dropped == 0


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([*NUMBERS, *FLOATS, *WORDS, "-0", "-007", "1e5", "1.", "00.5", "-", "9" * 20]), max_size=4)
)
def test_numbers_of_a_column_are_those_of_each_text(texts: list[str]) -> None:
    found = _numbers_of_texts(texts)
    each = [_of_text(text) for text in texts]

    if found is not None:
        assert repr(found[0]) == repr([number for number in each if type(number) is int])
        assert repr(found[1].tolist()) == repr([number for number in each if type(number) is float])
    assert texts != ["-7", "0.1"] or found is not None
