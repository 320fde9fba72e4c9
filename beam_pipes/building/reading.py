"""A part of a shard: what consecutive batches of it add to its files, encoded.

A clock that attributes the time between its marks to stages.

The first half of a shard job: source shard → batches, and the units to run over them.

Figures of a running build, small enough to be reported several times a second.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterable, Iterator, Mapping

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import ANSWERS
from beam_pipes.engine.account import Account
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.graph import Graph
from beam_pipes.engine.records import Batch, error_in_short
from beam_pipes.errors import SourceError, StageError, text_of, without_stop
from beam_pipes.format.codec import IndexRow
from beam_pipes.identity.fingerprint import fingerprint
from beam_pipes.lineage.lineage import LineageWriter
from beam_pipes.lineage.reader import DeadLetter
from beam_pipes.sources.record_batch import BadRecord, RecordBatch
from beam_pipes.sources.source import SourceShard

Written = tuple[bytes, int, IndexRow]  # payload, source ordinal, index row


@dataclasses.dataclass(slots=True)
class EncodedRun:
    """The encoded records of the batches `first_sequence … next_sequence - 1` of one source shard.

    `records` maps each split to its records in order. `lineage` says where each source record
    was, and what became of it. `dropped_errors` describes the first records that were dropped because of an error.
    """

    first_sequence: int
    next_sequence: int
    records: dict[str, list[Written]]
    dead_letters: list[DeadLetter]
    account: Account
    lineage: LineageWriter
    dropped_errors: tuple[str, ...] = ()


class StageClock:
    """`mark(stage)` books the time since the previous mark; the clock starts when it is made.

    `secs` is stage → total seconds, in the order of `stages`. A mark costs about 0.2 µs.
    """

    def __init__(self, stages: Iterable[str]) -> None:
        self.secs = dict.fromkeys(stages, 0.0)
        self._lap: dict[str, float] = {}
        self._last = time.perf_counter()

    def mark(self, stage: str) -> None:
        """Books the time since the last mark under `stage`, one of those given at the start."""
        now = time.perf_counter()
        self._lap[stage] = self._lap.get(stage, 0.0) + now - self._last
        self._last = now

    def lap(self) -> dict[str, float]:
        """The seconds by stage since the last lap; starts a new lap."""
        lap, self._lap = self._lap, {}
        for stage, secs in lap.items():
            self.secs[stage] += secs
        return lap


# The name under which records that could not be parsed are booked.
SOURCE = "source"

# How many of the failed records an error message shows.
ERRORS_TOLD = 3


class SourceBatch(Batch):
    """A batch whose records come from a source, with their places and bytes there."""

    __slots__ = ()

    records: RecordBatch


def graph_runner(declaration: Declaration, root: str | None, graph: Graph | None = None) -> GraphRunner:
    """The units of a declaration, ready to run: statistics prefixed and randomness keyed as in every other run.

    `root` is the directory of the cache, where answers of services are kept; None: nowhere. `graph` stands for the
    declaration's own.
    """
    runner = GraphRunner(graph or declaration.graph, seed=declaration.seed, on_error=declaration.on_error)
    for unit in runner.units if root is not None else ():
        if getattr(unit.unit.stage, "service", None) is not None:
            unit.keep_answers_in(f"{root}/{ANSWERS}/{fingerprint(unit.unit.stage).digest}")
    return runner


def read_batches(declaration: Declaration, shard: SourceShard) -> Iterator[SourceBatch]:
    """The batches of a source shard, in order, their bad rows booked.

    Raises `StageError` for a bad row if the declaration's `on_error` is "fail", `SourceError` for input that is
    missing, damaged, or not what was planned.
    """
    for records in shard_records(declaration, shard):
        yield source_batch(declaration, records)


def source_batch(declaration: Declaration, records: RecordBatch) -> SourceBatch:
    """Records as a batch that units can run over, its bad rows booked; raises the same errors as `read_batches`."""
    batch = SourceBatch(records)
    batch.account.read = len(records) + len(records.bad)
    account = batch.account.unit(SOURCE)
    account.inputs = batch.account.read
    account.kept = account.outputs = len(records)
    account.partly_dropped = dict(records.left_out)
    for row in records.bad:
        if declaration.on_error == "fail":
            raise unparsable(row)
        if declaration.on_error == "drop":
            reason = f"error/{type(row.error).__name__}"
            account.dropped[reason] = account.dropped.get(reason, 0) + 1
            batch.account.dropped += 1
        else:
            account.dead += 1
    return batch


def unparsable(row: BadRecord) -> StageError:
    """The error for a bad row where none is allowed."""
    column = re.match(r"column '(.+?)': expected", str(row.error))
    is_told = column is None or "--type" in str(row.error)
    other = "" if is_told or column is None else f"declare a different type of the column (--type {column[1]}=str), "
    error = StageError(
        f"the source cannot parse record {row.record_id!r}: {without_stop(row.error)}. Repair the input, {other}or "
        "allow bad records with on_error='dead_letter' (--on-error dead_letter: kept for a replay) or on_error='drop' "
        "(--on-error drop).",
        stage=SOURCE,
        record=row.record_id,
    )
    error.__cause__ = row.error
    return error


def first_errors(declaration: Declaration, batch: SourceBatch, *, only_dropped: bool = False) -> tuple[str, ...]:
    """The first records of a batch that failed, by their order: `tokenize, a.txt@0: KeyError: 'text'`.

    With `only_dropped`, those that leave no dead letter.
    """
    records = batch.records
    errors = [
        (records.ordinals[i], error_in_short(each.stage, records.record_id(i), each.error_type, each.message))
        for i, each in batch.failures.items()
        if each.dropped or not only_dropped
    ]
    if declaration.on_error == "drop" or not only_dropped:
        errors += [
            (row.ordinal, error_in_short(SOURCE, row.record_id, type(row.error).__name__, text_of(row.error)))
            for row in records.bad
        ]
    return tuple(text for _, text in sorted(errors)[:ERRORS_TOLD])


def shard_records(declaration: Declaration, shard: SourceShard) -> Iterator[RecordBatch]:
    """The records of a source shard; raises `SourceError`, naming the shard, if they cannot be read."""
    try:
        yield from declaration.source.read(shard)
    except SourceError as error:
        raise SourceError(
            f"source shard {shard.index} cannot be read: {without_stop(error)}. Repair or remove the input and "
            "run the build again: finished shards are kept, and the published snapshot is untouched.",
            **{**error.attributes, "shard": shard.index},
        ) from error


#: Name under which the time that a shard job spends on its source is booked.
READ = "read"


@dataclasses.dataclass(slots=True, kw_only=True)
class StageFigures:
    """The work of a stage: counts as in its account (`dropped` for all reasons), and the seconds that it ran."""

    inputs: int = 0
    outputs: int = 0
    dropped: int = 0
    dead: int = 0
    secs: float = 0.0

    def add(self, other: StageFigures, *, times: int = 1) -> None:
        """Adds `other`; with `times=-1` subtracts it."""
        self.inputs += times * other.inputs
        self.outputs += times * other.outputs
        self.dropped += times * other.dropped
        self.dead += times * other.dead
        self.secs += times * other.secs

    def to_json(self) -> dict[str, object]:
        """`{"in": 1500, "out": 1496, "dropped": 4, "dead": 0, "secs": 0.125}`."""
        return {
            "in": self.inputs,
            "out": self.outputs,
            "dropped": self.dropped,
            "dead": self.dead,
            "secs": round(self.secs, 3),
        }


@dataclasses.dataclass(slots=True, kw_only=True)
class ShardFigures:
    """The work of shard jobs: source records, the dropped and dead ones among them, and the figures of each stage."""

    records: int = 0
    dropped: int = 0
    dead: int = 0
    stages: dict[str, StageFigures] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, account: Account, secs: Mapping[str, float]) -> ShardFigures:
        """The figures of an account, and the seconds of each stage."""
        figures = cls()
        figures.book(account, secs)
        return figures

    def book(self, account: Account, secs: Mapping[str, float]) -> None:
        """Adds an account, and the seconds of each stage; those of reading belong to the source."""
        self.records += account.read
        self.dropped += account.dropped
        self.dead += account.dead
        stages = self.stages
        for name, unit in account.units.items():
            stage = stages.get(name)
            if stage is None:
                stage = stages[name] = StageFigures()
            stage.inputs += unit.inputs
            stage.outputs += unit.outputs
            stage.dead += unit.dead
            if unit.dropped:
                stage.dropped += sum(unit.dropped.values())
        for name, spent in secs.items():
            name = SOURCE if name == READ else name
            stage = stages.get(name)
            if stage is None:
                stage = stages[name] = StageFigures()
            stage.secs += spent

    def add(self, other: ShardFigures, *, times: int = 1) -> None:
        """Adds `other`; with `times=-1` subtracts it."""
        self.records += times * other.records
        self.dropped += times * other.dropped
        self.dead += times * other.dead
        for name, figures in other.stages.items():
            known = self.stages.get(name)
            if known is None:
                known = self.stages[name] = StageFigures()
            known.add(figures, times=times)
