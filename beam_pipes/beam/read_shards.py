"""The first PTransform of a build: source shards → shard batches."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam

from beam_pipes.beam.shard_batch import ShardBatch
from beam_pipes.building.completion import find_completion
from beam_pipes.building.reading import read_batches
from beam_pipes.building.reference import DeclarationHandle
from beam_pipes.building.shard_task import BuildHeader, ShardTask


class ReadShards(beam.DoFn):  # type: ignore[misc]
    """Reads each source shard in order and ends it with a mark; a shard that is committed already is not read."""

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
