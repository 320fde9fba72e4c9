"""`table` works on columns: what it gives is what rows give, one by one, byte for byte."""

from __future__ import annotations

import csv
import datetime
import io
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
    if draw(st.integers(0, 5)) == 0:
        rows.insert(draw(st.integers(0, 20)), ("1",) * draw(st.integers(1, 5)))
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
        spec = declaration.declared_spec("train")
        assert spec is not None
        codec = ExampleCodec(spec)
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


@stage(batched=True)
def as_rows(rows: list[object]) -> list[dict[str, object]]:
    """The same rows: behind it, they are rows and no longer columns."""
    return [dict(row) for row in rows]  # type: ignore[call-overload]


@pytest.mark.parametrize("has_bad_rows", [False, True])
def test_a_cache_made_of_columns_is_the_one_made_of_rows(has_bad_rows: bool, here: Path) -> None:
    """Shards, indexes and the account; with splits, a label, text, and rows that fail in source, stage and write."""
    rows = [f"{number},{number / 7 if number % 5 else ''},{'ab'[number % 2]},w{number}" for number in range(900)]
    if has_bad_rows:
        rows[700:700] = ["x,1,a,bad", "1,16777217,b,whole", "1,1e39,b,large", "1,2,c"]
    (here / "a.csv").write_text("n,x,kind,s\n" + "\n".join(rows) + "\n")
    types = {"n": "int64", "x": "float32"}
    options: dict[str, Any] = {"label": "kind", "classes": ["a", "b"], "on_error": "dead_letter", "types": types}
    recipe = table("a.csv", splits={"train": 0.8, "eval": 0.2}, **options)
    python = recipe.python.replace("[stage(row_example", "[as_rows, stage(row_example")
    assert python != recipe.python
    names: dict[str, Any] = {"as_rows": as_rows, "__name__": "rows"}
    exec(python, names)
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

    assert found is None or repr(found) == repr([_of_text(text) for text in texts])
    assert texts != ["-7", "0.1"] or found is not None
