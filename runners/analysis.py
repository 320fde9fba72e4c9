"""Runs the analyzers of a declaration where its build runs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from beam_pipes.building.analysis.analyse import Analysed, analyse
from beam_pipes.building.analysis.job import AnalysisJob, run_in_processes
from beam_pipes.building.analysis.plan import AnalysisTask
from beam_pipes.building.declaration import DeclarationHandle
from beam_pipes.building.leftovers import remove_temporaries, writing
from beam_pipes.building.plan import PlannedInput
from beam_pipes.building.reading import ShardFigures, StageFigures
from beam_pipes.runners.local import StallWatch
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.runners.progress import Counts, Progress


def run_analysis(
    handle: DeclarationHandle,
    planned: PlannedInput,
    *,
    options: LocalOptions | BeamOptions,
    progress: Progress,
) -> Analysed:
    """Makes the results of all analyzers that are not there yet, and binds them; for the holder of the build lock.

    Source shards are analysed by the runner of the build, accumulators are merged here. After any interruption it goes
    on from the accumulators that are finished. Raises what a build raises.
    """
    root = planned.root
    with writing(root):
        remove_temporaries(root)
    shown: list[Counts] = []

    def run_tasks(tasks: Sequence[AnalysisTask]) -> None:
        counts = Counts(num_shards=len(tasks), stages=dict.fromkeys(n for task in tasks for n in _stages(task)))
        shown.append(counts)
        if isinstance(options, LocalOptions):
            _run_locally(handle, root, tasks, options=options, counts=counts, progress=progress)
        else:
            from beam_pipes.runners.beam_job import run_analysis_on_beam

            run_analysis_on_beam(handle, root, tasks, options=options)
        counts.done_shards = counts.num_shards
        progress.update(counts)

    try:
        return analyse(handle.get(), root, planned.source, generation=planned.generation, run_tasks=run_tasks)
    except BaseException:
        for counts in shown[-1:]:
            progress.close(counts)
        raise


def _run_locally(
    handle: DeclarationHandle,
    root: str,
    tasks: Sequence[AnalysisTask],
    *,
    options: LocalOptions,
    counts: Counts,
    progress: Progress,
) -> None:
    stalls = StallWatch(options.stall_secs)

    def watch(task: AnalysisTask, pid: int, records: int | None) -> None:
        if records is None:
            stalls.finished(task)
            counts.done_shards += 1
        else:
            stalls.told(task, pid=pid)
            counts.add(_figures(task, records))

    def idle() -> None:
        stalls.check()
        progress.update(counts)

    if options.num_workers <= 1 or len(tasks) <= 1:
        job = AnalysisJob(handle.get(), root)
        with stalls.on_a_thread():
            for task in tasks:

                def tell(records: int, task: AnalysisTask = task) -> None:
                    watch(task, os.getpid(), records)
                    progress.update(counts)

                tell(0)
                job.run(task, tell=tell)
                watch(task, os.getpid(), None)
        return
    try:
        run_in_processes(handle, root, tasks, workers=options.num_workers, watch=watch, idle=idle)
    finally:
        remove_temporaries(root)


def _stages(task: AnalysisTask) -> list[str]:
    return [f"analyse {name}" for name in task.places]


def _figures(task: AnalysisTask, records: int) -> ShardFigures:
    return ShardFigures(records=records, stages={name: StageFigures(inputs=records) for name in _stages(task)})
