"""Stratified splits: each class has the shares of the whole, and not only about as many of its records.

    strata = Strata("strata", shares={"train": 0.9, "eval": 0.1}, field="label", of=example)
    declare("pets", source, [example], analyzers=[strata], splits=SplitByStratum(strata.result))

Each record has a number from 0 to 1, drawn from its content. `Strata` counts the records of each class and finds, for
each end of a split, the number below which as many of the class lie as the share says; `SplitByStratum` compares.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.analysis import Accumulator, Analyzer, Result
from beam_pipes.engine.graph import brief, graph_of
from beam_pipes.engine.records import current_context
from beam_pipes.engine.statistics import plain_number
from beam_pipes.errors import AnalysisError, DeclarationError, TaskError
from beam_pipes.sources.record_batch import content_of_value
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline
from beam_pipes.typed.random_partition import fraction_of

__all__ = ["SplitByStratum", "Strata"]

#: Class → where each split but the last ends.
Ends = Mapping[str, list[float]]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Strata(Analyzer):
    """Where the splits of each class end, for `SplitByStratum`.

    Each of two splits has its share of all records and of each class to within a record (of more, two of a class). The
    rest of classes that cannot be divided goes to those that miss most of a record. 7 records at 0.7 and 0.3: 5 and 2.
    Records of the same content stay together, so the counts of a class with such duplicates may be off by as many.

    Args:
        shares: split → its share of the records; they add up to 1.
        field: of an example: str, int or bool.
        of: the stages that make an example of a record; None if records are examples. They run once more than without
            strata: what they drop is not counted.

    Raises `DeclarationError` for shares that do not add up, and `AnalysisError` for a class that has fewer records than
    there are splits. A worker holds 8 bytes for each record of its source shard, and the process that merges them 8
    bytes for each record of one class.
    """

    shares: Mapping[str, float]
    field: str
    split: str | None = None

    def __post_init__(self) -> None:
        shares = [*self.shares.values()] if isinstance(self.shares, Mapping) else []
        if len(shares) < 2 or min(shares) <= 0 or not math.isclose(math.fsum(shares), 1, abs_tol=1e-9):
            raise DeclarationError(
                f"analyzer {self.name!r}: shares should be two splits or more, with shares above 0 that add up to 1, "
                f"such as {{'train': 0.9, 'eval': 0.1}}; got {brief(self.shares)}.",
                analyzer=self.name,
            )
        number = _StratumOf(self.field, name=f"{self.name} of {self.field}")
        dag: dict[Any, Any] = {number: Input(dict) if self.of is None else self.of, Output("values"): number}
        if self.of is not None:
            dag[self.of] = Input(graph_of(self.of).input_type)
        object.__setattr__(self, "of", DAGPipeline(dag))
        super().__post_init__()

    def accumulator(self) -> Accumulator:
        return _Draws()

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        totals: dict[str, int] = {}
        where = [_places(path) for path in accumulators]
        for places in where:
            for name, (_, count) in places.items():
                totals[name] = totals.get(name, 0) + count
        for name, count in sorted(totals.items()):
            if count < len(self.shares):
                raise AnalysisError(
                    f"the class {name!r} of the field {self.field!r} has {count} record{'' if count == 1 else 's'}, "
                    f"and {len(self.shares)} splits are to have some of it each. Leave such records out, put rare "
                    "classes together, or omit --stratify, which splits by shares of the whole.",
                    analyzer=self.name,
                )
        counts = _counts(totals, [*itertools.accumulate(self.shares.values())][:-1])
        ends = {}
        for name, number in totals.items():
            draws = np.sort(
                np.concatenate(
                    [
                        _read(path, *places[name])
                        for path, places in zip(accumulators, where, strict=True)
                        if name in places
                    ]
                )
            )
            ends[name] = [float(draws[count]) if count < number else 1.0 for count in counts[name]]
        result = {"ends": ends, "records": totals, "splits": [*self.shares]}
        Path(target).write_text(json.dumps(result, sort_keys=True) + "\n", encoding="ascii")

    def read(self, path: str) -> Ends:
        ends: Ends = json.loads(Path(path).read_bytes())["ends"]
        return ends


def _counts(totals: Mapping[str, int], shares: Sequence[float]) -> dict[str, list[int]]:
    """Class → how many of its records lie before each end, for the shares of records that lie before them."""
    counts: dict[str, list[int]] = {name: [] for name in totals}
    for share in shares:
        # To a millionth, because 0.7 of 10 is 6.999…
        ideal = {name: round(total * share, 6) for name, total in totals.items()}
        whole = {name: math.floor(each) for name, each in ideal.items()}
        left = round(sum(totals.values()) * share) - sum(whole.values())
        # A class keeps its turn among equals when others are added.
        turns = sorted(totals, key=lambda name: (whole[name] - ideal[name], hashlib.blake2b(_bytes(name)).digest()))
        for turn, name in enumerate(turns):
            least = counts[name][-1] if counts[name] else 0
            counts[name].append(max(least, whole[name] + (turn < left and whole[name] < ideal[name])))
    return counts


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class _Draws(Accumulator):
    """The draws of a source shard. Saved: a line, class → [offset in bytes, count], then the draws, little-endian."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._classes: list[np.ndarray] = []
        self._draws: list[np.ndarray] = []

    def add(self, values: Sequence[tuple[str, float]], record_ids: Sequence[str]) -> None:
        self._classes.append(
            np.array([self._numbers.setdefault(name, len(self._numbers)) for name, _ in values], "<i4")
        )
        self._draws.append(np.array([draw for _, draw in values], "<f8"))

    def save(self, path: str) -> None:
        classes = np.concatenate([np.zeros(0, "<i4"), *self._classes])
        draws = np.concatenate([np.zeros(0, "<f8"), *self._draws])
        draws = draws[np.lexsort((draws, classes))]
        counts = np.bincount(classes, minlength=len(self._numbers)).tolist()
        places = {name: (8 * sum(counts[:number]), counts[number]) for name, number in self._numbers.items()}
        Path(path).write_bytes(json.dumps(places).encode() + b"\n" + draws.tobytes())


def _places(path: str) -> dict[str, tuple[int, int]]:
    """Class → where its draws begin in a saved accumulator, bytes, and how many there are."""
    with open(path, "rb") as file:
        line = file.readline()
    return {name: (len(line) + offset, count) for name, (offset, count) in json.loads(line).items()}


def _read(path: str, offset: int, count: int) -> np.ndarray:
    return np.fromfile(path, "<f8", count, offset=offset)


class _StratumOf(Pipeline):
    """Gives the class of an example, and its record's draw."""

    def __init__(self, field: str, *, name: str) -> None:
        super().__init__(input_type=dict, output_type=tuple, name=name)
        self.field = field

    def transform(self, input_object: Mapping[str, object]) -> list[tuple[str, float]]:
        return [_stratum_of(input_object, self.field)]


def _stratum_of(example: Mapping[str, object], field: str) -> tuple[str, float]:
    """The class of an example, and its record's draw; called in `transform` of a stage."""
    value = plain_number(example.get(field))
    if not isinstance(value, str | int):
        there = brief(value) if field in example else f"the fields {', '.join(map(str, example))}"
        raise TaskError(
            f"the field {field!r} should be a class: text, an integer or a bool; found {there}. Name another "
            "field, or drop such records (--on-error drop).",
            field=field,
        )
    context = current_context()
    assert context is not None  # set by whoever calls `transform`, see `Pipeline`
    if context.direct:
        return str(value), fraction_of(content_of_value(example), seed=0)
    return str(value), fraction_of(context.content, seed=context.seed)


class SplitByStratum(Pipeline):
    """Sends each record to the split that `Strata` has found for its class and its draw.

    The draw is a function of the declaration's seed and of the content of the record in its source. So records of one
    content stay together, whatever their order. A record that is added or removed moves the ends of splits past its
    neighbours: for each end, at most two other records of its class change sides, and one of each of two other classes
    to which goes what is left over. Other records stay where they are.

    Args:
        strata: the result of `Strata`, which knows the splits and the field.
        type_: the class of records. Default: dict, an example.
        name: the stage's name.

    Raises `TaskError` for a record without a class, or of a class that the analysis has not seen.
    """

    def __init__(self, strata: Result, *, type_: type = dict, name: str = "SplitByStratum") -> None:
        if not isinstance(strata, Result) or not isinstance(strata.analyzer, Strata):
            raise DeclarationError(
                f"{name}: expected the result of Strata, got {brief(strata)}. Example: SplitByStratum(strata.result).",
                stage=name,
            )
        self.splits = list(strata.analyzer.shares)
        super().__init__(input_type=type_, output_type=dict.fromkeys(self.splits, type_), name=name)
        self.strata = strata
        self.field = strata.analyzer.field

    def transform(self, input_object: Mapping[str, object]) -> dict[str, list[object]]:
        stratum, draw = _stratum_of(input_object, self.field)
        ends: Ends = self.strata.value()
        if stratum not in ends:
            raise TaskError(
                f"the class {stratum!r} of the field {self.field!r} was not there when classes were "
                "counted. Build again: the build counts them.",
                field=self.field,
            )
        number = bisect.bisect_right(ends[stratum], draw)
        return {name: [input_object] if at == number else [] for at, name in enumerate(self.splits)}
