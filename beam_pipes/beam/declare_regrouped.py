"""A list of stages and PTransforms as a `RegroupedDeclaration`, for `beam_pipes.declare`.

    [strip, click, beam.GroupByKey(), summarize]  →  [StageList([strip, click]), GroupByKey(), StageList([summarize])]

Whatever can be checked before the job runs is checked here: the types from stage to stage, the options of
`WriteToCache`, and options that only builds of records at their place in the source have.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any

from beam_pipes.beam.regrouped import writer
from beam_pipes.building.declaration import MaxBad
from beam_pipes.building.expectation import Expectation
from beam_pipes.building.regrouped import KeyOf, RegroupedDeclaration
from beam_pipes.engine.execute import OnError
from beam_pipes.engine.graph import brief, is_beam_transform
from beam_pipes.errors import DeclarationError
from beam_pipes.sources.source import Source, SplitSources
from beam_pipes.typed.stage_list import StageList

# Option of builds → what to do without it.
_INSTEAD = {
    "analyzers": "Compute what they find in the Beam pipeline, or declare the stages before the PTransform as a cache",
    "record_timeout_secs": "Declare the stages that may hang as a cache of their own, before the PTransform",
    "record_memory_bytes": "Declare the stages that may grow as a cache of their own, before the PTransform",
    "fingerprints": "The snapshot is named by a digest of its records, whatever they were made of",
}


def declare_regrouped(
    name: str,
    source: Source | Mapping[str, Source],
    stages: Sequence[Any],
    *,
    key: KeyOf | EllipsisType | None,
    num_shards: int,
    split_by: Callable[[Any], str] | None,
    splits: Any,
    features: Mapping[str, Any] | None,
    split: str,
    seed: int,
    on_error: OnError,
    max_bad: MaxBad,
    allow_empty: bool,
    target_shard_bytes: int,
    expectations: Sequence[Expectation],
    of_builds: Mapping[str, bool],
) -> RegroupedDeclaration:
    """The declaration, checked. `of_builds`: the options that only other declarations have, and whether each is given.

    Raises `DeclarationError` and `TypeMismatchException`, as `declare` does.
    """
    where = f"declaration {name!r}"
    transform = next(str(each.label) for each in stages if is_beam_transform(each))
    for option, is_given in of_builds.items():
        if is_given:
            raise DeclarationError(
                f"{where}: {option} needs records at their place in the source, and the PTransform {transform!r} may "
                f"regroup them. {_INSTEAD[option]}; leave {option} out."
            )
    if isinstance(source, Mapping | SplitSources):
        raise DeclarationError(
            f"{where}: there is a source for each split, and the PTransform {transform!r} may regroup records of "
            "several. Give one source, and splits={split: share}, or splits=[names] and split_by=function."
        )
    if not isinstance(source, Source):
        raise DeclarationError(
            f"{where}: expected a source, got {brief(source)}. Example: TextLines('poem.txt'), from beam_pipes.sources."
        )
    if isinstance(key, EllipsisType):
        raise DeclarationError(
            f"{where}: behind the PTransform {transform!r} records have no place in the source, so a key has to tell "
            "them apart: it gives their split, their shard and their id. Give key='the name of a feature', "
            "key=function, or key=None for their content."
        )
    if splits is not None and (isinstance(splits, str) or not isinstance(splits, Mapping | Sequence)):
        raise DeclarationError(
            f"{where}: splits should be name → share of the keys, or a list of names with split_by=function, got "
            f"{brief(splits)}."
        )
    declaration = RegroupedDeclaration(
        name=name,
        source=source,
        steps=_steps(name, source, stages),
        key=key,
        features=features,
        splits=(split,) if splits is None else splits,
        split_by=split_by,
        num_shards=num_shards,
        seed=seed,
        on_error=on_error,
        max_bad=max_bad,
        allow_empty=allow_empty,
        target_shard_bytes=target_shard_bytes,
        expectations=expectations,
    )
    writer(declaration, "cache")
    return declaration


def _steps(name: str, source: Source, stages: Sequence[Any]) -> tuple[Any, ...]:
    """PTransforms as they are, and the stages between two of them as one pipeline each."""
    found: list[Any] = []
    takes: type | None = source.output_type
    groups = [(is_transform, list(group)) for is_transform, group in itertools.groupby(stages, is_beam_transform)]
    for position, (is_transform, group) in enumerate(groups):
        if is_transform:
            found += group
        else:
            found.append(StageList(group, takes=takes, name=name, inner=position + 1 < len(groups)))
        takes = None
    return tuple(found)
