"""`SplitByTime`, and `table --split-by-time`: what lies before a time, and what from it on."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from beam_pipes.cache import Cache
from beam_pipes.commands import app
from beam_pipes.errors import DeclarationError, TaskError
from beam_pipes.recipes import table
from beam_pipes.runners import build
from beam_pipes.transforms.by_key import SplitByTime

ZONES = st.sampled_from([datetime.timezone(datetime.timedelta(hours=hours)) for hours in (-9, 0, 2)])


@given(st.datetimes(timezones=ZONES), st.datetimes(timezones=ZONES), st.sampled_from(["seconds", "microseconds"]))
def test_times_with_zones_are_compared_as_moments(end: datetime.datetime, time: datetime.datetime, to: str) -> None:
    stage = SplitByTime({"train": end.isoformat(), "eval": None}, field="when")
    record = {"when": time.isoformat(" ", to)}

    split = "train" if datetime.datetime.fromisoformat(record["when"]) < end else "eval"

    assert stage.transform(record) == {name: [record] if name == split else [] for name in ("train", "eval")}


@pytest.mark.parametrize(
    ("end", "before", "after"),
    [
        (
            "2024-06-01",
            ["2024-05-31", "2024-05-31T23:59:59.999999999", "2024-05-31 23:59"],
            ["2024-06-01", "2024-06-01 00:00:00"],
        ),
        ("2024-06-01T12:00Z", ["2024-06-01T13:59:59+02:00", "2024-06-01 11:59:59.5 +0000"], ["2024-06-01T05:00-07"]),
        (2020, [2019, 2019.5, -1], [2020, 2021.0]),
        (1717200000.5, [1717200000], [1717200001]),
    ],
)
def test_what_lies_at_an_end_belongs_to_the_next_split(
    end: str | float, before: list[object], after: list[object]
) -> None:
    stage = SplitByTime({"train": end, "eval": None}, field="when")
    for times, split in ((before, "train"), (after, "eval")):
        for time in times:
            assert stage.transform({"when": time})[split] == [{"when": time}], time


@pytest.mark.parametrize(
    ("end", "time"),
    [
        ("2024-06-01", ""),
        ("2024-06-01", None),
        ("2024-06-01", 20240601),
        ("2024-06-01", "2024-02-30"),
        ("2024-06-01", "01.06.2024"),
        ("2024-06-01", "2024-06-01T00:00Z"),
        ("2024-06-01T00:00Z", "2024-06-01"),
        (2020, "2019"),
        (2020, float("nan")),
        (2020, True),
    ],
)
def test_a_time_that_cannot_be_compared_is_a_bad_record(end: str | float, time: object) -> None:
    output = f"the field 'when' should be a time that can be compared with {end!r}, found"
    with pytest.raises(TaskError, match=re.escape(output)):
        SplitByTime({"train": end, "eval": None}, field="when").transform({"when": time})


@pytest.mark.parametrize(
    "ends",
    [
        {},
        {"train": None},
        {"train": "2024-06-01"},
        {"train": "2024-06-01", "eval": "2024-07-01"},
        {"train": "2024-06-01", "eval": "2024-05-01", "test": None},
        {"train": "2024-06-01", "eval": 2025, "test": None},
        {"train": "June", "eval": None},
        {"train": None, "eval": "2024-06-01", "test": None},
    ],
)
def test_ends_are_of_one_kind_and_in_order(ends: dict[str, str | float | None]) -> None:
    with pytest.raises(
        DeclarationError, match="the outputs should end at times of one kind, from the earliest to None"
    ):
        SplitByTime(ends, field="when")


def test_rows_of_a_table_are_split_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are added before, between and after the others move none of them."""
    monkeypatch.chdir(tmp_path)
    days = [f"2024-{month:02}-15" for month in range(1, 13)]
    found = []
    for added in ([], ["2023-12-31", "2024-06-01", "2025-01-01"]):
        rows = sorted([*days, *added], reverse=bool(added))
        Path("a.csv").write_text("when,n\n" + "".join(f"{day},1\n" for day in rows) + ",1\n")
        recipe = table("a.csv", split_by_time=("when", {"train": "2024-06-01", "eval": None}), on_error="drop")
        account = build(recipe.declaration(), to="cache").account
        assert (account.written, account.dropped) == (len(rows), 1)
        cache = Cache.open("cache")
        found.append(
            {day: split for split in ("train", "eval") for day in (str(each["when"]) for each in cache[split])}
        )
    assert found[0] == {day: "train" if day < "2024-06-01" else "eval" for day in days}
    assert found[1].items() > found[0].items() and found[1]["2024-06-01"] == "eval"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "when",
            "should be a column, and splits with the times at which they end, such as when:train=2024-06-01,eval;",
        ),
        ("wen:train=2024-06-01,eval", "there is no column 'wen'. Did you mean 'when'?"),
        ("when:train=2024,eval", "'when' is str, and the ends are numbers: 2024. .* such as 2024-06-01."),
        ("n:train=2024-06-01,eval", "'n' is int64, and the ends are dates: 2024-06-01. .* such as 1717200000"),
        ("ok:train=1,eval", "'ok' is bool, and the ends are numbers: 1. Name a column of dates or numbers."),
        ("n:train=1,eval --label n", "the column 'n' is the label. Name the column of the time."),
        ("when:train=2024-06-01,eval --type when=skip", "the column 'when' is skipped by its type. Keep it."),
        ("n:train=1,eval --split a=0.5,b=0.5", "both are given: omit --split or --split-by-time."),
        ("n:train=1,eval --by n", "says what stays in one split, but there are no splits"),
        ("when:train=2024-06-01,eval", "found str: ''. Give the ends as the field has its times, or drop such records"),
    ],
)
def test_mistakes_are_reported(options: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("when,n,ok\n2024-01-01,1,true\n,2,true\n")

    result = CliRunner().invoke(app, f"table a.csv --to cache --split-by-time {options}".split())

    words = " ".join(str(result.exception if result.exception is not None else result.output).split())
    assert result.exit_code and re.search(message, words), words
