"""Rows of many columns: what is done grows as their number does. Operations are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from beam_pipes.loader import Loader
from beam_pipes.recipes import table
from beam_pipes.runners import build
from beam_pipes.sources import CSV
from beam_pipes.sources.csv import unique_names


class Counted(str):
    """A name that counts how often names of its kind are compared or hashed."""

    operations = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Counted.operations += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Counted.operations += 1
        return str.__hash__(self)


def calls_of(run: Callable[[], object]) -> int:
    """Calls and returns in this thread while `run` runs; other threads call as often as time allows."""
    counts: list[int] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:
        counts.append(1)

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return len(counts)


def path_of_a_row(columns: int) -> None:
    name = f"{columns}.csv"
    Path(name).write_text(",".join(f"c{number}" for number in range(columns)) + ("\n" + ",".join("1" * columns)) * 2)
    build(table(name).declaration(), to=f"{columns}")
    assert len(next(iter(Loader(f"{columns}/train", batch_size=2)))) == columns


def test_twice_the_columns_take_twice_the_calls_from_a_header_to_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path_of_a_row(10)  # modules are imported, code is fingerprinted

    few, many = (calls_of(lambda number=number: path_of_a_row(number)) for number in (200, 400))  # type: ignore[misc]

    assert many <= 2.2 * few


@pytest.mark.parametrize(
    "check", [lambda names: CSV("a.csv", columns=names), unique_names], ids=["CSV", "unique_names"]
)
def test_twice_the_columns_take_twice_the_comparisons(check: Callable[[list[str]], object]) -> None:
    """Comparisons in a slice of a list are no calls that a profile sees."""
    found = []
    for number in (1000, 2000):
        Counted.operations = 0
        check([Counted(f"c{each}") for each in range(number)])
        found.append(Counted.operations)

    assert 0 < found[1] <= 2.2 * found[0]
