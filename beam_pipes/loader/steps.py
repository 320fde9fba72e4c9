"""Steps: how a sequence of rows is cut into global batches, and these into the slices of hosts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

from beam_pipes.errors import LoaderError

LAST = ("drop", "pad", "partial")


class Cursor(NamedTuple):
    """The next row: row `position` of epoch `epoch`."""

    epoch: int
    position: int


class Step(NamedTuple):
    """A global batch: `rows` rows from `position` of `epoch` on, and the cursor behind it."""

    epoch: int
    position: int
    rows: int
    following: Cursor


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """Batch size (over all hosts), number of epochs (None: no end), what to do with the last rows, and which host."""

    batch_size: int
    epochs: int | None
    last: str
    host_index: int
    host_count: int

    def __post_init__(self) -> None:
        if self.last not in LAST:
            raise LoaderError(f"unknown policy last={self.last!r}; choose one of: {', '.join(LAST)}")

    def steps_of(self, rows: int) -> int:
        """Steps of an epoch of so many rows."""
        return rows // self.batch_size if self.last == "drop" else -(-rows // self.batch_size)

    def host_slice(self, rows: int) -> tuple[int, int]:
        """Our places in a global batch. A partial one is shared out evenly, a padded one like a full one."""
        if self.last != "partial":
            rows = self.batch_size
        return self.host_index * rows // self.host_count, (self.host_index + 1) * rows // self.host_count

    def host_of(self, place: int, rows: int) -> tuple[int, int]:
        """The host that gets a place of a global batch, and the index in its slice."""
        if self.last != "partial":
            rows = self.batch_size
        host = ((place + 1) * self.host_count - 1) // rows
        return host, place - host * rows // self.host_count

    def next_step(self, cursor: Cursor, size_of: Callable[[int], int | None]) -> Step | None:
        """The step at or after a cursor, given the rows of each epoch; None behind the last one."""
        epoch, position = cursor
        while self.epochs is None or epoch < self.epochs:
            size = size_of(epoch)
            if size is None:
                return Step(epoch, position, self.batch_size, Cursor(epoch, position + self.batch_size))
            rows = size - position
            if rows >= self.batch_size or (rows > 0 and self.last != "drop"):
                rows = min(rows, self.batch_size)
                end = position + rows
                done = end == size or (self.last == "drop" and size - end < self.batch_size)
                return Step(epoch, position, rows, Cursor(epoch + 1, 0) if done else Cursor(epoch, end))
            if not self.steps_of(size):
                return None  # no epoch has a step: without this, a run without end would look for one for ever
            epoch, position = epoch + 1, 0
        return None

    def groups(self, cursor: Cursor, size_of: Callable[[int], int | None], length: int) -> Iterator[list[Step]]:
        """All steps from a cursor on, in groups of up to `length` full ones of one epoch."""
        while (step := self.next_step(cursor, size_of)) is not None:
            group = [step]
            while len(group) < length and step.rows == self.batch_size:
                following = self.next_step(step.following, size_of)
                if following is None or following.epoch != step.epoch or following.rows < self.batch_size:
                    break
                step = following
                group.append(step)
            yield group
            cursor = step.following
