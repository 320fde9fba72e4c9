"""Worker processes that run analysis tasks: the same that build shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from beam_pipes.building.analysis.job import AnalysisJob
from beam_pipes.building.analysis.plan import AnalysisReport, AnalysisTask
from beam_pipes.building.declaration import DeclarationHandle
from beam_pipes.building.workers.pool import files_of
from beam_pipes.building.workers.process import ended_by
from beam_pipes.building.workers.tasks import TELL_EVERY_SECS, run_tasks
from beam_pipes.errors import WorkerDiedError

# (the task, the process that runs it, the number of records it has read since it was last told; None: it is done)
Watch = Callable[[AnalysisTask, int, int | None], None]


def run_in_processes(
    handle: DeclarationHandle,
    root: str,
    tasks: Sequence[AnalysisTask],
    *,
    workers: int,
    watch: Watch,
    idle: Callable[[], None],
) -> None:
    """Runs all tasks on `workers` processes; `idle` is called again and again meanwhile.

    Raises what a task raised, or `WorkerDiedError` naming the shard that a process died on.
    """
    handle.require_portable()

    def heard(task: AnalysisTask, pid: int, kind: str, value: Any) -> None:
        watch(task, pid, 0 if kind == "begin" else value if kind == "tell" else None)

    run_tasks(
        iter(sorted(tasks, key=lambda task: -task.shard.num_bytes)),  # a large one at the end is waited for
        workers=workers,
        imports=__name__,
        call=lambda task: (_run_task, (handle, root, task)),
        heard=heard,
        died=_died,
        idle=idle,
    )


# What the worker process keeps between its tasks: resolving a declaration imports the user's modules.
_job: AnalysisJob | None = None


def _run_task(send: Callable[[Any], None], handle: DeclarationHandle, root: str, task: AnalysisTask) -> AnalysisReport:
    """In the worker: runs one task, telling its progress now and then."""
    global _job
    if _job is None:
        _job = AnalysisJob(handle.get(), root)
    told, last = 0, time.monotonic()

    def tell(records: int) -> None:
        nonlocal told, last
        told += records
        if time.monotonic() - last >= TELL_EVERY_SECS:
            send(("tell", told))
            told, last = 0, time.monotonic()

    report = _job.run(task, tell=tell)
    send(("tell", told))
    return report


def _died(task: AnalysisTask, code: int) -> WorkerDiedError:
    return WorkerDiedError(
        f"a worker died ({ended_by(code)}) while it analysed source shard {task.index} ({files_of(task)}) for "
        f"{', '.join(map(repr, task.places))}. Finished accumulators are kept: run the build again to go on from "
        "there; with --workers 1 it runs in a single process.",
        shard=task.index,
        exit_code=code,
    )
