"""The local runner: shard jobs on all cores, in bounded memory.

Each worker takes one source shard at a time and streams it through the whole declaration, so memory is a few batches
per worker whatever the size of the input. Beam's own local runners hold whole stages in memory and share one core
(docs/decisions/local-runner.md has the measurements).
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

from beam_pipes.errors import WorkerDiedError
from beam_pipes.offline.leftovers import remove_temporaries
from beam_pipes.offline.reference import DeclarationHandle
from beam_pipes.offline.shard_job import ShardJob
from beam_pipes.offline.shard_task import BuildHeader, ShardReport, ShardTask
from runners.progress import Counts, Progress
from runners.stall_watch import StallWatch, files_of
from runners.worker_process import WorkerProcess

# How often progress is told: by a worker to its parent, and while nothing arrives.
TELL_EVERY_SECS = 0.2

Tell = Callable[[Any], None]


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
    """Runs all tasks on `workers` processes (1: in this one); reports come in the order in which shards finish.

    A shard that tells nothing for `stall_secs` is named on standard error.

    Raises what a shard job raised, or `WorkerDiedError` naming the shard a process died on. Shards that were committed
    by then stay committed: the next build goes on from there.
    """
    workers = min(workers, len(tasks))
    watch = StallWatch(stall_secs)
    if workers <= 1:
        with watch.on_a_thread():
            return _run_inline(handle, header, tasks, counts, progress, watch)
    handle.require_portable()
    pool = [WorkerProcess() for _ in range(workers)]
    try:
        return _run_pool(pool, handle, header, deque(tasks), counts, progress, watch)
    finally:
        for worker in pool:
            worker.close()
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
    reports = []

    for task in tasks:

        def tell(records: int, dropped: int, dead: int, task: ShardTask = task) -> None:
            _add(counts, records, dropped, dead)
            watch.told(task, pid=os.getpid())
            progress.update(counts)

        watch.told(task, pid=os.getpid())
        reports.append(job.run(task, tell=tell))
        watch.finished(task)
        counts.done_shards += 1
        progress.update(counts)
    return reports


def _run_pool(
    pool: list[WorkerProcess],
    handle: DeclarationHandle,
    header: BuildHeader,
    tasks: deque[ShardTask],
    counts: Counts,
    progress: Progress,
    watch: StallWatch,
) -> list[ShardReport]:
    reports: list[ShardReport] = []
    running: dict[Any, tuple[WorkerProcess, ShardTask]] = {}

    def start_next(worker: WorkerProcess) -> None:
        if tasks:
            task = tasks.popleft()
            running[worker.connection] = (worker, task)
            watch.told(task, pid=worker.process.pid)
            worker.send((_run_task, (handle, header, task)))

    for worker in pool:
        start_next(worker)
    while running:
        for ready in wait(list(running), timeout=TELL_EVERY_SECS):
            worker, task = running[ready]
            try:
                kind, value = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                raise _died(worker, task) from None
            if kind == "tell":
                _add(counts, *value)
                watch.told(task, pid=worker.process.pid)
            elif kind == "error":
                raise value
            else:
                reports.append(value)
                watch.finished(task)
                counts.done_shards += 1
                del running[ready]
                start_next(worker)
        watch.check()
        progress.update(counts)
    return reports


# The job of the worker process, kept between its tasks: resolving a declaration imports the user's modules.
_job: ShardJob | None = None


def _run_task(send: Tell, handle: DeclarationHandle, header: BuildHeader, task: ShardTask) -> ShardReport:
    """In the worker: runs one shard job, telling its progress now and then."""
    global _job
    if _job is None:
        _job = ShardJob(handle.get(), header)
    told = [0, 0, 0]
    last = time.monotonic()

    def tell(records: int, dropped: int, dead: int) -> None:
        nonlocal last
        told[0] += records
        told[1] += dropped
        told[2] += dead
        now = time.monotonic()
        if now - last >= TELL_EVERY_SECS:
            last = now
            send(("tell", tuple(told)))
            told[:] = [0, 0, 0]

    report = _job.run(task, tell=tell)
    send(("tell", tuple(told)))
    return report


def _add(counts: Counts, records: int, dropped: int, dead: int) -> None:
    counts.records += records
    counts.dropped += dropped
    counts.dead += dead


def _died(worker: WorkerProcess, task: ShardTask) -> WorkerDiedError:
    code = worker.wait()
    how = f"exit code {code}"
    if code < 0:
        how = signal.Signals(-code).name
        if code == -signal.SIGKILL:
            how += ", which the kernel sends when memory runs out"
    return WorkerDiedError(
        f"a worker died ({how}) while it built source shard {task.index} ({files_of(task)}). Finished shards are kept: "
        "run the build again to go on from there; with --workers 1 it runs in a single process.",
        shard=task.index,
        exit_code=code,
    )
