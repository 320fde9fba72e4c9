"""Declarations with analyzers, in a module of their own so that worker processes can import them.

The input directory is named by an environment variable, which workers inherit.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

import numpy as np

from beam_pipes.analysis import Result
from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import TextLines
from beam_pipes.transforms.analyzers import LengthHistogram, Moments, Quantiles, Vocabulary
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline

INPUT_VARIABLE = "BEAM_PIPES_TEST_INPUT"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SplitWords(Pipeline):
    """A line as its words; a line that begins with `boom` fails."""

    input_type = str
    output_type = list

    def transform(self, line: str) -> list[list[str]]:
        words = line.split()
        if words[:1] == ["boom"]:
            raise ValueError(f"cannot split {line!r}")
        return [words] if words else []


words = Vocabulary("words", of=SplitWords(), reserved=("<unk>",), min_count=2)
lengths = LengthHistogram("lengths")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Ids(Pipeline):
    """The ids of a line's words."""

    input_type = str
    output_type = np.ndarray
    words: Result = words.result

    def transform(self, line: str) -> list[Any]:
        return [self.words.value().ids(line.split(), unknown="<unk>")]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MeanId(Pipeline):
    """The mean of a line's ids."""

    input_type = np.ndarray
    output_type = float

    def transform(self, ids: Any) -> list[float]:
        return [float(ids.mean())] if len(ids) else []


_ids = Ids()
_mean = MeanId()

# Its values depend on the vocabulary, so it runs after it.
means = Moments("means", of=DAGPipeline({_ids: Input(str), _mean: _ids, Output("mean"): _mean}))
ranks = Quantiles("ranks", of=DAGPipeline({_ids: Input(str), _mean: _ids, Output("mean"): _mean}), k=16)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ToExample(Pipeline):
    """Ids as an example, with the distance of their mean from that of all lines."""

    input_type = np.ndarray
    output_type = dict
    means: Result = means.result

    def transform(self, ids: Any) -> list[dict[str, Any]]:
        sums = self.means.value()
        score = (ids.mean() - sums.mean) / sums.std if len(ids) else 0.0
        return [{"ids": ids, "score": np.float64(score)}]


def _declared(**options: Any) -> Declaration:
    ids, example = Ids(), ToExample()
    fields: dict[str, Any] = {
        "name": "analysed",
        "source": TextLines(os.environ.get(INPUT_VARIABLE, "."), pattern="**/*.txt"),
        "pipeline": DAGPipeline({ids: Input(str), example: ids, Output("train"): example}),
        "analyzers": (means, ranks, words, lengths),  # not in the order in which they must run
        "features": {"ids": FeatureSpec("int32", shape=(None,)), "score": FeatureSpec("float64")},
        "target_shard_bytes": 4096,
    }
    return Declaration(**{**fields, **options})


def analysed() -> Declaration:
    """A vocabulary, an analyzer that depends on it, and a pipeline that uses both."""
    return _declared()


def analysed_with_dead_letters() -> Declaration:
    """The same; records that fail are dead letters."""
    return _declared(on_error="dead_letter")


def analysed_lengths_only() -> Declaration:
    """A pipeline that uses no result, and an analyzer beside it."""
    return _declared(analyzers=(lengths,), pipeline=ToText(), features=None)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ToText(Pipeline):
    """A line as an example."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        return [{"text": line}]


def analysed_with_failing_pipeline() -> Declaration:
    """Both the analysis and the pipeline fail on lines that begin with `boom`."""
    split, counted = SplitWords(), CountKnown()
    return _declared(
        on_error="dead_letter",
        analyzers=(words,),
        pipeline=DAGPipeline({split: Input(str), counted: split, Output("train"): counted}),
        features=None,
    )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class CountKnown(Pipeline):
    """How many of a line's words are in the vocabulary."""

    input_type = list
    output_type = dict
    words: Result = words.result

    def transform(self, line: list[str]) -> list[dict[str, Any]]:
        table = self.words.value()
        return [{"known": np.int32(sum(word in table for word in line))}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class DiesOnce(Pipeline):
    """Ends its process at a line that begins with `die`, unless the file named in the line exists."""

    input_type = str
    output_type = str

    def transform(self, line: str) -> list[str]:
        if line.startswith("die ") and not os.path.exists(line[4:]):
            os._exit(3)
        return [line]


def analysed_by_dying_workers() -> Declaration:
    """An analysis in which a process dies."""
    return _declared(analyzers=(Vocabulary("lines", of=DiesOnce()),), pipeline=ToText(), features=None)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class WaitsOnce(Pipeline):
    """Waits at a line that begins with `wait`."""

    input_type = str
    output_type = str

    def transform(self, line: str) -> list[str]:
        if line.startswith("wait"):
            time.sleep(0.6)
        return [line]


def analysed_with_a_pause() -> Declaration:
    """An analysis without progress for a while."""
    return _declared(analyzers=(Vocabulary("lines", of=WaitsOnce()),), pipeline=ToText(), features=None)
