"""One source shard, from its records to the accumulators of all analyzers that lack it: what a worker does.

The tasks of an analysis as files: a job names them by number, so that its request stays small.

The accumulators of all source shards → the result of an analyzer.

`AnalysisPool` runs the tasks on worker processes, as `WorkerPool` builds shards.
"""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import overload

from beam_pipes.analysis.analyzer import Accumulator, Analyzer, BoundResult, fetch
from beam_pipes.building.analysis.plan import AnalysisReport, AnalysisTask, PlannedAnalyzer
from beam_pipes.building.analysis.stored import DIRECTORY, Stored, discard, find_stored, scratch, store
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.leftovers import writing
from beam_pipes.building.reading import graph_runner, shard_records, source_batch
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_task import Numbered
from beam_pipes.building.workers.process import WorkerProcess
from beam_pipes.building.workers.tasks import Running, Workers, now_and_then, worker_died
from beam_pipes.engine.records import Column
from beam_pipes.errors import AnalysisError, BuildError
from beam_pipes.sources.record_batch import RecordBatch
from beam_pipes.sources.source import SourceShard
from beam_pipes.storage.local import is_remote, storage_for

# Below the directory of analyses: the tasks of jobs, by launch.
TASKS = "tasks"

# Takes the number of records read since the last call.
Tell = Callable[[int], None]


class AnalysisJob:
    """Analyses source shards of one declaration, one after the other, in this process.

    Memory: a few batches, and what accumulators hold for one source shard.
    """

    def __init__(self, declaration: Declaration, root: str) -> None:
        self._declaration = declaration
        self._root = root
        self._analyzers = {analyzer.name: analyzer for analyzer in declaration.analyzers}

    def run(self, task: AnalysisTask, *, tell: Tell = lambda records: None) -> AnalysisReport:
        """Reads a source shard once, and stores every missing accumulator of the task's analyzers.

        Raises what the source or a stage raised, or `AnalysisError` if an analyzer failed; everything stored by then
        is complete.
        """
        started = time.monotonic()
        storage = storage_for(self._root)
        places = {name: place for name, place in task.places.items() if find_stored(storage, place) is None}
        groups: dict[str, _Group] = {}
        for name in places:
            analyzer = self._analyzers[name]
            group = groups.get(task.of[name])
            if group is None:
                group = groups[task.of[name]] = _Group(self._declaration, task.shard, analyzer, self._root)
            group.accumulators.append((analyzer, analyzer.accumulator()))
        records = 0
        splits = self._declaration.source.splits_of(task.shard)
        learning = [group for group in groups.values() if group.learned.of_shard(splits)]
        for batch in shard_records(self._declaration, task.shard) if learning else ():
            for group in learning:
                group.add(group.learned.records(batch))
            records += batch.num_records
            tell(batch.num_records)
        with writing(self._root):
            for group in groups.values():
                self._save(group, places)
        return AnalysisReport(index=task.shard.index, records=records, secs=time.monotonic() - started)

    def _save(self, group: _Group, places: dict[str, str]) -> None:
        with scratch(self._root) as directory:
            for analyzer, accumulator in group.accumulators:
                made = os.path.join(directory, analyzer.name)
                try:
                    accumulator.save(made)
                except (BuildError, OSError):
                    raise
                except Exception as error:
                    where = f"while it saved its accumulator of {_where(group.shard)}"
                    raise failure_of(analyzer, where, error) from error
                facts = {"failed": group.failed, "records": group.records, "values": group.values[analyzer.name]}
                store(places[analyzer.name], made, facts)


class _Group:
    """Analyzers of one pipeline and one split, which runs once for all of them. Counts what passes through."""

    def __init__(self, declaration: Declaration, shard: SourceShard, analyzer: Analyzer, root: str) -> None:
        graph = analyzer.analysed_graph
        self.learned = declaration.learned[analyzer.name]
        self.shard = shard
        self.accumulators: list[tuple[Analyzer, Accumulator]] = []
        self.records = 0
        self.values: collections.Counter[str] = collections.Counter()
        self.failed: dict[str, int] = {}
        self._declaration = declaration
        self._runner = None if graph is None else graph_runner(declaration, root, graph)

    def add(self, records: RecordBatch) -> None:
        batch = source_batch(self._declaration, records)
        found: dict[str | None, tuple[list[object], RecordIds]] = {None: (records.values, RecordIds(records))}
        if self._runner is not None:
            self._runner.run(batch)
            for name, column in self._runner.outputs(batch).items():
                found[name] = [value for values in column for value in values], RecordIds(records, column)
        account = batch.account
        self.records += account.read
        for name, unit in account.units.items():
            failed = unit.dead + sum(n for reason, n in unit.dropped.items() if reason.startswith("error/"))
            if failed:
                self.failed[name] = self.failed.get(name, 0) + failed
        for analyzer, accumulator in self.accumulators:
            values, ids = found[None if self._runner is None else analyzer.analysed_output(self._runner.graph)]
            self.values[analyzer.name] += len(values)
            if values:
                try:
                    accumulator.add(values, ids)
                except (BuildError, OSError):
                    raise
                except Exception as error:
                    where = f"on {_where(self.shard)}, records {ids[0]!r} to {ids[-1]!r}"
                    raise failure_of(analyzer, where, error) from error


class RecordIds(Sequence[str]):
    """The record of each value, by name; computed when the first one is requested.

    `column` holds the values of each record, if records may give more or fewer than one.
    """

    def __init__(self, records: RecordBatch, column: Column | None = None) -> None:
        self._records = records
        self._column = column
        self._ids: list[str] | None = None

    def __len__(self) -> int:
        return len(self._records) if self._column is None else sum(map(len, self._column))

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._all()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def _all(self) -> list[str]:
        if self._ids is None:
            ids = self._records.record_ids()
            if self._column is not None:
                ids = [name for name, values in zip(ids, self._column, strict=True) for _ in values]
            self._ids = ids
        return self._ids


def failure_of(analyzer: Analyzer, where: str, error: Exception) -> AnalysisError:
    """The error that says where, and on which record, an analyzer's own code failed."""
    words = str(error).rstrip(".")
    return AnalysisError(
        f"the analyzer {analyzer.name!r} ({type(analyzer).__name__}) failed {where}: {type(error).__name__}: {words}. "
        "Correct the analyzer, or what it is `of`; finished accumulators are kept.",
        analyzer=analyzer.name,
    )


def _where(shard: SourceShard) -> str:
    files = list(dict.fromkeys(piece.file for piece in shard.slices))
    return f"source shard {shard.index} ({', '.join(files[:3])}{'…' if len(files) > 3 else ''})"


def analysis_tasks(root: str, launch: str) -> Numbered[AnalysisTask]:
    """The tasks of a round by number; `launch` distinguishes jobs."""
    return Numbered(
        directory=f"{root}/{DIRECTORY}/{TASKS}/{launch}",
        what="tasks of the analysis",
        error=AnalysisError,
        to_json=AnalysisTask.to_json,
        from_json=AnalysisTask.from_json,
    )


def merge(planned: PlannedAnalyzer) -> Stored | None:
    """Merges all accumulators, in the order of source shards, stores the result and binds it.

    Reads and checks every accumulator first. If any was damaged, it is removed and the result is None. Repeating
    it gives the same bytes. Raises `AnalysisError` if the analyzer failed.
    """
    storage = storage_for(planned.root)
    stored = [planned.accumulators[shard.index] for shard in planned.shards]
    damaged = [each for each in stored if not each.is_undamaged(storage)]
    for each in damaged:
        discard(storage, each.place)
    if damaged:
        return None
    analyzer = planned.analyzer
    with writing(planned.root), scratch(planned.root) as directory:
        paths = [each.path for each in stored]
        if is_remote(planned.root):
            paths = [os.path.join(directory, f"{number:06d}") for number in range(len(stored))]
            for each, path in zip(stored, paths, strict=True):
                fetch(each.path, path)
        target = os.path.join(directory, analyzer.name)
        try:
            analyzer.merge(paths, target)
        except (BuildError, OSError):
            raise
        except Exception as error:
            raise failure_of(analyzer, f"while it merged its {len(paths)} accumulators", error) from error
        if not os.path.exists(target):
            raise AnalysisError(
                f"the analyzer {analyzer.name!r} ({type(analyzer).__name__}): merge(accumulators, target) should write "
                "a file or a directory at `target`, but wrote none.",
                analyzer=analyzer.name,
            )
        digest = analyzer.content_digest(target)
        result = store(planned.result_place, target, {**_merged_facts(stored), "digest": digest})
    analyzer.result.bind(BoundResult(result.path, digest), by_hand=False)
    return result


def _merged_facts(stored: list[Stored]) -> dict[str, object]:
    failed: dict[str, int] = {}
    for each in stored:
        for name, count in each.facts["failed"].items():
            failed[name] = failed.get(name, 0) + count
    return {
        "failed": failed,
        "records": sum(each.facts["records"] for each in stored),
        "values": sum(each.facts["values"] for each in stored),
    }


class AnalysisPool(Workers[AnalysisTask, AnalysisReport, Running[AnalysisTask]]):
    """Processes that analyse source shards."""

    def __init__(self, handle: DeclarationHandle, root: str, *, workers: int) -> None:
        self._handle, self._root = handle, root
        super().__init__(__name__, workers=workers, meanwhile=handle.require_portable)

    def begin(self, worker: WorkerProcess, task: AnalysisTask) -> None:
        self.start(Running(worker=worker, task=task), _run_task, self._handle, self._root, task)

    def died(self, running: Running[AnalysisTask], code: int) -> None:
        of = f" for {', '.join(map(repr, running.task.places))}"
        raise worker_died(running.task, code, did="analysed", kept="accumulators", of=of)


# What the worker process keeps between its tasks: resolving a declaration imports the user's modules.
_job: AnalysisJob | None = None


def _run_task(
    send: Callable[[object], None], handle: DeclarationHandle, root: str, task: AnalysisTask
) -> AnalysisReport:
    """In the worker: runs one task, and reports progress from time to time."""
    global _job
    if _job is None:
        _job = AnalysisJob(handle.get(), root)
    with now_and_then(lambda figures: send(("tell", figures)), task.book) as tell:
        return _job.run(task, tell=tell)
