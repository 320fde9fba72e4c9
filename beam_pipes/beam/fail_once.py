"""A unit that fails once, after its work is done: what a worker that is lost at that moment looks like."""

from __future__ import annotations

from collections.abc import Iterator

from beam_pipes.beam.run_unit import RunUnit
from beam_pipes.beam.shard_batch import ShardBatch

# Units that have failed in this process.
_failed: set[int] = set()


class FailOnce(RunUnit):
    """`RunUnit`, which raises `ConnectionError` in place of its first result; a runner that retries goes on."""

    def process(self, element: ShardBatch) -> Iterator[ShardBatch]:
        results = list(super().process(element))
        if element.batch is not None and self._position not in _failed:
            _failed.add(self._position)
            raise ConnectionError(f"unit {self._position} lost its first result, as it was told to")
        yield from results
