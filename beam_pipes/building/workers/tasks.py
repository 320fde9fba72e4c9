"""Tasks of one kind on worker processes, one after the other each: analyses of shards, samples of them.

    tasks ──▶ run_tasks ──(call, arguments)──▶ worker ──"tell", "tell", "result"──▶ heard(task, …)

The parent keeps no order: whoever is ready gets the next task. Building shards, where records are supervised and
workers replaced, is `pool`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from typing import Any, TypeVar

from beam_pipes.building.workers.fork_server import fork_server
from beam_pipes.building.workers.process import WorkerProcess

TELL_EVERY_SECS = 0.2

Task = TypeVar("Task")
# What a worker calls, with what; its first argument, which is not among these, sends (kind, value) to the parent.
Call = tuple[Callable[..., Any], tuple[Any, ...]]


def run_tasks(
    tasks: Iterator[Task],
    *,
    workers: int,
    imports: str,
    call: Callable[[Task], Call],
    heard: Callable[[Task, int, str, Any], None],
    died: Callable[[Task, int], Exception],
    idle: Callable[[], None] = lambda: None,
) -> None:
    """Runs all tasks on at most `workers` processes, which have the module `imports` from the start.

    A task is taken from `tasks` when a worker is free for it. `heard(task, pid, kind, value)` gets what a worker sends:
    "begin" when it gets the task, its own messages, and "result" with what the call returned. `idle` is called again
    and again meanwhile. Raises what a call raised, or what `died(task, exit code)` gives where a process died.
    """
    server = fork_server(imports)
    processes: list[WorkerProcess] = []
    running: dict[Any, tuple[WorkerProcess, Task]] = {}

    def begin(task: Task, worker: WorkerProcess) -> None:
        running[worker.connection] = worker, task
        heard(task, worker.process.pid, "begin", None)
        worker.send(call(task))

    try:
        while len(processes) < workers and (task := next(tasks, None)) is not None:
            processes.append(WorkerProcess(server))
            begin(task, processes[-1])
        while running:
            for ready in wait(list(running), timeout=TELL_EVERY_SECS):
                worker, at = running[ready]
                try:
                    kind, value = worker.connection.recv()
                except (EOFError, ConnectionResetError):
                    raise died(at, worker.wait()) from None
                if kind == "error":
                    raise value
                heard(at, worker.process.pid, kind, value)
                if kind == "result":
                    del running[ready]
                    if (task := next(tasks, None)) is not None:
                        begin(task, worker)
            idle()
    finally:
        for worker in processes:
            worker.close()
        if server is not None:
            server.close()
