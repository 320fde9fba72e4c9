"""Making a task or mixture anew with something changed in every task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beam_pipes.tasks.lookup import maybe_get_mixture_or_task
from beam_pipes.tasks.mixture import Mixture
from beam_pipes.tasks.registry import MixtureRegistry, TaskRegistry
from beam_pipes.tasks.task import Task


def rebuilt(
    mixture_or_task: Any, new_name: str, change: Callable[[Task, str], Task], *, register: bool
) -> Task | Mixture:
    """`change(task, name)` of the task, or of every task of the mixture as `{new_name}.{task}`, at the same rates."""
    original = maybe_get_mixture_or_task(mixture_or_task)
    if isinstance(original, Task):
        task = change(original, new_name)
        if register:
            TaskRegistry.add_provider(new_name, task)
        return task
    tasks = []
    for inner in original.tasks:
        task = change(inner, f"{new_name}.{inner.name}")
        if register:
            TaskRegistry.add_provider(task.name, task)
        tasks.append((task, original.get_rate(inner)))
    mixture = Mixture(new_name, tasks, sample_fn=original.sample_fn, exhaustion=original.exhaustion)
    if register:
        MixtureRegistry.add_provider(new_name, mixture)
    return mixture
