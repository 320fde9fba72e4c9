"""The recipe `table`: types that are inferred, given and refused, labels, and splits by a column."""

from __future__ import annotations

import datetime
import gzip
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from media_files import built

from beam_pipes import Cache, build
from beam_pipes.errors import BuildError, DeclarationError, SourceError, TaskError
from beam_pipes.recipes import row_example, table
from beam_pipes.recipes.tables import infer_types

HEADER = "length,wings,zip,is_big,species\n"
ROWS = "5.5,2,02139,true,wasp\n,0,10001,false,bee\n7,4,00001,TRUE,wasp\n"


pytestmark = pytest.mark.usefixtures("here")


def types_of(cache: Cache) -> dict[str, str]:
    return {name: spec.dtype for name, spec in cache["train"].spec.items()}


def test_columns_of_text_get_their_types_and_labels_their_numbers() -> None:
    Path("insects.csv").write_text(HEADER + ROWS)
    recipe = table("insects.csv", label="species")

    cache = built(recipe)

    assert types_of(cache) == {
        "is_big": "bool",
        "label": "int64",
        "length": "float32",
        "wings": "int64",
        "zip": "str",
    }
    first, second, _ = cache["train"]
    assert (first["length"], first["wings"], first["zip"], first["is_big"], first["label"]) == (
        5.5,
        2,
        "02139",
        True,
        1,
    )
    assert math.isnan(second["length"]) and second["label"] == 0
    names: dict[str, Any] = {}
    exec("\n".join(recipe.loading(f"{cache.path}/train", num_records=3)).replace("...", "break"), names)
    assert names["batch"]["wings"].shape == (3,)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        pytest.param(["1", "-2"], "int64", id="integers"),
        pytest.param(["1", ""], "float32", id="an_integer_is_missing"),
        pytest.param([1, None], "float32", id="a_number_of_json_is_missing"),
        pytest.param(["1", "2.5e3"], "float32", id="floats"),
        pytest.param(["nan", "1"], "float32", id="nan"),
        pytest.param([1, 2.5], "float32", id="numbers_of_json"),
        pytest.param(["007", "8"], "str", id="leading_zeros"),
        pytest.param(["1_000"], "str", id="underscores"),
        pytest.param(["1234567890123456789"], "int64", id="an_id_of_19_digits"),
        pytest.param([-(2**63) + 1, 2**63 - 1], "int64", id="the_largest_integers"),
        pytest.param(["99999999999999999999"], "str", id="too_large_for_int64"),
        pytest.param([2**63], "str", id="too_large_for_int64_in_json"),
        pytest.param(["9" * 5000], "str", id="too_large_for_anything"),
        pytest.param(["16777216", ""], "float32", id="the_last_integer_of_float32"),
        pytest.param(["-16777217", ""], "float64", id="an_id_is_missing"),
        pytest.param([2**53 + 1, None], "str", id="a_long_id_is_missing"),
        pytest.param(["1700000000.25", "inf"], "float64", id="times_in_seconds"),
        pytest.param(["true", "False"], "bool", id="bools"),
        pytest.param([True, False], "bool", id="bools_of_json"),
        pytest.param(["true", ""], "str", id="a_bool_is_missing"),
        pytest.param([True, 1], "str", id="bool_and_number"),
        pytest.param(["", ""], "str", id="nothing"),
        pytest.param([[1], [2]], "str", id="lists"),
    ],
)
def test_the_type_of_a_column_follows_from_its_values(values: list[Any], dtype: str) -> None:
    assert infer_types([{"a": value} for value in values]) == {"a": dtype}


def test_a_column_that_some_rows_of_json_lack_may_be_missing() -> None:
    Path("a.jsonl").write_text(json.dumps({"n": 1, "s": "x"}) + "\n" + json.dumps({"m": [1, "é"]}) + "\n")

    first, second = built(table("a.jsonl"))["train"]

    assert (first["n"], first["s"], first["m"]) == (1.0, "x", "")
    assert math.isnan(second["n"]) and second["s"] == ""


def test_a_column_of_json_behind_the_sampled_rows_is_not_left_out_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("beam_pipes.recipes.tables.INFERRED_FROM", 100)
    Path("a.jsonl").write_text('{"n": 1}\n' * 100 + '{"n": 2, "late": "x"}\n')

    words = (
        "the row has the column 'late', which has no type, because none of the rows that types were inferred from has "
        "it. Leave it out (--type late=skip), or give it a type in the declaration (--print-python)."
    )
    with pytest.raises(BuildError, match=re.escape(words)):
        build(table("a.jsonl").declaration(), to="cache", workers=1)
    assert [each["n"] for each in built(table("a.jsonl", types={"late": "skip"}))["train"]] == [1] * 100 + [2]
    with pytest.raises(DeclarationError, match="types: there is no column 'late'; there are n."):
        table("a.jsonl", types={"late": "str"})


def test_columns_of_parquet_are_those_of_the_first_and_the_last_file() -> None:
    Path("in").mkdir()
    for name, columns in {"a": {"n": [1]}, "b": {"n": [2], "more": ["x"]}}.items():
        pyarrow.parquet.write_table(pa.table(columns), f"in/{name}.parquet")

    with pytest.raises(SourceError, match=r"a.parquet should have columns \['n', 'more'\], .*: \['more'\] missing"):
        build(table("in").declaration(), to="cache", workers=1)
    assert [each["n"] for each in built(table("in", types={"more": "skip"}))["train"]] == [1, 2]


def test_types_are_inferred_from_the_last_file_too_and_of_compressed_ones() -> None:
    Path("in").mkdir()
    Path("in/a.csv.gz").write_bytes(gzip.compress(b"n\n1\n2\n"))
    Path("in/b.csv.gz").write_bytes(gzip.compress(b"n\n2.5\n"))
    assert [each["n"] for each in built(table("in"))["train"]] == [1.0, 2.0, 2.5]


def test_types_that_are_given_come_first_and_columns_can_be_left_out() -> None:
    Path("a.tsv").write_text("a\tb\tc\n1\t2\tx\n3\t4\ty\n")

    cache = built(table("a.tsv", types={"a": "uint8", "b": "float64", "c": "skip"}))

    assert types_of(cache) == {"a": "uint8", "b": "float64"}


def test_a_row_of_another_type_fails_by_itself() -> None:
    rows = "".join(f"{n},x\n" for n in range(20))
    Path("a.csv").write_text("n,s\n" + rows + "many,y\n")

    recipe = table("a.csv", types={"n": "int64"}, on_error="dead_letter")
    account = build(recipe.declaration(), to="cache", workers=1).account

    assert (account.written, account.dead) == (20, 1)
    with pytest.raises(BuildError, match="column 'n': expected an int, got 'many'"):
        build(table("a.csv", types={"n": "int64"}).declaration(), to="strict", workers=1)


def parquet(path: str) -> None:
    day = datetime.date(2020, 1, 2)
    columns = {
        "user": ["ann", "bob", None] * 8,
        "n": np.arange(24, dtype=np.int16),
        "x": [0.5, None, 1.5] * 8,
        "day": [day] * 24,
        "vector": [[1.0, 2.0], [], [3.0]] * 8,
        "raw": [b"\xff"] * 24,
        "tags": [["a", "é"], [], ["b"]] * 8,
        "digest": pa.array([b"ab"] * 24, pa.binary(2)),
        "embedding": pa.array([[0.5, 1.5]] * 24, pa.list_(pa.float32(), 2)),
    }
    pyarrow.parquet.write_table(pa.table(columns), path)


def test_types_of_numbers_in_parquet_need_no_pandas() -> None:
    """`pyarrow` imports it to say what NumPy calls a type."""
    sizes = [("int", 8), ("int", 16), ("int", 32), ("int", 64), ("float", 16), ("float", 32), ("float", 64)]
    dtypes = [f"{kind}{bits}" for kind, bits in [*sizes, *(("uint", 8 << power) for power in range(4))]]
    columns = {dtype: pa.array(np.ones(3, dtype)) for dtype in dtypes}
    columns |= {f"{name}s": pa.array([[each] for each in column]) for name, column in columns.items()}
    pyarrow.parquet.write_table(pa.table(columns), "a.parquet")
    without = "import sys; sys.modules['pandas'] = None; import job; print(job.recipe.python)"
    Path("job.py").write_text("from beam_pipes.recipes import table\n\nrecipe = table('a.parquet')\n")

    printed = subprocess.run([sys.executable, "-c", without], check=True, capture_output=True, text=True).stdout

    for dtype in dtypes:
        assert f'"{dtype}": "{dtype}"' in printed and f'"{dtype}s": "{dtype}[]"' in printed


def test_types_of_parquet_are_those_of_the_file() -> None:
    parquet("a.parquet")

    cache = built(table("a.parquet", label="n"))

    assert types_of(cache) == {
        "day": "str",
        "digest": "bytes",
        "embedding": "float32",
        "label": "int16",
        "raw": "bytes",
        "tags": "str",
        "user": "str",
        "vector": "float64",
        "x": "float64",
    }
    examples = list(cache["train"])
    assert (examples[0]["day"], examples[0]["raw"], examples[0]["vector"].tolist()) == ("2020-01-02", b"\xff", [1, 2])
    assert examples[0]["embedding"].tolist() == [0.5, 1.5]
    assert [list(each["tags"]) for each in examples[:3]] == [["a", "é"], [], ["b"]]
    assert examples[2]["user"] == "" and math.isnan(examples[1]["x"])


def test_integers_are_never_rounded() -> None:
    Path("a.csv").write_text("user,seen\n1234567891,1700000000.5\n,1700000001.5\n")
    first, second = built(table("a.csv"))["train"]
    assert (first["user"], first["seen"]) == (1234567891, 1700000000.5)
    assert math.isnan(second["user"]) and second["seen"] == 1700000001.5
    mixed = {
        "19 digits": ["1234567890123456789", "0.5"],
        "53 bits": ["9007199254740992", "0.5"],
        "large": ["1e300", "1"],
    }
    rows = [dict(zip(mixed, values, strict=True)) for values in zip(*mixed.values(), strict=True)]
    assert infer_types(rows) == {"19 digits": "str", "53 bits": "float64", "large": "float64"}

    with pytest.raises(
        TaskError,
        match=r"'n' is float32, which does not hold 16777217: it would become 16777216\. .* \(--type n=float64\)",
    ):
        row_example([{"n": 16777217.0}], types={"n": "float32"})
    exact = [{"n": value} for value in (2.0**25, 16777217.5, math.inf, math.nan, -3)]
    assert [row["n"] for row in row_example(exact[:3], types={"n": "float32"})] == [2.0**25, 16777217.5, math.inf]
    assert row_example(exact[4:], types={"n": "float32"})[0]["n"] == -3


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_other_delimiters_are_named_or_asked_for(name: str) -> None:
    text = b'id;name\n1;"a;b"\n2;c\n'
    Path(name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)

    message = f"the header of '{name}' has no comma, but 1 times ';'. Name what is between its fields: delimiter=';'"
    with pytest.raises(DeclarationError, match=re.escape(message)):
        table(name)
    assert [row["name"] for row in built(table(name, delimiter=";"))["train"]] == ["a;b", "c"]


def test_messages_name_the_file_whose_rows_were_sampled() -> None:
    Path("twice.csv").write_text("a,a\n1,2\n")
    with pytest.raises(SourceError, match="the header of twice.csv should name each column once"):
        table("twice.csv")


@pytest.mark.parametrize("label", [None, "user"])
def test_splits_go_by_a_column_even_where_it_is_the_label(label: str | None) -> None:
    rows = "".join(f"u{n % 9},{n}\n" for n in range(90))
    Path("a.csv").write_text("user,n\n" + rows)

    cache = built(table("a.csv", label=label, by="user", splits={"train": 0.5, "eval": 0.5}))

    key = "user" if label is None else "label"
    users = [{str(each[key]) for each in cache[split]} for split in cache.splits]
    assert len(users[0] | users[1]) == 9 and users[0] and users[1] and not users[0] & users[1]


def test_a_row_without_a_label_or_an_integer_fails() -> None:
    with pytest.raises(
        TaskError, match="the column 'n' is int64 and has no value here. Declare a different type .--type n="
    ):
        row_example([{"n": None}], types={"n": "int64"})
    assert row_example([{"n": None, "v": None}], types={"n": "str", "v": "float32[]"})[0]["n"] == ""
    Path("a.csv").write_text("n,kind\n" + "1,x\n" * 20 + "2,\n")
    recipe = table("a.csv", label="kind", on_error="dead_letter")
    account = build(recipe.declaration(), to="cache", workers=1).account
    assert (account.written, account.dead) == (20, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "spec"}, "label: there is no column 'spec'; there are length, wings, zip, is_big, species."),
        ({"by": "x", "splits": {"train": 1.0}}, "by: there is no column 'x'; there are length,"),
        ({"types": {"x": "int8"}}, "types: there is no column 'x'; there are length,"),
        ({"types": {"zip": "int65"}}, "types: 'int65' of the column 'zip' is no dtype. Choose one of: bool, int8,"),
        ({"label": "zip", "types": {"zip": "skip"}}, "label: the column 'zip' is skipped by its type. Keep it."),
        ({"format": "tsv", "delimiter": ";"}, "delimiter is for CSV, and these files are tsv. Omit it."),
        ({"format": "text"}, "a table is CSV, TSV, JSON Lines or Parquet, and 'text' has no columns."),
    ],
)
def test_what_does_not_fit_the_columns_is_refused(options: dict[str, Any], message: str) -> None:
    Path("insects.csv").write_text(HEADER + ROWS)
    with pytest.raises(DeclarationError, match=re.escape(message)):
        table("insects.csv", **options)


def test_a_column_called_label_is_in_the_way_of_a_label() -> None:
    Path("a.csv").write_text("label,kind\n1,x\n")
    with pytest.raises(
        DeclarationError, match="the column 'kind' is to be stored as 'label', and there is a column of"
    ):
        table("a.csv", label="kind")
    assert set(table("a.csv", label="kind", types={"label": "skip"}).declaration().features) == {"label"}
    Path("b.csv").write_text("label,kind\n")
    with pytest.raises(
        DeclarationError, match="there are no rows to infer the column types from. Give files with rows."
    ):
        table("b.csv")
