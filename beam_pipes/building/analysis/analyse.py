"""`analyse`: runs the analyzers of a declaration, round by round, and binds their results."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from beam_pipes.building.analysis.job import merge
from beam_pipes.building.analysis.plan import AnalysisPlan, AnalysisTask, plan_analysis
from beam_pipes.building.analysis.stored import discard
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.leftovers import mark_unfinished, writing
from beam_pipes.errors import AnalysisError
from beam_pipes.sources.source import SourcePlan
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.protocol import Storage

# Runs tasks anywhere; afterwards all of their accumulators are stored.
RunTasks = Callable[[Sequence[AnalysisTask]], None]

# A disk that keeps returning other bytes than it was given is not worth waiting for.
_MOST_ROUNDS_WITHOUT_PROGRESS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysed:
    """The outcome of an analysis: the plan with every result, a row per analyzer (for the build record), the number of
    merged results."""

    plan: AnalysisPlan
    rows: tuple[JsonObject, ...]
    merged: int
    secs: float

    @property
    def num_tasks(self) -> int:
        """How many (analyzer, source shard) pairs were analysed."""
        return sum(row["analysed_shards"] for row in self.rows)


def analyse(
    declaration: Declaration,
    root: str,
    source: SourcePlan,
    *,
    generation: int = 0,
    run_tasks: RunTasks,
) -> Analysed:
    """Computes the missing results of all analyzers, and binds all of them.

    Existing results (of earlier builds, or of a killed one) are reused once their bytes match their
    checksums. `run_tasks` runs a round's tasks. Only for the holder of the build lock.

    Raises what a source or a stage raised, `AnalysisError` if an analyzer failed.
    """
    started = time.monotonic()
    storage, merged = storage_for(root), 0
    analysed: dict[str, int] = {}
    spent: dict[str, float] = {}
    checked: set[str] = set()
    tries = 0

    def what_is_there() -> AnalysisPlan:
        while _drop_damaged(found := plan_analysis(declaration, root, source, generation=generation), checked, storage):
            pass
        return found

    plan = what_is_there()
    while not plan.done:
        before = len(plan.results())
        with writing(root):
            mark_unfinished(plan)
        if tasks := plan.tasks():
            began = time.monotonic()
            run_tasks(tasks)
            for name in {name for task in tasks for name in task.places}:
                analysed[name] = analysed.get(name, 0) + sum(name in task.places for task in tasks)
                spent[name] = spent.get(name, 0.0) + time.monotonic() - began
            plan = what_is_there()
        for planned in plan.analyzers:
            if planned.result is None and not planned.missing:
                began = time.monotonic()
                result = merge(planned)
                spent[planned.analyzer.name] = spent.get(planned.analyzer.name, 0.0) + time.monotonic() - began
                if result is not None:
                    checked.add(result.place)
                    merged += 1
        plan = what_is_there()
        tries = 0 if len(plan.results()) > before else tries + 1
        if tries >= _MOST_ROUNDS_WITHOUT_PROGRESS:
            _give_up(plan)
    rows = tuple(
        {
            "name": planned.analyzer.name,
            "fingerprint": planned.fingerprint.digest,
            "split": declaration.learned[planned.analyzer.name].split,
            "num_shards": len(planned.shards),
            "analysed_shards": analysed.get(planned.analyzer.name, 0),
            "bytes": result.num_bytes,
            "secs": round(spent.get(planned.analyzer.name, 0.0), 3),
            **result.facts,
        }
        for planned in plan.analyzers
        if (result := planned.result) is not None
    )
    return Analysed(plan=plan, rows=rows, merged=merged, secs=time.monotonic() - started)


def _drop_damaged(plan: AnalysisPlan, checked: set[str], storage: Storage) -> bool:
    """Removes results whose bytes have changed; returns whether there were any."""
    damaged = False
    for result in plan.results().values():
        if result.place not in checked:
            if result.is_undamaged(storage):
                checked.add(result.place)
            else:
                discard(storage, result.place)
                damaged = True
    return damaged


def _give_up(plan: AnalysisPlan) -> None:
    if plan.waiting:
        raise next(iter(plan.waiting.values()))
    names = [planned.analyzer.name for planned in plan.analyzers if planned.result is None]
    raise AnalysisError(
        f"{_MOST_ROUNDS_WITHOUT_PROGRESS} times the accumulators of {', '.join(map(repr, names))} were written below "
        f"{plan.root!r} and are not there in full: the storage loses what is written to it, or something else removes "
        "it. Repair it, or build to another directory.",
        analyzers=tuple(names),
    )
