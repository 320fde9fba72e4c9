"""`declare` and `build`: from a source and a list of stages to a cache, in one call.

    build("poem", TextLines("poem.txt"), [tokenize], splits={"train": 0.9, "eval": 0.1}, to="cache")

`declare` takes the same and returns the `Declaration`, for the command line (`beam-pipes build poem:declaration`), for
other runners and for tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, overload

from beam_pipes.analysis.analyzer import Analyzer
from beam_pipes.building.declaration import (
    DEFAULT_NUM_SHARDS,
    DEFAULT_TARGET_SHARD_BYTES,
    Declaration,
    KeyOf,
    MaxBad,
    RegroupedDeclaration,
)
from beam_pipes.building.expectation import Expectation
from beam_pipes.building.leftovers import DEFAULT_KEEP
from beam_pipes.engine.execute import OnError
from beam_pipes.engine.graph import Stage, Step, brief, is_beam_transform
from beam_pipes.errors import DeclarationError
from beam_pipes.format.spec import Features, FeaturesBySplit, Record
from beam_pipes.sources.source import Source, SplitSources
from beam_pipes.typed.stage_list import StageFunction, StageList, steps_of

if TYPE_CHECKING:
    from beam_pipes.building.forecast import SavedPlan
    from beam_pipes.runners.build import BuildResult
    from beam_pipes.runners.options import BeamOptions, LocalOptions
    from beam_pipes.runners.progress import Progress

# One stage or several, in order, or name → stage.
Stages = Sequence[Stage | StageFunction] | Mapping[str, Stage | StageFunction] | Stage | StageFunction


# Option that a declaration has only with PTransforms, or only without → what the other has for it.
_INSTEAD = {
    "analyzers": "Compute what they find in the Beam pipeline, or declare the stages before the PTransform as a cache",
    "record_timeout_secs": "Declare the stages that may hang as a cache of their own, before the PTransform",
    "record_memory_bytes": "Declare the stages that may grow as a cache of their own, before the PTransform",
    "fingerprints": "The snapshot is named by a digest of its records, whatever they were made of",
    "key": "splits=RandomPartition(dict, names, shares, key=function) divides records by a key",
    "num_shards": "target_shard_bytes says how large the files are",
    "split_by": "splits takes a stage with one output for each split",
}


@overload
def declare(
    name: str,
    source: Source | Mapping[str, Source],
    stages: Stages,
    *,
    splits: Mapping[str, float] | Stage | None = None,
    features: Features | FeaturesBySplit | None = None,
    analyzers: Sequence[Analyzer] = (),
    split: str = "train",
    seed: int = 0,
    on_error: OnError = "fail",
    max_bad: MaxBad = "tenth",
    allow_empty: bool = False,
    record_timeout_secs: float | None = None,
    record_memory_bytes: int | None = None,
    target_shard_bytes: int = DEFAULT_TARGET_SHARD_BYTES,
    fingerprints: Mapping[str, str] | None = None,
    expectations: Sequence[Expectation] = (),
) -> Declaration: ...
@overload
def declare(
    name: str,
    source: Source,
    stages: Sequence[Step],
    *,
    key: KeyOf | None,
    num_shards: int = DEFAULT_NUM_SHARDS,
    split_by: Callable[[Record], str] | None = None,
    splits: Mapping[str, float] | Sequence[str] | None = None,
    features: Features | None = None,
    split: str = "train",
    seed: int = 0,
    on_error: OnError = "fail",
    max_bad: MaxBad = "tenth",
    allow_empty: bool = False,
    target_shard_bytes: int = DEFAULT_TARGET_SHARD_BYTES,
    expectations: Sequence[Expectation] = (),
) -> RegroupedDeclaration: ...
def declare(
    name: str,
    source: Source | Mapping[str, Source],
    stages: Stages | Sequence[Step],
    *,
    key: KeyOf | EllipsisType | None = ...,
    num_shards: int | None = None,
    split_by: Callable[[Record], str] | None = None,
    splits: Mapping[str, float] | Sequence[str] | Stage | None = None,
    features: Any = None,
    analyzers: Sequence[Analyzer] = (),
    split: str = "train",
    seed: int = 0,
    on_error: OnError = "fail",
    max_bad: MaxBad = "tenth",
    allow_empty: bool = False,
    record_timeout_secs: float | None = None,
    record_memory_bytes: int | None = None,
    target_shard_bytes: int = DEFAULT_TARGET_SHARD_BYTES,
    fingerprints: Mapping[str, str] | None = None,
    expectations: Sequence[Expectation] = (),
) -> Declaration | RegroupedDeclaration:
    """The declaration of a cache: the records of `source` through `stages`, one after the other.

        declaration = declare("poem", TextLines("poem.txt"), [tokenize], splits={"train": 0.9, "eval": 0.1})

    Put it into a module, and the command line builds it: `beam-pipes build poem:declaration --to cache`.

    Args:
        name: what the files of the cache are called.
        source: where records come from; or split → source, if each split has a separate input:
            `{"train": TextLines("train.txt"), "eval": TextLines("eval.txt")}`.
        stages: functions, with or without `@stage`, and other pipelines; each runs on the output of the one before. A
            dict of name → stage renames them. The last one gives what is stored: a `dict`, a dataclass or NamedTuple
            (by its fields), a protocol buffer or `bytes`. A list may also hold `beam.PTransform`s, such as
            `beam.GroupByKey()`; then give a `key`, and the result is a `RegroupedDeclaration` (docs/beam.md).
        key, num_shards, split_by: only with a PTransform among the stages, see `RegroupedDeclaration`: what tells the
            records at the end apart, the files of each split, and a function that chooses the split.
        splits: name → share of the records. The split of a record is drawn from the seed and its position in the
            source, as `RandomPartition` does. Or a stage with one output for each split, such as
            `RandomPartition(dict, ["train", "eval"], [0.9, 0.1], key=speaker)`. If left out there is one, `split`.

    All other arguments are those of `Declaration`.

    Raises `DeclarationError` if an argument is malformed, and `TypeMismatchException` if a stage does not take
    what the one before gives: both when it is declared, before anything is read.
    """
    if not isinstance(name, str):
        raise DeclarationError(
            f'a declaration starts with its name, got {brief(name)}. Write declare("poem", source, [tokenize]).'
        )
    listed = list(stages) if isinstance(stages, Sequence) and not isinstance(stages, str) else [stages]
    transform = next((each.label for each in listed if is_beam_transform(each)), None)
    where = f"declaration {name!r}"
    if transform is not None:
        of_others = {
            "analyzers": bool(analyzers),
            "record_timeout_secs": record_timeout_secs is not None,
            "record_memory_bytes": record_memory_bytes is not None,
            "fingerprints": bool(fingerprints),
        }
        if (option := _first_given(of_others)) is not None:
            raise DeclarationError(
                f"{where}: {option} needs records at their place in the source, and the PTransform {transform!r} may "
                f"regroup them. {_INSTEAD[option]}; leave {option} out."
            )
        if isinstance(key, EllipsisType):
            raise DeclarationError(
                f"{where}: behind the PTransform {transform!r} records have no place in the source, so a key has to "
                "tell them apart: it gives their split, their shard and their id. Give key='the name of a feature', "
                "key=function, or key=None for their content."
            )
        if isinstance(source, Mapping | SplitSources):
            raise DeclarationError(
                f"{where}: there is a source for each split, and the PTransform {transform!r} may regroup records of "
                "several. Give one source, and splits={split: share}, or splits=[names] and split_by=function."
            )
        if not isinstance(source, Source):
            raise _no_source(where, "a source", source)
        if splits is not None and (isinstance(splits, str) or not isinstance(splits, Mapping | Sequence)):
            raise DeclarationError(
                f"{where}: splits should be name → share of the keys, or a list of names with split_by=function, got "
                f"{brief(splits)}."
            )
        regrouped = RegroupedDeclaration(
            name=name,
            source=source,
            steps=steps_of(listed, takes=source.output_type, name=name),
            key=key,
            features=features,
            splits=(split,) if splits is None else splits,
            split_by=split_by,
            num_shards=DEFAULT_NUM_SHARDS if num_shards is None else num_shards,
            seed=seed,
            on_error=on_error,
            max_bad=max_bad,
            allow_empty=allow_empty,
            target_shard_bytes=target_shard_bytes,
            expectations=expectations,
        )
        from beam_pipes.beam.regrouped import writer

        writer(regrouped, "cache")  # the options of the end of the job, checked before there is a job
        return regrouped
    of_others = {"key": key is not ..., "num_shards": num_shards is not None, "split_by": split_by is not None}
    if (option := _first_given(of_others)) is not None:
        raise DeclarationError(
            f"{where}: {option} belongs to lists of stages with a PTransform, whose records are known by a key; here "
            f"is none, and records are known by their place in the source. Leave {option} out: {_INSTEAD[option]}."
        )
    if isinstance(source, Mapping):
        if splits is not None:
            raise DeclarationError(
                f"{where}: there is a source for each of {', '.join(map(repr, source))}, so splits are "
                "given twice. Leave splits out, or give one source."
            )
        source = SplitSources(source)
    by_source = tuple(source.sources) if isinstance(source, SplitSources) else ()
    if not isinstance(source, Source):
        raise _no_source(where, "a source, or split → source", source)
    pipeline = StageList(stages, takes=source.output_type, by_source=by_source, splits=splits, split=split, name=name)
    return Declaration(
        name=name,
        source=source,
        pipeline=pipeline,
        features=features,
        analyzers=analyzers,
        split=split,
        seed=seed,
        on_error=on_error,
        max_bad=max_bad,
        allow_empty=allow_empty,
        record_timeout_secs=record_timeout_secs,
        record_memory_bytes=record_memory_bytes,
        target_shard_bytes=target_shard_bytes,
        fingerprints={} if fingerprints is None else fingerprints,
        expectations=expectations,
    )


def _first_given(options: Mapping[str, bool]) -> str | None:
    return next((option for option, is_given in options.items() if is_given), None)


def _no_source(where: str, expected: str, found: object) -> DeclarationError:
    return DeclarationError(
        f'{where}: expected {expected}, got {brief(found)}. Example: TextLines("poem.txt"), from beam_pipes.sources.'
    )


@overload
def build(
    declaration: Declaration | RegroupedDeclaration | str,
    /,
    *,
    to: str | os.PathLike[str],
    options: LocalOptions | BeamOptions | None = None,
    workers: int | None = None,
    accept_code_change: bool = False,
    overwrite: bool = False,
    saved_plan: SavedPlan | None = None,
    keep: int | None = DEFAULT_KEEP,
    progress: Progress | None = None,
) -> BuildResult: ...
@overload
def build(
    name: str,
    source: Source | Mapping[str, Source],
    stages: Stages | Sequence[Step],
    /,
    *,
    to: str | os.PathLike[str],
    key: KeyOf | EllipsisType | None = ...,
    num_shards: int | None = None,
    split_by: Callable[[Record], str] | None = None,
    splits: Mapping[str, float] | Sequence[str] | Stage | None = None,
    features: Features | FeaturesBySplit | None = None,
    analyzers: Sequence[Analyzer] = (),
    split: str = "train",
    seed: int = 0,
    on_error: OnError = "fail",
    max_bad: MaxBad = "tenth",
    allow_empty: bool = False,
    record_timeout_secs: float | None = None,
    record_memory_bytes: int | None = None,
    target_shard_bytes: int = DEFAULT_TARGET_SHARD_BYTES,
    fingerprints: Mapping[str, str] | None = None,
    expectations: Sequence[Expectation] = (),
    options: LocalOptions | BeamOptions | None = None,
    workers: int | None = None,
    accept_code_change: bool = False,
    overwrite: bool = False,
    saved_plan: SavedPlan | None = None,
    keep: int | None = DEFAULT_KEEP,
    progress: Progress | None = None,
) -> BuildResult: ...
def build(
    declared: Declaration | RegroupedDeclaration | str,
    source: Source | Mapping[str, Source] | None = None,
    stages: Stages | Sequence[Step] | None = None,
    /,
    *,
    to: str | os.PathLike[str] | None = None,
    options: LocalOptions | BeamOptions | None = None,
    workers: int | None = None,
    accept_code_change: bool = False,
    overwrite: bool = False,
    saved_plan: SavedPlan | None = None,
    keep: int | None = DEFAULT_KEEP,
    progress: Progress | None = None,
    **declaring: Any,
) -> BuildResult:
    """Builds a cache in the directory `to`: of a source and stages, of a `Declaration`, or of `"module:name"`.

        build("poem", TextLines("poem.txt"), [tokenize], splits={"train": 0.9, "eval": 0.1}, to="cache")
        build(declaration, to="cache")
        build("poem:declaration", to="gs://bucket/cache", options=DataflowOptions(...))

    What is already built is not built again: call it as often as you like. A killed build resumes where it stopped.

    Args:
        to: the directory of the cache, or a `gs://` path; `Loader("cache/train", ...)` reads it.
        key, num_shards, split_by, splits, features, analyzers, split, seed, on_error, max_bad, allow_empty,
            record_timeout_secs, record_memory_bytes, target_shard_bytes, fingerprints, expectations: what is built, see
            `declare`.
        options: the runner; all cores of this machine if left out.
        workers: the number of processes on this machine, short for `options=LocalOptions(workers=...)`. 1 runs
            everything in this process.
        accept_code_change, overwrite, saved_plan, keep, progress: see `beam_pipes.runners.build`.

    Returns the result: `result.account` accounts for every record.

    Raises a `BeamPipesError` that says what to do; then the published snapshot stays.
    """
    from beam_pipes.runners.build import build as build_declaration
    from beam_pipes.runners.options import LocalOptions

    if workers is not None:
        if options is not None:
            raise DeclarationError(
                f"build: workers={workers} is short for options=LocalOptions(workers={workers}), and options are given "
                "too. Leave one of them out."
            )
        options = LocalOptions(workers=workers)
    if to is None:
        raise DeclarationError('build: expected the directory of the cache as to=…. Example: build(…, to="cache").')
    if isinstance(declared, str) and (source is not None or ":" not in declared):
        if source is None or stages is None:
            raise DeclarationError(
                f"build({declared!r}, …): expected a source and stages behind the name. Example: "
                f'build({declared!r}, TextLines("poem.txt"), [tokenize], to="cache"). A declaration in a module is '
                'named "module:name".'
            )
        declared = declare(declared, source, stages, **declaring)
    elif source is not None or stages is not None or declaring:
        what = "a source or stages" if source is not None or stages is not None else ", ".join(sorted(declaring))
        raise DeclarationError(
            f"build: a declaration says itself what is built, got {what} beside it. Write build(declaration, "
            'to="cache"), and dataclasses.replace(declaration, seed=1) for another one.'
        )
    elif not isinstance(declared, Declaration | RegroupedDeclaration | str):
        raise DeclarationError(
            f"build: expected a name with a source and stages, a Declaration, or 'module:name', got {brief(declared)}."
        )
    return build_declaration(
        declared,
        to,
        options=options,
        accept_code_change=accept_code_change,
        overwrite=overwrite,
        saved_plan=saved_plan,
        keep=keep,
        progress=progress,
    )
