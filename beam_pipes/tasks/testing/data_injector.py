"""Other data for a registered task, for the time of a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.registry import TaskRegistry
from beam_pipes.tasks.sources.function_source import FunctionDataSource


class DataInjector:
    """`with DataInjector("my_task", {"test": dataset}): ...` — the task reads these datasets, or lists of
    examples, inside.

    Raises:
        TaskError: at the end, if the source has been changed in between.
    """

    def __init__(self, task_name: str, per_split_data: Mapping[str, Any]) -> None:
        self._task = TaskRegistry.get(task_name)
        self._data = dict(per_split_data)

    def __enter__(self) -> DataInjector:
        def inject(split: str, shuffle_files: bool = False, seed: int | None = None) -> Any:
            return self._data[split]

        self._saved = self._task._source
        self._injected = FunctionDataSource(inject, splits=list(self._data))
        self._task._source = self._injected
        return self

    def __exit__(self, *error: object) -> None:
        if self._task._source is not self._injected:
            raise TaskError("The task source was changed and not restored within the DataInjector scope.")
        self._task._source = self._saved
