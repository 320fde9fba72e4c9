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
    """`change(task, name)` of the task, or of every task of the mixture as `{new_name}.{task}`.

    A mixture keeps its rates as they were declared: one that is a function is called with the new task. A mixture
    inside is made anew as `{new_name}.{mixture}`.
    """
    original = maybe_get_mixture_or_task(mixture_or_task)
    tasks: dict[str, Task] = {}
    mixtures: dict[str, Mixture] = {}

    def remake(entry: Task | Mixture, name: str) -> Task | Mixture:
        if isinstance(entry, Task):
            if name not in tasks:
                tasks[name] = change(entry, name)
                if register:
                    TaskRegistry.add_provider(name, tasks[name])
            return tasks[name]
        if name not in mixtures:
            entries = [(remake(inner, f"{new_name}.{inner.name}"), rate) for inner, rate in entry.entries]
            mixtures[name] = entry.with_entries(name, entries)
            if register:
                MixtureRegistry.add_provider(name, mixtures[name])
        return mixtures[name]

    return remake(original, new_name)
