"""`TaskReference`: how a worker finds a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beam_pipes.errors import DeclarationError
from beam_pipes.identity.user_module import import_user_module
from beam_pipes.tasks.registry import TaskRegistry
from beam_pipes.tasks.task import Task


class TaskReference:
    """A task by the name it is registered under, and the modules to import so that it is.

    It travels to workers as names; there the modules are imported when the task is first asked for.

    Args:
        task: a name, or a task that is registered nowhere, which cannot leave this process.
        modules: names of modules to import first.
    """

    def __init__(self, task: str | Task, modules: Sequence[str] = ()) -> None:
        self.name = task if isinstance(task, str) else task.name
        self.modules = tuple(modules)
        self._task: Task | None = None if isinstance(task, str) else task

    def get(self) -> Task:
        """The task.

        Raises `UnknownNameError` where no module has registered it, `DeclarationError` where a module cannot be found.
        """
        if self._task is None:
            import_modules(self.modules)
            self._task = TaskRegistry.get(self.name)
        return self._task

    def __getstate__(self) -> dict[str, Any]:
        if self._task is not None and (
            self.name not in TaskRegistry.names() or TaskRegistry.get(self.name) is not self._task
        ):
            raise DeclarationError(
                f"task {self.name!r} is registered nowhere, so other processes cannot find it. Register it in a "
                "module with TaskRegistry.add, or build with workers=1.",
                task=self.name,
            )
        return {"name": self.name, "modules": self.modules, "_task": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"TaskReference({self.name!r}, modules={list(self.modules)})"


def import_modules(modules: Sequence[str]) -> None:
    """Imports the modules that register tasks. Raises `DeclarationError` where one is not there, or fails."""
    for module in modules:
        import_user_module(module)
