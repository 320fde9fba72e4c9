"""`build`: plan a declaration, run what is missing, publish the snapshot.

Runs the tasks of a plan, publishes the snapshot, and records how.

A declaration with PTransforms is one Beam pipeline, which computes all records each time: see `regrouped.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from beam_pipes.building.checks import require_place
from beam_pipes.building.commit import assets_are_there, link_assets, write_build_record
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.leftovers import (
    DEFAULT_KEEP,
    build_lock,
    collect_while_locked,
    has_launches,
    mark_finished,
    remove_snapshot,
    remove_temporaries,
    writing,
)
from beam_pipes.building.plan import BuildPlan, make_plan, plan_input, prepare
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_task import ShardTask
from beam_pipes.building.takedown import look_up_published
from beam_pipes.cache import Cache
from beam_pipes.checks import integer
from beam_pipes.engine.account import Account
from beam_pipes.errors import (
    BeamPipesError,
    StageError,
    visible,
)
from beam_pipes.identity.source_code import about_to_build
from beam_pipes.publication.manifest import Manifest
from beam_pipes.publication.publish import published_id
from beam_pipes.runners.options import BeamOptions, Built, LocalOptions, Order
from beam_pipes.runners.progress import Counts, Progress, Silent
from beam_pipes.runners.regrouped import check_regrouped, refuse_of_builds, run_regrouped
from beam_pipes.storage.local import directory_path, storage_for
from beam_pipes.storage.protocol import HeldLock

if TYPE_CHECKING:
    from beam_pipes.building.analysis.analyse import Analysed
    from beam_pipes.building.analysis.plan import AnalysisTask
    from beam_pipes.building.plan import PlannedInput, SavedPlan
    from beam_pipes.runners.jobs import HandedOver, LaunchRecord


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildResult:
    """The outcome of a build. `up_to_date`: the snapshot already existed and nothing was run; `analysis` is None for a
    declaration without analyzers. `job`: the job was detached, still runs, and has published nothing yet (`manifest_id`
    and `account` are empty, `manifest` is None). `template`: the job was written there, and nothing was run.
    `regrouped`: all records were computed, as for every declaration with PTransforms; `up_to_date` then means that they
    equal those of the existing snapshot. `removed` are the old snapshots that were not kept; `held` names, a line each,
    those that are kept only because somebody reads them or writes to them. `left_out`: reason → how many files were
    found and not read, such as hidden ones."""

    path: str
    snapshot: str
    manifest: Manifest | None = dataclasses.field(repr=False)
    up_to_date: bool
    num_shards: int
    reused_shards: int
    secs: float
    analysis: Analysed | None = None
    removed: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    job: LaunchRecord | None = None
    template: str | None = None
    regrouped: bool = False
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def manifest_id(self) -> str:
        """The id of the published manifest."""
        return "" if self.manifest is None else self.manifest.id

    @functools.cached_property
    def account(self) -> Account:
        """What happened to every record of the published snapshot."""
        return Account() if self.manifest is None else Account.from_json(self.manifest.accounting)


def build(
    declaration: Declaration | str,
    to: str | os.PathLike[str],
    *,
    options: LocalOptions | BeamOptions | None = None,
    accept_code_change: bool = False,
    overwrite: bool = False,
    saved_plan: SavedPlan | None = None,
    keep: int | None = DEFAULT_KEEP,
    progress: Progress | None = None,
) -> BuildResult:
    """Builds the cache of `declaration` (or of its reference, `package.module:name`) in the directory `to`.

    Source shards already built, by this or an earlier build of the same input and declaration, are reused. After any
    interruption, call it again to continue. If a job that outlived its launcher builds this very snapshot on a runner
    elsewhere, it waits for that job. The published snapshot does not depend on `options`.

    If the code of a stage differs from that of the published snapshot, but its `version` does not, the build
    stops with `CodeChangedError` unless `accept_code_change` is set.

    With `overwrite` every shard is rebuilt even if no change is visible (the data behind a function, an installed
    library). The published snapshot stays until the new one replaces it.

    With `saved_plan`, the build stops with `StalePlanError` if the input or the declaration has changed since the
    plan.

    When the new snapshot is published, all others but the `keep` most recent ones are removed, as `gc`
    does; None keeps all. `removed` of the result names them.

    A declaration with PTransforms is one Beam pipeline, which computes all records each time; see docs/beam.md.

    Raises a `BeamPipesError` that says what to do; then nothing is published, and the published snapshot stays.
    """
    about_to_build()
    if keep is not None:
        integer(keep, what="keep", least=0)
    started = time.monotonic()
    root = directory_path(to)  # before any user code runs, which may change the working directory
    options = options if options is not None else LocalOptions()
    progress = progress if progress is not None else Silent()
    handle = DeclarationHandle.of(declaration, beam_steps=True)
    resolved = handle.get()
    require_place(resolved, root, overwrite=overwrite)
    if resolved.beam_steps is not None:
        return _build_regrouped(
            handle, root, options=options, overwrite=overwrite, saved_plan=saved_plan, keep=keep, progress=progress
        )
    if published_id(root) is None:
        # There is something to run: checked before input is read, and before anything is written.
        options.check(root, resolved.source, handle)
        options.require_server()
    with build_lock(root) as lock, _naming_trace(handle, root):
        planned = plan_input(resolved, root, overwrite=overwrite)
        analysis = None
        if resolved.analyzers:
            options.check(root, resolved.source, handle)
            analysis = run_analysis(handle, root, planned, runner=runner_of(options), progress=progress)
        plan = make_plan(resolved, root, planned_input=planned, analysis=None if analysis is None else analysis.plan)
        if saved_plan is not None:
            saved_plan.require_fresh(plan)
        options.check(root, resolved.source, handle)
        # A template is written even if everything is built: whoever launches it expects a job.
        if (published := plan.published_as_planned) is not None and not plan.tasks_left() and options.template is None:
            if not assets_are_there(plan.header) or analysis is not None and analysis.merged:
                link_assets(plan.header)  # damaged ones are restored
            if analysis is not None:
                mark_finished(plan.header.storage, root)
            if has_launches(plan.header.storage, plan.header.directory):
                from beam_pipes.runners.jobs import settle_published

                settle_published(root)
            remove_temporaries(plan.header.storage, root)
            look_up_published(root)
            return _result(plan, published, started, up_to_date=True, analysis=analysis)
        if not overwrite:
            plan.require_continued(accept_code_change=accept_code_change)
        options.require_server()
        tasks = prepare(plan)
        more = {} if analysis is None else {"analysis": {"secs": round(analysis.secs, 3), "analyzers": analysis.rows}}
        if (handed := runner_of(options).hand_over(handle, plan, keep=keep)) is not None:
            there = plan.header.num_shards - len(tasks)
            result = _result(plan, None, started, up_to_date=False, reused=there, analysis=analysis)
            return dataclasses.replace(result, job=handed.job, template=handed.template)
        done = execute(handle, plan, tasks, lock=lock, options=options, keep=keep, progress=progress, more=more)
        removed, held = ((), ()) if keep is None else _without_old(root, keep)
    return _result(
        plan,
        done.manifest,
        started,
        up_to_date=False,
        reused=done.reused_shards,
        analysis=analysis,
        removed=removed,
        held=held,
    )


class Runner(Protocol):
    """What runs a build with one kind of options."""

    def analyse(
        self, handle: DeclarationHandle, root: str, tasks: Sequence[AnalysisTask], *, counts: Counts, progress: Progress
    ) -> None:
        """Stores the accumulators of all tasks."""

    def hand_over(self, handle: DeclarationHandle, plan: BuildPlan, *, keep: int | None) -> HandedOver | None:
        """The build as a detached job or a template, where the options ask for one; else None."""

    def run(self, order: Order) -> Built:
        """Builds what is left of a plan, and publishes it."""


def runner_of(options: LocalOptions | BeamOptions) -> Runner:
    """The runner that these options are for."""
    if isinstance(options, LocalOptions):
        from beam_pipes.runners.local import LocalRunner

        return LocalRunner(options)
    from beam_pipes.runners.beam_job import BeamRunner
    from beam_pipes.runners.cluster_job import ClusterRunner
    from beam_pipes.runners.clusters import ClusterOptions

    if isinstance(options, ClusterOptions):
        return ClusterRunner(options)

    return BeamRunner(options)


def run_analysis(
    handle: DeclarationHandle,
    root: str,
    planned: PlannedInput,
    *,
    runner: Runner,
    progress: Progress,
) -> Analysed:
    """Computes the missing results of all analyzers, and binds them; for the holder of the build lock.

    Source shards are analysed by the runner of the build, accumulators are merged here. After any interruption it
    continues from the finished accumulators. Raises what a build raises.
    """
    from beam_pipes.building.analysis.analyse import analyse

    with writing(root):
        remove_temporaries(storage_for(root), root)
    shown: list[Counts] = []

    def run_tasks(tasks: Sequence[AnalysisTask]) -> None:
        counts = Counts(num_shards=len(tasks), stages=dict.fromkeys(n for task in tasks for n in task.stages))
        shown.append(counts)
        runner.analyse(handle, root, tasks, counts=counts, progress=progress)
        counts.done_shards = counts.num_shards
        progress.update(counts)

    try:
        return analyse(handle.get(), root, planned.source, generation=planned.generation, run_tasks=run_tasks)
    except BaseException:
        for counts in shown[-1:]:
            progress.close(counts)
        raise


def _without_old(root: str, keep: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Removes old snapshots, and says which, and which are in use; if that fails, the new one is still published, and a
    line says so."""
    try:
        collected = collect_while_locked(root, keep=keep)
        return collected.removed, tuple(collected.held_in_words())
    except (BeamPipesError, OSError) as error:
        reason = visible(str(error))
        print(f"beam-pipes: old snapshots in {root} were not removed: {reason}", file=sys.stderr)
        return (), ()


@contextlib.contextmanager
def _naming_trace(handle: DeclarationHandle, root: str) -> Iterator[None]:
    """Adds to a record's error the command that shows what each stage makes of it."""
    try:
        yield
    except StageError as error:
        record = error.attributes.get("record")
        if record is not None and handle.reference is not None:
            cache = f" --cache {shlex.quote(root)}" if handle.get().analyzers else ""
            command = f"beam-pipes trace {shlex.quote(str(record))} {handle.reference}{cache}"
            error.add(f"To see what each stage makes of it: {command}")
        raise


def _result(
    plan: BuildPlan,
    manifest: Manifest | None,
    started: float,
    *,
    up_to_date: bool,
    reused: int | None = None,
    analysis: Analysed | None = None,
    removed: tuple[str, ...] = (),
    held: tuple[str, ...] = (),
) -> BuildResult:
    return BuildResult(
        path=plan.path,
        snapshot=plan.snapshot if manifest is None else manifest.snapshot,
        manifest=manifest,
        up_to_date=up_to_date,
        num_shards=plan.header.num_shards,
        reused_shards=plan.header.num_shards if reused is None else reused,
        secs=time.monotonic() - started,
        analysis=analysis,
        removed=removed,
        held=held,
        left_out=plan.source.left_out,
    )


def execute(
    handle: DeclarationHandle,
    plan: BuildPlan,
    tasks: list[ShardTask],
    *,
    lock: HeldLock,
    options: LocalOptions | BeamOptions,
    progress: Progress,
    keep: int | None = None,
    more: Mapping[str, object] | None = None,
) -> Built:
    """Runs `tasks`, the rest of a prepared plan, while `lock` is held; returns what was published.

    `more` goes into the build record.
    """
    started_at = time.time()
    order = Order(handle=handle, plan=plan, tasks=tasks, lock=lock, progress=progress, keep=keep)
    try:
        built = runner_of(options).run(order)
    finally:
        progress.close(order.counts)
    record = {
        "options": options.to_json(),
        "previous": plan.previous_snapshot,
        "started_at": started_at,
        "ended_at": time.time(),
        "reused_shards": order.counts.reused_shards,
        **built.figures,
        **(more or {}),
    }
    storage, published = plan.header.storage, built.manifest.snapshot
    if published != plan.snapshot:  # records went into quarantine during the build
        remove_snapshot(storage, plan.path, plan.snapshot)
    write_build_record(storage, plan.path, published, record)
    return dataclasses.replace(built, reused_shards=order.counts.reused_shards)


def _build_regrouped(
    handle: DeclarationHandle,
    root: str,
    *,
    options: LocalOptions | BeamOptions,
    overwrite: bool,
    saved_plan: SavedPlan | None,
    keep: int | None,
    progress: Progress,
) -> BuildResult:
    """Runs the job, which publishes by itself if the records differ from the existing ones; returns what it did.

    Raises a `BeamPipesError` that says what to do; then the published snapshot stays.
    """
    started, declaration = time.monotonic(), handle.get()
    refuse_of_builds(declaration, options, overwrite=overwrite, saved_plan=saved_plan)
    on_beam = check_regrouped(declaration, root, options=options)
    from beam_pipes.building.shard_output import WRITE

    assert declaration.beam_steps is not None
    num_shards = declaration.beam_steps.num_shards
    counts = Counts(num_shards=num_shards, stages=[*declaration.words, WRITE])
    removed: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    with build_lock(root):
        remove_temporaries(storage_for(root), root)
        before = published_id(root)
        try:
            run_regrouped(declaration, root, on_beam)
            manifest = Cache.open(root).manifest
            counts.set_to(Account.from_json(manifest.accounting))
            counts.done_shards = counts.num_shards
            progress.update(counts)
        finally:
            progress.close(counts)
        up_to_date = manifest.id == before
        if keep is not None and not up_to_date:
            removed, held = _without_old(root, keep)
    return BuildResult(
        path=root,
        snapshot=manifest.snapshot,
        manifest=manifest,
        up_to_date=up_to_date,
        num_shards=num_shards,
        reused_shards=num_shards if up_to_date else 0,
        secs=time.monotonic() - started,
        removed=removed,
        held=held,
        regrouped=True,
    )
