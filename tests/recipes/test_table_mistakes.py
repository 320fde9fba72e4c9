"""Mistakes of a first week with `table`: each is told with what was expected, what was found, and what to type.

And the options that these messages name: `--names`, `--columns`, `--decimal`, compared with pandas.
"""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.parquet
import pytest
from media_files import built
from typer.testing import CliRunner

from beam_pipes import Cache
from beam_pipes.commands import app
from beam_pipes.errors import DeclarationError, SourceError
from beam_pipes.recipes import row_files, table, tokens
from beam_pipes.sources import CSV

pytestmark = pytest.mark.usefixtures("here")

BEES = "length,wings,species\n5.5,2,wasp\n7,4,bee\n"
LONG = "n,s\n" + "".join(f"{number},{'x' * 500}\n" for number in range(9000)) + "oops,x\n"


def told(*arguments: str) -> str:
    """The message of the command, in one line."""
    result = CliRunner().invoke(app, ["table", *arguments, "--to", "cache", "--workers", "1", "--no-report"])
    assert result.exit_code == 1, result.output
    error = result.exception
    return str(error) if error is not None and not isinstance(error, SystemExit) else " ".join(result.output.split())


@pytest.mark.parametrize(
    ("files", "arguments", "words"),
    [
        pytest.param(
            {"a.csv": BEES},
            ["a.csv", "--label", "Species"],
            ["label: there is no column 'Species'", "Did you mean 'species'?", "length, wings, species"],
            id="wrong column",
        ),
        pytest.param(
            {"top/x/a.csv": BEES, "top/y/b.csv": "length\n1\n", "top/z/c.csv": BEES},
            ["top"],
            ["the header of y/b.csv should hold", "['wings', 'species'] missing", "--type wings=skip", "by a glob"],
            id="wrong folder level",
        ),
        pytest.param(
            {"bees.csv": BEES},
            ["bee.csv"],
            ["bee.csv' cannot be read: No such file or directory", "there is: bees.csv"],
            id="wrong file",
        ),
        pytest.param(
            {"a.csv": BEES + "7,4,\n"},
            ["a.csv", "--label", "species"],
            ["'a.csv@40'", "'species' is the label, but has no value here", "--on-error drop"],
            id="no label",
        ),
        pytest.param(
            {"a.csv": LONG},
            ["a.csv"],
            ["'a.csv@", "column 'n': expected an int, got 'oops'", "--type n=str"],
            id="mixed types in CSV",
        ),
        pytest.param(
            {"a.jsonl": "".join(f'{{"n": {n}, "s": "{"x" * 500}"}}\n' for n in range(9000)) + '{"n": "oops"}\n'},
            ["a.jsonl"],
            ["the column 'n' is int64, found the text 'oops'", "--type n=str"],
            id="mixed types in JSON",
        ),
        pytest.param(
            {"a.csv": BEES.replace(",", ";")},
            ["a.csv"],
            ["the header of 'a.csv' has no comma, but 2 times ';'", "--delimiter ';'"],
            id="wrong separator",
        ),
        pytest.param(
            {"a.csv": "5.5,2,wasp\n7,4,bee\n"},
            ["a.csv"],
            ["expected the first row of 'a.csv' to name the columns, found data: 5.5, 2, wasp", "--names c1,c2,c3"],
            id="header missing",
        ),
        pytest.param(
            {"a.csv": "1,5;2\n", "b.csv": BEES},
            ["b.csv", "--decimal", ","],
            ["decimal and delimiter should differ", "--delimiter ';'"],
            id="decimal comma between commas",
        ),
        pytest.param(
            {"a.csv": BEES},
            ["a.csv", "--columns", "wing"],
            ["columns: there is no column 'wing'. Did you mean 'wings'?"],
            id="wrong choice of columns",
        ),
        pytest.param(
            {"a.csv": "n,s\n1,x\n1.5,y\nNA,z\n"},
            ["a.csv"],
            ["the column 'n' holds a number in 2 of the first 3 rows that have a value", "text in 'a.csv@14': 'NA'"]
            + ["--null NA", "--type n=str", "--type n=float32 --on-error drop", "--type n=skip"],
            id="a mark among numbers",
        ),
        pytest.param({"a.csv": 'n\n7\n999\n"1,234"\n'}, ["a.csv"], ["text in 'a.csv@8': '1,234'"], id="thousands"),
        pytest.param({"a.csv": "n\nn/a\n-\n7\n"}, ["a.csv"], ["a number in 1 of", "'n/a'"], id="marks, one number"),
        pytest.param({"a.csv": "b\ntrue\nFalse\nno\n"}, ["a.csv"], ["true or false in 2 of", "'no'"], id="words"),
        pytest.param(
            {"a.csv": "n,s\n1,x\nn,s\n2,y\n"}, ["a.csv"], ["text in 'a.csv@8': 'n'"], id="header in the middle"
        ),
        pytest.param(
            {"a.jsonl": '{"n": 1}\n{"n": null}\n{"n": 2}\n{"n": "x"}\n'},
            ["a.jsonl"],
            ["'n' holds a number in 2 of the first 3 rows", "text in 'a.jsonl@30': 'x'", "--type n=str"],
            id="text among numbers of JSON",
        ),
        pytest.param({"a.jsonl": '{"n": 1}\n{"n": true}\n'}, ["a.jsonl"], ["true or false in 'a.jsonl@9'"], id="bools"),
        pytest.param(
            {"a.jsonl": '{"n": {}}\n{"n": [1]}\n'}, ["a.jsonl"], ["an object in 1 of", "a list in"], id="nested"
        ),
        pytest.param(
            {"in/a.csv": "n\n1\n", "in/b.csv": "n,more\n2,x\n", "in/c.csv": "n\n3\n"},
            ["in"],
            ["the column 'more' is in 'b.csv', and 'a.csv' has none", "--type more=skip"],
            id="column of one file of many",
        ),
        pytest.param(
            {"a.tsv": "a,b\n1,2\n"},
            ["a.tsv"],
            ["'a.tsv' has no tab, but 1 times ','", "--format csv"],
            id="TSV of commas",
        ),
        pytest.param(
            {"a.csv": "a\tb\n1\t2\n"},
            ["a.csv", "--delimiter", "||"],
            ["'||'. Put one between", "sed 's/||/;/g'"],
            id="two",
        ),
        pytest.param({"a.csv": '{"a": 1}\n{"a": 2}\n'}, ["a.csv"], ["found JSON: ", "--format json"], id="JSON as CSV"),
        pytest.param(
            {"a.csv": 'a,b\n"x \\"y\\"",1\n'},
            ["a.csv"],
            ["""If it has a backslash instead: sed 's/\\\\"/""/g' FILE"""],
            id="quotes behind backslashes",
        ),
        pytest.param(
            {"a.csv": "#made by me,x\nname,city\nbob,rome\nann,oslo\n"},
            ["a.csv"],
            ["found a comment"],
            id="comment of words",
        ),
        pytest.param(
            {"in/a.csv": "0,x\n1,y\n", "in/b.csv": "2,z\n3,w\n"},
            ["in"],
            ["no header, name their", "--names"],
            id="Spark",
        ),
        pytest.param({"a.tsv": "a\n\\N\n1\n"}, ["a.tsv"], [r"--null '\N'"], id="a mark of Hive"),
        pytest.param({"a.xlsx": "x"}, ["a.xlsx"], ["pandas.read_excel('FILE').to_parquet("], id="Excel"),
        pytest.param(
            {"a.jsonl": '{"n": 1}\n{"n": ""}\n{"n": 2}\n'}, ["a.jsonl"], ["text in 'a.jsonl@9': ''"], id="empty text"
        ),
        pytest.param(
            {"a.jsonl": '{"": 1}\n'}, ["a.jsonl"], ["column 1 of 1 has no name", "(--type =skip)"], id="no name"
        ),
        pytest.param(
            {"in/a.csv": "n\n1\n", "in/b.csv": "n\n0.5\n", "in/c.csv": "n\n2\n"},
            ["in"],
            ["'b.csv@2': column 'n': expected an int, got '0.5'", "(--type n=float64)"],
            id="a float in a file between",
        ),
        pytest.param(
            {"in/a.csv": "n\n1\n", "in/b.csv": "n\nNA\n", "in/c.csv": "n\n2\n"},
            ["in"],
            ["(--null NA)"],
            id="a mark between",
        ),
        *(
            pytest.param(
                {"in/a.jsonl": one, "in/b.jsonl": other, "in/c.jsonl": one},
                ["in"],
                [f"the column 'n' is {dtype}{found}", f"(--type n={right})"],
                id=f"JSON, {dtype}{found}",
            )
            for dtype, found, right, one, other in (
                ("int64", ", found 1.5", "float64", '{"n": 1}\n', '{"n": 1.5}\n'),
                ("int64[]", ", found 1.5", "float64[]", '{"n": [1]}\n', '{"n": [1.5]}\n'),
                ("int64[]", ", as inferred", "str", '{"n": [1]}\n' * 20, '{"n": [1]}\n' * 20 + '{"n": ["x"]}\n'),
                ("bool[]", ", as inferred", "str", '{"n": [true]}\n', '{"n": [1.5]}\n'),
            )
        ),
        pytest.param(
            {"a.csv": "n\n" + "300\n" * 20},
            ["a.csv", "--type", "n=int8"],
            ["int8, found 300", "(--type n=int64)"],
            id="int8",
        ),
        pytest.param({"in/.a.csv": BEES}, ["in"], ["no file matches", "hidden files are left out"], id="empty folder"),
    ],
)
def test_mistakes_are_answered_with_what_to_type(files: dict[str, str], arguments: list[str], words: list[str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)

    found = told(*arguments)

    assert [each for each in words if each not in found] == [], found
    assert not Path("cache/manifest.json").exists()


@pytest.mark.parametrize("place", ["a.csv/cache", "/proc/cache"])
def test_a_place_that_cannot_be_written_is_named(place: str) -> None:
    Path("a.csv").write_text(BEES)
    result = CliRunner().invoke(app, ["table", "a.csv", "--to", place, "--workers", "1", "--no-report"])
    message = " ".join(result.output.split()) + str(result.exception)
    assert result.exit_code == 1 and "cannot be written" in message and "build to another directory" in message


@pytest.mark.parametrize("header", ["id,2019,2020,2021", "400.5,401.0,401.5,402.0", "0,1,2,3", "x,y,z,2024", "a,a,b,b"])
def test_numbers_that_may_be_names_are_names(header: str) -> None:
    Path("a.csv").write_text(f"{header}\n1,2,3,4\n")
    (row,) = built(table("a.csv"))["train"]
    assert sorted(row) == sorted(pandas.read_csv("a.csv").columns)


def of_pandas(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    return [
        {name: None if value != value else value for name, value in row.items()} for row in frame.to_dict("records")
    ]


def ours(**options: Any) -> list[dict[str, Any]]:
    rows = built(table("a.csv", **options))["train"]
    return [
        {
            name: value if isinstance(value, str) else None if math.isnan(value) else value.item()
            for name, value in row.items()
        }
        for row in rows
    ]


def test_names_columns_and_decimals_are_those_of_pandas() -> None:
    Path("a.csv").write_text("1,5;x;-0,25;7\n;y;1e3;8\n2,0;z;3;9\n" * 40)
    names = ["a", "b", "c", "d"]

    found = ours(names=names, columns=["a", "c", "d"], delimiter=";", decimal=",")

    frame = pandas.read_csv("a.csv", sep=";", decimal=",", names=names, usecols=["a", "c", "d"])
    assert found == of_pandas(frame)
    assert [type(value) for value in found[0].values()] == [float, float, int]
    with pytest.raises(
        DeclarationError, match="text in 'a.csv@0': '-0,25'. If its comma is a decimal one: --decimal ,"
    ):
        table("a.csv", names=names, delimiter=";")
    whole = ours(names=names, delimiter=";", types={"c": "str"})
    assert whole[0] == {"a": "1,5", "b": "x", "c": "-0,25", "d": 7}


def test_a_point_is_no_decimal_where_commas_are() -> None:
    Path("a.csv").write_text("a;b\n1,5;2\n1.234,5;3\n")
    assert ours(delimiter=";", decimal=",")[1] == {"a": "1.234,5", "b": 3}
    source = CSV("a.csv", delimiter=";", decimal=",", schema={"a": float})
    (shard,) = source.plan(target_shard_bytes=1 << 20).shards
    (batch,) = source.read(shard)
    assert batch.values == [{"a": 1.5}] and "with decimal=',', got '1.234,5'" in str(batch.bad[0].error)
    with pytest.raises(SourceError, match="decimal should be one ASCII character, got 'xy'"):
        CSV("a.csv", decimal="xy")
    assert "decimal" not in CSV("a.csv").fingerprint_config()


def test_columns_of_json_and_parquet_are_chosen_too() -> None:
    Path("a.jsonl").write_text('{"n": 1, "s": "x", "t": "a"}\n{"n": 2, "s": "y", "more": 1, "t": "b"}\n')
    rows = built(table("a.jsonl", columns=["n"], label="t"))["train"]
    assert [{name: int(value) for name, value in row.items()} for row in rows] == [
        {"n": 1, "label": 0},
        {"n": 2, "label": 1},
    ]
    pandas.DataFrame({"n": [1], "s": ["x"], "t": [0.5]}).to_parquet("a.parquet")
    (row,) = built(table("a.parquet", columns=["t"]), to="other")["train"]
    assert row == {"t": 0.5}
    for option in ({"names": ["a"]}, {"decimal": ","}):
        with pytest.raises(
            DeclarationError, match=f"{next(iter(option))} is for CSV and TSV, and these files are json"
        ):
            table("a.jsonl", **option)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("n\n02139\n10001\n10002\nNA\n", id="leading zeros"),
        pytest.param("n\nA12\n7\nB3\n", id="codes"),
        pytest.param('n\n"1,234"\n"5,678"\n', id="no number"),
        pytest.param("n\n2024-01-02\n\n2024-01-03\n", id="dates"),
    ],
)
def test_text_with_some_digits_is_text(text: str) -> None:
    Path("a.csv").write_text(text)
    assert table("a.csv").names["types"] == {"n": "str"}


def test_columns_of_several_kinds_are_stored_as_their_reader_says() -> None:
    Path("a.csv").write_text("n,m\n1,1\nNA,x\n3,3\n")
    assert [row["n"] for row in built(table("a.csv", types={"n": "str"}, columns=["n"]))["train"]] == ["1", "NA", "3"]
    assert table("a.csv", null=["NA"], types={"m": "skip"}).names["types"] == {"n": "float32"}
    Path("b.csv").write_text("n,more,m\n1,1,2\n")
    files = ["a.csv", "b.csv"]
    assert table(files, null=["NA"], types={"m": "skip", "more": "skip"}).names["types"] == {"n": "float32"}


def test_new_names_of_columns_are_printed() -> None:
    Path("a.csv").write_text(",a,a\n0,1,2\n")
    result = CliRunner().invoke(app, ["table", "a.csv", "--to", "cache", "--workers", "1", "--no-report"])
    assert "columns renamed, as the header leaves names out or repeats them: 1 '' is 'Unnamed: 0', 3 'a' is 'a.1'" in (
        " ".join(result.output.split())
    )


DAY = datetime.datetime(2024, 1, 2)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (pa.array(["x"]), pa.array([DAY]), "str in 'a.parquet' and timestamp without a time zone in 'b.parquet'"),
        (pa.array([DAY]), pa.array([DAY.date()]), "timestamp without a time zone in 'a.parquet' and date in"),
        (pa.array([DAY]), pa.array([DAY], pa.timestamp("s", "UTC")), "'a.parquet' and timestamp with a time zone in"),
        (pa.array(["x"]), pa.array([{"a": 1}]), "str in 'a.parquet' and struct in 'b.parquet'"),
        (pa.array([Decimal("1.5")]), pa.array([datetime.time(1)]), "decimal in 'a.parquet' and time in 'b.parquet'"),
    ],
    ids=["text", "dates", "zones", "structs", "decimals"],
)
def test_what_is_text_in_a_cache_is_of_one_kind_in_all_files(one: pa.Array, other: pa.Array, words: str) -> None:
    for name, column in (("a.parquet", one), ("b.parquet", other)):
        pyarrow.parquet.write_table(pa.table({"t": column, "n": [1]}), name)
    files = ["a.parquet", "b.parquet"]

    with pytest.raises(DeclarationError, match=words):
        table(files)
    assert table(files, types={"t": "str"}).names["types"] == {"t": "str", "n": "int64"}
    assert table(files, columns=["n"]).names["types"] == {"n": "int64"}


def test_text_of_parquet_is_one_kind_however_it_is_stored() -> None:
    kinds = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    for number, kind in enumerate(kinds):
        pyarrow.parquet.write_table(pa.table({"t": pa.array(["x"], kind)}), f"{number}.parquet")
    for unit in ("s", "us"):
        pyarrow.parquet.write_table(pa.table({"t": pa.array([DAY], pa.timestamp(unit))}), f"{unit}.pq")

    assert table("*.parquet").names["types"] == {"t": "str"}
    assert table("*.pq", format="parquet").names["types"] == {"t": "str"}


def beyond_the_sample(name: str, usual: str, last: str, *options: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `table` says of a file whose last line is beyond the rows that types are inferred from."""
    monkeypatch.setattr(row_files, "LOOKED_AT", 1000)
    Path(name).write_text(("n,t\n" if name.endswith("csv") else "") + usual * 400 + last)
    result = CliRunner().invoke(app, ["table", name, "--to", "cache", "--workers", "1", "--no-report", *options])
    error = result.exception
    return str(error) if error is not None and not isinstance(error, SystemExit) else " ".join(result.output.split())


@pytest.mark.parametrize(
    ("name", "usual", "last", "words"),
    [
        ("a.csv", "12,x\n", "007,x\n", "column 'n': expected a number, got '007', whose zeros would be lost"),
        ("a.csv", "1.5,x\n", "007,x\n", "column 'n': expected a number, got '007', whose zeros would be lost"),
        (
            "a.jsonl",
            '{"n": 1, "t": "x"}\n',
            '{"n": true, "t": "x"}\n',
            "'n' is int64, as inferred from other rows",
        ),
        ("a.jsonl", '{"n": 1.5, "t": "x"}\n', '{"n": true, "t": "x"}\n', "'n' is float32, as inferred from other rows"),
        ("a.jsonl", '{"n": 1, "t": "x"}\n', '{"n": 1, "t": 7}\n', "the column 't' is str, as inferred from other rows"),
        ("a.csv", "12,x\n", "\x0c007,x\n", "column 'n': expected a number, got '\\x0c007', whose zeros would be lost"),
        ("a.csv", "-12,x\n", "-007,x\n", "column 'n': expected a number, got '-007', whose zeros would be lost"),
        ("a.csv", "true,x\n", "1,x\n", "column 'n': expected true or false, as the rows that types were inferred"),
        ("a.jsonl", '{"n": [1], "t": "x"}\n', '{"n": [true], "t": "x"}\n', "'n' is int64[], as inferred from other"),
        ("a.jsonl", '{"n": true, "t": "x"}\n', '{"n": 1, "t": "x"}\n', "the column 'n' is bool, as inferred from"),
        ("a.jsonl", '{"n": 1, "t": "x"}\n', '{"n": 1, "t": {"a": 1}}\n', "the column 't' is str, as inferred from"),
        ("a.jsonl", '{"n": 1, "t": {"a": 1}}\n', '{"n": 1, "t": "x"}\n', "the column 't' is str, as inferred from"),
        ("a.jsonl", '{"n": 1, "t": [[1]]}\n', '{"n": 1, "t": {"a": 1}}\n', "the column 't' is str, as inferred from"),
        ("a.jsonl", '{"n": 1, "t": ["x"]}\n', '{"n": 1, "t": [{}]}\n', "the column 't' is str[], as inferred from"),
        ("a.jsonl", '{"n": 1, "t": null}\n', '{"n": 1, "t": {"a": 1}}\n', "the column 't' is str, as inferred from"),
    ],
    ids=[
        "csv_int",
        "csv_float",
        "json_int",
        "json_float",
        "json_str",
        "csv_blank",
        "csv_sign",
        "csv_bool",
        "json_list",
        "json_bool",
        "json_object_among_text",
        "json_text_among_objects",
        "json_object_among_lists",
        "json_object_in_lists_of_text",
        "json_object_among_nulls",
    ],
)
def test_values_of_another_kind_beyond_the_sample_are_not_converted(
    name: str, usual: str, last: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = beyond_the_sample(name, usual, last, monkeypatch=monkeypatch)
    assert words in said and "(--type" in said and f"{name}@" in said

    said = beyond_the_sample(name, usual, last, "--on-error", "drop", monkeypatch=monkeypatch)
    assert "400 written" in said


@pytest.mark.parametrize(
    ("name", "usual", "last", "declared", "value"),
    [
        ("a.csv", "12,x\n", "007,x\n", "n=int64", 7),
        ("a.jsonl", '{"n": 1, "t": "x"}\n', '{"n": true, "t": "x"}\n', "n=int64", 1),
        ("a.jsonl", '{"n": 1, "t": "x"}\n', '{"n": 1, "t": 7}\n', "t=str", "7"),
    ],
    ids=["csv", "json_bool", "json_text"],
)
def test_what_is_declared_is_converted_as_before(
    name: str, usual: str, last: str, declared: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "401 written" in beyond_the_sample(name, usual, last, "--type", declared, monkeypatch=monkeypatch)
    assert Cache.open("cache")["train"][400][declared[0]] == value


@pytest.mark.parametrize(
    ("usual", "last"),
    [(2**70, 2**70 + 1), ({"a": 1}, {"b": None}), ([[1]], [])],
    ids=["large_integers", "objects", "nested_lists"],
)
def test_values_stored_as_text_are_of_the_same_kind_beyond_the_sample(
    usual: object, last: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, later = (json.dumps({"n": 1, "t": value}) + "\n" for value in (usual, last))
    assert "401 written" in beyond_the_sample("a.jsonl", first, later, monkeypatch=monkeypatch)
    assert Cache.open("cache")["train"][400]["t"] == json.dumps(last)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_no_float_rounds_a_whole_number(dtype: str) -> None:
    for rows in (1, 40):  # one by one, and as columns
        Path("a.csv").write_text("n\n" + "16777217\n" * rows)
        said = told("a.csv", "--type", f"n={dtype}")
        assert f"the column 'n' is {dtype}, which does not hold 16777217: it would become" in said
        assert "Declare a different type (--type n=float64)" in said


@pytest.mark.parametrize(
    "text",
    [
        "# by Ann, v1, 2024\na,b,c\n1,x,3\n2,y,4\n",
        "# one,two\n#a,b\n1,x\n2,y\n",
        "# of the shop, Cologne\na,b\nx,y\nu,v\n",
    ],
    ids=["numbers below", "two comments", "only text"],
)
def test_a_comment_of_as_many_fields_as_the_header_is_asked_about(text: str) -> None:
    Path("a.csv").write_text(text)
    message = told("a.csv")
    assert "found a comment: '# " in message and "second row seems to name them: " in message, message
    assert "sed '/^#/d' FILE > NEW. If the first row does name them, take its # away" in message, message


@pytest.mark.parametrize("text", ["#a,b\n1,x\n2,y\n", "# a,b\n1,x\n2,y\n", "#a,b\nx,y\nu,v\n", "#a,b\n1,2\n"])
def test_a_header_that_begins_with_a_number_sign_is_one(text: str) -> None:
    Path("a.csv").write_text(text)
    assert [name.strip("# ") for name in row_files.sampled("a.csv", "csv").__next__().columns] == ["a", "b"]
    assert table("a.csv").names["types"].keys() == {text.split(",")[0], "b"}


def test_a_cache_is_no_input() -> None:
    Path("raw").mkdir()
    Path("raw/a.csv").write_text(BEES)
    built(table("raw/a.csv"))
    message = told("cache")
    assert "cache' is a cache, which beam-pipes has built, and not raw data. Look at it (beam-pipes inspect " in message
    assert message.endswith("to build another one, name the files that it was built from."), message
    Path("cache").rename("raw/old")
    assert "name the other files by a glob, such as '" in told("raw") and "/raw/*.csv'" in told("raw")


@pytest.mark.parametrize(
    "names", [("train-0.csv", "test-0.csv"), ("in/train/a.csv", "in/val/a.csv"), ("Train.csv", "b/c.csv", "dev.csv")]
)
def test_files_that_are_called_as_splits_are_not_joined_unasked(names: tuple[str, ...], here: Path) -> None:
    for name in names:
        (here / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "data" / name).write_text("n,y\n1,2\n3,4\n")

    message = "in 'data' are called as splits are, and all would go into one. Name"
    with pytest.raises(DeclarationError, match=message):
        table("data")
    with pytest.raises(DeclarationError, match=message):
        tokens("data", tokenizer="bytes", text_field="n")
    assert list(table("data", splits={"train": 1}).declaration().splits) == ["train"]
    assert list(table([f"data/{name}" for name in names]).declaration().splits) == ["train"]


def test_whole_files_are_documents_whatever_their_names(here: Path) -> None:
    for name in ("train.py", "test.py"):
        (here / name).write_text("pass")

    assert list(tokens(".", tokenizer="bytes", format="files").declaration().splits) == ["train"]
