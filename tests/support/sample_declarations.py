"""Declarations that tests build, in a module of their own so that worker processes can import them.

The input directory is named by an environment variable, which workers inherit.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from typing import Any

import numpy as np

from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.identity.canonical import Asset
from beam_pipes.sources import JSONLines, TextLines
from beam_pipes.typed import Counter, DAGPipeline, Histogram, Input, Output, Pipeline, RandomPartition

INPUT_VARIABLE = "BEAM_PIPES_TEST_INPUT"
ELSEWHERE_VARIABLE = "BEAM_PIPES_TEST_ELSEWHERE"
DEADLY_SIGNAL_VARIABLE = "BEAM_PIPES_TEST_DEADLY_SIGNAL"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SplitWords(Pipeline):
    """A line as its words."""

    input_type = str
    output_type = list

    def transform(self, line: str) -> list[list[str]]:
        words = line.split()
        if not words:
            return self.drop("empty")
        if words[0] == "boom":
            raise ValueError(f"cannot split {line!r}")
        lengths = Histogram("words", [0, 2, 4, 8])
        lengths.increment(len(words))
        self._set_stats([lengths, Counter("lines", 1)])
        return [words]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class CountLetters(Pipeline):
    """The lengths of the words, with a little keyed noise so that randomness has to be reproduced too."""

    input_type = list
    output_type = dict

    def transform(self, words: list[str]) -> list[dict[str, Any]]:
        noise = int(self.rng().integers(0, 100))
        return [{"text": " ".join(words), "lengths": np.array([len(word) for word in words], np.int32), "noise": noise}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Initials(Pipeline):
    """One example for each word: a stage that gives several outputs for one input."""

    input_type = list
    output_type = dict

    def transform(self, words: list[str]) -> list[dict[str, Any]]:
        return [{"initial": word[:1], "length": len(word)} for word in words]


def _input() -> str:
    return os.environ[INPUT_VARIABLE]


def words(**options: Any) -> Declaration:
    """Lines → words → letters → train and eval, and every word on its own."""
    split, count, initials = SplitWords(), CountLetters(), Initials()
    partition = RandomPartition(dict, ["train", "eval"], [0.8])
    dag = {
        split: Input(str),
        count: split,
        initials: split,
        partition: count,
        Output(): partition,
        Output("words"): initials,
    }
    counted = {
        "text": FeatureSpec("str"),
        "lengths": FeatureSpec("int32", shape=(None,)),
        "noise": FeatureSpec("int64", minimum=0, maximum=99),
    }
    options = {"target_shard_bytes": 2_000, **options}
    return Declaration(
        name="words",
        source=TextLines(_input(), pattern="**/*.txt"),
        pipeline=DAGPipeline(dag, "Words"),
        features={
            "train": counted,
            "eval": counted,
            "words": {"initial": FeatureSpec("str"), "length": FeatureSpec("int32")},
        },
        **options,
    )


def words_with_dead_letters() -> Declaration:
    """The same, keeping the records that fail."""
    return words(on_error="dead_letter")


def words_of_gzip() -> Declaration:
    """The same, of compressed files, in shards of 100 kB."""
    return dataclasses.replace(words(), source=TextLines(_input(), pattern="**/*.gz"), target_shard_bytes=100_000)


def inferred() -> Declaration:
    """A single stage, its features left to be inferred."""
    return Declaration(name="inferred", source=TextLines(_input(), pattern="**/*.txt"), pipeline=_Inferred())


class _Inferred(Pipeline):
    def __init__(self) -> None:
        super().__init__(str, dict, "Inferred")

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"text": line, "codes": np.array([ord(letter) for letter in line], np.int32)}]


def rows() -> Declaration:
    """JSON lines, some of which do not parse."""
    return Declaration(
        name="rows",
        source=JSONLines(_input(), pattern="*.jsonl"),
        pipeline=_Row(),
        features={"id": FeatureSpec("int64")},
        on_error="dead_letter",
    )


class _Row(Pipeline):
    def __init__(self) -> None:
        super().__init__(dict, dict, "Row")

    def transform(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"id": row["id"]}]


def kills_itself() -> Declaration:
    """A worker that processes the word `small` dies at once."""
    return dataclasses.replace(
        inferred(), name="deadly", pipeline=_Deadly(), target_shard_bytes=2_000, features={"text": FeatureSpec("str")}
    )


class _Deadly(Pipeline):
    def __init__(self) -> None:
        super().__init__(str, dict, "Deadly")

    def transform(self, line: str) -> list[dict[str, Any]]:
        if len(line) > 40:
            os.kill(os.getpid(), int(os.environ.get(DEADLY_SIGNAL_VARIABLE, signal.SIGKILL)))
        return [{"text": line}]


def slow() -> Declaration:
    """A stage that is slow on the word `slow`."""
    return dataclasses.replace(
        inferred(), name="slow", pipeline=_Slow(), features={"text": FeatureSpec("str")}, target_shard_bytes=2_000
    )


class _Slow(Pipeline):
    def __init__(self) -> None:
        super().__init__(str, dict, "Slow")

    def transform(self, line: str) -> list[dict[str, Any]]:
        if line == "slow":
            time.sleep(0.1)
        return [{"text": line}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Wandering(Pipeline):
    """A line and the text of a file; changes the working directory, as some libraries do."""

    input_type = str
    output_type = dict
    suffix: Asset

    def transform(self, line: str) -> list[dict[str, Any]]:
        os.chdir(os.environ[ELSEWHERE_VARIABLE])
        with open(self.suffix) as file:
            return [{"text": line + file.read()}]


def wandering() -> Declaration:
    """Input and asset by relative paths, and a stage that changes the working directory."""
    return Declaration(
        name="wandering",
        source=TextLines("input"),
        pipeline=_Wandering(suffix=Asset("suffix.txt")),
        features={"text": FeatureSpec("str")},
        target_shard_bytes=100,
    )
