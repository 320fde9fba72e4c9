"""One source shard, from its bytes to its committed files: what a worker does."""

from __future__ import annotations

import time
from collections.abc import Callable

from beam_pipes.offline.completion import find_completion
from beam_pipes.offline.declaration import Declaration
from beam_pipes.offline.reading import graph_runner, read_batches
from beam_pipes.offline.shard_output import ShardOutput
from beam_pipes.offline.shard_task import BuildHeader, ShardReport, ShardTask

# (records read, dropped, dead) since it was last told.
Tell = Callable[[int, int, int], None]


class ShardJob:
    """Builds source shards of one declaration, one after the other, in this process. Memory: a few batches."""

    def __init__(self, declaration: Declaration, header: BuildHeader) -> None:
        self._declaration = declaration
        self._header = header
        self._runner = graph_runner(declaration)

    def run(self, task: ShardTask, *, tell: Tell = lambda records, dropped, dead: None) -> ShardReport:
        """Reads, transforms and writes one source shard, and commits it; a committed one is left as it is.

        Raises what the source or a stage raised; nothing of the shard is left then.
        """
        started = time.monotonic()
        done = find_completion(self._header, task)
        stage_secs = dict.fromkeys(["read", *(unit.name for unit in self._runner.units), "write"], 0.0)
        if done is None:
            output = ShardOutput(self._declaration, self._header, task)
            try:
                last = time.perf_counter()
                for sequence, batch in enumerate(read_batches(self._declaration, task.shard)):
                    last = _spend(stage_secs, "read", last)
                    for position, unit in enumerate(self._runner.units):
                        self._runner.run_unit(position, batch)
                        last = _spend(stage_secs, unit.name, last)
                    part = output.encode(batch, sequence)
                    output.write(part)
                    last = _spend(stage_secs, "write", last)
                    tell(part.account.read, part.account.dropped, part.account.dead)
                done = output.commit()
                _spend(stage_secs, "write", last)
            except BaseException:
                output.abort()
                raise
        return ShardReport(
            index=task.index,
            records=done.account.read,
            written=done.account.written,
            dropped=done.account.dropped,
            dead=done.account.dead,
            secs=time.monotonic() - started,
            stage_secs=stage_secs,
        )


def _spend(stage_secs: dict[str, float], name: str, since: float) -> float:
    now = time.perf_counter()
    stage_secs[name] += now - since
    return now
