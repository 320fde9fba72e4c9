"""A build of a sample, as every runner makes it: whole, killed and run again, or with its bundles retried."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from beam_pipes.analysis.result import BoundResult
from beam_pipes.building.analysis.analyse import analyse
from beam_pipes.building.analysis.declared_analyzers import bound_results
from beam_pipes.building.commit import commit
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import explain_change, read_fingerprint
from beam_pipes.building.lock import build_lock
from beam_pipes.building.plan import BuildPlan, make_plan, plan_input, prepare
from beam_pipes.building.reference import DeclarationHandle
from beam_pipes.building.shard_job import ShardJob
from beam_pipes.testing.trial_process import tell_progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildOrder:
    """What to build where; `backwards`: shards in reverse order."""

    handle: DeclarationHandle
    to: str
    backwards: bool = False


def build_sample(order: BuildOrder) -> str:
    """Builds what is not there yet and publishes it; the id of the snapshot."""
    tell_progress("building the sample")
    declaration = order.handle.get()
    with build_lock(order.to):
        plan = _analysed_plan(declaration, order.to)
        job = ShardJob(declaration, plan.header)
        tasks = prepare(plan)
        for task in tasks[::-1] if order.backwards else tasks:
            job.run(task)
        commit(declaration, plan.header)
    return plan.snapshot


def analyse_sample(order: BuildOrder) -> dict[str, BoundResult]:
    """Runs the analyzers over the sample; their results, which lie in the order's directory."""
    tell_progress("analysing the sample")
    declaration = order.handle.get()
    with build_lock(order.to):
        given = plan_input(declaration, order.to)
        analyse(declaration, given.root, given.source, generation=given.generation)
    return bound_results(declaration)


def _analysed_plan(declaration: Declaration, to: str) -> BuildPlan:
    given = plan_input(declaration, to)
    if declaration.analyzers:
        analyse(declaration, given.root, given.source, generation=given.generation)
    return make_plan(declaration, to, planned_input=given)


def build_sample_on_bundles(order: BuildOrder) -> str:
    """The same on Beam's `BundleBasedDirectRunner`, which retries bundles; each stage fails once on the way."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_pipes.beam.build_graph import shard_batches, write_snapshot
    from beam_pipes.beam.fail_once import FailOnce

    tell_progress("building the sample on BundleBasedDirectRunner")
    runner = "apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"
    with build_lock(order.to):
        plan = _analysed_plan(order.handle.get(), order.to)
        tasks = prepare(plan)
        pipeline = beam.Pipeline(runner=runner, options=PipelineOptions([]))
        batches = shard_batches(pipeline, order.handle, tasks, plan.header, run_unit=FailOnce)
        write_snapshot(pipeline, batches, order.handle, plan.header)
        pipeline.run().wait_until_finish()
    return plan.snapshot


def snapshot_difference(one: Path, other: Path) -> tuple[str, str] | None:
    """What differs between the snapshots published in two directories: (field or file, how); None for equal bytes."""
    first, second = _files(one), _files(other)
    snapshots = {name.split("/")[0] for name in first}, {name.split("/")[0] for name in second}
    if snapshots[0] != snapshots[1]:
        old, new = (read_fingerprint(str(next((path / "snapshots").iterdir()))) for path in (one, other))
        if old is not None and new is not None:
            changed = [f"{line}" for lines in explain_change(old, new).values() for line in lines]
            if changed:
                return "fingerprint", changed[0]
        return "fingerprint", "the snapshots have other ids"
    for name in sorted(first.keys() | second.keys()):
        if first.get(name) != second.get(name):
            return name, "missing" if name not in first or name not in second else "other bytes"
    return None


def _files(cache: Path) -> dict[str, bytes]:
    directory = cache / "snapshots"
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in ("build.json", "fingerprint.json")
    }
