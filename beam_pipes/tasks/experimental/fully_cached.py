"""Tasks that are cached whole, for one sequence length."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.cache_placeholder import CacheDatasetPlaceholder
from beam_pipes.tasks.mixture import Mixture
from beam_pipes.tasks.registry import MixtureRegistry, TaskRegistry
from beam_pipes.tasks.signatures import parameters
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
        functools.partial(step, sequence_length=fixed) if _takes_length(step) else step
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


def _takes_length(step: Any) -> bool:
    return "sequence_length" in parameters(step)


def add_fully_cached_mixture(
    mixture_name: str, sequence_length: Mapping[str, int], disallow_shuffling: bool = False
) -> Mixture:
    """Registers a mixture of the fully cached tasks of another one, at the same rates."""
    mixture = MixtureRegistry.get(mixture_name)
    return MixtureRegistry.add(
        fully_cached_name(mixture_name, sequence_length),
        [
            (add_fully_cached_task(task.name, sequence_length, disallow_shuffling).name, mixture.get_rate(task))
            for task in mixture.tasks
        ],
        sample_fn=mixture.sample_fn,
        exhaustion=mixture.exhaustion,
    )
