"""A sample of a declaration's real input: recorded once for trials of stages, and as a source for builds.

A build of a sample, as every runner does it: undisturbed, killed and rerun, or with retried bundles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from beam_pipes.analysis.analyzer import BoundResult
from beam_pipes.building.analysis.analyse import analyse
from beam_pipes.building.analysis.declared import bind_results, bound_results
from beam_pipes.building.analysis.job import AnalysisJob
from beam_pipes.building.analysis.plan import AnalysisTask
from beam_pipes.building.commit import commit
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.declaration_fingerprint import explain_change, read_fingerprint
from beam_pipes.building.leftovers import build_lock
from beam_pipes.building.plan import BuildPlan, PlannedInput, make_plan, plan_input, prepare
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_job import ShardJob
from beam_pipes.sources.record_batch import RecordBatch
from beam_pipes.sources.source import Source, SourcePlan, SourceShard
from beam_pipes.testing.trial_process import tell_progress
from beam_pipes.testing.values import Frozen, value_digest

if TYPE_CHECKING:
    from beam_pipes.sources.digests import DigestCache


# Number of source shards sampled; a smaller input is cut into as many.
SHARDS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """`ids[i]` names record i, `values[i]` is its frozen value; `shards` are the planned shards that they come from."""

    ids: tuple[str, ...]
    values: tuple[Frozen, ...]
    shards: tuple[SourceShard, ...]
    records_per_shard: int


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SampledSource(Source):
    """The first records of some source shards of another source."""

    source: Source
    shards: tuple[SourceShard, ...]
    records_per_shard: int

    @property
    def output_type(self) -> type:
        return self.source.output_type

    def plan(self, *, target_shard_bytes: int, digests: DigestCache | None = None) -> SourcePlan:
        total = sum(shard.num_bytes for shard in self.shards)
        return SourcePlan(shards=self.shards, num_bytes=total, num_files=len(self.shards))

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        left = self.records_per_shard
        # A third at a time, so that a sampled shard has several batches, as a whole one has.
        some = max(1, min(batch_records, left // 3))
        for batch in self.source.read(shard, batch_records=some, batch_bytes=batch_bytes):
            yield batch
            left -= batch.num_records
            if left <= 0:
                return

    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        return self.source.parse(raw, file=file, position=position)

    def fingerprint_config(self) -> Mapping[str, object]:
        return {**self.source.fingerprint_config(), "records_per_shard": self.records_per_shard}


class SampledHandle(DeclarationHandle):
    """A declaration to send to another process, where it reads a sample instead of its whole input."""

    def __init__(self, handle: DeclarationHandle, sample: Sample) -> None:
        self._handle = handle
        self._shards = sample.shards
        self._records_per_shard = sample.records_per_shard
        self.reference = handle.reference
        self._results: Mapping[str, BoundResult] = {}
        self._sampled: Declaration | None = None

    def get(self) -> Declaration:
        if self._sampled is None:
            whole = self._handle.get()
            source = SampledSource(source=whole.source, shards=self._shards, records_per_shard=self._records_per_shard)
            self._sampled = dataclasses.replace(whole, source=source, expectations=())  # they describe the whole input
            bind_results(self._sampled, self._results)
        return self._sampled

    def bind(self, results: Mapping[str, BoundResult]) -> None:
        """Gives the declaration these analyzer results, which describe the sample."""
        self._results, self._sampled = results, None

    def require_portable(self) -> None:
        self._handle.require_portable()

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_sampled": None}


def take_sample(declaration: Declaration, *, max_records: int) -> Sample:
    """About `max_records` records of `SHARDS` source shards, evenly spaced among all of them."""
    source = declaration.source
    plan = source.plan(target_shard_bytes=declaration.target_shard_bytes)
    if len(plan.shards) < SHARDS and plan.num_bytes > SHARDS:
        plan = source.plan(target_shard_bytes=max(1, plan.num_bytes // SHARDS))
    step = max(1, len(plan.shards) / SHARDS)
    picked = sorted({int(number * step) for number in range(min(SHARDS, len(plan.shards)))})
    shards = tuple(dataclasses.replace(plan.shards[at], index=index) for index, at in enumerate(picked))
    per_shard = max(1, max_records // max(1, len(shards)))
    records = [(record_id, Frozen(value)) for record_id, value in _records(declaration, shards, per_shard)]
    return Sample(
        ids=tuple(record_id for record_id, _ in records),
        values=tuple(value for _, value in records),
        shards=shards,
        records_per_shard=per_shard,
    )


def first_difference(declaration: Declaration, sample: Sample) -> tuple[str, object, object] | None:
    """Reads the sample again: the id of the first record that changed, its old and its new value."""
    again = list(_records(declaration, sample.shards, sample.records_per_shard))
    for position, record_id in enumerate(sample.ids):
        before = sample.values[position].thaw()
        if position >= len(again):
            return record_id, before, None
        if again[position][0] != record_id or value_digest(again[position][1]) != value_digest(before):
            return record_id, before, again[position][1]
    return None if len(again) == len(sample.ids) else (again[len(sample.ids)][0], None, again[len(sample.ids)][1])


def _records(declaration: Declaration, shards: tuple[SourceShard, ...], per_shard: int) -> Iterator[tuple[str, object]]:
    source = SampledSource(source=declaration.source, shards=shards, records_per_shard=per_shard)
    for shard in shards:
        left = per_shard
        for batch in source.read(shard):
            taken = min(left, len(batch.values))
            yield from ((batch.record_id(index), batch.values[index]) for index in range(taken))
            left -= taken


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildOrder:
    """What to build and where; `backwards`: shards in reverse order."""

    handle: DeclarationHandle
    to: str
    backwards: bool = False


def build_sample(order: BuildOrder) -> str:
    """Builds what is missing and publishes it; returns the snapshot's id."""
    tell_progress("building the sample")
    declaration = order.handle.get()
    with build_lock(order.to):
        plan = _analysed_plan(declaration, order.to)
        job = ShardJob(declaration, plan.header)
        tasks = prepare(plan)
        for task in tasks[::-1] if order.backwards else tasks:
            job.run(task)
        commit(plan.header)
    return plan.snapshot


def analyse_sample(order: BuildOrder) -> dict[str, BoundResult]:
    """Runs the analyzers over the sample; their results are in the order's directory."""
    tell_progress("analysing the sample")
    declaration = order.handle.get()
    with build_lock(order.to):
        _analysed(declaration, order.to)
    return bound_results(declaration)


def _analysed_plan(declaration: Declaration, to: str) -> BuildPlan:
    given = _analysed(declaration, to) if declaration.analyzers else plan_input(declaration, to)
    return make_plan(declaration, to, planned_input=given)


def _analysed(declaration: Declaration, to: str) -> PlannedInput:
    given, job = plan_input(declaration, to), AnalysisJob(declaration, to)

    def run_tasks(tasks: Sequence[AnalysisTask]) -> None:
        for task in tasks:
            job.run(task)

    analyse(declaration, to, given.source, generation=given.generation, run_tasks=run_tasks)
    return given


def build_sample_on_bundles(order: BuildOrder) -> str:
    """The same on Beam's `BundleBasedDirectRunner`, which retries bundles; each stage fails once."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_pipes.beam.build_graph import shard_batches, write_snapshot
    from beam_pipes.beam.shards import FailOnce

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
