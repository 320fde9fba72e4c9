"""A shard job under limits: what a worker does while its supervisor watches.

The batches of the source are cut into pieces of about 200 ms of work, so that killing the worker loses no more than
that; a piece costs 0.2 ms, and how batches are cut does not show in the result.

The *journal* keeps the finished parts. It is an unnamed file that the supervisor opens and hands to the worker: it
disappears with them, and nothing is unpickled that anybody else could have written. It contains only parts that took
much longer to make than to write.

The *record clock* says how long a worker has been at a record, without the time in which it was runnable and got no
core. The system reports a wait only when it is over: while the worker waits it seems to work, and the wait is
subtracted afterwards. On a machine with five times as much work as cores, that is 90 ms at once, or four looks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pickle
import struct
import time
from collections.abc import Iterator

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.reading import READ, EncodedRun, SourceBatch, StageClock, graph_runner, source_batch
from beam_pipes.building.shard_job import CannotReplayError, Tell, build_shard
from beam_pipes.building.shard_output import ShardOutput
from beam_pipes.building.shard_task import BuildHeader, ShardReport, ShardTask
from beam_pipes.building.workers.process import MOST_RECORDS, ProcessFigures, WorkerCell
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.sources.record_batch import RecordBatch
from beam_pipes.storage.protocol import write_all


class RecordClock:
    """Takes at each look the time and how long the worker has waited since it began, both in seconds.

    Between two looks at most `most_secs` count: a supervisor that had to wait itself, because the whole machine stood
    still, does not know whose time it was.
    """

    def __init__(self, *, most_secs: float, now: float, waited: float) -> None:
        self._most_secs = most_secs
        self._now, self._waited = now, waited
        self._left_out = 0.0  # since the worker was last seen to wait
        self.spent_secs = 0.0

    def restart(self) -> None:
        """Starts with another record."""
        self.spent_secs = self._left_out = 0.0

    def look(self, *, now: float, waited: float) -> None:
        """Adds the time since the last look to the record."""
        passed = (now - self._now) - (waited - self._waited)
        has_waited = waited > self._waited
        self._now, self._waited = now, waited
        if passed < 0:  # what was left out was not counted, so it is not subtracted either
            passed = min(0.0, passed + self._left_out)
        counted = min(passed, self._most_secs)
        self._left_out = 0.0 if has_waited else self._left_out + passed - counted
        self.spent_secs = max(0.0, self.spent_secs + counted)


_HEAD = struct.Struct("<QQQ")  # bytes of the pickled part, first ordinal, records

# Writing a part takes about 50 µs, plus 1 µs per record and 3 ns per byte. At 200 times that a journal costs 0.5 %.
_WORTH = 200.0
_COST_SECS, _COST_SECS_A_RECORD, _COST_SECS_A_BYTE = 50e-6, 1e-6, 3e-9


class ShardJournal:
    """Parts by their first source ordinal; `file` is a descriptor of its own, at any position."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._end = 0
        self.parts = dict(self._read())

    def _read(self) -> list[tuple[int, tuple[int, EncodedRun]]]:
        found = []
        while len(head := os.pread(self._file, _HEAD.size, self._end)) == _HEAD.size:
            size, first, count = _HEAD.unpack(head)
            data = os.pread(self._file, size, self._end + _HEAD.size)
            if len(data) < size:  # the worker was killed while it wrote this one
                break
            found.append((first, (count, pickle.loads(data))))
            self._end += _HEAD.size + size
        return found

    def add(self, part: EncodedRun, *, first_ordinal: int, num_records: int, secs: float) -> None:
        """Records a part that took `secs` to make, if that is worthwhile."""
        records = [payload for each in part.records.values() for payload, _, _ in each]
        cost = _COST_SECS + len(records) * _COST_SECS_A_RECORD + sum(map(len, records)) * _COST_SECS_A_BYTE
        if secs < _WORTH * cost:
            return
        data = pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL)
        block = _HEAD.pack(len(data), first_ordinal, num_records) + data
        write_all(self._file, block, at=self._end)
        self._end += len(block)

    def close(self) -> None:
        os.close(self._file)


PIECE_SECS = 0.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Care:
    """How a supervisor wants a source shard to be cut: at most `most_records` per piece, and one by one between the
    ordinals `alone` (start, end), where it could not tell which record hangs."""

    most_records: int = MOST_RECORDS
    alone: tuple[int, int] = (0, 0)


class GuardedJob:
    """Builds source shards of one declaration, one after the other, and shows in `cell` what it is doing."""

    def __init__(self, declaration: Declaration, header: BuildHeader, cell: WorkerCell) -> None:
        self._declaration = declaration
        self._header = header
        self._cell = cell
        self._figures = ProcessFigures(os.getpid())
        self._runner: GraphRunner = graph_runner(declaration, header.root)
        for unit in self._runner.units:
            unit.show_index_in(cell.index_cell)
        # Held here, before the supervisor looks: to wait for a GPU is not a record's time.
        self._resources = [unit.resources for unit in self._runner.units]
        for unit in self._runner.units:
            unit.resources = None
        #: Stages with resources load or compile a model in the first call of a process, for which no limit is meant.
        self._cold = {position for position, asked in enumerate(self._resources) if asked is not None}
        self._piece_records = 1  # adjusted by each piece, of whatever source shard

    def run(self, task: ShardTask, *, journal: ShardJournal, care: Care, tell: Tell) -> ShardReport:
        """Builds one source shard (see `build_shard`); work in the journal is not repeated."""
        build = functools.partial(build_shard, self._declaration, self._header, self._runner)
        parts = functools.partial(self._parts, task, journal, care)
        try:
            return build(task, parts, tell)
        except CannotReplayError:
            journal.parts.clear()
            return build(dataclasses.replace(task, prior=None), parts, tell)

    def _parts(
        self,
        task: ShardTask,
        journal: ShardJournal,
        care: Care,
        records: RecordBatch,
        output: ShardOutput,
        clock: StageClock,
    ) -> Iterator[EncodedRun]:
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
            yield part
            at += count

    def _run_units(self, batch: SourceBatch, task: ShardTask, clock: StageClock) -> None:
        ordinals = batch.records.ordinals
        for position, unit in enumerate(self._runner.units):
            for record in task.quarantined:
                if record.unit == unit.name and record.ordinal in ordinals:
                    unit.reject(batch, ordinals.index(record.ordinal), record.error())
            resources = self._resources[position]
            with contextlib.nullcontext() if resources is None else resources.held():
                if position not in self._cold:
                    self._cell.enter(position, ordinals, self._figures.memory_bytes())
                self._runner.run_unit(position, batch)
                self._cell.leave()
            if ordinals:
                self._cold.discard(position)
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
