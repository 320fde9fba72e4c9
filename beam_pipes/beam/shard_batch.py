"""What travels between the PTransforms of a build."""

from __future__ import annotations

import dataclasses

from beam_pipes.building.reading import SourceBatch
from beam_pipes.building.shard_task import ShardTask


@dataclasses.dataclass(slots=True)
class ShardBatch:
    """A batch of one source shard, or its end mark.

    `sequence` numbers the batches of a shard from 0; the end mark (`batch` is None) bears the number of batches.
    `complete` marks a shard that an earlier run has committed: there is nothing to do for it.
    """

    task: ShardTask
    sequence: int
    batch: SourceBatch | None
    complete: bool = False
