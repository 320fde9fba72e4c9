"""The same task with another vocabulary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.cache_placeholder import CacheDatasetPlaceholder
from beam_pipes.tasks.features import Feature
from beam_pipes.tasks.mixture import Mixture
from beam_pipes.tasks.rebuilding import rebuilt
from beam_pipes.tasks.task import Task
from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary


def mixture_or_task_with_new_vocab(
    mixture_or_task: Any,
    new_mixture_or_task_name: str,
    *,
    new_vocab: Vocabulary | None = None,
    new_output_features: Mapping[str, Feature] | None = None,
    add_to_seqio_registry: bool = True,
    add_cache_placeholder: bool = False,
    validate_features: bool = True,
) -> Task | Mixture:
    """A task or mixture like another one, with another vocabulary for all features, or with other features.

    Args:
        mixture_or_task: a name or an object.
        new_mixture_or_task_name: the new name; tasks of a mixture become `{new name}.{task}`, and
            mixtures inside it `{new name}.{mixture}`. Rates that are functions are called with the new tasks.
        new_vocab: the vocabulary of every feature.
        new_output_features: the features, instead.
        add_to_seqio_registry: register what is made.
        add_cache_placeholder: put a `CacheDatasetPlaceholder` first, if there is none.
        validate_features: new features must have the names, dtypes and ranks of the old ones, or be fewer.

    Raises:
        TaskError: both or none of vocabulary and features are given, or the features do not fit.
    """
    if (new_vocab is None) == (new_output_features is None):
        raise TaskError("exactly one of `new_vocab` and `new_output_features` must be specified.")

    def change(task: Task, name: str) -> Task:
        if new_vocab is not None:
            features: Mapping[str, Feature] = {
                key: dataclasses.replace(feature, vocabulary=new_vocab) for key, feature in task.output_features.items()
            }
        else:
            features = dict(new_output_features or {})
            if validate_features:
                _check(task.output_features, features)
        steps = list(task.preprocessors)
        if add_cache_placeholder and not task.supports_caching:
            steps.insert(0, CacheDatasetPlaceholder())
        return task.replace(name=name, output_features=features, preprocessors=steps)

    return rebuilt(mixture_or_task, new_mixture_or_task_name, change, register=add_to_seqio_registry)


def _check(old: Mapping[str, Feature], new: Mapping[str, Feature]) -> None:
    unknown = set(new) - set(old)
    if unknown:
        raise TaskError(
            f"new_output_features: {dict(new)} doesn't match original output_features: {dict(old)} "
            f"(new: {sorted(unknown)})"
        )
    for name, feature in new.items():
        if (feature.rank, feature.dtype) != (old[name].rank, old[name].dtype):
            raise TaskError(
                f"new_output_features: {dict(new)} incompatible with original output_features: {dict(old)} "
                f"(dtype or rank of '{name}')",
                feature=name,
            )
