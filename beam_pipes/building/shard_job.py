"""One source shard, from its bytes to its committed files: what a worker does.

`ShardJob.run` reads the shard, runs its records through the stages, writes the outputs, and ends with the completion,
which marks the shard as done.

A replay makes a shard from its earlier version: the bytes of records that did not fail are reused, the dead letters run
through the declaration as it is now, and their output is inserted at their places. The account stays exact: what a dead
letter had booked before it failed is found by running it again up to that point, and is replaced.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import operator
import os
import time
from collections.abc import Callable, Iterator, Mapping

from beam_pipes.building.completion import (
    DEAD_LETTERS,
    Completion,
    completion_path,
    find_completion,
    read_completion,
    split_directory,
)
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.leftovers import writing
from beam_pipes.building.reading import (
    READ,
    SOURCE,
    EncodedRun,
    StageClock,
    Written,
    graph_runner,
    shard_records,
    source_batch,
)
from beam_pipes.building.shard_output import WRITE, ShardOutput
from beam_pipes.building.shard_task import BuildHeader, Prior, ShardReport, ShardTask
from beam_pipes.engine.account import Account, InexactDifferenceError, exchange
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.errors import SourceError
from beam_pipes.format.dtypes import Array
from beam_pipes.format.framing import read_records
from beam_pipes.format.index import ORDINAL, decode_index, index_path
from beam_pipes.lineage.lineage import LineageWriter, ShardLineage, decode_lineage, lineage_file
from beam_pipes.lineage.reader import DEAD_LETTER_CODEC, DeadLetter
from beam_pipes.sources.file_source import FileContent
from beam_pipes.sources.record_batch import BadRecord, RecordBatch, StoredPiece
from beam_pipes.sources.repaired import RepairedSource
from beam_pipes.storage.local import storage_for

# Records that are merged at a time.
_MERGED_RECORDS = 4096


class CannotReplayError(Exception):
    """The source shard must be rebuilt: what its dead letters had contributed to the account cannot be determined."""


def prior_completion(prior: Prior) -> Completion:
    """Raises `CannotReplayError` if it is gone or damaged."""
    completion = read_completion(
        storage_for(prior.directory), completion_path(prior.directory, prior.index, prior.num_shards)
    )
    if completion is None:
        raise CannotReplayError("its completion is gone")
    return completion


def prior_letters(prior: Prior, completion: Completion) -> list[DeadLetter]:
    """The dead letters of a source shard, in the order of its records."""
    if completion.dead_letters is None:
        return []
    path = f"{split_directory(prior.directory, DEAD_LETTERS)}/{completion.dead_letters.file}"
    return [DeadLetter.from_example(DEAD_LETTER_CODEC.decode(payload)) for payload in read_records(path)]


def replayed_letters(declaration: Declaration, letters: list[DeadLetter]) -> Iterator[tuple[DeadLetter, bytes]]:
    """The dead letters that may now have another outcome, each with its current bytes.

    A record that the source could not parse fails again, unless it was repaired: the source is the same.
    """
    for letter in letters:
        repaired = _repair(declaration, letter)
        if repaired is not None:
            yield letter, repaired
        elif letter.stage != SOURCE:
            yield letter, letter.record


def letter_records(declaration: Declaration, prior: Prior) -> Iterator[RecordBatch]:
    """The dead letters to rerun, one per batch, with their ordinals in the source shard."""
    digests = None
    for letter, raw in replayed_letters(declaration, prior_letters(prior, prior_completion(prior))):
        digests = _lineage_before(prior).digests if digests is None else digests
        yield _one(declaration, letter, raw, digests)


def task_records(declaration: Declaration, task: ShardTask) -> Iterator[RecordBatch]:
    """The records that a task runs: all of its source shard, or only its dead letters."""
    if task.prior is not None:
        return letter_records(declaration, task.prior)
    return shard_records(declaration, task.shard)


def task_output(declaration: Declaration, header: BuildHeader, task: ShardTask) -> ShardOutput:
    """Where their output goes. Raises `CannotReplayError` if the whole source shard has to run."""
    return (ShardOutput if task.prior is None else ReplayOutput)(declaration, header, task)


class ReplayOutput(ShardOutput):
    """The output of a shard job that runs only dead letters; `commit` inserts them among the kept records.

    `commit` raises `CannotReplayError` if the account cannot be made exact: then the shard must be rebuilt.
    """

    def __init__(self, declaration: Declaration, header: BuildHeader, task: ShardTask) -> None:
        super().__init__(declaration, header, task)
        assert task.prior is not None
        self._prior = task.prior
        self._before = prior_completion(task.prior)
        self._letters = prior_letters(task.prior, self._before)
        units = [unit.name for unit in declaration.graph.units]
        for letter, _ in replayed_letters(declaration, self._letters):
            reached = units.index(letter.stage) if letter.stage in units else len(units) if letter.stage == WRITE else 0
            if task.prior.changed.intersection(units[:reached]):
                raise CannotReplayError("a stage before the one that failed has changed")
        self._parts: list[EncodedRun] = []

    def write(self, part: EncodedRun) -> None:
        self._parts.append(part)
        self.next_sequence = part.next_sequence

    def commit(self) -> Completion:
        parts, self._parts, self.next_sequence = self._parts, [], 0
        new = Account()
        for part in parts:
            new.merge_from(part.account)
        account = self._before.account
        try:
            exchange(account, old=self._booked_before(), new=new)
        except InexactDifferenceError as error:
            raise CannotReplayError(f"the statistic {error} cannot be taken apart") from error
        last = EncodedRun(
            first_sequence=0,
            next_sequence=1,
            records={split: [] for split in self._before.entries},
            dead_letters=self._merged_letters(parts),
            account=account,
            lineage=self._merged_lineage(parts),
        )
        for split in self._before.entries:
            self._write_split(split, parts)
        super().write(last)
        return super().commit()

    def _booked_before(self) -> Account:
        """What the rerun dead letters had contributed to the account when they failed."""
        runner = graph_runner(self._declaration, self._header.root)
        names = [unit.name for unit in runner.units]
        booked = Account()
        digests = _lineage_before(self._prior).digests
        for letter, _ in replayed_letters(self._declaration, self._letters):
            if letter.stage == SOURCE:
                account = Account(read=1, dead=1)
                source = account.unit(SOURCE)
                source.inputs = source.dead = 1
            else:
                batch = source_batch(self._declaration, _one(self._declaration, letter, letter.record, digests))
                reached = len(names) if letter.stage == WRITE else names.index(letter.stage)
                for position in range(reached):
                    runner.run_unit(position, batch)
                if letter.stage != WRITE and letter.item:
                    runner.units[reached].run_first(batch, letter.item)
                if batch.failures or batch.records.bad:
                    raise CannotReplayError(f"{letter.record_id} now fails before stage {letter.stage!r}")
                account = batch.account
                account.dead = 1
                failed = account.unit(letter.stage)
                failed.inputs += 1
                failed.dead += 1
            booked.merge_from(account)
        return booked

    def _merged_letters(self, parts: list[EncodedRun]) -> list[DeadLetter]:
        again = {letter.ordinal for letter, _ in replayed_letters(self._declaration, self._letters)}
        kept = [letter for letter in self._letters if letter.ordinal not in again]
        made = [letter for part in parts for letter in part.dead_letters]
        return sorted([*kept, *made], key=lambda letter: letter.ordinal)

    def _merged_lineage(self, parts: list[EncodedRun]) -> LineageWriter:
        before = _lineage_before(self._prior)
        if before.digests is None:
            raise CannotReplayError("it was built by a version that kept no digests of records")
        digests = before.digests.copy()
        fates = {ordinal: fate for ordinal in range(len(before)) if (fate := before.fate(ordinal)).status != "written"}
        for (letter, _), part in zip(replayed_letters(self._declaration, self._letters), parts, strict=True):
            own = decode_lineage(part.lineage.to_bytes(), path="a dead letter")
            fates[letter.ordinal] = own.fate(0)
            if own.digests is not None and _repair(self._declaration, letter) is not None:
                digests[letter.ordinal] = own.digests[0]
        merged = LineageWriter()
        places = [(file, before.positions[first : first + count].tolist()) for file, first, count in before.runs]
        unwritten = {ordinal: fate for ordinal, fate in fates.items() if fate.status != "written"}
        merged.add(places, unwritten, digests.tobytes())
        return merged

    def _write_split(self, split: str, parts: list[EncodedRun]) -> None:
        """Appends the records of a split, old and new, in the order of their source records."""
        made = [record for part in parts for record in part.records.get(split, ())]
        merged = heapq.merge(self._records_before(split), made, key=operator.itemgetter(1))
        with writing(self._header.root):
            while chunk := list(itertools.islice(merged, _MERGED_RECORDS)):
                self._append(split, chunk)

    def _records_before(self, split: str) -> Iterator[Written]:
        entry = self._before.entries[split]
        path = os.path.join(split_directory(self._prior.directory, split), entry.file)
        index = index_path(path)
        columns = decode_index(storage_for(index).read_bytes(index), path=index)
        rows = [columns[name].tolist() for name in self._codecs[split].index_columns]
        for position, payload in enumerate(read_records(path)):
            yield payload, int(columns[ORDINAL][position]), tuple(column[position] for column in rows)


def _lineage_before(prior: Prior) -> ShardLineage:
    path = f"{prior.directory}/{lineage_file(prior.index, prior.num_shards)}"
    return decode_lineage(storage_for(path).read_bytes(path), path=path)


def _repair(declaration: Declaration, letter: DeadLetter) -> bytes | None:
    source: object = declaration.source
    return source.repair_of(letter.source, letter.position) if isinstance(source, RepairedSource) else None


def _one(declaration: Declaration, letter: DeadLetter, raw: bytes, digests: Array | None) -> RecordBatch:
    """One dead letter as a batch of the source; `digests` are those of the source shard's records."""
    values: list[object] = []
    bad: list[BadRecord] = []
    try:
        values.append(declaration.source.parse(raw, file=letter.source, position=letter.position))
    except SourceError as error:
        bad.append(
            BadRecord(ordinal=letter.ordinal, file=letter.source, position=letter.position, raw=raw, error=error)
        )
    piece = StoredPiece(
        file=letter.source,
        first_ordinal=letter.ordinal,
        is_named=any(isinstance(value, FileContent) for value in values),
        positions=[letter.position],
        raws=[raw],
    )
    is_repaired = _repair(declaration, letter) is not None
    return RecordBatch(
        first_ordinal=letter.ordinal,
        num_records=1,
        values=values,
        ordinals=[letter.ordinal] if values else [],
        bad=bad,
        pieces=[piece],
        digests=None if digests is None or is_repaired else digests[letter.ordinal].tobytes(),
    )


# Takes what was done since the last call: an account, and the seconds of each stage.
Tell = Callable[[Account, Mapping[str, float]], None]


# Runs the records of one batch through the stages: their parts in order, each encoded for the output.
Parts = Callable[[RecordBatch, ShardOutput, StageClock], Iterator[EncodedRun]]


def build_shard(
    declaration: Declaration, header: BuildHeader, runner: GraphRunner, task: ShardTask, parts: Parts, tell: Tell
) -> ShardReport:
    """Reads one source shard, writes its `parts`, and commits it; a committed one is left alone.

    Raises what the source or a stage raised, after removing everything of the shard.
    """
    started = time.monotonic()
    replayed = 0
    done = find_completion(header, task)
    clock = StageClock([READ, *(unit.name for unit in runner.units), WRITE])
    if done is None:
        output = task_output(declaration, header, task)
        try:
            for records in task_records(declaration, task):
                records.digests()  # before stages, which may change values in place
                replayed += 1
                for part in parts(records, output, clock):
                    output.write(part)
                    clock.mark(WRITE)
                    tell(part.account, clock.lap())
            done = output.commit()
            clock.mark(WRITE)
            tell(Account(), clock.lap())
        except BaseException:
            output.abort()
            raise
    secs = time.monotonic() - started
    return ShardReport.of(task, done.account, secs=secs, replayed=replayed, stage_secs=clock.secs)


class ShardJob:
    """Builds source shards of one declaration, one after the other, in this process. Memory: a few batches."""

    def __init__(self, declaration: Declaration, header: BuildHeader) -> None:
        self._declaration = declaration
        self._header = header
        self._runner = graph_runner(declaration, header.root)

    def run(self, task: ShardTask, *, tell: Tell = lambda account, secs: None) -> ShardReport:
        """Builds one source shard: see `build_shard`."""
        build = functools.partial(build_shard, self._declaration, self._header, self._runner)
        try:
            return build(task, self._parts, tell)
        except CannotReplayError:
            return build(dataclasses.replace(task, prior=None), self._parts, tell)

    def _parts(self, records: RecordBatch, output: ShardOutput, clock: StageClock) -> Iterator[EncodedRun]:
        batch = source_batch(self._declaration, records)
        clock.mark(READ)
        for position, unit in enumerate(self._runner.units):
            self._runner.run_unit(position, batch)
            clock.mark(unit.name)
        yield output.encode(batch, output.next_sequence)
