"""A round of an analysis as a Beam graph: source shards → their accumulators, which are stored as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_pipes.building.analysis.job import AnalysisJob, AnalysisTaskReader, write_analysis_tasks
from beam_pipes.building.analysis.plan import AnalysisTask
from beam_pipes.building.declaration import DeclarationHandle


class AnalyseShards(beam.DoFn):  # type: ignore[misc]
    """Number of a task → the index of its source shard, once its accumulators are stored.

    Doing a task again finds what is stored and leaves it: a bundle that is retried counts nothing twice.
    """

    def __init__(self, handle: DeclarationHandle, root: str, launch: str) -> None:
        self._handle = handle
        self._root = root
        self._launch = launch

    def setup(self) -> None:
        self._tasks = AnalysisTaskReader(self._root, self._launch)
        self._job = AnalysisJob(self._handle.get(), self._root)

    def process(self, number: int) -> Iterator[int]:
        yield self._job.run(self._tasks.task(number)).index


def analysis_graph(
    root: Any, handle: DeclarationHandle, directory: str, tasks: Sequence[AnalysisTask], *, launch: str
) -> Any:
    """Adds a round to the pipeline `root`; gives a PCollection of the indices of analysed source shards.

    Writes the tasks into the cache's `directory`, where workers read those of their `launch`. Nothing but their numbers
    is shuffled.
    """
    write_analysis_tasks(directory, launch, tasks)
    names = sorted({name for task in tasks for name in task.places})
    created = root | "Source shards" >> beam.Create(range(len(tasks)), reshuffle=False)
    spread = created | "Spread source shards" >> beam.Reshuffle()
    return spread | f"Analyse {', '.join(names)}" >> beam.ParDo(AnalyseShards(handle, directory, launch))
