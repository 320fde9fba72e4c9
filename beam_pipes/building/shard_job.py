"""One source shard, from its bytes to its committed files: what a worker does."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping

from beam_pipes.building.completion import find_completion
from beam_pipes.building.declaration import Declaration
from beam_pipes.building.reading import graph_runner, source_batch
from beam_pipes.building.replay_output import CannotReplayError, task_output, task_records
from beam_pipes.building.shard_figures import READ
from beam_pipes.building.shard_output import WRITE
from beam_pipes.building.shard_task import BuildHeader, ShardReport, ShardTask
from beam_pipes.building.stage_clock import StageClock
from beam_pipes.engine.account import Account

# What has been done since it was last told: an account, and the seconds of each stage.
Tell = Callable[[Account, Mapping[str, float]], None]


class ShardJob:
    """Builds source shards of one declaration, one after the other, in this process. Memory: a few batches."""

    def __init__(self, declaration: Declaration, header: BuildHeader) -> None:
        self._declaration = declaration
        self._header = header
        self._runner = graph_runner(declaration)

    def run(self, task: ShardTask, *, tell: Tell = lambda account, secs: None) -> ShardReport:
        """Reads, transforms and writes one source shard, and commits it; a committed one is left as it is.

        Raises what the source or a stage raised; nothing of the shard is left then.
        """
        try:
            return self._run(task, tell)
        except CannotReplayError:
            return self._run(dataclasses.replace(task, prior=None), tell)

    def _run(self, task: ShardTask, tell: Tell) -> ShardReport:
        started = time.monotonic()
        replayed = 0
        done = find_completion(self._header, task)
        clock = StageClock([READ, *(unit.name for unit in self._runner.units), WRITE])
        if done is None:
            output = task_output(self._declaration, self._header, task)
            try:
                for sequence, records in enumerate(task_records(self._declaration, task)):
                    batch = source_batch(self._declaration, records)
                    records.digests()  # before stages, which may change values in place
                    replayed += 1
                    clock.mark(READ)
                    for position, unit in enumerate(self._runner.units):
                        self._runner.run_unit(position, batch)
                        clock.mark(unit.name)
                    part = output.encode(batch, sequence)
                    output.write(part)
                    clock.mark(WRITE)
                    tell(part.account, clock.lap())
                done = output.commit()
                clock.mark(WRITE)
                tell(Account(), clock.lap())
            except BaseException:
                output.abort()
                raise
        secs = time.monotonic() - started
        return ShardReport.of(task, done.account, secs=secs, replayed=replayed, stage_secs=clock.secs)
