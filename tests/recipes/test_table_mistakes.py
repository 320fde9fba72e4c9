"""Mistakes of a first week with `table`: each is told with what was expected, what was found, and what to type.

And the options that these messages name: `--names`, `--columns`, `--decimal`, compared with pandas.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas
import pytest
from media_files import built
from typer.testing import CliRunner

from beam_pipes.commands import app
from beam_pipes.errors import DeclarationError, SourceError
from beam_pipes.recipes import table
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
        pytest.param({"in/.a.csv": BEES}, ["in"], ["no file matches", "hidden files are left out"], id="empty folder"),
    ],
)
def test_mistakes_are_told_with_what_to_type(files: dict[str, str], arguments: list[str], words: list[str]) -> None:
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
    whole = ours(names=names, delimiter=";")
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
