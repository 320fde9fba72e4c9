"""The declaration that campaigns build: every line has an id, and every run of a source shard leaves a line in a log.

Each input file is one source shard; its first line is `begin <number>`.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import TextLines
from beam_pipes.typed import Counter, DAGPipeline, Input, Output, Pipeline

INPUT_VARIABLE = "CAMPAIGN_INPUT"
LOG_VARIABLE = "CAMPAIGN_LOG"  # a file; unset: no log
FAILURES_VARIABLE = "CAMPAIGN_FAILURES"  # a directory; unset: nothing fails
LINE_SECS_VARIABLE = "CAMPAIGN_LINE_SECS"  # how long each line takes

REFERENCE = "benchmarks.campaigns.declarations:logged"
DEADLY = "benchmarks.campaigns.declarations:deadly"

FILE_BYTES = 4_000
LINES = 40


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ReadLine(Pipeline):
    """`word… <id>` → words and id. Logs the first line of a file, fails on `boom`, and once on each line `fragile`."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        if line.startswith("begin "):
            _log(line)
            return self.drop("first_line")
        time.sleep(float(os.environ.get(LINE_SECS_VARIABLE, "0")))
        *words, number = line.split()
        if words[0] == "boom":
            raise ValueError(f"cannot read {line!r}")
        if words[0].startswith("deadly"):
            os.kill(os.getpid(), signal.SIGKILL)
        if words[0] == "fragile":
            _fail_once(number)
        self._set_stats([Counter("lines", 1)])
        return [{"id": int(number), "lengths": np.array([len(word) for word in words], np.int32)}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Longest(Pipeline):
    """The id and the greatest length."""

    input_type = dict
    output_type = dict

    def transform(self, example: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"id": example["id"], "longest": int(example["lengths"].max())}]


def logged() -> Declaration:
    """Lines → `train`, and the longest words → `longest`; lines that say `boom` become dead letters."""
    read, longest = ReadLine(), Longest()
    return Declaration(
        name="logged",
        source=TextLines(os.environ[INPUT_VARIABLE], pattern="**/*.txt"),
        pipeline=DAGPipeline({read: Input(str), longest: read, Output("train"): read, Output("longest"): longest}, "L"),
        features={
            "train": {"id": FeatureSpec("int64"), "lengths": FeatureSpec("int32", shape=(None,))},
            "longest": {"id": FeatureSpec("int64"), "longest": FeatureSpec("int32")},
        },
        on_error="dead_letter",
        target_shard_bytes=FILE_BYTES,
    )


def strict() -> Declaration:
    """The same, stopping at the first record that fails; what a runner retries is a bundle."""
    return dataclasses.replace(logged(), on_error="fail")


def deadly() -> Declaration:
    """The same with supervised records: a line `deadly` kills its worker."""
    return dataclasses.replace(logged(), record_timeout_secs=30.0)


def write_input(
    directory: Path,
    *,
    files: int,
    version: int = 0,
    changed: int = 0,
    fragile: Collection[int] = (),
    boom: bool = True,
) -> set[int]:
    """Writes `files` files of `FILE_BYTES`; of version 1 and up, the first `changed` differ. Returns all ids.

    With `boom`, each file has one line that always fails; the files `fragile` have one that fails on its first read, if
    a directory for failures is named.
    """
    directory.mkdir(parents=True, exist_ok=True)
    ids = set()
    for number in range(files):
        rng = np.random.default_rng([number, version if number < changed else 0])
        lines = [f"begin {number}"]
        for position in range(LINES):
            words = ["w" * int(length) for length in rng.integers(1, 9, 9)]
            if number in fragile and position == LINES // 3:
                words[0] = "fragile"
            identity = 1_000 * number + position + (500 if number < changed and version else 0)
            if boom and position == LINES // 2:
                words[0] = "boom"
            else:
                ids.add(identity)
            lines.append(f"{' '.join(words)} {identity}")
        # Exactly the size of a source shard, so that each file is one: the first line is padded with spaces.
        lines[0] += " " * (FILE_BYTES - len("\n".join(lines)) - 1)
        (directory / f"file-{number:04d}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ids


def executions(log: Path) -> int:
    """How often a source shard was started, according to the log."""
    return len(log.read_text().splitlines()) if log.exists() else 0


def _log(line: str) -> None:
    path = os.environ.get(LOG_VARIABLE)
    if path is not None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{line.strip()}\n".encode())
        os.close(descriptor)


def _fail_once(number: str) -> None:
    directory = os.environ.get(FAILURES_VARIABLE)
    if directory is None:
        return
    try:
        os.close(os.open(os.path.join(directory, number), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    raise ConnectionError(f"line {number} fails for the first time")
