"""The one PTransform of a build whose records have limits: source shards → committed shards.

Nothing in Beam can take a thread back that a record never leaves, so a worker of Beam's supervises a process of ours
for each source shard that it is given; stages do not become PTransforms of their own then.
"""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam

from beam_pipes.beam.mirror import Mirror
from beam_pipes.building.completion import find_completion
from beam_pipes.building.reference import DeclarationHandle
from beam_pipes.building.shard_task import BuildHeader, ShardTask
from beam_pipes.building.workers.worker_pool import NoWatcher, WorkerPool


class BuildShards(beam.DoFn):  # type: ignore[misc]
    """Builds each source shard and emits its index; a shard that is committed already is left as it is."""

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
