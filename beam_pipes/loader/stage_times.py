"""What each stage of a native loader costs, measured one after the other without threads."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from beam_pipes.loader.batches import Batch

if TYPE_CHECKING:
    from beam_pipes.loader.loader import Loader


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedBatches:
    """Batches as the loader makes them at once, and the seconds for all of them.

    `read_secs`: what reading them for the first time cost more than reading them again, that is, fetching shards and
    pages; `gather_secs`: finding their records and copying them once they are in memory; `transform_secs`: the loader's
    `transform`, and the columns it adds.
    """

    batches: list[Batch]
    read_secs: float
    gather_secs: float
    transform_secs: float


def timed_batches(loader: Loader) -> Iterator[TimedBatches]:
    """The batches from the loader's cursor on, epoch after epoch without end; the cursor stays."""
    clock, reader = time.perf_counter, loader._reader
    steps_without_end = dataclasses.replace(loader._steps, epochs=None)
    for steps in steps_without_end.groups(loader._cursor, reader.stream.size_of, reader.group_length):
        began = clock()
        rows = reader.gathered(steps)
        first = clock()
        rows = reader.gathered(steps)
        again = clock()
        batches = reader.finished(rows, steps)
        done = clock()
        gather_secs = min(again - first, first - began)
        yield TimedBatches(
            batches=batches,
            read_secs=first - began - gather_secs,
            gather_secs=gather_secs,
            transform_secs=done - again,
        )
