"""The functions of the analysis benchmark, used as they are by the bare loop and by the declaration."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from beam_pipes.building import Declaration
from beam_pipes.sources import TextLines
from beam_pipes.transforms.analyzers import Moments, Vocabulary
from beam_pipes.transforms.dedup import ExactDuplicates
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline
from benchmarks.text_stages import _TOKEN, CORPUS_VARIABLE, normalize


def words(line: str) -> list[str]:
    """Words and signs, in lower case."""
    return _TOKEN.findall(line.lower())


@dataclasses.dataclass(frozen=True, eq=False)
class Words(Pipeline):
    """`words` as a stage."""

    input_type = str
    output_type = list

    def transform(self, line: str) -> list[list[str]]:
        return [words(line)]

    def transform_batch(self, lines: list[str]) -> list[list[list[str]]]:
        return [[words(line)] for line in lines]


@dataclasses.dataclass(frozen=True, eq=False)
class Length(Pipeline):
    """`len` as a stage."""

    input_type = list
    output_type = int

    def transform(self, found: list[str]) -> list[int]:
        return [len(found)]

    def transform_batch(self, batch: list[list[str]]) -> list[list[int]]:
        return [[len(found)] for found in batch]


@dataclasses.dataclass(frozen=True, eq=False)
class Text(Pipeline):
    """`normalize` as a stage."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"text": normalize(line)}]


def declaration() -> Declaration:
    """A vocabulary, the moments of lengths and exact duplicates of the corpus named by the environment."""
    split, length = Words(), Length()
    of = DAGPipeline({split: Input(str), length: split, Output("words"): split, Output("length"): length})
    return Declaration(
        name="analysis_benchmark",
        source=TextLines(os.environ[CORPUS_VARIABLE], pattern="*.txt"),
        analyzers=(
            Vocabulary("words", of=of, output="words"),
            Moments("lengths", of=of, output="length"),
            ExactDuplicates("duplicates"),
        ),
        pipeline=Text(),
        target_shard_bytes=8 << 20,  # a quarter of the text has several shards too: memory is that of one
    )
