"""The local runner: shard jobs on all cores, in bounded memory.

Each worker takes one source shard at a time and streams it through the whole declaration, so memory is a few batches
per worker whatever the size of the input. Beam's own local runners hold whole stages in memory and share one core
(docs/decisions/local-runner.md has the measurements).

Stalls: one line for each shard job that has been silent for long.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from beam_pipes.building.analysis.job import AnalysisJob, AnalysisPool
from beam_pipes.building.analysis.plan import AnalysisReport, AnalysisTask
from beam_pipes.building.commit import commit
from beam_pipes.building.leftovers import remove_temporaries, with_launches
from beam_pipes.building.plan import BuildPlan
from beam_pipes.building.progress import every
from beam_pipes.building.reading import ShardFigures
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_job import ShardJob
from beam_pipes.building.shard_task import BuildHeader, ShardReport, ShardTask
from beam_pipes.building.workers.pool import WorkerPool
from beam_pipes.building.workers.tasks import HasShard, Report, Task, Watcher, Workers, files_of, now_and_then
from beam_pipes.errors import visible
from beam_pipes.runners.options import Built, LocalOptions, Order
from beam_pipes.runners.progress import Counts, Progress
from beam_pipes.storage.local import storage_for


@dataclasses.dataclass(frozen=True)
class LocalRunner:
    """Builds on worker processes of this machine."""

    options: LocalOptions

    def analyse(
        self, handle: DeclarationHandle, root: str, tasks: Sequence[AnalysisTask], *, counts: Counts, progress: Progress
    ) -> None:
        """Stores the accumulators of all tasks."""
        inline = None
        if self.options.num_workers <= 1 or len(tasks) <= 1:
            job = AnalysisJob(handle.get(), root)

            def inline(task: AnalysisTask, send: Callable[[ShardFigures], object]) -> AnalysisReport:
                with now_and_then(send, task.book) as tell:
                    return job.run(task, tell=tell)

        _run(
            tasks,
            inline,
            lambda: AnalysisPool(handle, root, workers=min(self.options.num_workers, len(tasks))),
            root=root,
            shown=_Shown(counts, progress, StallWatch(self.options.stall_secs)),
        )

    def hand_over(self, handle: DeclarationHandle, plan: BuildPlan, *, keep: int | None) -> None:
        """Hands nothing over: the build needs this process."""

    def run(self, order: Order) -> Built:
        """Builds what is left of a plan, and publishes it."""
        header = order.plan.header
        if with_launches(header.root):
            from beam_pipes.runners.beam_job import tell_of_other_builds

            tell_of_other_builds(header, "local")
        reports = run_local(
            order.handle,
            header,
            order.tasks,
            workers=self.options.num_workers,
            counts=order.counts,
            progress=order.progress,
            stall_secs=self.options.stall_secs,
        )
        order.lock.check()
        figures = {"shards": [report.to_json() for report in reports]}
        return Built(manifest=commit(header), figures=figures, reports=reports)


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
    that stay committed: the next build continues from them.
    """
    workers = min(workers, len(tasks))
    inline = None
    if not tasks or (workers <= 1 and not handle.get().record_limits):
        job = ShardJob(handle.get(), header)

        def inline(task: ShardTask, send: Callable[[ShardFigures], object]) -> ShardReport:
            with now_and_then(send, ShardFigures.book) as tell:
                return job.run(task, tell=tell)

    return _run(
        tasks,
        inline,
        lambda: WorkerPool(handle, header, workers=workers),
        root=header.root,
        shown=_Shown(counts, progress, StallWatch(stall_secs)),
    )


def _run(
    tasks: Sequence[Task],
    inline: Callable[[Task, Callable[[ShardFigures], object]], Report] | None,
    pool: Callable[[], Workers[Task, Report, Any]],
    *,
    root: str,
    shown: _Shown,
) -> list[Report]:
    """Runs tasks in this process, one after the other by `inline` if that is given, or on those of the pool."""
    if inline is None:
        try:
            with pool() as workers:
                return workers.run(tasks, shown)
        finally:
            remove_temporaries(storage_for(root), root)
    reports, pid = [], os.getpid()
    with shown.stalls.on_a_thread():
        for task in tasks:
            shown.began(task, pid)
            reports.append(inline(task, functools.partial(shown.reported_here, task)))
            shown.finished(task)
            shown.show()
    return reports


class _Shown(Watcher):
    """Counts and shows what tasks report."""

    def __init__(self, counts: Counts, progress: Progress, stalls: StallWatch) -> None:
        self._counts = counts
        self._progress = progress
        self.stalls = stalls
        self._unfinished: dict[int, ShardFigures] = {}  # of unfinished shards

    def began(self, task: HasShard, pid: int) -> None:
        self.stalls.seen(task, pid=pid)
        self._counts.add(self._unfinished.pop(task.index, ShardFigures()), times=-1)

    def reported(self, task: HasShard, pid: int, figures: ShardFigures) -> None:
        self._counts.add(figures)
        self._unfinished.setdefault(task.index, ShardFigures()).add(figures)
        self.stalls.seen(task, pid=pid)

    def reported_here(self, task: HasShard, figures: ShardFigures) -> None:
        """In this process, whose thread checks for stalls."""
        self.reported(task, os.getpid(), figures)
        self.show()

    def finished(self, task: HasShard) -> None:
        self.stalls.finished(task)
        self._unfinished.pop(task.index, None)
        self._counts.done_shards += 1

    def idle(self) -> None:
        self.stalls.check()
        self.show()

    def show(self) -> None:
        self._progress.update(self._counts)


class StallWatch:
    """Reports each running shard job once when it has been silent for `stall_secs`, and again after its next report.

    It only reports: a record may legitimately take hours, and the user decides.
    """

    def __init__(self, stall_secs: float, *, report: Callable[[str], None] | None = None) -> None:
        self._stall_secs = stall_secs
        self._report = report if report is not None else _print
        self._running: dict[int, tuple[HasShard, int, float]] = {}  # shard → (task, process, last sign of life)
        self._reported: set[int] = set()

    def seen(self, task: HasShard, *, pid: int) -> None:
        """The job has started, or shows a sign of life."""
        self._running[task.index] = (task, pid, time.monotonic())
        self._reported.discard(task.index)

    def finished(self, task: HasShard) -> None:
        """The job has ended."""
        self._running.pop(task.index, None)
        self._reported.discard(task.index)

    def check(self) -> None:
        """Reports overdue shards."""
        now = time.monotonic()
        for index, (task, pid, last) in list(self._running.items()):
            if now - last >= self._stall_secs and index not in self._reported:
                self._reported.add(index)
                self._report(
                    f"beam-pipes: source shard {index} ({files_of(task)}) has reported nothing for {now - last:.0f} s; "
                    f"process {pid} is still working on it."
                )

    def on_a_thread(self) -> contextlib.AbstractContextManager[None]:
        """Checks from a thread during the block, for jobs that run in this process."""
        return every(min(1.0, self._stall_secs / 2), self.check, name="stall-watch")


def _print(line: str) -> None:
    # A progress line that is rewritten in place does not end by itself.
    print(f"{os.linesep if sys.stderr.isatty() else ''}{visible(line)}", file=sys.stderr, flush=True)
