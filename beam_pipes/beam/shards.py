"""The first PTransform of a build: source shards → shard batches.

One unit of a declaration as a DoFn over batches.

The elements between the PTransforms of a build.

The last PTransforms over records: shard batches → committed shards.

A shard is committed when its end mark arrives, in `process`: `finish_bundle` comes too late (a local bundle is a
whole stage) and has been seen not to come at all. Only if a runner has broken the batches of a shard apart do they
continue as parts, which are merged in order after a grouping by shard; both ways write the same bytes.

A round of an analysis: source shards → their accumulators, which are stored as files.

A unit that fails once, after its work is done, like a worker that is lost at that moment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_pipes.beam.lower import BatchCoder, Element, Mirror, size_of
from beam_pipes.building.analysis.job import AnalysisJob, analysis_tasks
from beam_pipes.building.analysis.plan import AnalysisTask
from beam_pipes.building.completion import find_completion
from beam_pipes.building.reading import EncodedRun, SourceBatch, graph_runner, read_batches
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_output import ShardOutput
from beam_pipes.building.shard_task import BuildHeader, ShardTask
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.errors import ReconciliationError


class ReadShards(beam.DoFn):  # type: ignore[misc]
    """Reads each source shard in order and ends it with a mark; a committed shard is not read."""

    def __init__(self, handle: DeclarationHandle, header: BuildHeader) -> None:
        self._handle = handle
        self._header = header

    def process(self, task: ShardTask) -> Iterator[ShardBatch]:
        if find_completion(self._header, task) is not None:
            yield ShardBatch(task=task, sequence=0, batch=None, complete=True)
            return
        sequence = 0
        for batch in read_batches(self._handle.get(), task.shard):
            batch.records.digests()  # before stages, which may change values in place
            yield ShardBatch(task=task, sequence=sequence, batch=batch)
            sequence += 1
        yield ShardBatch(task=task, sequence=sequence, batch=None)


class RunUnit(beam.DoFn):  # type: ignore[misc]
    """Runs the unit at `position` of the declaration's graph over each batch; its input stays as it is, for retries."""

    def __init__(self, handle: DeclarationHandle, position: int, root: str) -> None:
        self._handle = handle
        self._root = root
        self._position = position
        self._runner: GraphRunner | None = None

    def setup(self) -> None:
        declaration = self._handle.get()
        self._runner = graph_runner(declaration, self._root)
        self._mirror = Mirror(declaration.name, declaration.graph.units[self._position].name)

    def process(self, element: ShardBatch) -> Iterator[ShardBatch]:
        if element.batch is None:
            yield element
            return
        assert self._runner is not None
        batch = element.batch.copy()
        self._runner.run_unit(self._position, batch)
        self._mirror.show(batch.account)
        yield dataclasses.replace(element, batch=batch)


@dataclasses.dataclass(slots=True)
class ShardBatch:
    """A batch of one source shard, or its end mark.

    `sequence` numbers the batches of a shard from 0; the end mark (`batch` is None) has the number of batches.
    `complete` marks a shard that an earlier run has committed: there is nothing to do for it.
    """

    task: ShardTask
    sequence: int
    batch: SourceBatch | None
    complete: bool = False


class ShardBatchCoder(BatchCoder):
    """Shard batches as pickles, and their size by the values of their records as they were read."""

    def estimate_size(self, value: ShardBatch) -> int:
        return _END_BYTES + (0 if value.batch is None else size_of(value.batch.records.values))

    def to_type_hint(self) -> type:
        return ShardBatch


# About the size of a task and of the rest of a batch.
_END_BYTES = 512

beam.coders.registry.register_coder(ShardBatch, ShardBatchCoder)

PARTS = "parts"

# A part of a shard, or (None) the number of batches in its end mark.
PartOrEnd = tuple[ShardTask, EncodedRun | None, int]


class WriteShards(beam.DoFn):  # type: ignore[misc]
    """Emits the index of each committed shard; the output `parts` gets what must be merged."""

    def __init__(self, handle: DeclarationHandle, header: BuildHeader) -> None:
        self._handle = handle
        self._header = header
        self._open: dict[int, ShardOutput] = {}

    def setup(self) -> None:
        self._open = {}

    def start_bundle(self) -> None:
        # What a failed earlier bundle left open is read again by the retry.
        self._abort_all()

    def process(self, element: ShardBatch) -> Iterator[Element]:
        index = element.task.index
        if element.complete:
            yield index
            return
        output = self._open.get(index)
        if element.sequence == 0 and element.batch is not None:
            if output is not None:
                output.abort()
            output = self._open[index] = ShardOutput(self._handle.get(), self._header, element.task)
        if element.batch is None:
            if output is None and element.sequence == 0:  # a shard without records
                output = ShardOutput(self._handle.get(), self._header, element.task)
            if output is not None and output.next_sequence == element.sequence:
                output.commit()
                self._open.pop(index, None)
                yield index
            else:
                yield beam.pvalue.TaggedOutput(PARTS, (index, (element.task, None, element.sequence)))
        elif output is not None and output.next_sequence == element.sequence:
            output.write(output.encode(element.batch.copy(), element.sequence))
        else:
            encoder = ShardOutput(self._handle.get(), self._header, element.task)
            part = encoder.encode(element.batch.copy(), element.sequence)
            yield beam.pvalue.TaggedOutput(PARTS, (index, (element.task, part, 0)))

    def finish_bundle(self) -> Iterator[Element]:
        for index, output in self._open.items():
            value = (index, (output.task, output.to_part(), 0))
            yield beam.pvalue.TaggedOutput(
                PARTS, WindowedValue(value, GlobalWindow().max_timestamp(), [GlobalWindow()])
            )
        self._abort_all()

    def teardown(self) -> None:
        self._abort_all()

    def _abort_all(self) -> None:
        for output in self._open.values():
            output.abort()
        self._open = {}


class MergeParts(beam.DoFn):  # type: ignore[misc]
    """Merges the parts of a shard in order, and commits it."""

    def __init__(self, handle: DeclarationHandle, header: BuildHeader) -> None:
        self._handle = handle
        self._header = header

    def process(self, keyed: tuple[int, Iterable[PartOrEnd]]) -> Iterator[int]:
        index, grouped = keyed
        elements = list(grouped)
        task = elements[0][0]
        parts = [part for _, part, _ in elements if part is not None]
        end = next((sequence for _, part, sequence in elements if part is None), None)
        output = ShardOutput(self._handle.get(), self._header, task)
        try:
            for part in sorted(parts, key=lambda part: part.first_sequence):
                if part.next_sequence <= output.next_sequence:
                    continue  # delivered twice, by a retry
                if part.first_sequence != output.next_sequence:
                    break
                output.write(part)
            if end is None or output.next_sequence != end:
                raise ReconciliationError(
                    f"source shard {index}: the runner delivered its batches up to {output.next_sequence} of "
                    f"{'an unknown number' if end is None else end}. Nothing was published; run the build again.",
                    shard=index,
                )
            output.commit()
        except BaseException:
            output.abort()
            raise
        yield index


# The units that have already failed once in this process.
_failed: set[int] = set()


class FailOnce(RunUnit):
    """`RunUnit`, which raises `ConnectionError` instead of its first result; a runner that retries continues."""

    def process(self, element: ShardBatch) -> Iterator[ShardBatch]:
        results = list(super().process(element))
        if element.batch is not None and self._position not in _failed:
            _failed.add(self._position)
            raise ConnectionError(f"unit {self._position} lost its first result, as it was asked to")
        yield from results


class AnalyseShards(beam.DoFn):  # type: ignore[misc]
    """Number of a task → the index of its source shard, once its accumulators are stored.

    Repeating a task finds what is stored and leaves it, so a retried bundle counts nothing twice.
    """

    def __init__(self, handle: DeclarationHandle, root: str, launch: str) -> None:
        self._handle = handle
        self._root = root
        self._launch = launch

    def setup(self) -> None:
        self._tasks = analysis_tasks(self._root, self._launch)
        self._job = AnalysisJob(self._handle.get(), self._root)

    def process(self, number: int) -> Iterator[int]:
        yield self._job.run(self._tasks[number]).index


def analysis_graph(
    root: beam.Pipeline, handle: DeclarationHandle, directory: str, tasks: Sequence[AnalysisTask], *, launch: str
) -> beam.PCollection:
    """Adds a round to the pipeline `root`; returns a PCollection of the indices of analysed source shards.

    Writes the tasks into the cache's `directory`, where workers read those of their `launch`. Only their numbers are
    shuffled.
    """
    analysis_tasks(directory, launch).write(tasks)
    created = root | "Source shards" >> beam.Create(range(len(tasks)), reshuffle=False)
    spread = created | "Spread source shards" >> beam.Reshuffle()
    return spread | "Analyse source shards" >> beam.ParDo(AnalyseShards(handle, directory, launch))


def gathered(root: beam.Pipeline, committed: tuple[beam.PCollection, ...]) -> beam.PCollection:
    """One element, (None, indices of shards), when all of these collections of indices are complete."""
    # With no shards left there is still a snapshot to publish: -1 stands for "everything so far".
    done = root | "Begin" >> beam.Create([-1], reshuffle=False)
    return (
        (*committed, done)
        | "Committed shards" >> beam.Flatten()
        | "Key by build" >> beam.Map(lambda index: (None, index))
        | "Gather committed shards" >> beam.GroupByKey()
    )
