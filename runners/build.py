"""`build`: plan a declaration, run what is not built yet, publish the snapshot."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beam_pipes.cache import Cache
from beam_pipes.engine.account import Account
from beam_pipes.offline.commit import commit, write_build_record
from beam_pipes.offline.declaration import Declaration
from beam_pipes.offline.declaration_fingerprint import require_new_versions
from beam_pipes.offline.leftovers import remove_temporaries
from beam_pipes.offline.lock import build_lock
from beam_pipes.offline.plan import BuildPlan, make_plan, prepare
from beam_pipes.offline.reference import DeclarationHandle, load_declaration
from runners.local import run_local
from runners.options import BeamOptions, LocalOptions
from runners.progress import Counts, Progress, Silent


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildResult:
    """What a build did. `up_to_date`: the snapshot was there already and nothing was run."""

    path: str
    snapshot: str
    manifest_id: str
    up_to_date: bool
    num_shards: int
    reused_shards: int
    account: Account
    secs: float


def build(
    declaration: Declaration | str,
    to: str | os.PathLike[str],
    *,
    options: LocalOptions | BeamOptions | None = None,
    accept_code_change: bool = False,
    progress: Progress | None = None,
) -> BuildResult:
    """Builds the cache of `declaration` (or of its reference, `package.module:name`) in the directory `to`.

    Source shards that are built already, by this or an earlier build of the same input and declaration, are reused.
    After any interruption, call it again: it goes on from there. The published snapshot does not depend on `options`.

    Where the code of a stage is not what the published snapshot was built with, and the stage declares no other
    `version`, the build stops with `CodeChangedError` unless `accept_code_change` is set.

    Raises a `BeamPipesError` that says what to do; nothing is published then, and what was published before stays.
    """
    started = time.monotonic()
    options = options if options is not None else LocalOptions()
    progress = progress if progress is not None else Silent()
    reference = declaration if isinstance(declaration, str) else None
    resolved = load_declaration(declaration) if isinstance(declaration, str) else declaration
    handle = DeclarationHandle(resolved, reference)
    with build_lock(to):
        plan = make_plan(resolved, to)
        if plan.published_manifest_id is not None and not plan.tasks_left():
            remove_temporaries(to)
            return _result(plan, plan.published_manifest_id, started, up_to_date=True)
        previous = plan.previous_fingerprint()
        if previous is not None and not accept_code_change:
            require_new_versions(previous, plan.fingerprint, path=plan.path)
        tasks = prepare(plan)
        counts = Counts(num_shards=plan.header.num_shards, done_shards=plan.header.num_shards - len(tasks))
        started_at = time.time()
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
                extra: Mapping[str, Any] = {"shards": [report.to_json() for report in reports]}
                manifest_id = commit(resolved, plan.header)
            else:
                from runners.direct import run_beam

                extra = run_beam(handle, plan, tasks, options=options, counts=counts, progress=progress)
                manifest_id = Cache.open(plan.path).manifest.id
        finally:
            progress.close(counts)
        record = {
            "options": options.to_json(),
            "started_at": started_at,
            "reused_shards": counts.reused_shards,
            **extra,
        }
        write_build_record(plan.header, record)
    return _result(plan, manifest_id, started, up_to_date=False, reused=counts.reused_shards)


def _result(
    plan: BuildPlan, manifest_id: str, started: float, *, up_to_date: bool, reused: int | None = None
) -> BuildResult:
    return BuildResult(
        path=str(Path(plan.path)),
        snapshot=plan.snapshot,
        manifest_id=manifest_id,
        up_to_date=up_to_date,
        num_shards=plan.header.num_shards,
        reused_shards=plan.header.num_shards if reused is None else reused,
        account=plan.read_account(),
        secs=time.monotonic() - started,
    )
