"""A declaration whose stage can be slowed down from outside, for jobs that are disturbed while running.

Stages and functions for plain Beam pipelines, in a module that the workers of a pool can import.
"""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import apache_beam as beam

from beam_pipes import declare
from beam_pipes.beam import FailedElement
from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.engine.execute import OnError
from beam_pipes.sources import TextLines
from beam_pipes.transforms.analyzers import LengthHistogram
from beam_pipes.typed import Pipeline, stage

INPUT_VARIABLE = "BEAM_PIPES_TEST_PACED_INPUT"

# Seconds for each record, so that a test can act in time. Does not affect the stage's output.
PACE_VARIABLE = "BEAM_PIPES_TEST_PACE"

RECORDS_PER_FILE = 10


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Paced(Pipeline):
    """A line, and its length."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        time.sleep(float(os.environ.get(PACE_VARIABLE, "0")))
        return [{"text": line, "length": len(line)}]


def paced() -> Declaration:
    """One source shard for each file."""
    return Declaration(
        name="paced",
        source=TextLines(os.environ[INPUT_VARIABLE], pattern="*.txt"),
        pipeline=Paced(),
        features={"text": FeatureSpec("str"), "length": FeatureSpec("int64")},
        target_shard_bytes=2_000,
    )


def write_files(directory: Path, numbers: range, *, line_bytes: int = 200, records: int = RECORDS_PER_FILE) -> None:
    """One file for each number; lines differ from each other."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        lines = [f"{number}/{record} ".ljust(line_bytes - 1, "x") for record in range(records)]
        (directory / f"{number:04d}.txt").write_text("\n".join(lines) + "\n")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PacedLines(Pipeline):
    """A line, equally slowly."""

    input_type = str
    output_type = str

    def transform(self, line: str) -> list[str]:
        time.sleep(float(os.environ.get(PACE_VARIABLE, "0")))
        return [line]


def analysed() -> Declaration:
    """The same, after an equally slow analysis."""
    return dataclasses.replace(paced(), analyzers=(LengthHistogram("lengths", of=PacedLines()),))


def paced_with_limits() -> Declaration:
    """The same; a record may take a minute, and is supervised for it."""
    return dataclasses.replace(paced(), record_timeout_secs=60.0)


def large() -> Declaration:
    """The same, in source shards of a megabyte."""
    return dataclasses.replace(paced(), target_shard_bytes=1 << 20)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class WordsOfLine(Pipeline):
    """A line → its words; several lines at once if none fails."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        if "boom" in line:
            raise ValueError(f"no words in {line!r}")
        return [{"text": word, "length": len(word)} for word in line.split()]

    def transform_batch(self, lines: list[str]) -> list[list[dict[str, Any]]]:
        return [self.transform(line) for line in lines]


def letter_as_row(letter: FailedElement) -> dict[str, str]:
    """A dead letter of `lower`, for a cache."""
    return {"line": letter.element, "stage": letter.stage, "error": letter.error_type}


def clicks_of_user(user: str, found: dict[str, Any]) -> dict[str, Any]:
    """What `CoGroupByKey` gives for a user, as a row."""
    return {"user": user, "clicks": sorted(found["clicks"]), "country": found["homes"][0]}


def without_arrays(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a cache as one that `WriteToCache` takes."""
    return {"user": row["user"], "clicks": row["clicks"].tolist(), "country": row["country"]}


# A file that exists once a click is read.
STARTED_VARIABLE = "BEAM_PIPES_TEST_STARTED"

CLICKS_VARIABLE = "BEAM_PIPES_TEST_CLICKS"

CLICK_FEATURES = {"user": FeatureSpec("str"), "counts": FeatureSpec("int64", shape=(None,))}


@stage
def click(line: str) -> tuple:
    """`ann 3` → `("ann", 3)`; fails for `ann three`."""
    if started := os.environ.get(STARTED_VARIABLE):
        Path(started).touch()
    time.sleep(float(os.environ.get(PACE_VARIABLE, "0")))
    user, number = line.split()
    return user, int(number)


@stage
def summarize(group: tuple) -> dict[str, object]:
    return {"user": group[0], "counts": sorted(group[1])}


def grouped(*, on_error: OnError = "dead_letter") -> Declaration:
    """Clicks by user: a grouping between two stages."""
    return declare(
        "clicks",
        TextLines(os.environ[CLICKS_VARIABLE]),
        [click, beam.GroupByKey(), summarize],
        features=CLICK_FEATURES,
        key="user",
        splits={"train": 0.8, "test": 0.2},
        num_shards=3,
        on_error=on_error,
        target_shard_bytes=1_000,
    )


def write_clicks(path: Path, number: int = 400) -> None:
    """Clicks of 40 users, and three invalid lines."""
    lines = [f"user{each % 40} {each if each % 150 != 7 else 'none'}\n" for each in range(number)]
    path.write_text("".join(lines))
