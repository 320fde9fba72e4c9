"""Stages with a model: loaded once in a process, and called by one process of the machine at a time."""

from __future__ import annotations

import os
import time
from pathlib import Path

from beam_pipes import declare, load_once, stage
from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import TextLines

INPUT_VARIABLE = "BEAM_PIPES_TEST_MODEL_INPUT"
#: A directory where loads and calls leave marks.
MARKS_VARIABLE = "BEAM_PIPES_TEST_MODEL_MARKS"

RESOURCES = {"gpu": 1, "gpu_type": "nvidia-l4", "ram_gb": 0.5}


def _mark(name: str) -> None:
    if MARKS_VARIABLE in os.environ:
        with open(Path(os.environ[MARKS_VARIABLE]) / name, "a") as file:
            file.write(f"{os.getpid()}\n")


@load_once
def model(weight: int) -> dict[str, int]:
    """The length that each letter counts for."""
    _mark("loads")
    return {letter: weight * place for place, letter in enumerate("abcdefghijklmnopqrstuvwxyz ", 1)}


@stage
def lower_case(line: str) -> str:
    return line.lower()


@stage(batched=True, resources=RESOURCES, batch_tokens=200, tokens_of=len)
def score(lines: list[str], *, weight: int = 3) -> list[dict[str, object]]:
    assert len(lines) * max(map(len, lines)) <= 200 or len(lines) == 1
    if MARKS_VARIABLE in os.environ:
        # Two calls at once would find each other's directory.
        inside = Path(os.environ[MARKS_VARIABLE]) / "inside"
        inside.mkdir()
        time.sleep(0.002)
        inside.rmdir()
    _mark("calls")
    letters = model(weight)
    return [{"text": line, "score": sum(letters.get(letter, 0) for letter in line)} for line in lines]


@stage
def halved(example: dict[str, object]) -> dict[str, object]:
    return {**example, "half": int(str(example["score"])) // 2}


def scored() -> Declaration:
    """Small files, so that there are several source shards."""
    return declare(
        "scored",
        TextLines(os.environ[INPUT_VARIABLE], pattern="*.txt"),
        [lower_case, score, halved],
        features={"text": FeatureSpec("str"), "score": FeatureSpec("int64"), "half": FeatureSpec("int64")},
        target_shard_bytes=500,
    )


def scored_with_limits() -> Declaration:
    """The first call of a process is slower than a record may be."""
    return declare(
        "scored",
        TextLines(os.environ[INPUT_VARIABLE], pattern="*.txt"),
        [lower_case, stage(slow_at_first, record_timeout_secs=1.0, resources={"ram_gb": 0.5})],
        features={"text": FeatureSpec("str")},
        target_shard_bytes=500,
    )


@load_once
def slow_to_load() -> bool:
    time.sleep(2.5)
    return True


@stage
def slow_at_first(line: str) -> dict[str, object]:
    assert slow_to_load()
    return {"text": line}


def write_lines(directory: Path, *, files: int = 4, lines: int = 12) -> None:
    directory.mkdir()
    for number in range(files):
        words = [f"Line {number} {place} " + "To be " * (place % 5) for place in range(lines)]
        (directory / f"{number}.txt").write_text("\n".join(words) + "\n")
