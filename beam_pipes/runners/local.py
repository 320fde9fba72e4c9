"""The local runner: shard jobs on all cores, in bounded memory.

Each worker takes one source shard at a time and streams it through the whole declaration, so memory is a few batches
per worker whatever the size of the input. Beam's own local runners hold whole stages in memory and share one core
(docs/decisions/local-runner.md has the measurements).

Stalls: one line for each shard job that has been silent for long.

`run_analysis` runs the analyzers of a declaration on the runner of its build.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from beam_pipes.building.analysis.analyse import Analysed, analyse
from beam_pipes.building.analysis.job import AnalysisJob, run_in_processes
from beam_pipes.building.analysis.plan import AnalysisTask
from beam_pipes.building.leftovers import remove_temporaries, writing
from beam_pipes.building.plan import PlannedInput
from beam_pipes.building.reading import ShardFigures, StageFigures
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_job import ShardJob
from beam_pipes.building.shard_task import BuildHeader, ShardReport, ShardTask
from beam_pipes.building.workers.pool import HasShard, WorkerPool, files_of, now_and_then
from beam_pipes.errors import visible
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.runners.progress import Counts, Progress


def run_local(
    handle: DeclarationHandle,
    header: BuildHeader,
    tasks: Sequence[ShardTask],
    *,
    workers: int,
    counts: Counts,
    progress: Progress,
    stall_secs: float = 300.0,
) -> list[ShardReport]:
    """Runs all tasks on `workers` processes; reports come in the order in which shards finish.

    With 1 everything runs in this process, unless records have limits: work that may have to be killed runs in a
        separate process. A shard that is silent for `stall_secs` is named on standard error.

    Raises what a shard job raised, or `WorkerDiedError` naming the shard a process died on. Shards committed before
    that
    stay committed: the next build continues from them.
    """
    workers = min(workers, len(tasks))
    watch = StallWatch(stall_secs)
    if not tasks or (workers <= 1 and not handle.get().record_limits):
        with watch.on_a_thread():
            return _run_inline(handle, header, tasks, counts, progress, watch)
    try:
        with WorkerPool(handle, header, workers=workers) as pool:
            return pool.run(tasks, _Shown(counts, progress, watch))
    finally:
        remove_temporaries(header.root)


def _run_inline(
    handle: DeclarationHandle,
    header: BuildHeader,
    tasks: Sequence[ShardTask],
    counts: Counts,
    progress: Progress,
    watch: StallWatch,
) -> list[ShardReport]:
    job = ShardJob(handle.get(), header)
    shown = _Shown(counts, progress, watch)
    reports = []

    for task in tasks:

        def told(figures: ShardFigures, task: ShardTask = task) -> None:
            shown.told(task, os.getpid(), figures)
            progress.update(counts)

        shown.began(task, os.getpid())
        with now_and_then(told) as tell:
            reports.append(job.run(task, tell=tell))
        shown.finished(task)
        progress.update(counts)
    return reports


class _Shown:
    """Counts and shows what tasks report."""

    def __init__(self, counts: Counts, progress: Progress, watch: StallWatch) -> None:
        self._counts = counts
        self._progress = progress
        self._watch = watch
        self._told: dict[int, ShardFigures] = {}  # of the shards that are not finished

    def began(self, task: ShardTask, pid: int) -> None:
        self._watch.told(task, pid=pid)
        self._counts.add(self._told.pop(task.index, ShardFigures()), times=-1)

    def told(self, task: ShardTask, pid: int, figures: ShardFigures) -> None:
        self._counts.add(figures)
        self._told.setdefault(task.index, ShardFigures()).add(figures)
        self._watch.told(task, pid=pid)

    def finished(self, task: ShardTask) -> None:
        self._watch.finished(task)
        self._told.pop(task.index, None)
        self._counts.done_shards += 1

    def idle(self) -> None:
        self._watch.check()
        self._progress.update(self._counts)


# The thread that watches may be writing to a standard error that nobody reads.
_JOIN_SECS = 5.0


class StallWatch:
    """Reports each running shard job once when it has been silent for `stall_secs`, and again after its next report.

    It only reports: a record may legitimately take hours, and the user decides.
    """

    def __init__(self, stall_secs: float, *, report: Callable[[str], None] | None = None) -> None:
        self._stall_secs = stall_secs
        self._report = report if report is not None else _print
        self._running: dict[int, tuple[HasShard, int, float]] = {}  # shard → (task, process, when it last told)
        self._reported: set[int] = set()

    def told(self, task: HasShard, *, pid: int) -> None:
        """The job has started, or gives a sign of life."""
        self._running[task.index] = (task, pid, time.monotonic())
        self._reported.discard(task.index)

    def finished(self, task: HasShard) -> None:
        """The job has ended."""
        self._running.pop(task.index, None)
        self._reported.discard(task.index)

    def check(self) -> None:
        """Reports who is late."""
        now = time.monotonic()
        for index, (task, pid, last) in list(self._running.items()):
            if now - last >= self._stall_secs and index not in self._reported:
                self._reported.add(index)
                self._report(
                    f"beam-pipes: source shard {index} ({files_of(task)}) has reported nothing for {now - last:.0f} s; "
                    f"process {pid} is still working on it."
                )

    @contextlib.contextmanager
    def on_a_thread(self) -> Iterator[None]:
        """Checks from a thread during the block, for jobs that run in this process."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(min(1.0, self._stall_secs / 2)):
                self.check()

        thread = threading.Thread(target=watch, name="beam-pipes stall watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_JOIN_SECS)


def _print(line: str) -> None:
    # A progress line that is rewritten in place has no end of its own.
    print(f"{os.linesep if sys.stderr.isatty() else ''}{visible(line)}", file=sys.stderr, flush=True)


def run_analysis(
    handle: DeclarationHandle,
    planned: PlannedInput,
    *,
    options: LocalOptions | BeamOptions,
    progress: Progress,
) -> Analysed:
    """Computes the missing results of all analyzers, and binds them; for the holder of the build lock.

    Source shards are analysed by the runner of the build, accumulators are merged here. After any interruption it
    continues from the finished accumulators. Raises what a build raises.
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
