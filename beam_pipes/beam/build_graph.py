"""A build as a Beam graph: source shards → read → one PTransform a unit → write → publish.

The one PTransform of a build whose records have limits: source shards → committed shards.

Beam cannot reclaim a thread from a record that never returns, so a Beam worker supervises a process of ours for each
source shard; in this case, stages do not become separate PTransforms.

The size of a Beam job's request: services limit it, and refuse a job after everything was staged.

A list of stages and PTransforms, as a `RegroupedDeclaration` and as the pipeline that one would write:

    ReadFromSource ── stages ── PTransform ── stages ──┬── WriteToCache
          └────────────── dead letters ────────────────┘

Whatever can be checked before that job runs is checked where it is declared. With `on_error="dead_letter"`, what failed
in a step travels to `WriteToCache` beside the records.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any

import apache_beam as beam
from google.protobuf.message import Message

from beam_pipes.beam.encode import features_of_schema
from beam_pipes.beam.lower import Lowered, Mirror, lower
from beam_pipes.beam.read_from_cache import ReadFromSource
from beam_pipes.beam.shards import PARTS, MergeParts, ReadShards, RunUnit, ShardBatch, WriteShards, gathered
from beam_pipes.beam.write_to_cache import WriteToCache
from beam_pipes.building.commit import commit
from beam_pipes.building.completion import find_completion
from beam_pipes.building.declaration import DeclarationHandle, KeyOf, MaxBad, RegroupedDeclaration
from beam_pipes.building.expectation import Expectation
from beam_pipes.building.limits import record_limits
from beam_pipes.building.shard_task import BuildHeader, ShardTask, TaskReader, remove_tasks, write_tasks
from beam_pipes.building.workers.pool import NoWatcher, WorkerPool
from beam_pipes.engine.execute import OnError
from beam_pipes.engine.graph import brief, graph_of, is_beam_transform
from beam_pipes.errors import DeclarationError
from beam_pipes.sources.source import Source, SplitSources
from beam_pipes.typed.stage_list import StageList


class _ReadTask(beam.DoFn):  # type: ignore[misc]
    """Number of a task → the task."""

    def __init__(self, header: BuildHeader) -> None:
        self._header = header

    def setup(self) -> None:
        self._tasks = TaskReader(self._header)

    def process(self, number: int) -> Iterator[ShardTask]:
        yield self._tasks.task(number)


class _Publish(beam.DoFn):  # type: ignore[misc]
    """Commits the snapshot once every shard is written; repeating it writes the same bytes."""

    def __init__(self, handle: DeclarationHandle, header: BuildHeader) -> None:
        self._handle = handle
        self._header = header

    def process(self, keyed: tuple[None, Iterable[int]]) -> Iterator[str]:
        manifest_id = commit(self._handle.get(), self._header)
        remove_tasks(self._header)
        yield manifest_id


def build_graph(root: Any, handle: DeclarationHandle, header: BuildHeader, tasks: Sequence[ShardTask]) -> Any:
    """Adds the whole build to the pipeline `root`; returns a PCollection of the published manifest's id.

    `tasks` may omit complete shards. Only the tasks (so that workers share them), the indices of committed shards, and
    the parts of shards that a runner broke apart are shuffled.
    """
    header = dataclasses.replace(header, launch=secrets.token_hex(8))
    if record_limits(handle.get()):
        committed = _spread(root, tasks, header) | "Build source shards" >> beam.ParDo(BuildShards(handle, header))
        return _published(root, (committed,), handle, header)
    return write_snapshot(root, shard_batches(root, handle, tasks, header), handle, header)


def _spread(root: Any, tasks: Sequence[ShardTask], header: BuildHeader) -> Any:
    """The tasks, over all workers. The job holds only their numbers; a worker reads the task itself."""
    write_tasks(header, tasks)
    created = root | "Source shards" >> beam.Create(range(len(tasks)), reshuffle=False)
    return created | "Spread source shards" >> beam.Reshuffle() | "Read tasks" >> beam.ParDo(_ReadTask(header))


def shard_batches(
    root: Any,
    handle: DeclarationHandle,
    tasks: Sequence[ShardTask],
    header: BuildHeader,
    *,
    run_unit: type[RunUnit] = RunUnit,
) -> Any:
    """The first half of a build: a PCollection of `ShardBatch` that have gone through all units.

    Writes the tasks into the snapshot's directory, where workers read them.

    You may insert transforms between the halves, even ones that shuffle: batches are put in order again.
    `run_unit` runs each unit; tests pass one that fails.
    """
    read = beam.ParDo(ReadShards(handle, header)).with_output_types(ShardBatch)
    batches = _spread(root, tasks, header) | "Read source" >> read
    for position, unit in enumerate(handle.get().graph.units):
        batches = batches | unit.name >> beam.ParDo(run_unit(handle, position)).with_output_types(ShardBatch)
    return batches


def write_snapshot(root: Any, batches: Any, handle: DeclarationHandle, header: BuildHeader) -> Any:
    """The second half: writes and commits every shard, then publishes; a PCollection of the manifest's id."""
    written = batches | "Write shards" >> beam.ParDo(WriteShards(handle, header)).with_outputs(PARTS, main="committed")
    merged = (
        written[PARTS]
        | "Group parts by shard" >> beam.GroupByKey()
        | "Merge parts" >> beam.ParDo(MergeParts(handle, header))
    )
    return _published(root, (written["committed"], merged), handle, header)


def _published(root: Any, committed: tuple[Any, ...], handle: DeclarationHandle, header: BuildHeader) -> Any:
    """Publishes once all of these collections of indices are complete; a PCollection of the manifest's id."""
    return gathered(root, committed) | "Publish" >> beam.ParDo(_Publish(handle, header))


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
            self._pool.run([task], NoWatcher())
        except BaseException:
            self.teardown()  # whether the worker can go on is not known
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


# Option of builds → what to do without it.
_INSTEAD = {
    "analyzers": "Compute what they find in the Beam pipeline, or declare the stages before the PTransform as a cache",
    "record_timeout_secs": "Declare the stages that may hang as a cache of their own, before the PTransform",
    "record_memory_bytes": "Declare the stages that may grow as a cache of their own, before the PTransform",
    "fingerprints": "The snapshot is named by a digest of its records, whatever they were made of",
}


def declare_regrouped(
    name: str,
    source: Source | Mapping[str, Source],
    stages: Sequence[Any],
    *,
    key: KeyOf | EllipsisType | None,
    num_shards: int,
    split_by: Callable[[Any], str] | None,
    splits: Any,
    features: Mapping[str, Any] | None,
    split: str,
    seed: int,
    on_error: OnError,
    max_bad: MaxBad,
    allow_empty: bool,
    target_shard_bytes: int,
    expectations: Sequence[Expectation],
    of_builds: Mapping[str, bool],
) -> RegroupedDeclaration:
    """The declaration, checked. `of_builds`: the options that only other declarations have, and whether each is given.

    Raises `DeclarationError` and `TypeMismatchException`, as `declare` does.
    """
    where = f"declaration {name!r}"
    transform = next(str(each.label) for each in stages if is_beam_transform(each))
    for option, is_given in of_builds.items():
        if is_given:
            raise DeclarationError(
                f"{where}: {option} needs records at their place in the source, and the PTransform {transform!r} may "
                f"regroup them. {_INSTEAD[option]}; leave {option} out."
            )
    if isinstance(source, Mapping | SplitSources):
        raise DeclarationError(
            f"{where}: there is a source for each split, and the PTransform {transform!r} may regroup records of "
            "several. Give one source, and splits={split: share}, or splits=[names] and split_by=function."
        )
    if not isinstance(source, Source):
        raise DeclarationError(
            f"{where}: expected a source, got {brief(source)}. Example: TextLines('poem.txt'), from beam_pipes.sources."
        )
    if isinstance(key, EllipsisType):
        raise DeclarationError(
            f"{where}: behind the PTransform {transform!r} records have no place in the source, so a key has to tell "
            "them apart: it gives their split, their shard and their id. Give key='the name of a feature', "
            "key=function, or key=None for their content."
        )
    if splits is not None and (isinstance(splits, str) or not isinstance(splits, Mapping | Sequence)):
        raise DeclarationError(
            f"{where}: splits should be name → share of the keys, or a list of names with split_by=function, got "
            f"{brief(splits)}."
        )
    declaration = RegroupedDeclaration(
        name=name,
        source=source,
        steps=_steps(name, source, stages),
        key=key,
        features=features,
        splits=(split,) if splits is None else splits,
        split_by=split_by,
        num_shards=num_shards,
        seed=seed,
        on_error=on_error,
        max_bad=max_bad,
        allow_empty=allow_empty,
        target_shard_bytes=target_shard_bytes,
        expectations=expectations,
    )
    writer(declaration, "cache")
    return declaration


def _steps(name: str, source: Source, stages: Sequence[Any]) -> tuple[Any, ...]:
    """PTransforms as they are, and the stages between two of them as one pipeline each."""
    found: list[Any] = []
    takes: type | None = source.output_type
    groups = [(is_transform, list(group)) for is_transform, group in itertools.groupby(stages, is_beam_transform)]
    for position, (is_transform, group) in enumerate(groups):
        if is_transform:
            found += group
        else:
            found.append(StageList(group, takes=takes, name=name, inner=position + 1 < len(groups)))
        takes = None
    return tuple(found)


def build_regrouped_graph(root: Any, declaration: RegroupedDeclaration, to: str) -> Any:
    """Adds the whole job to the pipeline `root`; returns a PCollection of the published manifest's id."""
    source = ReadFromSource(
        declaration.source, on_error=declaration.on_error, target_shard_bytes=declaration.target_shard_bytes
    )
    letters: list[Any] = []
    records = _without_letters(root | "Read source" >> source, letters)
    labels: Counter[str] = Counter(["Read source", "Dead letters", "Write to cache"])
    for step in declaration.steps:
        label = _label(step, labels)
        if is_beam_transform(step):
            records = records | label >> step
            if not isinstance(records, beam.PCollection):
                raise DeclarationError(
                    f"declaration {declaration.name!r}: the PTransform {label!r} gives {type(records).__name__}, and a "
                    "list of stages continues with one collection. Wrap it in a PTransform that returns one of its "
                    "outputs, or their Flatten."
                )
            continue
        lowered = records | label >> lower(step, seed=declaration.seed, on_error=declaration.on_error)
        outputs = _without_letters(lowered, letters)
        [records] = outputs.values() if isinstance(outputs, dict) else [outputs]
    writes = writer(declaration, to, element_type=records.element_type)
    if letters:
        records = (records, *letters) | "Dead letters" >> beam.Flatten()
    return (records | "Write to cache" >> writes).published


def writer(declaration: RegroupedDeclaration, to: str, *, element_type: Any = None) -> WriteToCache:
    """The end of the job, for elements of a type: what the last stage gives, or what a PTransform says it gives.

    Raises `DeclarationError` for options that do not go together.
    """
    last, proto = declaration.steps[-1], None
    features = declaration.features
    if not is_beam_transform(last):
        [element_type] = graph_of(last).output_type.values()
    if features is None:
        features = features_of_schema(element_type)
        if isinstance(element_type, type) and issubclass(element_type, Message):
            proto = element_type
        elif features is None and not is_beam_transform(last) and not issubclass(element_type, bytes):
            raise DeclarationError(
                f"declaration {declaration.name!r}: the last stage gives examples, and with a PTransform in the list "
                "their features cannot be inferred before the job runs. Give features={name: FeatureSpec(…)}."
            )
    return WriteToCache(
        to,
        features=features,
        proto=proto,
        key=declaration.key,
        splits=declaration.splits,
        split_by=declaration.split_by,
        name=declaration.name,
        seed=declaration.seed,
        num_shards=declaration.num_shards,
        on_error=declaration.on_error,
        max_bad=declaration.max_bad,
        allow_empty=declaration.allow_empty,
        expectations=declaration.expectations,
    )


def _without_letters(found: Any, letters: list[Any]) -> Any:
    if not isinstance(found, Lowered):
        return found
    letters.append(found.dead_letters)
    return found.outputs


def _label(step: Any, labels: Counter[str]) -> str:
    """A label of its own for each step: Beam refuses two of one name."""
    label = str(step.label) if is_beam_transform(step) else " → ".join(unit.name for unit in graph_of(step).units)
    labels[label] += 1
    return label if labels[label] == 1 else f"{label} {labels[label]}"
