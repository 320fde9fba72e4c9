"""The recipe `table`: types that are inferred, given and refused, labels, and splits by a column."""

from __future__ import annotations

import csv
import datetime
import decimal
import functools
import gzip
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet
import pytest
from media_files import built
from typer.testing import CliRunner

from beam_pipes import Cache, build
from beam_pipes.commands import app
from beam_pipes.errors import BuildError, DeclarationError, SourceError, StageError, TaskError
from beam_pipes.recipes import row_example, table, tokens
from beam_pipes.recipes.column_types import types_of_columns
from beam_pipes.sources import CSV, JSONLines

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
        pytest.param(["1", "2.5e3"], "float32", id="floats"),
        pytest.param(["nan", "1"], "float32", id="nan"),
        pytest.param(["007", "8"], "str", id="leading_zeros"),
        pytest.param(["1_000"], "str", id="underscores"),
        pytest.param(["1234567890123456789"], "int64", id="an_id_of_19_digits"),
        pytest.param([str(-(2**63)), str(2**63 - 1)], "int64", id="the_largest_integers"),
        pytest.param(["99999999999999999999"], "str", id="too_large_for_int64"),
        pytest.param(["9" * 5000], "str", id="too_large_for_anything"),
        pytest.param(["16777216", ""], "float32", id="the_last_integer_of_float32"),
        pytest.param(["-16777217", ""], "float64", id="an_id_is_missing"),
        pytest.param(["1700000000.25", "inf"], "float64", id="times_in_seconds"),
        pytest.param(["true", "False"], "bool", id="bools"),
        pytest.param(["true", ""], "str", id="a_bool_is_missing"),
        pytest.param(["", ""], "str", id="nothing"),
        pytest.param(["1e-50", "1"], "float64", id="too_small_for_float32"),
        pytest.param(["1e400", "1"], "str", id="too_large_for_float64"),
        pytest.param(["١٢"], "str", id="digits_of_other_scripts"),
    ],
)
def test_the_type_of_a_column_follows_from_its_values(values: list[Any], dtype: str) -> None:
    assert types_of_columns({"a": list(values)}, len(values)) == {"a": dtype}


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        pytest.param(["1", "2"], "str", id="digits_in_quotes_are_text"),
        pytest.param(["true"], "str", id="a_word"),
        pytest.param([1, "NaN"], "str", id="a_word_among_numbers"),
        pytest.param([1, None], "float32", id="a_number_is_missing"),
        pytest.param([1, 2.5], "float32", id="numbers"),
        pytest.param([0.5, 1e39], "float64", id="beyond_float32"),
        pytest.param([-(2**63), 2**63 - 1], "int64", id="the_largest_integers"),
        pytest.param([2**63], "str", id="too_large_for_int64"),
        pytest.param([2**53 + 1, None], "str", id="a_long_id_is_missing"),
        pytest.param([True, False], "bool", id="bools"),
        pytest.param([True, 1], "str", id="bool_and_number"),
        pytest.param([[1], [2]], "int64[]", id="lists_of_integers"),
        pytest.param([[0.5, 1], []], "float32[]", id="lists_of_numbers"),
        pytest.param([[2**53 + 1, 0.5]], "str", id="lists_that_no_float_holds"),
        pytest.param([[1, None]], "float32[]", id="a_number_of_a_list_is_missing"),
        pytest.param([["a", "1"], None], "str[]", id="lists_of_text"),
        pytest.param([[True]], "bool[]", id="lists_of_bools"),
        pytest.param([[]], "str", id="empty_lists_alone"),
        pytest.param([[[1], [2]]], "str", id="lists_of_lists"),
        pytest.param([[1, "a"]], "str", id="lists_of_several_types"),
        pytest.param([[1], 2], "str", id="a_list_and_a_number"),
        pytest.param([{"a": 1}], "str", id="objects"),
    ],
)
def test_the_type_of_a_column_of_json_follows_from_its_values(values: list[Any], dtype: str) -> None:
    assert types_of_columns({"a": list(values)}, len(values), is_text=False) == {"a": dtype}


def test_a_column_that_some_rows_of_json_lack_may_be_missing() -> None:
    Path("a.jsonl").write_text(
        json.dumps({"n": 1, "s": "x"}) + "\n" + json.dumps({"m": [1, "é"], "d": {"a": [2]}}) + "\n"
    )

    first, second = built(table("a.jsonl"))["train"]

    assert (first["n"], first["s"], first["m"]) == (1.0, "x", "")
    assert math.isnan(second["n"]) and second["s"] == ""


def test_a_column_of_json_after_the_sampled_rows_is_not_left_out_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("beam_pipes.recipes.row_files.LOOKED_AT", 100)
    Path("a.jsonl").write_text('{"n": 1}\n' * 100 + '{"n": 2, "late": "x"}\n')

    words = (
        "the row has the column 'late', which has no type, because none of the rows that types were inferred from has "
        "it. Leave it out (--type late=skip), or give it a type in the declaration (--print-python)."
    )
    with pytest.raises(BuildError, match=re.escape(words)):
        build(table("a.jsonl").declaration(), to="cache", workers=1)
    assert [each["n"] for each in built(table("a.jsonl", types={"late": "skip"}))["train"]] == [1] * 100 + [2]
    with pytest.raises(DeclarationError, match="types: there is no column 'late'. There are: n."):
        table("a.jsonl", types={"late": "str"})


def test_columns_of_parquet_are_those_of_all_files() -> None:
    Path("in").mkdir()
    for name, columns in {"a": {"n": [1]}, "b": {"n": [2], "more": ["x"]}}.items():
        pyarrow.parquet.write_table(pa.table(columns), f"in/{name}.parquet")

    with pytest.raises(DeclarationError, match="'more' is in 'b.parquet', and 'a.parquet' has none. Leave it out"):
        table("in")
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
    assert types_of_columns(mixed, 2) == {"19 digits": "str", "53 bits": "float64", "large": "float64"}

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
    Path("wide.csv").write_bytes("a,b\r\n1,2\r\n".encode("utf-16"))
    with pytest.raises(SourceError, match="input wide.csv is not text in UTF-8. It begins as UTF-16 does"):
        table("wide.csv")
    Path("wide.jsonl").write_bytes('{"a": 1}\n'.encode("utf-16-be"))
    with pytest.raises(
        SourceError, match="input wide.jsonl is not .*: convert it to UTF-8 .iconv -f UTF-16BE -t UTF-8"
    ):
        table("wide.jsonl")
    Path("a.json").write_text('[{"a": 1}]\n')
    words = r"there are no rows to infer .* The first invalid one, 'a.json@0': .* is a JSON array, .*jq -c '.\[\]'"
    with pytest.raises(DeclarationError, match=words):
        table("a.json")


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


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_class_that_comes_later_does_not_number_the_others_again(suffix: str) -> None:
    def make(*species: str, **options: Any) -> Cache:
        frame = pandas.DataFrame({"n": range(len(species)), "species": species})
        if suffix == "jsonl":
            frame.to_json(f"a.{suffix}", orient="records", lines=True)
        else:
            getattr(frame, f"to_{suffix}")(f"a.{suffix}", index=False)
        recipe = table(f"a.{suffix}", label="species", **options)
        return Cache.open(build(recipe.declaration(), to="cache", workers=1).path)

    assert make("bee", "wasp")["train"].spec["label"].class_names == ("bee", "wasp")
    with pytest.raises(DeclarationError, match=re.escape("renumbered: bee 0 → 1, wasp 1 → 2. ")):
        make("bee", "wasp", "ant")

    kept = make("ant", "wasp", "bee", classes=["bee", "wasp", "ant"])

    assert kept["train"].spec["label"].class_names == ("bee", "wasp", "ant")
    assert sorted((row["n"], row["label"]) for row in kept["train"]) == [(0, 2), (1, 1), (2, 0)]
    with pytest.raises(BuildError, match="a 'species' is of the class 'fly', which is not one of the 3 classes"):
        make("bee", "fly", classes=["bee", "wasp", "ant"])


def test_classes_are_of_labels_that_can_have_them() -> None:
    Path("insects.csv").write_text(HEADER + ROWS)
    assert built(table("insects.csv", label="wings", classes=["none", "one", "two", "three", "four"]))["train"].spec[
        "label"
    ].class_names == ("none", "one", "two", "three", "four")
    for options, words in (({}, "there is no label"), ({"label": "length"}, "the label 'length' is float32")):
        with pytest.raises(DeclarationError, match=f"classes are of a label that is text or integers, and {words}."):
            table("insects.csv", classes=["a"], **options)
    command = ["table", "insects.csv", "--label", "species", "--classes", "wasp,bee", "--print-python"]
    assert 'classes = ["wasp", "bee"]' in CliRunner().invoke(app, command).output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"label": "spec"},
            "label: there is no column 'spec'. Did you mean 'species'? There are: length, wings, zip, is_big, species.",
        ),
        ({"by": "x", "splits": {"train": 1.0}}, "by: there is no column 'x'. There are: length,"),
        ({"types": {"x": "int8"}}, "types: there is no column 'x'. There are: length,"),
        ({"types": {"zip": "int65"}}, "types: 'int65' of the column 'zip' is no dtype. Choose one of: bool, int8,"),
        ({"label": "zip", "types": {"zip": "skip"}}, "label: the column 'zip' is skipped by its type. Keep it."),
        ({"format": "tsv", "delimiter": ";"}, "delimiter is for CSV, and these files are tsv. Omit it."),
        ({"format": "text"}, "a table is CSV, TSV, JSON Lines or Parquet, and 'text' has no columns."),
        ({"format": "tar"}, "'tar' has no columns. Unpack the archive first, tar -xf FILE, and name the directory."),
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
    Path("c.csv").write_text("label,kind\n")
    words = r"there are no rows to infer the column types from in 'b\.csv'{}\. Give files with rows\.$"
    with pytest.raises(DeclarationError, match=words.format("")):
        table("b.csv")
    with pytest.raises(DeclarationError, match=words.format(", 'c.csv'")):
        table(["b.csv", "c.csv"])


# Files of other writers.

FLOATS = pa.list_(pa.float32())


def test_gaps_in_parquet_are_what_they_are_in_text() -> None:
    columns = {
        "small": pa.array([1, None, 3]),
        "large": pa.array([2**24 + 1, None, 3]),
        "huge": pa.array([2**53 + 1, None, 3]),
        "whole": pa.array([2**53 + 1, 2, 3]),
        "bool": pa.array([True, None, False]),
        "bytes": pa.array([b"a", None, b"\xff"]),
        "floats": pa.array([[1.5, None], None, []], pa.list_(pa.float32())),
        "words": pa.array([["a", None], [], None]),
        "raws": pa.array([[b"a", None], [], None]),
        "bools": pa.array([[True], [], None]),
        "coded": pa.array([7, 8, 7]).dictionary_encode(),
        "a.b": pa.array([1, None, 2], pa.int8()),
        "a": pa.array([{"b": 2**60}] * 3),
    }
    for options in ({}, {"write_statistics": False}):
        pyarrow.parquet.write_table(pa.table(columns), "a.parquet", **options)

        cache = built(table("a.parquet"))

        types = types_of(cache)
        assert (types["small"], types["large"], types["huge"], types["whole"]) == ("float32", "float64", "str", "int64")
        assert (types["a.b"], types["coded"], types["bools"]) == ("float32", "int64", "bool")
        first, second, third = cache["train"]
        assert (first["small"], first["large"], first["huge"], first["whole"]) == (
            1,
            2**24 + 1,
            str(2**53 + 1),
            2**53 + 1,
        )
        assert np.isnan([second["small"], second["large"], first["floats"][1]]).all() and second["huge"] == ""
        assert [row["bool"] for row in (first, second, third)] == ["True", "", "False"]
        assert (second["bytes"], third["bytes"], list(first["raws"])) == (b"", b"\xff", [b"a", b""])
        assert (list(first["words"]), list(first["bools"]), list(third["bools"])) == (["a", ""], [True], [])
    with pytest.raises(TaskError, match=r"'v' is int64\[\] and has no value at place 1 of the list.*v=float64\[\]"):
        row_example([{"v": [1, None]}], types={"v": "int64[]"})
    assert str(row_example([{"v": [1, None]}], types={"v": "float64[]"})[0]["v"]) == "[1, nan]"


def test_files_of_parquet_that_say_nothing_of_a_column_do_not_decide() -> None:
    Path("in").mkdir()
    tables = [
        pa.table({"n": pa.nulls(1), "x": [1], "w": pa.array([1], pa.int8()), "v": pa.array([[1.5]], FLOATS)}),
        pa.table({"n": [5], "x": [0.5], "w": pa.array([300], pa.int16()), "v": [[0.1]]}),
        pa.table({"n": [2**40], "x": [2.5], "w": pa.array([3], pa.int8()), "v": [[0.1]]}).slice(0, 0),
    ]
    for number, each in enumerate(tables):
        pyarrow.parquet.write_table(each, f"in/{number}.parquet")

    cache = built(table("in"))

    assert types_of(cache) == {"n": "float32", "x": "float64", "w": "int64", "v": "float64"}
    assert [row["x"] for row in cache["train"]] == [1.0, 0.5]
    pyarrow.parquet.write_table(pa.table({"n": ["a"], "x": [1], "w": [1], "v": [[1.0]]}), "in/3.parquet")
    with pytest.raises(DeclarationError, match="'n' is int64 in '1.parquet' and str in '3.parquet'.*--type n=str"):
        table("in")
    assert types_of(built(table("in", types={"n": "str"})))["n"] == "str"


def test_parquet_that_is_damaged_is_named() -> None:
    Path("a.parquet").write_bytes(b"PAR1 is not enough")
    for recipe in (table, functools.partial(tokens, tokenizer="bytes")):
        with pytest.raises(SourceError, match="input a.parquet cannot be read as Parquet: "):
            recipe("a.parquet")


def test_structs_lists_and_maps_of_any_values_are_json() -> None:
    day, price = datetime.date(2024, 1, 1), decimal.Decimal("1.10")
    columns = {
        "struct": [{"day": day, "price": price, "raw": b"\xff", "v": [1, 2]}],
        "days": [[day]],
        "prices": [[price]],
        "map": pa.array([[("k", datetime.datetime(2024, 1, 1, 12))]], pa.map_(pa.string(), pa.timestamp("us"))),
        "odd": pa.array([1_001], pa.duration("ns")),
    }
    pyarrow.parquet.write_table(pa.table(columns), "a.parquet")

    (row,) = built(table("a.parquet"))["train"]

    assert json.loads(row["struct"]) == {"day": "2024-01-01", "price": "1.10", "raw": "/w==", "v": [1, 2]}
    assert (json.loads(row["days"]), json.loads(row["prices"])) == (["2024-01-01"], ["1.10"])
    assert (json.loads(row["map"]), row["odd"]) == ([["k", "2024-01-01 12:00:00"]], "0:00:00.000001001")


def test_lists_of_json_are_arrays_and_can_be_declared() -> None:
    Path("a.jsonl").write_text('{"v": [1.5, 2], "w": ["a"], "d": "007"}\n{"v": [], "w": [], "d": "8"}\n')

    cache = built(table("a.jsonl"))

    first, second = cache["train"]
    assert (first["v"].tolist(), first["v"].dtype, second["v"].size) == ([1.5, 2.0], np.float32, 0)
    assert (list(first["w"]), first["d"], second["d"]) == (["a"], "007", "8")
    assert types_of(built(table("a.jsonl", types={"v": "float64[]"})))["v"] == "float64"
    Path("b.jsonl").write_text('{"v": [16777217.0, 0.5]}\n')
    with pytest.raises(BuildError, match=r"'v' is float32\[\], which does not hold 16777217.*--type v=float64\[\]"):
        build(table("b.jsonl", types={"v": "float32[]"}).declaration(), to="b", workers=1)
    Path("a.csv").write_text("v\n1\n")
    with pytest.raises(DeclarationError, match=r"'v' cannot be float32\[\]: fields of CSV and TSV hold no lists"):
        table("a.csv", types={"v": "float32[]"})


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".jsonl.gz"])
def test_parts_without_rows_do_not_decide(suffix: str) -> None:
    Path("in").mkdir()
    rows = "a,b\n1,x\n" if suffix == ".csv" else '{"a": 1, "b": "x"}\n'
    for number, text in enumerate(["", "a,b\n" if suffix == ".csv" else "\n", rows, ""]):
        content = gzip.compress(text.encode()) if suffix.endswith(".gz") else text.encode()
        Path(f"in/{number}{suffix}").write_bytes(content)

    (row,) = built(table("in"))["train"]

    assert (row["a"], row["b"]) == (1, "x")


def test_a_column_that_is_null_in_the_first_file_takes_its_type_from_the_others() -> None:
    Path("in").mkdir()
    for number, value in enumerate(["null", "0.5", "null"]):
        Path(f"in/{number}.jsonl").write_text(f'{{"n": {number}, "v": {value}}}\n')

    assert types_of(built(table("in")))["v"] == "float32"


def test_marks_of_spark_are_passed_over_and_partitions_are_columns() -> None:
    for number, place in enumerate(["day=2024-01-01/hour=7", "day=2024-01-02/hour=08"]):
        Path(f"out/{place}").mkdir(parents=True)
        pyarrow.parquet.write_table(pa.table({"n": [number]}), f"out/{place}/part-0.parquet")
        Path(f"out/{place}/_SUCCESS").write_text("")
    Path("out/_committed_12").write_text("{}")
    recipe = table("out", by="day", splits={"train": 0.5, "eval": 0.5})

    cache = built(recipe)

    rows = [row for split in cache.splits for row in cache[split]]
    assert sorted((row["n"], row["day"], row["hour"]) for row in rows) == [(0, "2024-01-01", 7), (1, "2024-01-02", 8)]
    assert recipe.left_out == {"_SUCCESS": 2, "_committed": 1}


@pytest.mark.parametrize(
    ("name", "log", "kind"),
    [
        ("t/a.parquet", "t/_delta_log/0.json", "Delta"),
        ("t/city=Bonn/a.parquet", "t/.hoodie/hoodie.properties", "Hudi"),
        ("t/1b2c3d4e-0a1b-4c5d-8e9f-0123456789ab-0_0-21-25_20240102030405678.parquet", "other/log", "Hudi"),
        ("t/data/a.parquet", "t/metadata/v1.metadata.json", "Iceberg"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_tables_that_keep_older_versions_of_rows_are_refused(name: str, log: str, kind: str, inside: bool) -> None:
    """Also if what is named is a part of the table, without its log."""
    Path(name).parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pa.table({"n": [1]}), name)
    if kind != "Hudi" or ".hoodie" in log:
        assert len(built(table(name), to="before")["train"]) == 1
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    Path(log).write_text("{}")

    with pytest.raises(DeclarationError, match=f"is of an? {kind} table, whose log says which of the files count"):
        table(name if inside else "t")


def test_headers_of_pandas_are_named_as_it_names_them() -> None:
    pandas.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]).to_csv("a.csv")

    (row,) = built(table("a.csv"))["train"]

    assert {name: int(value) for name, value in row.items()} == dict(pandas.read_csv("a.csv").loc[0])


def test_texts_that_stand_for_nothing_are_named() -> None:
    Path("a.csv").write_text("n,s\n1,x\nNA,NA\n")

    first, second = built(table("a.csv", null=["NA"]))["train"]

    assert (first["n"], first["s"], second["s"]) == (1, "x", "") and math.isnan(second["n"])
    Path("a.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(DeclarationError, match="null is for CSV and TSV, and these files are json. Omit it."):
        table("a.jsonl", null=["NA"])


@pytest.mark.parametrize(
    ("texts", "writes"),
    [
        (["plain", '"Good-bye, he said', 'all of it"', '"quoted"'], None),
        (['"one', 'two"'], None),
        (['"quoted"', "b"], None),
        (["a\tb", "c"], csv.QUOTE_MINIMAL),
        (["two\nlines", "c"], csv.QUOTE_MINIMAL),
        (['say "hi"', "c"], csv.QUOTE_MINIMAL),
        (["a", "b"], csv.QUOTE_ALL),
        (["a", "b"], csv.QUOTE_NONNUMERIC),
        (["a", "b"], csv.QUOTE_MINIMAL),
    ],
)
def test_quotes_of_tsv_are_read_as_its_writer_meant_them(texts: list[str], writes: int | None) -> None:
    rows = [["n", "text"], *([number, text] for number, text in enumerate(texts))]
    with open("a.tsv", "w", newline="") as file:
        if writes is None:
            file.write("".join("\t".join(map(str, row)) + "\n" for row in rows))
        else:
            csv.writer(file, delimiter="\t", quoting=writes).writerows(rows)

    assert [row["text"] for row in built(table("a.tsv"))["train"]] == texts


def test_how_many_rows_may_fail_is_an_option() -> None:
    Path("a.csv").write_text("n\n" + "1\n" * 20 + "x\n" * 30)
    options: dict[str, Any] = {"types": {"n": "int64"}, "on_error": "drop"}
    assert "max_bad=None" in table("a.csv", **options, max_bad=None).python

    account = build(table("a.csv", **options, max_bad=0.9).declaration(), to="cache", workers=1).account

    assert account.written == 20


@pytest.mark.parametrize(
    ("suffix", "content"), [("csv", "n\n1\n2\n"), ("tsv", "n\n1\n2\n"), ("jsonl", '{"n": 1}\n{"n": 2}\n')]
)
def test_partitions_of_text_are_columns_as_those_of_parquet(suffix: str, content: str) -> None:
    for place in ("year=2024/city=K%C3%B6ln", "year=2023/city=__HIVE_DEFAULT_PARTITION__"):
        Path(f"in/{place}").mkdir(parents=True)
        Path(f"in/{place}/part-0.{suffix}").write_text(content)
    many = "n\n" + "".join(f"{number}\n" for number in range(3, 40))  # enough to be converted by columns
    Path(f"in/{place}/part-1.{suffix}").write_text(many if suffix != "jsonl" else '{"n": 3}\n' * 37)

    recipe = table("in", label="city", by="year", splits={"train": 0.5, "eval": 0.5}, on_error="drop", max_bad=None)
    cache = built(recipe)
    whole = built(table("in", types={"city": "skip"}), to="whole")

    rows = [row for split in cache for row in cache[split]]
    assert [(row["n"], row["year"], row["label"]) for row in rows] == [(1, 2024, 0), (2, 2024, 0)]
    assert [int(row["year"]) for row in whole["train"]] == [2023] * 39 + [2024] * 2
    assert types_of(whole) == {"n": "int64", "year": "int64"}


def test_a_dead_letter_below_partitions_is_read_again_with_them() -> None:
    source = JSONLines("in", partitions={"year": "int64"})
    csv_source = CSV("in", columns=["n"], partitions={"year": "int64"})

    assert source.parse(b'{"n": 1}', file="year=2024/a.jsonl", position=0) == {"year": 2024, "n": 1}
    assert csv_source.parse(b"1", file="year=2024/a.csv", position=0) == {"year": 2024, "n": "1"}
    with pytest.raises(SourceError, match="should have a directory of the partition 'year' with a value of type int64"):
        source.parse(b"{}", file="a.jsonl", position=0)
    assert "partitions" not in JSONLines("in").fingerprint_config() | CSV("in").fingerprint_config()


@pytest.mark.parametrize(
    ("values", "dtype"), [([[1, 2]], "int64"), ([[0.5, 1]], "float64"), ([["x"]], "str"), ([[[1]]], "str")]
)
def test_lists_that_are_all_empty_in_one_file_take_their_type_from_the_others(values: list[Any], dtype: str) -> None:
    Path("in").mkdir()
    pyarrow.parquet.write_table(pa.table({"v": pa.array([[], None], pa.list_(pa.null()))}), "in/a.parquet")
    pyarrow.parquet.write_table(pa.table({"v": values}), "in/b.parquet")

    cache = built(table("in"))
    alone = built(table("in/a.parquet"), to="alone")

    is_nested = values == [[[1]]]
    assert cache["train"].spec["v"].shape == (() if is_nested else (None,)) and types_of(cache)["v"] == dtype
    assert [row["v"] if is_nested else list(row["v"]) for row in cache["train"]][2] == (
        "[[1]]" if is_nested else values[0]
    )
    assert types_of(alone) == {"v": "str"}
    pyarrow.parquet.write_table(pa.table({"v": [1]}), "in/c.parquet")
    with pytest.raises(DeclarationError, match="the column 'v' is "):
        table("in")


def test_partitions_are_read_as_their_types_say() -> None:
    for place, value in (("year=2023", 1), ("year=__HIVE_DEFAULT_PARTITION__", 2)):
        Path(f"in/{place}").mkdir(parents=True)
        pyarrow.parquet.write_table(pa.table({"n": [value]}), f"in/{place}/a.parquet")

    nulls = [row["year"] for row in built(table("in"))["train"]]
    assert nulls[0] == 2023 and math.isnan(nulls[1]) and nulls[0].dtype == np.float32
    Path("in/year=__HIVE_DEFAULT_PARTITION__").rename("in/year=0.50")
    for number, (dtype, value) in enumerate({"float64": 0.5, "str": "0.50"}.items()):
        rows = built(table("in", types={"year": dtype}), to=f"c{number}")["train"]
        assert {row["year"] for row in rows} == {2023 if dtype == "float64" else "2023", value}


def test_types_of_parquet_are_those_of_what_is_stored() -> None:
    def stored(column: pa.Array, *, other: pa.Array | None = None) -> tuple[str, list[Any]]:
        paths = ["a.parquet", "b.parquet"][: 1 if other is None else 2]
        for path, values in zip(paths, (column, other), strict=False):
            pyarrow.parquet.write_table(pa.table({"v": values}), path)
        cache = built(table(paths), to=f"c{next(numbers)}")
        return types_of(cache)["v"], [
            row["v"] if isinstance(row["v"], str) else row["v"].tolist() for row in cache["train"]
        ]

    numbers = itertools.count()
    assert stored(pa.array([5 * 10**9 + 1, -1 % 10**9, 0], pa.time64("ns"))) == (
        "str",
        ["00:00:05.000000001", "00:00:00.999999999", "00:00:00"],
    )
    assert stored(pa.array([1, -1, 0], pa.timestamp("ns", "Europe/Berlin"))) == (
        "str",
        ["1970-01-01 01:00:00.000000001+01:00", "1970-01-01 00:59:59.999999999+01:00", "1970-01-01 01:00:00+01:00"],
    )
    assert stored(pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))) == ("bool", [True, False])
    assert stored(pa.array([b"0123456789abcdef"], pa.uuid())) == ("str", ["30313233-3435-3637-3839-616263646566"])
    assert stored(pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((1, 2, 2), np.float32))) == (
        "float32",
        [[1.0, 1.0, 1.0, 1.0]],
    )
    assert stored(pa.array([[1]], pa.list_(pa.int32())), other=pa.array([[0.5]])) == ("float64", [[1.0], [0.5]])
    with pytest.raises(DeclarationError, match=r"int64\[\] in .* and float64\[\] in .* \(--type v=float64\[\]\)"):
        stored(pa.array([[1]]), other=pa.array([[0.5]]))
    with pytest.raises(DeclarationError, match="there are no rows in 'a.parquet'"):
        stored(pa.array([], pa.int64()))


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_keys_of_objects_are_columns_where_they_are_named(name: str) -> None:
    rows: list[dict[str, Any]] = [
        {"m": {"y": n, "k": {"z": "ab"[n % 2], "q": None if n % 3 else n}}, "m.own": n, "c": n} for n in range(40)
    ]
    if name == "a.jsonl":
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), name)

    columns = ["m.y", "m.k.q", "m.own"]
    cache = built(table(name, label="m.k.z", columns=columns, by="m.y", splits={"train": 0.5, "eval": 0.5}))

    assert types_of(cache) == {"label": "int64", "m.k.q": "float32", "m.own": "int64", "m.y": "int64"}
    found = sorted((dict(row) for split in cache for row in cache[split]), key=lambda row: int(row["m.y"]))
    assert [(row["label"], row["m.y"], row["m.own"]) for row in found] == [(n % 2, n, n) for n in range(40)]
    assert [n for n, row in enumerate(found) if not math.isnan(row["m.k.q"])] == [*range(0, 40, 3)]
    whole = table(name, label="m.k.z", types={"m": "skip"}).names["types"]
    assert whole == {"c": "int64", "m.k.z": "str", "m.own": "int64"}
    assert '"m": "str"' in table(name, label="m.k.z").python
    with pytest.raises(DeclarationError, match="label: there is no column 'm.zz'."):
        table(name, label="m.zz")


@pytest.mark.parametrize("values", [[1, None], [1.5, None], [True, None], ["x", None]])
def test_a_row_without_a_label_is_refused_whatever_its_type(values: list[Any]) -> None:
    Path("a.jsonl").write_text("".join(json.dumps({"y": value, "x": 1}) + "\n" for value in values * 20))
    pandas.DataFrame({"y": pandas.Series(values * 20), "x": 1}).to_parquet("a.parquet")
    for number, name in enumerate(["a.jsonl", "a.parquet"]):
        with pytest.raises(StageError, match="the column 'y' is the label, but has no value here"):
            built(table(name, label="y"), to=f"c{number}")
        rows = built(table(name, label="y", on_error="drop", max_bad=None), to=f"d{number}")["train"]
        assert len(rows) == 20


def test_labels_that_are_stored_as_text_are_classes_whatever_they_are() -> None:
    days = [datetime.date(2024, 1, 2), datetime.date(2024, 1, 1)]
    pyarrow.parquet.write_table(pa.table({"day": days, "n": [7, 5]}), "a.parquet")
    for name, types, names in (("day", {}, ("2024-01-01", "2024-01-02")), ("n", {"n": "str"}, ("5", "7"))):
        train = built(table("a.parquet", label=name, types=types), to=name)["train"]
        assert train.spec["label"].class_names == names and [int(row["label"]) for row in train] == [1, 0]
