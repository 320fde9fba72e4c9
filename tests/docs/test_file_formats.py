"""Rows of docs/file-formats.md: each has a small file, to which what the row says happens."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from reference_pages.formats.rows import BadRecord, Found, LeftOut, Read, Refused, Row, stated
from reference_pages.formats_page import ROWS, all_tables

ALL = [pytest.param(row, id=f"{name}: {row.file}: {row.feature}") for name, rows in ROWS.items() for row in rows]


@pytest.mark.parametrize("row", ALL)
def test_what_a_row_says_happens(row: Row, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    row.check(tmp_path / "data")


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_on_the_page_once(name: str) -> None:
    shown = [line.strip("| ").split(" | ") for line in all_tables()[name].splitlines()[2:]]

    assert {len(cells) for cells in shown} == {4}
    features = Counter((file, feature) for file, several, *_ in shown for feature in several.split("; "))
    features_of_rows = Counter((row.file, feature) for row in ROWS[name] for feature in row.feature.split("; "))
    assert features == features_of_rows and set(features.values()) == {1}


ONE, OTHER = stated("one", 1.0, float("nan")), stated("other", 2.0)


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        (Read(ONE), Found([1.0])),
        (Read(ONE), Found([1.0, 0.0])),
        (Read(ONE), Found(["1.0", float("nan")])),
        (Read(ONE), Found([1.0, float("nan")], bad=["x"])),
        (Read(ONE), Found([1.0, float("nan")], left_out={"x": 1})),
        (Refused("x"), Found([1.0])),
        (Refused("x"), ValueError("y")),
        (BadRecord("x", OTHER), Found([2.0])),
        (BadRecord("x", OTHER), Found([2.0], bad=["y"])),
        (BadRecord("x", OTHER), Found([1.0], bad=["x"])),
        (LeftOut("x", OTHER), Found([2.0])),
        (LeftOut("x", OTHER), Found([2.0], left_out={"x": 2})),
        (LeftOut("x", OTHER), Found([1.0], left_out={"x": 1})),
    ],
)
def test_a_row_to_which_something_else_happens_fails(
    outcome: Read | Refused | BadRecord | LeftOut, found: Found | ValueError, tmp_path: Path
) -> None:
    def ours(directory: Path) -> Found:
        if isinstance(found, ValueError):
            raise found
        return found

    with pytest.raises(AssertionError):
        Row("a", "b", lambda directory: None, ours, outcome).check(tmp_path)


def test_what_happens_is_what_a_row_shows() -> None:
    def ours(directory: Path) -> Found:
        return Found([])

    outcomes = [Read(ONE), Refused("x"), BadRecord("x", ONE), LeftOut("x", OTHER, what="clipped")]

    assert [Row("a", "b", ours, ours, outcome).cells for outcome in outcomes] == [
        ("a", "b", "read", "one"),
        ("a", "b", 'refused: "x"', "–"),
        ("a", "b", 'a bad record: "x"', "one"),
        ("a", "b", "clipped, counted as `x`", "other"),
    ]
