"""A pool of worker processes that run shard tasks; where records have limits, they are supervised.

The supervisor is the calling thread: ten times a second or more it looks at each worker's cell and memory. A worker
that stays at the same record of the same stage for too long, or has grown too much meanwhile, is killed; the record
goes into quarantine, and another worker continues with the source shard from its journal. That worker is started when
one is half way to a limit, so that it is ready when needed, and a build without such records pays nothing for it.

No signal and no exception reaches the stage, so it cannot catch or swallow anything, or leave it half done: this works
the same for a Python loop, a regular expression, `time.sleep` and a C call that never returns, and inside of Beam.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import IO

from beam_pipes.building.limits import Cause, Quarantined, RecordLimits, remember
from beam_pipes.building.reading import ShardFigures
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_job import ShardJob
from beam_pipes.building.shard_job import Tell as ShardTell
from beam_pipes.building.shard_task import BuildHeader, ShardReport, ShardTask
from beam_pipes.building.workers.process import (
    Glimpse,
    ProcessFigures,
    WorkerProcess,
    ended_by,
    receive_file,
    worker_cell,
)
from beam_pipes.building.workers.supervision import Care, GuardedJob, RecordClock, ShardJournal
from beam_pipes.building.workers.tasks import (
    TELL_EVERY_SECS,
    Running,
    Workers,
    files_of,
    how_ended,
    now_and_then,
    worker_died,
)

# How often workers are looked at. A look takes 15 µs, or ten times that on a core that has done other things meanwhile.
# A record may exceed its limit by the time between two looks.
_LOOKS_A_TIMEOUT = 10
_LONGEST_LOOK_SECS = 0.1
_MEMORY_LOOK_SECS = 0.05
# Looks to wait while a batch that has grown too much stays at one record without growing: it may be about to continue.
_LOOKS_OF_DOUBT = 5

# Signals by which a process ends through its own fault. SIGKILL is not one: the kernel or a person sent it.
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}

Tell = Callable[[object], None]


@dataclasses.dataclass(kw_only=True)
class _Guarded(Running[ShardTask]):
    """A task on a worker: the journal outlives workers, observations of the worker do not."""

    journal: IO[bytes] | None
    care: Care
    figures: ProcessFigures
    found: list[dict[str, object]] = dataclasses.field(default_factory=list)
    seen: Glimpse | None = None
    clock: RecordClock | None = None
    looks: int = 0
    memory_bytes: int = 0
    #: Ordinals at which a worker has ended once, without certainty that the record caused it; -1: between records.
    ended_at: set[int] = dataclasses.field(default_factory=set)


class WorkerPool(Workers[ShardTask, ShardReport, _Guarded]):
    """`workers` processes that build shards.

    Raises `DeclarationError` if workers could not import the declaration.
    """

    def __init__(self, handle: DeclarationHandle, header: BuildHeader, *, workers: int) -> None:
        self._handle = handle
        self._header = header
        self._limits = handle.get().record_limits
        self._unit_names = [unit.name for unit in handle.get().graph.units]
        self.look_secs = _look_secs(self._limits.values())
        self._spare: WorkerProcess | None = None
        # Pickling a tokenizer may take as long as the imports.
        super().__init__(__name__, workers=workers, meanwhile=handle.require_portable)

    def report(self, running: _Guarded, result: ShardReport) -> ShardReport:
        return dataclasses.replace(result, quarantined=tuple(running.found))

    def begin(self, worker: WorkerProcess, task: ShardTask) -> None:
        # Beside what is being built, where there is room; anywhere if that is not a local directory.
        place = self._header.directory if os.path.isdir(self._header.directory) else None
        journal = tempfile.TemporaryFile(dir=place) if self._limits else None
        figures = ProcessFigures(worker.process.pid)
        self._begin(_Guarded(worker=worker, task=task, journal=journal, care=Care(), figures=figures))

    def _begin(self, running: _Guarded) -> None:
        running.seen = None
        # Between two looks at most two usual intervals count: a supervisor that did not run for a while must not blame
        # a record for that time.
        running.clock = RecordClock(
            most_secs=2 * self.look_secs, now=time.monotonic(), waited=running.figures.waiting_secs()
        )
        if running.journal is None:
            self.start(running, _run_task, self._handle, self._header, running.task)
        else:
            self.start(running, _run_guarded_task, self._handle, self._header, running.task, running.care)
            running.worker.send_file(running.journal.fileno())

    def leave(self, running: _Guarded) -> None:
        super().leave(running)
        running.figures.close()

    def end(self, running: _Guarded) -> None:
        super().end(running)
        if running.journal is not None:
            running.journal.close()

    def close(self) -> None:
        if self._spare is not None:
            self._idle.append(self._spare)
            self._spare = None
        super().close()

    def _start_spare(self) -> WorkerProcess:
        if self._spare is None:
            self._spare = WorkerProcess(self.server)
            self._spare.send((_prepare, (self._handle, self._header)))
        return self._spare

    def look(self) -> None:
        if self._limits:
            for running in list(self.running.values()):  # a copy: looking may restart a task
                self._look_at(running)

    def _look_at(self, running: _Guarded) -> None:
        assert running.clock is not None
        running.clock.look(now=time.monotonic(), waited=running.figures.waiting_secs())
        seen = running.worker.cell.look()
        # If batch, record and stage are the same as at the last look, the time since then belongs to this record.
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
            self._stop(running, seen, "timeout", limits.timeout_secs)
        elif limits.memory_bytes is not None:
            memory = running.figures.memory_bytes()
            if memory - seen.memory_bytes > limits.memory_bytes / 2:
                self._start_spare()
            # Only the memory that it took while it was observed is certain, or since its batch began if it is alone.
            known = memory - running.memory_bytes > limits.memory_bytes
            grown = memory - seen.memory_bytes > limits.memory_bytes
            if known or (grown and (seen.num_records == 1 or running.looks >= _LOOKS_OF_DOUBT)):
                self._stop(running, seen, "memory", limits.memory_bytes, known=known)

    def _stop(
        self,
        running: _Guarded,
        seen: Glimpse,
        cause: Cause,
        limit: float | int,
        *,
        known: bool = True,
    ) -> None:
        """Kills a worker; quarantines its record if it is known, else has its batch run record by record."""
        worker, journal = running.worker, running.journal
        assert journal is not None
        # Between the look and the kill it may have reached another record, which must not be blamed: it is stopped
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
        # It stands still, so its journal ends with the last record that it finished.
        size = os.fstat(journal.fileno()).st_size
        where = worker.where()
        worker.process.kill()
        worker.process.wait()
        os.ftruncate(journal.fileno(), size)  # discards what it may have done since
        self._replace(running, seen, ordinals, cause, limit, where, known=known)

    def _is_late(self, running: _Guarded, limit: float) -> bool:
        """Whether a stopped worker had been at its record that long: it no longer waits, so its times are final."""
        assert running.clock is not None
        running.clock.look(now=time.monotonic(), waited=running.figures.waiting_secs())
        return running.clock.spent_secs >= limit

    def died(self, running: _Guarded, code: int) -> None:
        """A worker has ended on its own: its record goes into quarantine if the record caused it.

        A crash is the record's fault. `os._exit`, `exit` in a library and SIGKILL may have other causes: the record is
        tried once more, alone in another process, and is at fault if that one ends too.
        """
        seen = running.worker.cell.look()
        if not self._limits or (seen is not None and self._unit_names[seen.unit] not in self._limits):
            raise worker_died(running.task, code, did="built", kept="shards")
        if seen is None:
            if -1 in running.ended_at:
                raise worker_died(running.task, code, did="built", kept="shards")
            self._try_again(running, code, -1)
            return
        ordinals = running.worker.cell.ordinals(seen.num_records)
        ordinal = ordinals[max(seen.record, 0)]
        if (seen.num_records > 1 and seen.record < 0) or -code in _CRASHES or ordinal in running.ended_at:
            self._replace(running, seen, ordinals, "crash", ended_by(code), "")
        else:
            running.care = Care(most_records=running.care.most_records, alone=(ordinal, ordinal + 1))
            self._try_again(running, code, ordinal)

    def _try_again(self, running: _Guarded, code: int, ordinal: int) -> None:
        running.ended_at.add(ordinal)
        place = "between two records" if ordinal < 0 else f"at record {ordinal}"
        print(
            f"beam-pipes: source shard {running.task.index} ({files_of(running.task)}): a worker ended "
            f"({how_ended(code)}) {place}. Another one tries again.",
            file=sys.stderr,
            flush=True,
        )
        self._restart(running)

    def _replace(
        self,
        running: _Guarded,
        seen: Glimpse,
        ordinals: list[int],
        cause: Cause,
        limit: float | int | str,
        where: str,
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
            # It is unknown which record of the batch it was: bisection.
            most = max(1, min(care.most_records, seen.num_records) // 2)
            running.care = Care(most_records=most, alone=(ordinals[0], ordinals[-1] + 1))
        self._restart(running)

    def _restart(self, running: _Guarded) -> None:
        """Continues a task on another worker."""
        self.leave(running)
        running.worker.kill()
        running.worker, self._spare = self._start_spare(), None
        running.figures = ProcessFigures(running.worker.process.pid)
        self._begin(running)


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


def _reporting(send: Tell) -> contextlib.AbstractContextManager[ShardTell]:
    return now_and_then(lambda figures: send(("tell", figures)), ShardFigures.book)


def _run_task(send: Tell, handle: DeclarationHandle, header: BuildHeader, task: ShardTask) -> ShardReport:
    """In the worker: runs one shard job, and reports progress from time to time."""
    global _job
    if _job is None:
        _job = ShardJob(handle.get(), header)
    with _reporting(send) as tell:
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
        with _reporting(send) as tell:
            return _guarded_job(handle, header).run(task, journal=journal, care=care, tell=tell)
    finally:
        journal.close()


def _guarded_job(handle: DeclarationHandle, header: BuildHeader) -> GuardedJob:
    global _guarded
    if _guarded is None:
        # If memory runs out after all, the kernel should kill a worker and not its supervisor.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("500")
        _guarded = GuardedJob(handle.get(), header, worker_cell())
    return _guarded


def _report(task: ShardTask, record: Quarantined, where: str) -> None:
    at = f" It was at:\n{where.rstrip()}" if where.strip() else ""
    print(
        f"beam-pipes: source shard {task.index} ({files_of(task)}), record {record.ordinal}, stage {record.unit!r}: "
        f"{record.error()}. The record is in quarantine, the source shard goes on.{at}",
        file=sys.stderr,
        flush=True,
    )
