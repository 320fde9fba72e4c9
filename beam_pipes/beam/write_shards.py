"""The last PTransforms over records: shard batches → committed shards.

A shard is committed when its end mark arrives, in `process`: `finish_bundle` comes too late (a local bundle is a
whole stage) and has been seen not to come at all. Only where a runner has broken the batches of a shard apart do they
go on as parts, which are put together in order behind a grouping by shard; both ways write the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_pipes.beam.shard_batch import ShardBatch
from beam_pipes.building.part import Part
from beam_pipes.building.reference import DeclarationHandle
from beam_pipes.building.shard_output import ShardOutput
from beam_pipes.building.shard_task import BuildHeader, ShardTask
from beam_pipes.errors import ReconciliationError

PARTS = "parts"

# A part of a shard, or (None) the number of batches that its end mark bore.
PartOrEnd = tuple[ShardTask, Part | None, int]


class WriteShards(beam.DoFn):  # type: ignore[misc]
    """Emits the index of each committed shard; on the output `parts`, what has to be put together."""

    def __init__(self, handle: DeclarationHandle, header: BuildHeader) -> None:
        self._handle = handle
        self._header = header
        self._open: dict[int, ShardOutput] = {}

    def setup(self) -> None:
        self._open = {}

    def start_bundle(self) -> None:
        # What an earlier, failed bundle left open is read again by the retry.
        self._abort_all()

    def process(self, element: ShardBatch) -> Iterator[Any]:
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

    def finish_bundle(self) -> Iterator[Any]:
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
    """Puts the parts of a shard together in order, and commits it."""

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
                    continue  # a retry has delivered it twice
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
