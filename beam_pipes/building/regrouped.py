"""`RegroupedDeclaration`: a cache whose records come out of Beam PTransforms, such as a `GroupByKey`.

A build knows a record by its place in the source, and so resumes, caches and traces it. Behind a grouping or a join
there is no such place: what tells records apart is a *key*. So this is a declaration of another kind, with options of
its own, which runs as one Beam pipeline on every runner:

    ReadFromSource(source) | stages | PTransform | stages | WriteToCache

`beam_pipes.declare` makes one of a list with a PTransform in it. This module holds it as data, and imports no Beam.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipes.building.analysis.declared import held_results
from beam_pipes.building.declaration import (
    DEFAULT_TARGET_SHARD_BYTES,
    Declaration,
    MaxBad,
    declared_by,
    load_reference,
)
from beam_pipes.building.expectation import Expectation
from beam_pipes.engine.execute import OnError
from beam_pipes.engine.graph import graph_of, is_beam_transform
from beam_pipes.errors import DeclarationError, DuplicateNameException
from beam_pipes.sources.source import Source

#: What tells a record apart: a feature's name, or a function of the element.
KeyOf = str | Callable[[Any], str | bytes | int]

# So many shards are written where nothing is said: two for each of 16 workers.
DEFAULT_NUM_SHARDS = 32


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RegroupedDeclaration:
    """A cache to be built by one Beam pipeline: the records of `source`, through stages and PTransforms.

        grouped = declare("clicks", TextLines("clicks.txt"), [click, beam.GroupByKey(), summarize],
                          features=features, key="user", splits={"train": 0.9, "test": 0.1})

    `build`, `beam-pipes build` and `beam-pipes plan` take it; every build computes all records, and the same records
    give the same bytes on every runner. See docs/beam.md.

    Args:
        name: what the files of the cache are called, as in `Declaration`.
        source: where records come from.
        steps: in order: pipelines of stages with one output each, and PTransforms that take and give one collection.
        key: what tells the records at the end apart: the name of a feature, or a function of the element that gives a
            str, bytes or an int; None takes their content. It determines the split, the shard and the record id.
        features: the features of the examples, name → `FeatureSpec`. Left out for messages and bytes, and for rows with
            a schema at the end.
        splits: split → share of the keys; they add up to 1. With `split_by`, the names of the splits.
        split_by: a function of the element that names its split, one of `splits`.
        num_shards: files of each split; 32 by default, two for each of 16 workers. Each is sorted by one worker: aim at
            100 MB to 1 GB.
        seed: what the randomness of stages and of the splits is keyed by.
        on_error: what happens to a record that cannot be parsed, fails in a stage or cannot be stored: "fail",
            "dead_letter" or "drop", as in `Declaration`. A failure inside of a PTransform ends the job.
        max_bad, allow_empty, expectations: as in `Declaration`, over the elements that reach the cache and the dead
            letters of all steps.
        target_shard_bytes: input bytes of one source shard.

    Raises:
        DeclarationError: an option is malformed, or a step needs what only a build of records at their place has.
        DuplicateNameException: two stages have one name.
    """

    name: str
    source: Source
    steps: Sequence[Any]
    key: KeyOf | None
    features: Mapping[str, Any] | None = None
    splits: Mapping[str, float] | Sequence[str] = ("train",)
    split_by: Callable[[Any], str] | None = None
    num_shards: int = DEFAULT_NUM_SHARDS
    seed: int = 0
    on_error: OnError = "fail"
    max_bad: MaxBad = "tenth"
    allow_empty: bool = False
    target_shard_bytes: int = DEFAULT_TARGET_SHARD_BYTES
    expectations: Sequence[Expectation] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for step in self.steps:
            if is_beam_transform(step):
                continue
            graph = graph_of(step)
            if len(graph.outputs) != 1:
                raise DeclarationError(
                    f"declaration {self.name!r}: stage {graph.units[-1].name!r} has the outputs "
                    f"{', '.join(map(repr, graph.outputs))}, and behind a PTransform the key or split_by chooses the "
                    "split. Give splits={split: share}, or splits=[names] and split_by=function."
                )
            for unit in graph.units:
                self._check_stage(unit.name, unit.stage, seen)

    def _check_stage(self, name: str, stage: object, seen: set[str]) -> None:
        if name in seen:
            raise DuplicateNameException(
                f"declaration {self.name!r}: two stages are called {name!r}, and their names distinguish their counts. "
                f"Write stage(…, name='{name}_2').",
                stage=name,
            )
        seen.add(name)
        for limit in ("record_timeout_secs", "record_memory_bytes"):
            if getattr(stage, limit, None) is not None:
                raise DeclarationError(
                    f"declaration {self.name!r}: stage {name!r} sets {limit}, which needs a process of ours for each "
                    "source shard, and with a PTransform in the list Beam's workers run the stages. Leave it out, or "
                    "build the stages before the PTransform first, as a cache of their own.",
                    stage=name,
                )
        if held_results(stage):
            raise DeclarationError(
                f"declaration {self.name!r}: stage {name!r} holds the result of an analyzer, which is of records at "
                "their place in a source, and with a PTransform in the list there is none. Compute it in the Beam "
                "pipeline, or build a cache in two steps.",
                stage=name,
            )

    @property
    def words(self) -> tuple[str, ...]:
        """What runs, in order: the names of stages, and the labels of PTransforms."""
        found: list[str] = []
        for step in self.steps:
            found += [str(step.label)] if is_beam_transform(step) else [unit.name for unit in graph_of(step).units]
        return tuple(found)


def load_any_declaration(reference: str) -> Declaration | RegroupedDeclaration:
    """Imports a declaration of either kind by its reference; else like `load_declaration`."""
    return load_reference(reference, _of_any_kind)


def _of_any_kind(found: Any, *, reference: str) -> Declaration | RegroupedDeclaration:
    made = declared_by(found)
    if isinstance(made, Declaration | RegroupedDeclaration):
        return made
    raise DeclarationError(
        f"{reference!r} should be a Declaration, or a function that returns one, got {type(made).__name__}.",
        reference=reference,
    )


def needs_places(declaration: RegroupedDeclaration, reference: str) -> DeclarationError:
    """The error of whatever needs records at their place in a source."""
    transform = next(str(step.label) for step in declaration.steps if is_beam_transform(step))
    return DeclarationError(
        f"{reference!r} has the PTransform {transform!r} among its stages: its records have no place in the source, so "
        "they cannot be tried, traced, explained or rerun one by one. It can be built and planned, and commands that "
        "read caches (inspect, who, dead, verify) show what it built. To try the stages before the PTransform, declare "
        "them by themselves.",
        reference=reference,
    )
