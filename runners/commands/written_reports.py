"""The reports that builds write: of one cache, or of the caches of tasks and of all of them together."""

from __future__ import annotations

from beam_pipes.building.declaration import Declaration
from beam_pipes.cache.storage import is_remote
from beam_pipes.errors import BeamPipesError
from beam_pipes.report import write_overview, write_report
from beam_pipes.runners.cache_tasks import TaskCache
from beam_pipes.runners.commands.tables import console
from beam_pipes.runners.commands.task_options import show_outcome


def show_report(path: str, *, declaration: Declaration | None = None) -> None:
    """Writes the report and says where it lies; the cache is published already, so a page that fails only tells so.

    With the declaration examples show their source records; no stage is run for them again.
    """
    try:
        written = write_report(path, declaration=declaration, run_stages=False)
        console.print(f"What is in it: {written}", markup=False)
    except (BeamPipesError, OSError) as error:
        told = f"No report was written: {error}. The cache is published; `beam-pipes report {path}` tries again."
        console.print(told, markup=False)


class TaskReports:
    """Shows what became of tasks, and writes the report of each that was built; `close` writes the one about all."""

    def __init__(self, path: str, *, report: bool | None) -> None:
        self._path = path
        self._report = report
        self._written = 0

    def show(self, cached: TaskCache) -> None:
        """One line for one task; behind it where its report lies, if a new snapshot was published."""
        show_outcome(cached)
        if cached.result is not None and not cached.result.up_to_date and wants_report(self._report, cached.path):
            show_report(cached.path)
            self._written += 1

    def close(self) -> None:
        """Writes the page about all caches in the directory, where anything was built."""
        if self._written:
            try:
                console.print(f"All of them: {write_overview(self._path)}", markup=False)
            except (BeamPipesError, OSError) as error:
                console.print(f"No overview was written: {error}.", markup=False)


def wants_report(report: bool | None, path: str) -> bool:
    """Whether a build writes its report: as asked for, by default where the cache is local.

    On an object store it would fetch whole shards for a few examples.
    """
    return not is_remote(path) if report is None else report
