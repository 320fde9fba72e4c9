"""Runs the tasks of a plan, publishes the snapshot, and records how."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipes.building.commit import commit, write_build_record
from beam_pipes.building.leftovers import remove_snapshot
from beam_pipes.building.plan import BuildPlan
from beam_pipes.building.reading import SOURCE
from beam_pipes.building.reference import DeclarationHandle
from beam_pipes.building.shard_output import WRITE
from beam_pipes.building.shard_task import ShardReport, ShardTask
from beam_pipes.cache import Cache
from beam_pipes.cache.storage import HeldLock
from beam_pipes.runners.local import run_local
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.runners.progress import Counts, Progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """What was published. `plan` names the snapshot it has become; `reports` are the local runner's."""

    plan: BuildPlan
    manifest_id: str
    reports: Sequence[ShardReport]
    reused_shards: int


def execute(
    handle: DeclarationHandle,
    plan: BuildPlan,
    tasks: list[ShardTask],
    *,
    lock: HeldLock,
    options: LocalOptions | BeamOptions,
    progress: Progress,
    more: Mapping[str, Any] | None = None,
) -> Execution:
    """Runs `tasks`, what is left of a prepared plan, while `lock` is held. `more` goes into the build record."""
    counts = Counts(
        num_shards=plan.header.num_shards,
        done_shards=plan.header.num_shards - len(tasks),
        stages=[SOURCE, *(unit.name for unit in plan.declaration.graph.units), WRITE],
    )
    started_at = time.time()
    reports: Sequence[ShardReport] = ()
    try:
        if isinstance(options, LocalOptions):
            reports = run_local(
                handle,
                plan.header,
                tasks,
                workers=options.num_workers,
                counts=counts,
                progress=progress,
                stall_secs=options.stall_secs,
            )
            lock.check()
            manifest_id = commit(plan.declaration, plan.header)
            figures: Mapping[str, Any] = {"shards": [report.to_json() for report in reports]}
        else:
            from beam_pipes.runners.beam_job import run_beam

            figures = run_beam(handle, plan, tasks, options=options, counts=counts, progress=progress)
            manifest_id = Cache.open(plan.path).manifest.id
    finally:
        progress.close(counts)
    record = {
        "options": options.to_json(),
        "previous": _previous_snapshot(plan),
        "started_at": started_at,
        "ended_at": time.time(),
        "reused_shards": counts.reused_shards,
        **figures,
        **(more or {}),
    }
    plan = _as_published(plan)
    write_build_record(plan.header, record)
    return Execution(plan=plan, manifest_id=manifest_id, reports=reports, reused_shards=counts.reused_shards)


def _previous_snapshot(plan: BuildPlan) -> str | None:
    """The id of the snapshot that readers saw before this build, unless it was this very one."""
    previous = None if plan.previous is None else plan.previous.rpartition("/")[2]
    return None if previous == plan.snapshot else previous


def _as_published(plan: BuildPlan) -> BuildPlan:
    """The plan of the snapshot that was published: another one where records have gone into quarantine."""
    snapshot = Cache.open(plan.path).manifest.snapshot
    if snapshot == plan.snapshot:
        return plan
    remove_snapshot(plan.path, plan.snapshot)
    return dataclasses.replace(plan, snapshot=snapshot, header=dataclasses.replace(plan.header, snapshot=snapshot))
