"""`Declaration`: what to build, as plain data with checks.

`BeamSteps`: a pipeline with Beam PTransforms, such as a `GroupByKey`, after which records have no place in the source
any more and a key identifies them. Its declaration runs as one Beam pipeline, and nothing here imports Beam.

How a worker on another machine gets a declaration: `references.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypedDict

from google.protobuf.message import Message

from beam_pipes.analysis.analyzer import Analyzer
from beam_pipes.building.analysis.declared import Learned, check_analyzers, held_results, learned_by
from beam_pipes.building.expectation import Expectation
from beam_pipes.building.limits import RecordLimits, record_limits
from beam_pipes.checks import choice, integer
from beam_pipes.engine.execute import BUILD_POLICIES, OnError
from beam_pipes.engine.graph import (
    Graph,
    Stage,
    Step,
    beam_transform_advice,
    brief,
    describe,
    graph_of,
    is_beam_transform,
)
from beam_pipes.errors import DeclarationError, DuplicateNameException, TypeMismatchException
from beam_pipes.format.spec import ExampleSpec, Features, FeaturesBySplit, Record, is_by_split
from beam_pipes.sources.source import Source

RecordKind = Literal["example", "proto", "bytes"]

#: How many records may fail: see `Declaration`.
MaxBad = int | float | Literal["tenth"] | None

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

# 32 MiB of input per shard: small enough that a kill loses seconds of work, and that two cores share a 100 MB corpus;
# large enough that a terabyte stays below 10^5 shards.
DEFAULT_TARGET_SHARD_BYTES = 32 << 20


#: What identifies a record: a feature's name, or a function of the element.
KeyOf = str | Callable[[Record], str | bytes | int]

# The default number of shards: two for each of 16 workers.
DEFAULT_NUM_SHARDS = 32


class DeclarationOptions(TypedDict, total=False):
    """The options of a `Declaration`, for functions that pass them on."""

    features: Features | FeaturesBySplit | None
    analyzers: Sequence[Analyzer]
    split: str
    seed: int
    on_error: OnError
    max_bad: MaxBad
    allow_empty: bool
    record_timeout_secs: float | None
    record_memory_bytes: int | None
    target_shard_bytes: int
    fingerprints: Mapping[str, str]
    expectations: Sequence[Expectation]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BeamSteps:
    """The pipeline of a declaration with PTransforms, and what identifies the records at its end.

        grouped = declare("clicks", TextLines("clicks.txt"), [click, beam.GroupByKey(), summarize],
                          features=features, key="user", splits={"train": 0.9, "test": 0.1})

    `build`, `beam-pipes build` and `beam-pipes plan` take such a declaration; every build computes all records, and the
    same records give the same bytes on every runner. See docs/beam.md.

    Args:
        steps: in order: pipelines of stages with one output each, and PTransforms that take and give one collection.
        key: what identifies the records at the end: the name of a feature, or a function of the element that gives a
            str, bytes or an int; None takes their content. It determines the split, the shard and the record id.
        splits: split → share of the keys; they add up to 1. With `split_by`, the names of the splits.
        split_by: a function of the element that names its split, one of `splits`.
        num_shards: files of each split; 32 by default, two for each of 16 workers. Each is sorted by one worker: aim at
            100 MB to 1 GB.
    """

    steps: Sequence[Step]
    key: KeyOf | None
    splits: Mapping[str, float] | Sequence[str] = ("train",)
    split_by: Callable[[Record], str] | None = None
    num_shards: int = DEFAULT_NUM_SHARDS

    @property
    def first_transform(self) -> str:
        """The label of the first PTransform."""
        return next(step.label for step in self.steps if is_beam_transform(step))

    @property
    def words(self) -> tuple[str, ...]:
        """What runs, in order: the names of stages, and the labels of PTransforms."""
        found: list[str] = []
        for step in self.steps:
            found += [step.label] if is_beam_transform(step) else [unit.name for unit in graph_of(step).units]
        return tuple(found)

    def check(self, where: str) -> None:
        """Raises `DeclarationError` for a stage that needs something that only records with a place in the source have,
        and `DuplicateNameException` for two stages of one name.
        """
        seen: set[str] = set()
        for step in self.steps:
            if is_beam_transform(step):
                continue
            graph = graph_of(step)
            if len(graph.outputs) != 1:
                raise DeclarationError(
                    f"{where}: stage {graph.units[-1].name!r} has the outputs "
                    f"{', '.join(map(repr, graph.outputs))}, and after a PTransform the key or split_by chooses the "
                    "split. Give splits={split: share}, or splits=[names] and split_by=function."
                )
            for unit in graph.units:
                self._check_stage(where, unit.name, unit.stage, seen)

    def _check_stage(self, where: str, name: str, stage: object, seen: set[str]) -> None:
        if name in seen:
            raise DuplicateNameException(
                f"{where}: two stages are called {name!r}, and their names distinguish their counts. "
                f"Write stage(…, name='{name}_2').",
                stage=name,
            )
        seen.add(name)
        for limit in ("record_timeout_secs", "record_memory_bytes"):
            if getattr(stage, limit, None) is not None:
                raise DeclarationError(
                    f"{where}: stage {name!r} sets {limit}, which needs a process of ours for each "
                    "source shard, and with a PTransform in the list Beam's workers run the stages. Leave it out, or "
                    "build the stages before the PTransform first, as a cache of their own.",
                    stage=name,
                )
        if held_results(stage):
            raise DeclarationError(
                f"{where}: stage {name!r} holds the result of an analyzer, which is of records at "
                "their place in a source, and with a PTransform in the list there is none. Compute it in the Beam "
                "pipeline, or build a cache in two steps.",
                stage=name,
            )


# Option that needs records with a place in the source → what to do with PTransforms.
_INSTEAD = {
    "analyzers": "Compute what they find in the Beam pipeline, or declare the stages before the PTransform as a cache",
    "record_timeout_secs": "Declare the stages that may hang as a cache of their own, before the PTransform",
    "record_memory_bytes": "Declare the stages that may grow as a cache of their own, before the PTransform",
    "fingerprints": "The snapshot is named by a digest of its records, whatever they were made of",
}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Declaration:
    """A cache to be built: the records of `source`, run through `pipeline`, one split for each of its outputs.

    `beam_pipes.declare` makes one of functions and lists of stages.

        declaration = Declaration(
            name="shakespeare",
            source=TextLines("plays", pattern="**/*.txt"),
            pipeline=DAGPipeline({words: Input(str), Output("train"): words}),
            features={"tokens": FeatureSpec("int32", shape=(None,))},
        )

    Args:
        name: what the files of the cache are called: `{name}-{split}.tfrecord-00000-of-00064`.
        source: where records come from; its `output_type` is the pipeline's `input_type`.
        pipeline: a `typed.Pipeline`. Its outputs are examples (`dict`), protocol buffers, or `bytes`. Or `BeamSteps`,
            with PTransforms; then `max_bad`, `allow_empty` and `expectations` are about the elements that reach the
            cache and the dead letters of all steps, and a failure inside of a PTransform ends the job.
        features: the features of the examples, one mapping for all splits, or split → mapping. Left out, dtypes and
            ranks are inferred from the first examples and every dimension is taken to vary; a later example that does
            not fit is an error, so declare what is not obvious.
        analyzers: what must be found out about all records before the first one is transformed; stages of `pipeline`
            hold `analyzer.result`. The results are assets of the cache. See docs/analysis.md.
        split: the name of the split of a pipeline with a single output.
        seed: what the randomness of stages is keyed by, together with stage and record.
        on_error: what happens to a record that fails: "fail" stops the build (the default: nothing is lost silently),
            "dead_letter" keeps it with its bytes and its error, "drop" counts it. A stage's own `on_error` takes
            precedence.
        max_bad: how many records may fail; where more do, nothing is published and what was published stays. A count
            (int), a fraction of all records (float), "tenth" (the default: a tenth of all records, or ten of them if
            that is more), or None for any number. A count also stops a source shard as soon as it is passed.
        allow_empty: publish even if there is nothing: no record at all, or none in a split that has records in the
            published snapshot. By default that is refused: it is what a wrong path, or a stage that fails or drops
            everything, looks like.
        record_timeout_secs, record_memory_bytes: how long one stage may work on one record, and by how much memory its
            process may grow meanwhile. A record that goes beyond fails, as `on_error` says, and the worker that hung on
            it is replaced; None (the default) sets no limit and costs nothing. A stage's own attribute of the same name
            takes precedence; `math.inf` there means no limit. See docs/dead-letters.md.
        target_shard_bytes: input bytes of one source shard; the same value gives the same shards on every runner.
        fingerprints: name → digest of what else the data depends on. They are kept in the manifest as they are, for
            readers that want to know what a cache was made of.
        expectations: what must hold of the snapshot, or it is not published: `expect("dead <= 1% of read")`. They are
            not part of fingerprints.

    Raises:
        DeclarationError: a name or an option is malformed, or an output cannot be stored.
        TypeMismatchException: the source does not give what the pipeline takes.
    """

    name: str
    source: Source
    pipeline: Stage | BeamSteps
    features: Features | FeaturesBySplit | None = None
    analyzers: Sequence[Analyzer] = ()
    split: str = "train"
    seed: int = 0
    on_error: OnError = "fail"
    max_bad: MaxBad = "tenth"
    allow_empty: bool = False
    record_timeout_secs: float | None = None
    record_memory_bytes: int | None = None
    target_shard_bytes: int = DEFAULT_TARGET_SHARD_BYTES
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    expectations: Sequence[Expectation] = ()

    def __post_init__(self) -> None:
        for option, value in (("name", self.name), ("split", self.split)):
            if not _NAME.fullmatch(value):
                raise DeclarationError(
                    f"{option} is used in file names: only letters, digits, '_', '.' and '-'; got {value!r}."
                )
        choice(self.on_error, of=BUILD_POLICIES, what=f"declaration {self.name!r}: on_error")
        bad = self.max_bad
        if (
            bad is not None
            and bad != "tenth"
            and (isinstance(bad, bool | str) or bad < 0 or (isinstance(bad, float) and bad > 1))
        ):
            raise DeclarationError(
                f"declaration {self.name!r}: max_bad should be a count (int), a fraction (float, 0 to 1), 'tenth' or "
                f"None, got {bad!r}."
            )
        integer(self.target_shard_bytes, least=1, what=f"declaration {self.name!r}: target_shard_bytes")
        for expectation in self.expectations:
            if not isinstance(expectation, Expectation):
                raise DeclarationError(
                    f"declaration {self.name!r}: expectations are made by expect('...'), got {expectation!r}. "
                    "Example: expectations=(expect('dead <= 1% of read'),)."
                )
        if isinstance(self.pipeline, BeamSteps):
            self._check_without_places(self.pipeline)
        else:
            self._check_pipeline()
            self._check_features()
            _ = self.record_limits
            check_analyzers(self)
            _ = self.learned

    def _check_without_places(self, steps: BeamSteps) -> None:
        for option, instead in _INSTEAD.items():
            if getattr(self, option) not in (None, (), [], {}):
                raise DeclarationError(
                    f"declaration {self.name!r}: {option} needs records at their place in the source, and the "
                    f"PTransform {steps.first_transform!r} may regroup them. {instead}; leave {option} out."
                )
        if self.features is not None and is_by_split(self.features):
            raise DeclarationError(
                f"declaration {self.name!r}: features are declared by split, and after the PTransform "
                f"{steps.first_transform!r} all splits have the same. Give feature name → FeatureSpec."
            )
        steps.check(f"declaration {self.name!r}")

    def _check_pipeline(self) -> None:
        if isinstance(self.pipeline, list | tuple | Mapping) or not hasattr(self.pipeline, "output_type"):
            advice = (
                "Of functions and lists of stages, declare makes a declaration: "
                f"beam_pipes.declare({self.name!r}, source, [tokenize])."
            )
            raise DeclarationError(
                f"declaration {self.name!r}: pipeline should be one pipeline, such as a DAGPipeline, got "
                f"{brief(self.pipeline)}. {beam_transform_advice(self.pipeline) or advice}"
            )
        graph = self.graph
        if not isinstance(graph.input_type, type) or not issubclass(self.source.output_type, graph.input_type):
            raise TypeMismatchException(
                f"declaration {self.name!r}: the source {type(self.source).__name__} gives "
                f"{self.source.output_type.__name__}, but {graph.name!r} takes {describe(graph.input_type)}. "
                "Use a source that gives it, or put a pipeline in front that converts.",
                expected=graph.input_type,
                found=self.source.output_type,
            )
        for split in graph.outputs:
            if not _NAME.fullmatch(split):
                raise DeclarationError(
                    f"declaration {self.name!r}: the output {split!r} names a split, which is used in file names: "
                    "only letters, digits, '_', '.' and '-'."
                )
        _ = self.kinds  # each output can be stored

    @property
    def beam_steps(self) -> BeamSteps | None:
        """The pipeline where it has PTransforms, else None: then records have a place in the source."""
        return self.pipeline if isinstance(self.pipeline, BeamSteps) else None

    @property
    def graph(self) -> Graph:
        """The pipeline as a graph. Raises `DeclarationError` for one with PTransforms."""
        if isinstance(self.pipeline, BeamSteps):
            raise DeclarationError(
                f"declaration {self.name!r} has the PTransform {self.pipeline.first_transform!r} among its stages: its "
                "records have no place in the source, so they cannot be tried, traced, explained or rerun one by one. "
                "It can be built and planned, and commands that read caches (inspect, who, dead, verify) show what it "
                "built. To try the stages before the PTransform, declare them by themselves."
            )
        return graph_of(self.pipeline, default_output=self.split)

    @property
    def record_limits(self) -> Mapping[str, RecordLimits]:
        """The limits in force: unit → limits; empty if there are none."""
        return record_limits(self.graph, self.record_timeout_secs, self.record_memory_bytes)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in the order in which they are declared."""
        return tuple(self.graph.outputs if self.beam_steps is None else self.beam_steps.splits)

    @property
    def words(self) -> tuple[str, ...]:
        """What runs, in order: the names of stages, and the labels of PTransforms."""
        return tuple(unit.name for unit in self.graph.units) if self.beam_steps is None else self.beam_steps.words

    @functools.cached_property
    def kinds(self) -> Mapping[str, RecordKind]:
        """Split → how its records are stored. Raises `DeclarationError` for outputs that cannot be."""
        graph = self.graph
        return {split: self._kind(split, graph.output_type[split]) for split in graph.outputs}

    def _kind(self, split: str, type_: type) -> RecordKind:
        if issubclass(type_, Message):
            return "proto"
        if issubclass(type_, bytes):
            return "bytes"
        if issubclass(type_, Mapping):
            return "example"
        if callable(getattr(type_, "SerializeToString", None)):
            return "bytes"
        raise DeclarationError(
            f"declaration {self.name!r}: the output {split!r} is {type_.__name__}, which cannot be stored. "
            "End the pipeline in examples (dict), protocol buffers or bytes.",
            split=split,
            found=type_,
        )

    @functools.cached_property
    def declared_specs(self) -> Mapping[str, ExampleSpec]:
        """Split → its features as declared; without splits whose features are to be inferred, or that have none."""
        if self.features is None:
            return {}
        found = {}
        for split in self.splits:
            if self.kinds[split] == "example":
                features = self.features[split] if is_by_split(self.features) else self.features
                found[split] = features if isinstance(features, ExampleSpec) else ExampleSpec(features)
        return found

    @functools.cached_property
    def learned(self) -> Mapping[str, Learned]:
        """Analyzer → the records that it learns from. Raises `DeclarationError` if its split depends on stages."""
        return {analyzer.name: learned_by(self, analyzer) for analyzer in self.analyzers}

    def _check_features(self) -> None:
        if self.features is None:
            return
        examples = {split for split in self.splits if self.kinds[split] == "example"}
        if not examples:
            raise DeclarationError(
                f"declaration {self.name!r}: features are declared, but no output of the pipeline yields examples "
                "(dict)."
            )
        if is_by_split(self.features) and self.features.keys() != examples:
            raise DeclarationError(
                f"declaration {self.name!r}: features are declared for {sorted(self.features)}, but the outputs that "
                f"hold examples are {sorted(examples)}. Give feature name → FeatureSpec, or "
                "one such mapping for each split."
            )
        _ = self.declared_specs  # each is well-formed
