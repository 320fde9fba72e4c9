"""Tasks of source shards on worker processes, one per worker at a time: shards to build, shards to analyse.

    tasks ──▶ Workers.run ──(function, arguments)──▶ worker ──"tell", "tell", "result"──▶ watcher, reports

No order is kept: a worker that is free gets the next task. `pool` builds shards, supervises their records and replaces
workers; `analysis.job` analyses them.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from beam_pipes.building.reading import ShardFigures
from beam_pipes.building.workers.fork_server import fork_server
from beam_pipes.building.workers.process import WorkerProcess, ended_by
from beam_pipes.errors import WorkerDiedError
from beam_pipes.sources.source import SourceShard

# How often progress is reported: by a worker to its parent, and while nothing arrives.
TELL_EVERY_SECS = 0.2


class HasShard(Protocol):
    """A task of one source shard, whatever is done to it."""

    @property
    def index(self) -> int: ...
    @property
    def shard(self) -> SourceShard: ...


class Watcher:
    """What is reported about tasks while they run; this one ignores it."""

    def began(self, task: HasShard, pid: int) -> None:
        """A process has started the task; reports of an earlier process are void."""

    def reported(self, task: HasShard, pid: int, figures: ShardFigures) -> None:
        """A sign of life: the work since the last one."""

    def finished(self, task: HasShard) -> None:
        """The task has ended, and its report is there."""

    def idle(self) -> None:
        """Called repeatedly."""


Task = TypeVar("Task", bound=HasShard)
Report = TypeVar("Report")


@dataclasses.dataclass(kw_only=True)
class Running(Generic[Task]):
    """A task on a worker."""

    worker: WorkerProcess
    task: Task


R = TypeVar("R", bound=Running[Any])


class Workers(abc.ABC, Generic[Task, Report, R]):
    """Worker processes, ready for tasks; to be closed, or used in a `with` block."""

    #: How long to wait for messages before looking at the tasks.
    look_secs = TELL_EVERY_SECS

    def __init__(self, imports: str, *, workers: int, meanwhile: Callable[[], None]) -> None:
        """Workers have the module `imports` from the start; `meanwhile` is called while it is imported."""
        self.watcher = Watcher()
        self.running: dict[object, R] = {}
        self._selector = selectors.DefaultSelector()
        self.server = fork_server(imports)
        self._idle: list[WorkerProcess] = []
        try:
            meanwhile()
            for _ in range(workers):
                self._idle.append(WorkerProcess(self.server))
        except BaseException:
            self.close()
            raise

    @abc.abstractmethod
    def begin(self, worker: WorkerProcess, task: Task) -> None:
        """Makes the task ready for this worker, and calls `start`."""

    @abc.abstractmethod
    def died(self, running: R, code: int) -> None:
        """The worker has ended with this exit code before its task: starts the task again, or raises."""

    def report(self, running: R, result: Report) -> Report:
        """What `run` returns for a task whose worker gave this result."""
        return result

    def look(self) -> None:
        """Called several times a second, and after messages."""

    def run(self, tasks: Sequence[Task] | Iterator[Task], watcher: Watcher) -> list[Report]:
        """Runs all tasks; reports come in the order in which tasks finish.

        The next task of an iterator is asked for when a worker is free. Those of a sequence are run in the order of
        their sizes: a large one at the end would be waited for.

        Raises what a task raised, or what `died` raises.
        """
        self.watcher = watcher
        if isinstance(tasks, Sequence):
            tasks = iter(sorted(tasks, key=lambda task: -task.shard.num_bytes))
        reports: list[Report] = []
        while self._idle and (task := next(tasks, None)) is not None:
            self.begin(self._idle.pop(), task)
        while self.running:
            for ready, _ in self._selector.select(timeout=self.look_secs):
                running = self.running[ready.fileobj]
                try:
                    kind, value = running.worker.connection.recv()
                except (EOFError, ConnectionResetError):
                    self.died(running, running.worker.wait())
                    continue
                if kind == "tell":
                    watcher.reported(running.task, running.worker.process.pid, value)
                elif kind == "error":
                    raise value
                elif value is not None:  # None: a worker is ready
                    reports.append(self.report(running, value))
                    watcher.finished(running.task)
                    self.end(running)
                    if (task := next(tasks, None)) is not None:
                        self.begin(running.worker, task)
                    else:
                        self._idle.append(running.worker)
            self.look()
            watcher.idle()
        return reports

    def start(self, running: R, function: Callable[..., object], *arguments: object) -> None:
        """Sends its call to the worker; the function's first argument sends messages to this process."""
        worker = running.worker
        self.running[worker.connection] = running
        self._selector.register(worker.connection, selectors.EVENT_READ)
        self.watcher.began(running.task, worker.process.pid)
        worker.send((function, arguments))

    def leave(self, running: R) -> None:
        """Stops listening to its worker."""
        self._selector.unregister(running.worker.connection)
        del self.running[running.worker.connection]

    def end(self, running: R) -> None:
        """The task has ended, or is given up."""
        self.leave(running)

    def close(self) -> None:
        """Ends all workers."""
        for running in list(self.running.values()):
            self.end(running)
            self._idle.append(running.worker)
        for worker in self._idle:
            worker.close()
        self._idle = []
        self._selector.close()
        if self.server is not None:
            self.server.close()

    def __enter__(self: W) -> W:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


W = TypeVar("W", bound=Workers[Any, Any, Any])
Figures = ParamSpec("Figures")


@contextlib.contextmanager
def now_and_then(
    send: Callable[[ShardFigures], object], book: Callable[Concatenate[ShardFigures, Figures], None]
) -> Iterator[Callable[Figures, None]]:
    """What a job may report after each batch: added up, sent a few times a second, and the rest at the end."""
    figures = ShardFigures()
    last = time.monotonic()

    def tell(*what: Figures.args, **named: Figures.kwargs) -> None:
        nonlocal figures, last
        book(figures, *what, **named)
        now = time.monotonic()
        if now - last >= TELL_EVERY_SECS:
            last = now
            send(figures)
            figures = ShardFigures()

    yield tell
    send(figures)


def files_of(task: HasShard) -> str:
    """The input files of a source shard, the first three by name."""
    names = list(dict.fromkeys(piece.file for piece in task.shard.slices))
    return ", ".join(names[:3]) + ("…" if len(names) > 3 else "")


def how_ended(code: int) -> str:
    """How a worker of this exit code has ended, in words."""
    return ended_by(code) + (", which the kernel sends when memory runs out" if code == -signal.SIGKILL else "")


def worker_died(task: HasShard, code: int, *, did: str, kept: str, of: str = "") -> WorkerDiedError:
    """The error for a worker that ended while it `did` something to a source shard; finished work is `kept`."""
    return WorkerDiedError(
        f"a worker died ({how_ended(code)}) while it {did} source shard {task.index} ({files_of(task)}){of}. Finished "
        f"{kept} are kept: run the build again to continue; with --workers 1 it runs in a single process.",
        shard=task.index,
        exit_code=code,
    )
