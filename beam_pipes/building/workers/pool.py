"""A pool of worker processes that run shard tasks; where records have limits, they are supervised.

The supervisor is whoever called: ten times a second or more it looks at each worker's cell and memory. A worker that is
at the same record of the same stage for too long, or has grown too much meanwhile, is killed; the record goes into
quarantine, and another worker continues with the source shard from its journal. That one is started when a worker is
half way to a limit, so that it is there when it is needed, and a build without such records pays nothing for it.

No signal and no exception reaches the stage, so nothing of it can be caught, swallowed or left half done: it works the
same for a Python loop, a regular expression, `time.sleep` and a C call that never returns, and inside of Beam.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import selectors
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Protocol

from beam_pipes.building.limits import Cause, Quarantined, RecordLimits, remember
from beam_pipes.building.reading import ShardFigures
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_job import ShardJob
from beam_pipes.building.shard_job import Tell as ShardTell
from beam_pipes.building.shard_task import BuildHeader, ShardReport, ShardTask
from beam_pipes.building.workers.fork_server import fork_server
from beam_pipes.building.workers.process import (
    Glimpse,
    ProcessFigures,
    WorkerProcess,
    ended_by,
    receive_file,
    worker_cell,
)
from beam_pipes.building.workers.supervision import Care, GuardedJob, RecordClock, ShardJournal
from beam_pipes.engine.account import Account
from beam_pipes.errors import WorkerDiedError
from beam_pipes.sources.source import SourceShard

# How often progress is told: by a worker to its parent, and while nothing arrives.
TELL_EVERY_SECS = 0.2

# How often workers are looked at. A look takes 15 µs, or ten times that on a core that has done other things meanwhile.
# What a record takes between two looks comes on top of its limit.
_LOOKS_A_TIMEOUT = 10
_LONGEST_LOOK_SECS = 0.1
_MEMORY_LOOK_SECS = 0.05
# A batch that has grown too much, and stays at one record without growing: for as many looks it may be about to go on.
_LOOKS_OF_DOUBT = 5

# Signals by which a process ends through its own fault. SIGKILL is not one: the kernel or a person sent it.
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}

Tell = Callable[[object], None]


class Watcher(Protocol):
    """What a pool reports about its tasks while it runs them."""

    def began(self, task: ShardTask, pid: int) -> None:
        """A process has started the task; reports of a process that started it before are void."""

    def told(self, task: ShardTask, pid: int, figures: ShardFigures) -> None:
        """A sign of life: the work since the last one."""

    def finished(self, task: ShardTask) -> None: ...

    def idle(self) -> None:
        """Called again and again."""


class NoWatcher:
    """Reports to nobody."""

    def began(self, task: ShardTask, pid: int) -> None:
        pass

    def told(self, task: ShardTask, pid: int, figures: ShardFigures) -> None:
        pass

    def finished(self, task: ShardTask) -> None:
        pass

    def idle(self) -> None:
        pass


@dataclasses.dataclass(kw_only=True)
class _Running:
    """A task on a worker: the journal outlives workers, what is seen of the worker does not."""

    worker: WorkerProcess
    task: ShardTask
    journal: IO[bytes] | None
    care: Care
    figures: ProcessFigures
    found: list[dict[str, object]] = dataclasses.field(default_factory=list)
    seen: Glimpse | None = None
    clock: RecordClock | None = None
    looks: int = 0
    memory_bytes: int = 0
    #: Ordinals at which a worker has ended once already, for no reason that was surely theirs; -1: between records.
    ended_at: set[int] = dataclasses.field(default_factory=set)


class WorkerPool:
    """`workers` processes, ready for tasks; to be closed, or used in a `with` block.

    Raises `DeclarationError` if workers could not import the declaration.
    """

    def __init__(self, handle: DeclarationHandle, header: BuildHeader, *, workers: int) -> None:
        self._handle = handle
        self._header = header
        self._limits = handle.get().record_limits
        self._unit_names = [unit.name for unit in handle.get().graph.units]
        self._look_secs = _look_secs(self._limits.values())
        self._spare: WorkerProcess | None = None
        self._running: dict[object, _Running] = {}
        self._selector = selectors.DefaultSelector()
        self._server = fork_server(__name__)
        self._idle: list[WorkerProcess] = []
        try:
            handle.require_portable()  # while the server imports: pickling a tokenizer may take as long
            for _ in range(workers):
                self._idle.append(WorkerProcess(self._server))
        except BaseException:
            self.close()
            raise

    def run(self, tasks: Sequence[ShardTask], watcher: Watcher) -> list[ShardReport]:
        """Runs all tasks; reports come in the order in which shards finish.

        Raises what a shard job raised, or `WorkerDiedError` naming the shard a process died on.
        """
        left = deque(sorted(tasks, key=lambda task: -task.shard.num_bytes))  # a large one at the end is waited for
        reports: list[ShardReport] = []
        while left and self._idle:
            self._begin(self._idle.pop(), left.popleft(), watcher)
        while self._running:
            for ready, _ in self._selector.select(timeout=self._look_secs):
                running = self._running[ready.fileobj]
                try:
                    kind, value = running.worker.connection.recv()
                except (EOFError, ConnectionResetError):
                    self._crashed(running, watcher)
                    continue
                if kind == "tell":
                    watcher.told(running.task, running.worker.process.pid, value)
                elif kind == "error":
                    raise value
                elif value is not None:  # None: a spare worker has made itself ready
                    reports.append(dataclasses.replace(value, quarantined=tuple(running.found)))
                    watcher.finished(running.task)
                    self._end(running)
                    if left:
                        self._begin(running.worker, left.popleft(), watcher)
                    else:
                        self._idle.append(running.worker)
            # A copy, since looking may restart a task and so change the dict.
            for running in list(self._running.values()):
                self._look_at(running, watcher)
            watcher.idle()
        return reports

    def close(self) -> None:
        """Ends all workers."""
        for running in list(self._running.values()):
            self._end(running)
            self._idle.append(running.worker)
        for worker in [*self._idle, *filter(None, [self._spare])]:
            worker.close()
        self._idle, self._spare = [], None
        self._selector.close()
        if self._server is not None:
            self._server.close()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _begin(self, worker: WorkerProcess, task: ShardTask, watcher: Watcher) -> None:
        journal = self._new_journal() if self._limits else None
        running = _Running(
            worker=worker, task=task, journal=journal, care=Care(), figures=ProcessFigures(worker.process.pid)
        )
        self._start(running, watcher)

    def _start(self, running: _Running, watcher: Watcher) -> None:
        worker, task = running.worker, running.task
        running.seen = None
        # Of the time between two looks no more than two usual ones count: a supervisor that did not run for a while
        # must not blame a record for it.
        running.clock = RecordClock(
            most_secs=2 * self._look_secs, now=time.monotonic(), waited=running.figures.waiting_secs()
        )
        self._running[worker.connection] = running
        self._selector.register(worker.connection, selectors.EVENT_READ)
        watcher.began(task, worker.process.pid)
        if running.journal is None:
            worker.send((_run_task, (self._handle, self._header, task)))
        else:
            worker.send((_run_guarded_task, (self._handle, self._header, task, running.care)))
            worker.send_file(running.journal.fileno())

    def _leave(self, running: _Running) -> None:
        self._selector.unregister(running.worker.connection)
        del self._running[running.worker.connection]
        running.figures.close()

    def _end(self, running: _Running) -> None:
        self._leave(running)
        if running.journal is not None:
            running.journal.close()

    def _new_journal(self) -> IO[bytes]:
        # Beside what is being built, where there is room; anywhere, if that is not a directory of this machine.
        place = self._header.directory if os.path.isdir(self._header.directory) else None
        return tempfile.TemporaryFile(dir=place)

    def _start_spare(self) -> WorkerProcess:
        if self._spare is None:
            self._spare = WorkerProcess(self._server)
            self._spare.send((_prepare, (self._handle, self._header)))
        return self._spare

    def _look_at(self, running: _Running, watcher: Watcher) -> None:
        if not self._limits:
            return
        assert running.clock is not None
        running.clock.look(now=time.monotonic(), waited=running.figures.waiting_secs())
        seen = running.worker.cell.look()
        # The same batch, record and stage as at the last look means that the time since then is this record's.
        if seen is None or running.seen is None or seen[:3] != running.seen[:3]:
            running.seen, running.looks = seen, 0
            running.clock.restart()
            if seen is None:
                return
            running.memory_bytes = running.figures.memory_bytes()
        else:
            running.looks += 1
        limits = self._limits.get(self._unit_names[seen.unit])
        if limits is None:
            return
        if limits.timeout_secs is not None and running.clock.spent_secs >= limits.timeout_secs / 2:
            self._start_spare()
        if limits.timeout_secs is not None and running.clock.spent_secs >= limits.timeout_secs:
            self._stop(running, seen, "timeout", limits.timeout_secs, watcher)
        elif limits.memory_bytes is not None:
            memory = running.figures.memory_bytes()
            if memory - seen.memory_bytes > limits.memory_bytes / 2:
                self._start_spare()
            # Known for sure is what it took while it was looked at, or since its batch began if it is alone there.
            known = memory - running.memory_bytes > limits.memory_bytes
            grown = memory - seen.memory_bytes > limits.memory_bytes
            if known or (grown and (seen.num_records == 1 or running.looks >= _LOOKS_OF_DOUBT)):
                self._stop(running, seen, "memory", limits.memory_bytes, watcher, known=known)

    def _stop(
        self,
        running: _Running,
        seen: Glimpse,
        cause: Cause,
        limit: float | int,
        watcher: Watcher,
        *,
        known: bool = True,
    ) -> None:
        """Kills a worker; quarantines its record if it is known, else has its batch run record by record."""
        worker, journal = running.worker, running.journal
        assert journal is not None
        # Between the look and the kill it may have gone on to another record, which must not be blamed: it is stopped
        # first, and looked at again.
        worker.stand_still()
        still = worker.cell.look()
        if still is None or still[:3] != seen[:3]:
            worker.go_on()
            running.seen = None
            return
        if cause == "timeout" and not self._is_late(running, limit):
            worker.go_on()
            return
        ordinals = worker.cell.ordinals(seen.num_records)
        # It stands still, so its journal ends with the last record that it has finished.
        size = os.fstat(journal.fileno()).st_size
        where = worker.where()
        worker.process.kill()
        worker.process.wait()
        os.ftruncate(journal.fileno(), size)  # what it may have done since is not wanted
        self._replace(running, seen, ordinals, cause, limit, where, watcher, known=known)

    def _is_late(self, running: _Running, limit: float) -> bool:
        """Whether a stopped worker had been at its record that long: it no longer waits, so its times are final."""
        assert running.clock is not None
        running.clock.look(now=time.monotonic(), waited=running.figures.waiting_secs())
        return running.clock.spent_secs >= limit

    def _crashed(self, running: _Running, watcher: Watcher) -> None:
        """A worker has ended on its own: its record goes into quarantine if the record caused it.

        A crash is the record's fault. `os._exit`, `exit` in a library and SIGKILL may have other causes: the record is
        tried once more, alone in another process, and is at fault if that one ends too.
        """
        code = running.worker.wait()
        seen = running.worker.cell.look()
        if not self._limits or (seen is not None and self._unit_names[seen.unit] not in self._limits):
            raise _died(running.task, code)
        if seen is None:
            if -1 in running.ended_at:
                raise _died(running.task, code)
            self._try_again(running, code, -1, watcher)
            return
        ordinals = running.worker.cell.ordinals(seen.num_records)
        ordinal = ordinals[max(seen.record, 0)]
        if (seen.num_records > 1 and seen.record < 0) or -code in _CRASHES or ordinal in running.ended_at:
            self._replace(running, seen, ordinals, "crash", ended_by(code), "", watcher)
        else:
            running.care = Care(most_records=running.care.most_records, alone=(ordinal, ordinal + 1))
            self._try_again(running, code, ordinal, watcher)

    def _try_again(self, running: _Running, code: int, ordinal: int, watcher: Watcher) -> None:
        running.ended_at.add(ordinal)
        place = "between two records" if ordinal < 0 else f"at record {ordinal}"
        print(
            f"beam-pipes: source shard {running.task.index} ({files_of(running.task)}): a worker ended ({_how(code)}) "
            f"{place}. Another one tries again.",
            file=sys.stderr,
            flush=True,
        )
        self._restart(running, watcher)

    def _replace(
        self,
        running: _Running,
        seen: Glimpse,
        ordinals: list[int],
        cause: Cause,
        limit: float | int | str,
        where: str,
        watcher: Watcher,
        *,
        known: bool = True,
    ) -> None:
        task, care = running.task, running.care
        if seen.num_records == 1 or (seen.record >= 0 and known):
            record = Quarantined(
                ordinal=ordinals[max(seen.record, 0)], unit=self._unit_names[seen.unit], cause=cause, limit=limit
            )
            running.task = task.quarantining([record])
            # On disk before anything else: a build that is killed now does not meet the record again.
            remember(self._header.root, task.plain_fingerprint, running.task.quarantined)
            running.found.append({"stage": record.unit, "ordinal": record.ordinal, "cause": cause, "where": where})
            _report(task, record, where)
        else:
            # Not known which of the batch it was: halves until one is left, as in a search.
            most = max(1, min(care.most_records, seen.num_records) // 2)
            running.care = Care(most_records=most, alone=(ordinals[0], ordinals[-1] + 1))
        self._restart(running, watcher)

    def _restart(self, running: _Running, watcher: Watcher) -> None:
        """Continues a task on another worker."""
        self._leave(running)
        running.worker.kill()
        running.worker, self._spare = self._start_spare(), None
        running.figures = ProcessFigures(running.worker.process.pid)
        self._start(running, watcher)


def _look_secs(limits: Iterable[RecordLimits]) -> float:
    secs = [TELL_EVERY_SECS]
    for limit in limits:
        if limit.timeout_secs is not None:
            secs.append(min(limit.timeout_secs / _LOOKS_A_TIMEOUT, _LONGEST_LOOK_SECS))
        if limit.memory_bytes is not None:
            secs.append(_MEMORY_LOOK_SECS)
    return max(min(secs), 0.002)


# What the worker process keeps between its tasks: resolving a declaration imports the user's modules.
_job: ShardJob | None = None
_guarded: GuardedJob | None = None


def _run_task(send: Tell, handle: DeclarationHandle, header: BuildHeader, task: ShardTask) -> ShardReport:
    """In the worker: runs one shard job, and reports progress from time to time."""
    global _job
    if _job is None:
        _job = ShardJob(handle.get(), header)
    with _sent(send) as tell:
        return _job.run(task, tell=tell)


def _prepare(send: Tell, handle: DeclarationHandle, header: BuildHeader) -> None:
    """In a spare worker: prepares everything that a guarded job needs. Errors are reported with the first task."""
    with contextlib.suppress(Exception):
        _guarded_job(handle, header)


def _run_guarded_task(
    send: Tell, handle: DeclarationHandle, header: BuildHeader, task: ShardTask, care: Care
) -> ShardReport:
    """In the worker: runs one shard job under supervision."""
    journal = ShardJournal(receive_file())
    try:
        with _sent(send) as tell:
            return _guarded_job(handle, header).run(task, journal=journal, care=care, tell=tell)
    finally:
        journal.close()


def _guarded_job(handle: DeclarationHandle, header: BuildHeader) -> GuardedJob:
    global _guarded
    if _guarded is None:
        # Where memory runs out after all, the kernel should take a worker and not whoever supervises it.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("500")
        _guarded = GuardedJob(handle.get(), header, worker_cell())
    return _guarded


@contextlib.contextmanager
def now_and_then(send: Callable[[ShardFigures], None]) -> Iterator[ShardTell]:
    """What a shard job may report after each batch: sent a few times a second, and the rest at the end."""
    figures = ShardFigures()
    last = time.monotonic()

    def tell(account: Account, secs: Mapping[str, float]) -> None:
        nonlocal figures, last
        figures.book(account, secs)
        now = time.monotonic()
        if now - last >= TELL_EVERY_SECS:
            last = now
            send(figures)
            figures = ShardFigures()

    yield tell
    send(figures)


def _sent(send: Tell) -> contextlib.AbstractContextManager[ShardTell]:
    return now_and_then(lambda figures: send(("tell", figures)))


class HasShard(Protocol):
    """A task of one source shard, whatever is done to it."""

    @property
    def index(self) -> int: ...
    @property
    def shard(self) -> SourceShard: ...


def files_of(task: HasShard) -> str:
    """The input files of a source shard, the first three by name."""
    names = list(dict.fromkeys(piece.file for piece in task.shard.slices))
    return ", ".join(names[:3]) + ("…" if len(names) > 3 else "")


def _report(task: ShardTask, record: Quarantined, where: str) -> None:
    at = f" It was at:\n{where.rstrip()}" if where.strip() else ""
    print(
        f"beam-pipes: source shard {task.index} ({files_of(task)}), record {record.ordinal}, stage {record.unit!r}: "
        f"{record.error()}. The record is in quarantine, the source shard goes on.{at}",
        file=sys.stderr,
        flush=True,
    )


def _how(code: int) -> str:
    return ended_by(code) + (", which the kernel sends when memory runs out" if code == -signal.SIGKILL else "")


def _died(task: ShardTask, code: int) -> WorkerDiedError:
    return WorkerDiedError(
        f"a worker died ({_how(code)}) while it built source shard {task.index} ({files_of(task)}). Finished shards "
        "are kept: run the build again to continue; with --workers 1 it runs in a single process.",
        shard=task.index,
        exit_code=code,
    )
