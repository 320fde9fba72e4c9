"""`table --dates`: dates and times as numbers since 1970."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from media_files import built
from typer.testing import CliRunner

from beam_pipes.commands import app
from beam_pipes.errors import StageError
from beam_pipes.recipes import table

pytestmark = pytest.mark.usefixtures("here")

TEXTS = ["2024-02-29", "1969-12-31T12:00:01.5Z", "2024-06-01 00:30:00+02:00", ""]


def write(kind: str) -> list[pd.Timestamp]:
    """Writes `TEXTS` as the column `when` of `a.KIND`, and returns their times."""
    times = [pd.Timestamp(text) for text in TEXTS if text]
    times = [time if time.tzinfo else time.tz_localize("UTC") for time in times]
    if kind == "csv":
        Path("a.csv").write_text("n,when\n" + "".join(f"{n},{text}\n" for n, text in enumerate(TEXTS)))
    elif kind == "jsonl":
        rows = [{"n": n, "when": text or None} for n, text in enumerate(TEXTS)]
        Path("a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        pd.DataFrame({"n": range(4), "when": pd.to_datetime([*times, None], utc=True)}).to_parquet("a.parquet")
    return times


@pytest.mark.parametrize(
    ("kind", "unit", "secs"),
    [("csv", "days", 86400), ("csv", "minutes", 60), ("jsonl", "hours", 3600), ("parquet", "seconds", 1)],
)
def test_dates_are_numbers_as_pandas_counts_them(kind: str, unit: str, secs: int) -> None:
    expected = [time.timestamp() / secs for time in write(kind)]

    cache = built(table(f"a.{kind}", dates={"when": unit}))

    found = {int(row["n"]): row["when"] for row in cache["train"]}
    assert cache["train"].spec["when"].dtype == "float64"
    assert [float(found[n]) for n in range(3)] == expected and np.isnan(found[3])


def test_dates_as_numbers_are_split_by_time() -> None:
    write("csv")
    ends: dict[str, str | float | None] = {"past": "1970-01-01", "late": None}

    cache = built(table("a.csv", dates={"when": "days"}, split_by_time=("when", ends), on_error="drop", max_bad=0.5))

    found = {split: sorted(int(row["n"]) for row in cache[split]) for split in ("past", "late")}
    assert found == {"past": [1], "late": [0, 2]}  # a row without a time is in neither


def test_the_command_names_the_dtype_that_is_stored() -> None:
    write("csv")

    result = CliRunner().invoke(app, "table a.csv --to cache --dates when=days --no-report".split())

    assert "columns: n int64, when float64" in result.output


def test_a_date_may_be_the_label() -> None:
    write("csv")

    with pytest.raises(StageError, match="the column 'when' is the label, but has no value here. Drop such rows"):
        built(table("a.csv", dates={"when": "seconds"}, label="when"), to="whole")
    cache = built(table("a.csv", dates={"when": "seconds"}, label="when", on_error="drop", max_bad=None))

    assert sorted(float(row["label"]) for row in cache["train"])[:1] == [-43198.5]
    assert cache["train"].spec["label"].dtype == "float64"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("when", "--dates should be a column and its unit, such as when=days; got 'when'."),
        ("when=weeks", "the unit of 'when' should be one of days, hours, minutes, seconds, got 'weeks'"),
        ("wen=days", "dates: there is no column 'wen'. Did you mean 'when'?"),
        ("n=days", "the column 'n' is int64, and dates are text.* Omit it from --dates"),
        ("when=days --type when=skip", "the column 'when' has the type 'skip' too. Omit it from --type or --dates."),
        ("when=days --split-by-time when:a=2024,b", "the column 'when' is str, and the ends are numbers: 2024."),
        ("when=days --split-by-time when:a=May,b", "the ends of splits by 'when' should be .* ISO 8601, .*found 'May'"),
        (
            "when=days --stratify when --split a=0.5,b=0.5",
            "'when' is float64, .*store it as text: omit --dates when=days",
        ),
        (
            "other=days",
            "'other' should hold dates or times in ISO 8601.*found str: '29/02/2024'.*omit --dates other=days",
        ),
    ],
)
def test_mistakes_with_dates_are_told(options: str, message: str) -> None:
    Path("a.csv").write_text("n,when,other\n1,2024-02-29,29/02/2024\n")

    result = CliRunner().invoke(app, f"table a.csv --to cache --dates {options}".split())

    words = " ".join(str(result.exception if result.exception is not None else result.output).split())
    assert result.exit_code and re.search(message, words), words
