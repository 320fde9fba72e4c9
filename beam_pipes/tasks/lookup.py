"""Tasks and mixtures by name."""

from __future__ import annotations

from typing import Any

from beam_pipes.errors import TaskError, UnknownNameError
from beam_pipes.tasks.mixture import Mixture
from beam_pipes.tasks.registry import MixtureRegistry, TaskRegistry, did_you_mean
from beam_pipes.tasks.task import Task


def get_mixture_or_task(task_or_mixture_name: str) -> Task | Mixture:
    """The mixture of a name, or else the task.

    Raises:
        UnknownNameError: there is neither; the message has the nearest names.
    """
    if task_or_mixture_name in MixtureRegistry.names():
        return MixtureRegistry.get(task_or_mixture_name)
    if task_or_mixture_name in TaskRegistry.names():
        return TaskRegistry.get(task_or_mixture_name)
    known = [*MixtureRegistry.names(), *TaskRegistry.names()]
    raise UnknownNameError(
        f"No Task or Mixture found with name '{task_or_mixture_name}'.{did_you_mean(task_or_mixture_name, known)[1:]}",
        name=task_or_mixture_name,
    )


def maybe_get_mixture_or_task(task: Any) -> Task | Mixture:
    """The object itself, or the one of a name."""
    if isinstance(task, str):
        return get_mixture_or_task(task)
    if isinstance(task, (Task, Mixture)):
        return task
    raise TaskError(f"User passed in a task that was not a string, Task, or Mixture. Got type: {type(task)}")


def get_subtasks(task_or_mixture: Task | Mixture) -> list[Task]:
    """The tasks of a mixture, nested ones included; a task alone is its own."""
    return task_or_mixture.tasks if isinstance(task_or_mixture, Mixture) else [task_or_mixture]
