"""`declare` and `build`: from a source and a list of stages to a cache, in one call.

    build("poem", TextLines("poem.txt"), [tokenize], splits={"train": 0.9, "eval": 0.1}, to="cache")

`declare` takes the same and returns the `Declaration`, for the command line (`beam-pipes build poem:declaration`), for
other runners and for tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from beam_pipes.building.declaration import DEFAULT_NUM_SHARDS, BeamSteps, Declaration, DeclarationOptions, KeyOf
from beam_pipes.building.leftovers import DEFAULT_KEEP
from beam_pipes.engine.graph import Stage, Step, brief, is_beam_transform
from beam_pipes.errors import DeclarationError
from beam_pipes.format.spec import Record
from beam_pipes.sources.source import Source, SplitSources
from beam_pipes.typed.stage_list import StageFunction, StageList, steps_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from beam_pipes.building.plan import SavedPlan
    from beam_pipes.runners.build import BuildResult
    from beam_pipes.runners.options import BeamOptions, LocalOptions
    from beam_pipes.runners.progress import Progress

# One stage or several, in order, or name → stage.
Stages = Sequence[Stage | StageFunction] | Mapping[str, Stage | StageFunction] | Stage | StageFunction


class DeclareOptions(DeclarationOptions, total=False):
    """The options of `declare`. `key`, `num_shards` and `split_by` go with a PTransform among the stages."""

    splits: Mapping[str, float] | Sequence[str] | Stage | None
    key: KeyOf | None
    num_shards: int
    split_by: Callable[[Record], str] | None


# Option that only a declaration with PTransforms has → its counterpart in others.
_INSTEAD = {
    "key": "splits=RandomPartition(dict, names, shares, key=function) divides records by a key",
    "num_shards": "target_shard_bytes says how large the files are",
    "split_by": "splits takes a stage with one output for each split",
}


def declare(
    name: str,
    source: Source | Mapping[str, Source],
    stages: Stages | Sequence[Step],
    **options: Unpack[DeclareOptions],
) -> Declaration:
    """The declaration of a cache: the records of `source` through `stages`, one after the other.

        declaration = declare("poem", TextLines("poem.txt"), [tokenize], splits={"train": 0.9, "eval": 0.1})

    Put it in a module to build it from the command line: `beam-pipes build poem:declaration --to cache`.

    Args:
        name: the base name of the cache's files.
        source: where records come from; or split → source, if each split has a separate input:
            `{"train": TextLines("train.txt"), "eval": TextLines("eval.txt")}`.
        stages: functions, with or without `@stage`, and other pipelines; each runs on the output of the one before. A
            dict of name → stage renames them. The last one gives what is stored: a `dict`, a dataclass or NamedTuple
            (by its fields), a protocol buffer or `bytes`. A list may also hold `beam.PTransform`s, such as
            `beam.GroupByKey()`; then give a `key`, and it is built by one Beam pipeline (docs/beam.md).
        splits: name → share of the records. The split of a record is drawn from the seed and its position in the
            source, as `RandomPartition` does. Or a stage with one output for each split, such as
            `RandomPartition(dict, ["train", "eval"], [0.9, 0.1], key=speaker)`. If left out there is one, `split`.
        key, num_shards, split_by: only with a PTransform among the stages, see `BeamSteps`: what identifies the final
            records (the name of a feature, a function of the element, or None for its content), the files of each split
            (32), and a function that chooses the split.
        features, analyzers, split, seed, on_error, max_bad, allow_empty, record_timeout_secs, record_memory_bytes,
            target_shard_bytes, fingerprints, expectations: those of `Declaration`.

    Raises `DeclarationError` if an argument is malformed, and `TypeMismatchException` if a stage does not take
    what the one before gives: both when it is declared, before anything is read.
    """
    if not isinstance(name, str):
        raise DeclarationError(
            f'a declaration starts with its name, got {brief(name)}. Write declare("poem", source, [tokenize]).'
        )
    of_stages = cast("DeclarationOptions", {key: each for key, each in options.items() if key not in _OF_DECLARE})
    listed = list(stages) if isinstance(stages, Sequence) and not isinstance(stages, str) else [stages]
    splits, where = options.get("splits"), f"declaration {name!r}"
    if any(map(is_beam_transform, listed)):
        steps = _beam_steps(listed, source, name, options)
        declaration = Declaration(name=name, source=cast("Source", source), pipeline=steps, **of_stages)
        from beam_pipes.beam.regrouped import writer

        writer(declaration, steps, "cache")  # checks the options of the job's end before the job exists
        return declaration
    for option, instead in _INSTEAD.items():
        if option in options:
            raise DeclarationError(
                f"{where}: {option} belongs to lists of stages with a PTransform, whose records are known by a key; "
                "this list has none, and its records are identified by their position in the source. Leave "
                f"{option} out: {instead}."
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
    split = options.get("split", "train")
    pipeline = StageList(stages, takes=source.output_type, by_source=by_source, splits=splits, split=split, name=name)
    return Declaration(name=name, source=source, pipeline=pipeline, **of_stages)


# What `declare` itself takes; the other options are those of `Declaration`.
_OF_DECLARE = ("splits", *_INSTEAD)


def _beam_steps(listed: list[Step], source: object, name: str, options: DeclareOptions) -> BeamSteps:
    """A list of stages with a PTransform, and what identifies its records."""
    where, splits = f"declaration {name!r}", options.get("splits")
    transform = next(each.label for each in listed if is_beam_transform(each))
    if "key" not in options:
        raise DeclarationError(
            f"{where}: after the PTransform {transform!r} records have no place in the source, so a key has to "
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
    if splits is None:
        splits = (options.get("split", "train"),)
    if isinstance(splits, str) or not isinstance(splits, Mapping | Sequence):
        raise DeclarationError(
            f"{where}: splits should be name → share of the keys, or a list of names with split_by=function, got "
            f"{brief(splits)}."
        )
    return BeamSteps(
        steps=steps_of(listed, takes=source.output_type, name=name),
        key=options["key"],
        splits=splits,
        split_by=options.get("split_by"),
        num_shards=options.get("num_shards", DEFAULT_NUM_SHARDS),
    )


def _no_source(where: str, expected: str, found: object) -> DeclarationError:
    return DeclarationError(
        f'{where}: expected {expected}, got {brief(found)}. Example: TextLines("poem.txt"), from beam_pipes.sources.'
    )


def build(
    declared: Declaration | str,
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
    **declaring: Unpack[DeclareOptions],
) -> BuildResult:
    """Builds a cache in the directory `to`, from a source and stages, a `Declaration`, or `"module:name"`.

        build("poem", TextLines("poem.txt"), [tokenize], splits={"train": 0.9, "eval": 0.1}, to="cache")
        build(declaration, to="cache")
        build("poem:declaration", to="gs://bucket/cache", options=DataflowOptions(...))

    Nothing is built twice, so call it as often as you like. A killed build resumes where it stopped.

    Args:
        to: the directory of the cache, or a `gs://` path; `Loader("cache/train", ...)` reads it.
        splits, key, num_shards, split_by, features, analyzers, split, seed, on_error, max_bad, allow_empty,
            record_timeout_secs, record_memory_bytes, target_shard_bytes, fingerprints, expectations: what is built, see
            `declare`.
        options: the runner; all cores of this machine if left out.
        workers: the number of processes on this machine, short for `options=LocalOptions(workers=...)`. 1 runs
            everything in this process.
        accept_code_change, overwrite, saved_plan, keep, progress: see `beam_pipes.runners.build`.

    Returns the result: `result.account` accounts for every record.

    Raises a `BeamPipesError` that says what to do; the published snapshot is then unchanged.
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
                f"build({declared!r}, …): expected a source and stages after the name. Example: "
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
    elif not isinstance(declared, Declaration | str):
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
