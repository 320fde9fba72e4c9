"""Tasks that are cached whole, for one sequence length."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.cache_placeholder import CacheDatasetPlaceholder
from beam_pipes.tasks.mixture import Mixture
from beam_pipes.tasks.registry import MixtureRegistry, TaskRegistry
from beam_pipes.tasks.signatures import add_kwargs_to_transform
from beam_pipes.tasks.task import Task
from beam_pipes.tasks.trimming import trim_dataset


def fully_cached_name(original_name: str, sequence_length: Mapping[str, int]) -> str:
    """`("base", {"inputs": 512, "targets": 114})` → `base_i512_t114`; longer prefixes where names begin alike."""
    names = sorted(sequence_length)
    size = 1
    while len({name[:size] for name in names}) < len(names):
        size += 1
    return "_".join([original_name, *(f"{name[:size]}{sequence_length[name]}" for name in names)])


def add_fully_cached_task(task_name: str, sequence_length: Mapping[str, int], disallow_shuffling: bool = False) -> Task:
    """Registers a task like another one, with all of its steps before the cut, for one sequence length.

    Steps that take `sequence_length` may be cached that way. The task can be read from its cache only, with this
    length or with none.
    If it is registered already, it is returned.

    Args:
        task_name: the task.
        sequence_length: feature → length.
        disallow_shuffling: the order of the cache is kept.
    """
    task = TaskRegistry.get(task_name)
    name = fully_cached_name(task_name, sequence_length)
    if name in TaskRegistry.names():
        return TaskRegistry.get(name)
    fixed = dict(sequence_length)

    def check_sequence_length(dataset: Any, sequence_length: Mapping[str, int] | None) -> Any:
        if sequence_length is not None and dict(sequence_length) != fixed:
            raise TaskError(
                f"Fully-cached task '{name}' can only be loaded with `sequence_length={fixed}` or `None`. Given "
                f"sequence_length={sequence_length}.",
                task=name,
            )
        return dataset

    steps = [
        add_kwargs_to_transform(step, sequence_length=fixed)
        for step in task.preprocessors
        if not isinstance(step, CacheDatasetPlaceholder)
    ]
    trim = functools.partial(trim_dataset, sequence_length=fixed)
    return TaskRegistry.add(
        name,
        source=task.source,
        preprocessors=[*steps, trim, CacheDatasetPlaceholder(required=True), check_sequence_length],
        output_features=task.output_features,
        postprocess_fn=task.postprocessor,
        metric_fns=task.metric_fns,
        metric_objs=task.metric_objs,
        shuffle_buffer_size=None if disallow_shuffling else task.shuffle_buffer_size,
    )


def add_fully_cached_mixture(
    mixture_name: str, sequence_length: Mapping[str, int], disallow_shuffling: bool = False
) -> Mixture:
    """Registers a mixture of the fully cached tasks of another one, at the same rates.

    A rate that is a function is called with the fully cached task, whose number of examples may be another one.
    """

    def cached(entry: Task | Mixture) -> Task | Mixture:
        if isinstance(entry, Task):
            return add_fully_cached_task(entry.name, sequence_length, disallow_shuffling)
        entries = [(cached(inner), rate) for inner, rate in entry.entries]
        return entry.with_entries(fully_cached_name(entry.name, sequence_length), entries)

    mixture = cached(MixtureRegistry.get(mixture_name))
    assert isinstance(mixture, Mixture)
    MixtureRegistry.add_provider(mixture.name, mixture)
    return mixture
