"""The stage functions of the build benchmarks, used as they are by every alternative."""

from __future__ import annotations

import dataclasses
import os
import re
import zlib
from typing import Any

import numpy as np

from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import TextLines
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline

CORPUS_VARIABLE = "BEAM_PIPES_BENCHMARK_CORPUS"

_TOKEN = re.compile(r"\w+|[^\w\s]")


def normalize(line: str) -> str:
    """Lower case, single spaces."""
    return " ".join(line.lower().split())


def tokenize(line: str) -> list[int]:
    """Words and signs as ids below 65,536."""
    return [zlib.crc32(word.encode()) & 0xFFFF for word in _TOKEN.findall(line)]


def long_enough(tokens: list[int]) -> bool:
    """Keeps lines of at least four tokens."""
    return len(tokens) >= 4


def example(tokens: list[int]) -> dict[str, Any]:
    """The example that is cached."""
    return {"tokens": np.array(tokens, np.uint16)}


@dataclasses.dataclass(frozen=True, eq=False)
class Normalize(Pipeline):
    """`normalize` as a stage."""

    input_type = str
    output_type = str

    def transform(self, line: str) -> list[str]:
        return [normalize(line)]


@dataclasses.dataclass(frozen=True, eq=False)
class Tokenize(Pipeline):
    """`tokenize` as a stage."""

    input_type = str
    output_type = list

    def transform(self, line: str) -> list[list[int]]:
        return [tokenize(line)]


@dataclasses.dataclass(frozen=True, eq=False)
class KeepLong(Pipeline):
    """`long_enough` as a stage."""

    input_type = list
    output_type = list

    def transform(self, tokens: list[int]) -> list[list[int]]:
        return [tokens] if long_enough(tokens) else self.drop("too_short")


@dataclasses.dataclass(frozen=True, eq=False)
class ToExample(Pipeline):
    """`example` as a stage."""

    input_type = list
    output_type = dict

    def transform(self, tokens: list[int]) -> list[dict[str, Any]]:
        return [example(tokens)]


def declaration() -> Declaration:
    """The job over the corpus named by the environment."""
    normalized, tokenized, kept, made = Normalize(), Tokenize(), KeepLong(), ToExample()
    return Declaration(
        name="benchmark",
        source=TextLines(os.environ[CORPUS_VARIABLE], pattern="*.txt"),
        pipeline=DAGPipeline(
            {normalized: Input(str), tokenized: normalized, kept: tokenized, made: kept, Output("train"): made}
        ),
        features={"tokens": FeatureSpec("uint16", shape=(None,))},
        target_shard_bytes=4 << 20,  # two workers should run out of work at about the same time
    )
