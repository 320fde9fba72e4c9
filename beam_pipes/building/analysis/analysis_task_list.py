"""The tasks of an analysis as files: a job names them by number, so that its request stays small."""

from __future__ import annotations

from collections.abc import Sequence

from beam_pipes.building.analysis.analysis_plan import DIRECTORY
from beam_pipes.building.analysis.analysis_task import AnalysisTask
from beam_pipes.building.numbered_rows import NumberedRows
from beam_pipes.errors import AnalysisError


def write_analysis_tasks(root: str, tasks: Sequence[AnalysisTask]) -> None:
    """Writes the tasks of a round; their numbers are `range(len(tasks))`."""
    _rows(root).write([task.to_json() for task in tasks])


def remove_analysis_tasks(root: str) -> None:
    """Removes what `write_analysis_tasks` wrote; it is no error if there is nothing."""
    _rows(root).remove()


class AnalysisTaskReader:
    """The tasks of a round by number."""

    def __init__(self, root: str) -> None:
        self._rows = _rows(root)

    def task(self, number: int) -> AnalysisTask:
        return AnalysisTask.from_json(self._rows[number])


def _rows(root: str) -> NumberedRows:
    return NumberedRows(f"{root}/{DIRECTORY}/tasks", what="tasks of the analysis", error=AnalysisError)
