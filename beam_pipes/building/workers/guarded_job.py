"""A shard job under limits: what a worker does while its supervisor looks on.

The batches of the source are cut into pieces of about 200 ms of work, so that killing the worker loses no more than
that. A piece costs 0.2 ms. How they are cut does not show in the result.
"""

from __future__ import annotations

import dataclasses
import os
import time

from beam_pipes.building.completion import find_completion
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.reading import SourceBatch, graph_runner, source_batch
from beam_pipes.building.replay_output import CannotReplayError, task_output, task_records
from beam_pipes.building.shard_figures import READ
from beam_pipes.building.shard_job import Tell
from beam_pipes.building.shard_output import WRITE
from beam_pipes.building.shard_task import BuildHeader, ShardReport, ShardTask
from beam_pipes.building.stage_clock import StageClock
from beam_pipes.building.workers.process_figures import ProcessFigures
from beam_pipes.building.workers.shard_journal import ShardJournal
from beam_pipes.building.workers.worker_cell import MOST_RECORDS, WorkerCell
from beam_pipes.engine.account import Account
from beam_pipes.engine.execute import GraphRunner

PIECE_SECS = 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Care:
    """How a supervisor wants a source shard to be cut: at most `most_records` a piece, and one by one between the
    ordinals `alone` (start, end), where it could not tell which record hangs."""

    most_records: int = MOST_RECORDS
    alone: tuple[int, int] = (0, 0)


class GuardedJob:
    """Builds source shards of one declaration, one after the other, and shows in `cell` what it is at."""

    def __init__(self, declaration: Declaration, header: BuildHeader, cell: WorkerCell) -> None:
        self._declaration = declaration
        self._header = header
        self._cell = cell
        self._figures = ProcessFigures(os.getpid())
        self._runner: GraphRunner = graph_runner(declaration)
        for unit in self._runner.units:
            unit.show_index_in(cell.index_cell)
        self._piece_records = 1  # as many as the last piece had shown to be right, of whatever source shard

    def run(self, task: ShardTask, *, journal: ShardJournal, care: Care, tell: Tell) -> ShardReport:
        """Reads, transforms and writes one source shard, and commits it; a committed one is left as it is.

        What is in the journal is not done again. Raises what the source or a stage raised.
        """
        try:
            return self._run(task, journal, care, tell)
        except CannotReplayError:
            journal.parts.clear()
            return self._run(dataclasses.replace(task, prior=None), journal, care, tell)

    def _run(self, task: ShardTask, journal: ShardJournal, care: Care, tell: Tell) -> ShardReport:
        started = time.monotonic()
        replayed = 0
        done = find_completion(self._header, task)
        clock = StageClock([READ, *(unit.name for unit in self._runner.units), WRITE])
        if done is None:
            output = task_output(self._declaration, self._header, task)
            try:
                for records in task_records(self._declaration, task):
                    records.digests()  # before stages, which may change values in place
                    replayed += 1
                    at, end = records.first_ordinal, records.first_ordinal + records.num_records
                    while at < end:
                        if at in journal.parts:
                            count, part = journal.parts.pop(at)
                            part.first_sequence, part.next_sequence = output.next_sequence, output.next_sequence + 1
                        else:
                            clock.mark(READ)
                            began = time.perf_counter()
                            stop = _stop(at, end, min(self._piece_records, care.most_records), journal, care)
                            count = stop - at
                            batch = source_batch(self._declaration, records.cut(at, stop))
                            self._run_units(batch, task, clock)
                            part = output.encode(batch, output.next_sequence)
                            secs = time.perf_counter() - began
                            journal.add(part, first_ordinal=at, num_records=count, secs=secs)
                            self._piece_records = _next_piece(self._piece_records, count, secs)
                        output.write(part)
                        clock.mark(WRITE)
                        tell(part.account, clock.lap())
                        at += count
                done = output.commit()
                clock.mark(WRITE)
                tell(Account(), clock.lap())
            except BaseException:
                output.abort()
                raise
        elapsed = time.monotonic() - started
        return ShardReport.of(task, done.account, secs=elapsed, replayed=replayed, stage_secs=clock.secs)

    def _run_units(self, batch: SourceBatch, task: ShardTask, clock: StageClock) -> None:
        ordinals = batch.records.ordinals
        for position, unit in enumerate(self._runner.units):
            for record in task.quarantined:
                if record.unit == unit.name and record.ordinal in ordinals:
                    unit.reject(batch, ordinals.index(record.ordinal), record.error())
            self._cell.enter(position, ordinals, self._figures.memory_bytes())
            self._runner.run_unit(position, batch)
            self._cell.leave()
            clock.mark(unit.name)


def _stop(at: int, end: int, size: int, journal: ShardJournal, care: Care) -> int:
    """Where the piece that begins at the ordinal `at` ends."""
    first, last = care.alone
    if first <= at < last:
        return at + 1
    stop = min(at + size, end)
    if at < first < stop:
        stop = first
    return min([stop, *(known for known in journal.parts if at < known < stop)])


def _next_piece(records: int, count: int, secs: float) -> int:
    if count == records and secs < PIECE_SECS / 2:
        return min(2 * records, MOST_RECORDS)
    return max(1, records // 2) if secs > 2 * PIECE_SECS else records
