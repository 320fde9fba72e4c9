"""One unit of a declaration as a DoFn over batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import apache_beam as beam

from beam_pipes.beam.mirror import Mirror
from beam_pipes.beam.shard_batch import ShardBatch
from beam_pipes.building.reading import graph_runner
from beam_pipes.building.reference import DeclarationHandle
from beam_pipes.engine.execute import GraphRunner


class RunUnit(beam.DoFn):  # type: ignore[misc]
    """Runs the unit at `position` of the declaration's graph over each batch; its input stays as it is, for retries."""

    def __init__(self, handle: DeclarationHandle, position: int) -> None:
        self._handle = handle
        self._position = position
        self._runner: GraphRunner | None = None

    def setup(self) -> None:
        declaration = self._handle.get()
        self._runner = graph_runner(declaration)
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
