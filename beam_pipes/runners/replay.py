"""`replay_dead`: run the dead letters of a cache again, and publish the snapshot that a build would give."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence

from beam_pipes.building.commit import link_shard
from beam_pipes.building.completion import Completion, is_whole, read_completion, sizes_in
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import (
    DECLARATION,
    SOURCE,
    DeclarationFingerprint,
    content_changes,
    explain_change,
    read_fingerprint,
)
from beam_pipes.building.leftovers import build_lock, remove_temporaries
from beam_pipes.building.plan import BuildPlan, make_plan, plan_input, prepare
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_job import prior_letters, replayed_letters
from beam_pipes.building.shard_task import Prior, ShardTask
from beam_pipes.building.takedown import look_up_published
from beam_pipes.cache import Cache
from beam_pipes.engine.account import Account
from beam_pipes.errors import CodeChangedError, ReplayError
from beam_pipes.identity.source_code import about_to_build
from beam_pipes.lineage.lineage import decode_lineage, lineage_file
from beam_pipes.publication.publish import snapshot_directory
from beam_pipes.runners.build import execute, run_analysis
from beam_pipes.runners.local import LocalRunner
from beam_pipes.runners.options import LocalOptions
from beam_pipes.runners.progress import Progress, Silent
from beam_pipes.sources.repaired import RepairedSource, unrepaired
from beam_pipes.sources.source import Slice
from beam_pipes.storage.local import directory_path, storage_for


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """The outcome of a replay.

    `replayed` dead letters were run again in `replayed_shards` source shards, `kept_shards` were reused as they are,
    `rebuilt_shards` had to be rebuilt as a whole; `dead` letters remain. `up_to_date`: there was nothing to do.
    """

    path: str
    snapshot: str
    manifest_id: str
    up_to_date: bool
    replayed: int
    dead: int
    kept_shards: int
    replayed_shards: int
    rebuilt_shards: int
    account: Account
    secs: float


def replay_dead(
    declaration: Declaration | str,
    path: str | os.PathLike[str],
    *,
    to: str | os.PathLike[str] | None = None,
    repairs: Mapping[str, bytes] | None = None,
    accept_code_change: bool = False,
    options: LocalOptions | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Runs the dead letters of the snapshot that is published at `path` again, and publishes the result.

    The result is, byte for byte, what `build` would give for the same declaration; other records are not rerun.

    Args:
        declaration: the current one, or its reference. Its stages may have been repaired; everything else must be
            unchanged.
        to: the directory in which to publish; `path` itself by default. What is kept is linked, or copied.
        repairs: record id (`file@position`) → the bytes that should have been there: the source becomes a
            `RepairedSource`. Give the declaration the same one, and the next `build` finds the result up to date.
        accept_code_change: must be set if the code or the options of stages have changed. It confirms that the change
            affects only the dead letters: all other records keep their results. It never accepts changed content of
            anything that stages read: a vocabulary file, the result of an analyzer.
        options: how many workers.

    A source shard is rebuilt as a whole if its dead letters alone do not determine it: a stage before the failing one
        has changed, a statistic cannot be separated, or a repaired record is not a dead letter.

    Raises:
        CodeChangedError: stages have changed, and `accept_code_change` is not set.
        ReplayError: something else has changed, the content of an asset or the result of an analyzer included: build
            instead.
    """
    about_to_build()
    started = time.monotonic()
    # Before any user code runs, which may change the working directory.
    path, target = directory_path(path), directory_path(path if to is None else to)
    options = options if options is not None else LocalOptions()
    progress = progress if progress is not None else Silent()
    handle = DeclarationHandle.of(declaration)
    if repairs:
        handle = DeclarationHandle(_repaired(handle.get(), repairs))
    resolved = handle.get()
    Cache.open(path)  # raises before the lock would create the directory: without a cache there is nothing to do
    with build_lock(target) as lock:
        manifest = Cache.open(path).manifest
        directory = snapshot_directory(path, manifest.snapshot)
        before = read_fingerprint(directory)
        if before is None:
            raise ReplayError(
                f"{path!r} does not record what it was built with (there is no fingerprint.json): its dead "
                "letters cannot be replayed. Build it again.",
                path=path,
            )
        planned = plan_input(resolved, target)
        runner = LocalRunner(options)
        analysed = (
            run_analysis(handle, target, planned, runner=runner, progress=progress) if resolved.analyzers else None
        )
        plan = make_plan(resolved, target, planned_input=planned, analysis=None if analysed is None else analysed.plan)
        if (published := plan.published_as_planned) is not None and not plan.tasks_left():
            remove_temporaries(plan.header.storage, target)
            look_up_published(target)
            account = Account.from_json(published.accounting)
            return ReplayResult(
                path=target,
                snapshot=plan.snapshot,
                manifest_id=published.id,
                up_to_date=True,
                replayed=0,
                dead=account.dead,
                kept_shards=plan.header.num_shards,
                replayed_shards=0,
                rebuilt_shards=0,
                account=account,
                secs=time.monotonic() - started,
            )
        changed = _changed_units(before, plan.fingerprint, path=path, accepted=accept_code_change)
        tasks = _with_priors(plan, prepare(plan), directory, changed)
        done = execute(handle, plan, tasks, lock=lock, options=options, progress=progress, more={"replay": True})
        account = Account.from_json(done.manifest.accounting)
    reports = done.reports
    replayed = [report.replayed for report in reports if report.replayed is not None]
    return ReplayResult(
        path=target,
        snapshot=done.manifest.snapshot,
        manifest_id=done.manifest.id,
        up_to_date=False,
        replayed=sum(replayed),
        dead=account.dead,
        kept_shards=plan.header.num_shards - len(reports),
        replayed_shards=len(replayed),
        rebuilt_shards=len(reports) - len(replayed),
        account=account,
        secs=time.monotonic() - started,
    )


def _repaired(declaration: Declaration, repairs: Mapping[str, bytes]) -> Declaration:
    source = declaration.source
    if isinstance(source, RepairedSource):
        return dataclasses.replace(declaration, source=RepairedSource(source.source, {**source.repairs, **repairs}))
    return dataclasses.replace(declaration, source=RepairedSource(source, repairs))


def _changed_units(
    before: DeclarationFingerprint, now: DeclarationFingerprint, *, path: str, accepted: bool
) -> frozenset[str]:
    """The stages that have changed."""
    changed = {name: lines for name, lines in explain_change(before, now).items() if lines}
    others = {
        name: lines
        for name, lines in changed.items()
        if name == DECLARATION or name.startswith(f"{SOURCE}.") or lines in (["added"], ["removed"])
    }
    if others:
        listed = "; ".join(f"{name} ({', '.join(lines)})" for name, lines in others.items())
        raise ReplayError(
            f"the dead letters of {path!r} cannot be replayed: more than stages has changed since it was built: "
            f"{listed}. All records would come out differently: build again.",
            path=path,
        )
    contents = content_changes(before, now)
    if contents:
        listed = "; ".join(f"stage {name!r} ({', '.join(lines)})" for name, lines in contents.items())
        raise ReplayError(
            f"the dead letters of {path!r} cannot be replayed: files or results of analyzers that stages read have "
            f"changed since it was built: {listed}. Kept records would still reflect the old content, even with "
            "--accept-code-change: build again.",
            path=path,
        )
    if changed and not accepted:
        listed = "; ".join(f"stage {name!r} ({', '.join(lines)})" for name, lines in changed.items())
        raise CodeChangedError(
            f"stages have changed since {path!r} was built: {listed}. A replay keeps the results of all records that "
            "are not dead letters. If the change concerns dead letters only, say so with --accept-code-change "
            "(accept_code_change=True); if not, build again.",
            stages=sorted(changed),
            path=path,
        )
    return frozenset(changed)


def _with_priors(plan: BuildPlan, tasks: list[ShardTask], directory: str, changed: frozenset[str]) -> list[ShardTask]:
    """The remaining tasks, marking those that only need their dead letters; links the shards to keep."""
    known: dict[Sequence[Slice], tuple[Completion, int]] = {}
    storage = plan.header.storage
    files = storage.tree(directory)
    for name in storage.list(f"{directory}/completions"):
        completion = read_completion(storage, f"{directory}/completions/{name}")
        num_shards = int(name.removesuffix(".json").rpartition("-of-")[2])
        if completion is not None and is_whole(completion, num_shards, sizes_in(files)):
            known[completion.source] = completion, num_shards
    left = []
    for task in tasks:
        plain, is_repaired = unrepaired(task.shard)
        found = known.get(task.shard.slices) or known.get(plain.slices)
        if found is None:
            left.append(task)
            continue
        completion, num_shards = found
        prior = Prior(directory=directory, index=completion.index, num_shards=num_shards, changed=changed)
        letters = prior_letters(prior, completion)
        dead = {letter.record_id for letter in letters}
        ordinals = {letter.ordinal for letter in letters}
        source = plan.declaration.source
        newly_repaired = (
            source.repaired_records(task.shard)
            if isinstance(source, RepairedSource) and is_repaired and completion.source != task.shard.slices
            else set()
        )
        if not newly_repaired <= dead or any(each.ordinal not in ordinals for each in completion.quarantined):
            left.append(task)
        elif any(replayed_letters(plan.declaration, letters)):
            left.append(dataclasses.replace(task, prior=prior))
        else:
            lineage = f"{directory}/{lineage_file(completion.index, num_shards)}"
            if decode_lineage(storage_for(lineage).read_bytes(lineage), path=lineage).digests is None:
                left.append(task)  # built by a version that kept no digests of records
                continue
            kept = dataclasses.replace(completion, fingerprint=task.fingerprint)
            link_shard(plan.header, task.index, directory, kept, lineage)
    return left
