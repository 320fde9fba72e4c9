"""A build as a Beam graph: source shards → read → one PTransform per unit → write → publish.

The one PTransform of a build whose records have limits: source shards → committed shards.

Beam cannot reclaim a thread from a record that never returns, so a Beam worker supervises a process of ours for each
source shard; in this case, stages do not become separate PTransforms.

The size of a Beam job's request: services limit it, and refuse a job after everything was staged.
"""

from __future__ import annotations

import dataclasses
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam

from beam_pipes.beam.lower import Mirror
from beam_pipes.beam.shards import PARTS, MergeParts, ReadShards, RunUnit, ShardBatch, WriteShards, gathered
from beam_pipes.building.commit import commit
from beam_pipes.building.completion import find_completion
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_task import BuildHeader, ShardTask, tasks_of
from beam_pipes.building.workers.pool import WorkerPool
from beam_pipes.building.workers.tasks import Watcher
from beam_pipes.engine.resources import largest, resources_of


class _ReadTask(beam.DoFn):  # type: ignore[misc]
    """Number of a task → the task."""

    def __init__(self, header: BuildHeader) -> None:
        self._header = header

    def setup(self) -> None:
        self._tasks = tasks_of(self._header)

    def process(self, number: int) -> Iterator[ShardTask]:
        yield self._tasks[number]


class _Publish(beam.DoFn):  # type: ignore[misc]
    """Commits the snapshot once every shard is written; repeating it writes the same bytes."""

    def __init__(self, header: BuildHeader) -> None:
        self._header = header

    def process(self, keyed: tuple[None, Iterable[int]]) -> Iterator[str]:
        manifest_id = commit(self._header).id
        tasks_of(self._header).remove()
        yield manifest_id


def build_graph(
    root: beam.Pipeline, handle: DeclarationHandle, header: BuildHeader, tasks: Sequence[ShardTask]
) -> beam.PCollection:
    """Adds the whole build to the pipeline `root`; returns a PCollection of the published manifest's id.

    `tasks` may omit complete shards. Only the tasks (so that workers share them), the indices of committed shards, and
    the parts of shards that a runner broke apart are shuffled.
    """
    header = dataclasses.replace(header, launch=secrets.token_hex(8))
    declaration = handle.get()
    resources = resources_of(declaration.graph.units)
    if declaration.record_limits:
        whole = beam.ParDo(BuildShards(handle, header)).with_resource_hints(**largest(resources.values()).hints())
        committed = _spread(root, tasks, header) | "Build source shards" >> whole
        return _published(root, (committed,), header)
    return write_snapshot(root, shard_batches(root, handle, tasks, header), handle, header)


def _spread(root: beam.Pipeline, tasks: Sequence[ShardTask], header: BuildHeader) -> beam.PCollection:
    """The tasks, over all workers. The job holds only their numbers; a worker reads the task itself."""
    tasks_of(header).write(tasks)
    created = root | "Source shards" >> beam.Create(range(len(tasks)), reshuffle=False)
    return created | "Spread source shards" >> beam.Reshuffle() | "Read tasks" >> beam.ParDo(_ReadTask(header))


def shard_batches(
    root: beam.Pipeline,
    handle: DeclarationHandle,
    tasks: Sequence[ShardTask],
    header: BuildHeader,
    *,
    run_unit: type[RunUnit] = RunUnit,
) -> beam.PCollection:
    """The first half of a build: a PCollection of `ShardBatch` that have gone through all units.

    Writes the tasks into the snapshot's directory, where workers read them.

    You may insert transforms between the halves, even ones that shuffle: batches are put in order again.
    `run_unit` runs each unit; tests pass one that fails.
    """
    read = beam.ParDo(ReadShards(handle, header)).with_output_types(ShardBatch)
    batches = _spread(root, tasks, header) | "Read source" >> read
    units = handle.get().graph.units
    resources = resources_of(units)
    for position, unit in enumerate(units):
        step = beam.ParDo(run_unit(handle, position, header.root)).with_output_types(ShardBatch)
        if unit.name in resources:  # an environment of its own, so that no runner fuses it with its neighbours
            step = step.with_resource_hints(**resources[unit.name].hints())
        batches = batches | unit.name >> step
    return batches


def write_snapshot(
    root: beam.Pipeline, batches: beam.PCollection, handle: DeclarationHandle, header: BuildHeader
) -> beam.PCollection:
    """The second half: writes and commits every shard, then publishes; a PCollection of the manifest's id."""
    written = batches | "Write shards" >> beam.ParDo(WriteShards(handle, header)).with_outputs(PARTS, main="committed")
    merged = (
        written[PARTS]
        | "Group parts by shard" >> beam.GroupByKey()
        | "Merge parts" >> beam.ParDo(MergeParts(handle, header))
    )
    return _published(root, (written["committed"], merged), header)


def _published(root: beam.Pipeline, committed: tuple[beam.PCollection, ...], header: BuildHeader) -> beam.PCollection:
    """Publishes once all of these collections of indices are complete; a PCollection of the manifest's id."""
    return gathered(root, committed) | "Publish" >> beam.ParDo(_Publish(header))


class BuildShards(beam.DoFn):  # type: ignore[misc]
    """Builds each source shard and emits its index; a committed shard is left alone."""

    def __init__(self, handle: DeclarationHandle, header: BuildHeader) -> None:
        self._handle = handle
        self._header = header
        self._pool: WorkerPool | None = None

    def setup(self) -> None:
        declaration = self._handle.get()
        self._pool = None
        self._mirrors = [Mirror(declaration.name, unit.name) for unit in declaration.graph.units]

    def process(self, task: ShardTask) -> Iterator[int]:
        if self._pool is None:
            self._pool = WorkerPool(self._handle, self._header, workers=1)
        try:
            self._pool.run([task], Watcher())
        except BaseException:
            self.teardown()  # it is unknown whether the worker can continue
            raise
        completion = find_completion(self._header, task)
        if completion is not None:
            for mirror in self._mirrors:
                mirror.show(completion.account)
        yield task.index

    def teardown(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def job_graph_bytes(handle: DeclarationHandle, header: BuildHeader, tasks: Sequence[ShardTask] = ()) -> int:
    """Bytes of the job graph of a build of `tasks`, as Beam sends it to a service. Runs nothing and leaves nothing
    behind.
    """
    with tempfile.TemporaryDirectory(prefix="beam-pipes-job-") as root:
        pipeline = beam.Pipeline(runner="apache_beam.runners.portability.fn_api_runner.FnApiRunner")
        build_graph(pipeline, handle, dataclasses.replace(header, root=root), tasks)
        return int(pipeline.to_runner_api().ByteSize())
