"""Declarations with stages that fail on planted corruptions until they are fixed."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from beam_pipes.analysis import Result
from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.identity.canonical import Asset
from beam_pipes.sources import JSONLines
from beam_pipes.transforms.analyzers import Vocabulary
from beam_pipes.typed import Counter, DAGPipeline, Histogram, Input, Output, Pipeline

INPUT_VARIABLE = "BEAM_PIPES_TEST_INPUT"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Clean(Pipeline):
    """A row → its words; a row without a text fails until it is mended."""

    input_type = dict
    output_type = dict
    mended: bool = False

    def transform(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        if self.mended and "text" not in row:
            self._set_stats([Counter("mended", 1)])
            return [{"id": row["id"], "words": ["mended"]}]
        words = row["text"].split()
        if not words:
            return self.drop("empty")
        self._set_stats([Counter("cleaned", 1), Counter("words", len(words))])
        return [{"id": row["id"], "words": words}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class EachWord(Pipeline):
    """One value for each word."""

    input_type = dict
    output_type = dict

    def transform(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"id": row["id"], "word": word} for word in row["words"]]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Measure(Pipeline):
    """The length of a word, with keyed noise; `poison` fails until it is mended. Words of one letter are dropped."""

    input_type = dict
    output_type = dict
    mended: bool = False

    def transform(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        word = value["word"]
        if word == "poison" and not self.mended:
            raise ValueError(f"cannot measure {word!r}")
        if len(word) == 1:
            return self.drop("short")
        if word == "wrong" and not self.mended:
            return ["not an example"]  # type: ignore[list-item]
        lengths = Histogram("lengths", [0, 2, 4, 8])
        lengths.increment(len(word))
        self._set_stats([lengths, Counter("measured", 1)])
        noise = int(self.rng().integers(0, 1000))
        return [{"id": value["id"], "length": len(word), "noise": noise}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Summary(Pipeline):
    """The id and all lengths of the words."""

    input_type = dict
    output_type = dict
    mended: bool = False

    def transform(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        number = int(row["id"])
        if number >= 1 << 31 and self.mended:
            number = -1
        return [{"id": number, "lengths": np.array([len(word) for word in row["words"]], np.int32)}]


def rows(**options: Any) -> Declaration:
    mended = options.pop("mended", ())
    clean, each = Clean(mended="Clean" in mended), EachWord()
    measure, summary = Measure(mended="Measure" in mended), Summary(mended="Summary" in mended)
    dag = {clean: Input(dict), each: clean, measure: each, summary: clean, Output("words"): measure}
    return Declaration(
        name="rows",
        source=JSONLines(os.environ[INPUT_VARIABLE], pattern="*.jsonl"),
        pipeline=DAGPipeline({**dag, Output("train"): summary}, "Rows"),
        features={
            "words": {"id": FeatureSpec("int64"), "length": FeatureSpec("int32"), "noise": FeatureSpec("int32")},
            "train": {"id": FeatureSpec("int32"), "lengths": FeatureSpec("int32", shape=(None,))},
        },
        **{"on_error": "dead_letter", "max_bad": None, "allow_empty": True, "target_shard_bytes": 4_000, **options},
    )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Words(Pipeline):
    """The words of a row's text; what a vocabulary is made of."""

    input_type = dict
    output_type = list
    lower: bool = False

    def transform(self, row: dict[str, Any]) -> list[list[str]]:
        words = row.get("text", "").split()
        return [[word.lower() for word in words] if self.lower else words]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class WordIds(Pipeline):
    """The ids of a row's words in a vocabulary, offset by a number from a file; `poison` fails until it is mended."""

    input_type = dict
    output_type = dict
    words: Result
    offset: Asset
    mended: bool = False

    def transform(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        words = row["text"].split()
        if "poison" in words and not self.mended:
            raise ValueError("cannot look poison up")
        with open(self.offset) as file:
            offset = int(file.read())
        return [{"id": row["id"], "tokens": self.words.value().ids(words, unknown="<unk>") + offset}]


def looked_up(
    offset: str | os.PathLike[str], *, lower: bool = False, min_count: int = 1, mended: bool = False
) -> Declaration:
    """Rows as ids of a vocabulary that an analyzer learns from them; `offset` is a file."""
    words = Vocabulary("words", of=Words(lower=lower), reserved=("<unk>",), min_count=min_count)
    ids = WordIds(words=words.result, offset=Asset(offset), mended=mended)
    return Declaration(
        name="looked_up",
        source=JSONLines(os.environ[INPUT_VARIABLE], pattern="*.jsonl"),
        pipeline=DAGPipeline({ids: Input(dict), Output("train"): ids}, "LookedUp"),
        features={"id": FeatureSpec("int32"), "tokens": FeatureSpec("int64", shape=(None,))},
        analyzers=(words,),
        on_error="dead_letter",
        target_shard_bytes=1_000,
    )
