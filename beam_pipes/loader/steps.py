"""Steps: how a sequence of rows is cut into global batches, and these into the slices of hosts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

from beam_pipes.errors import LoaderError
from beam_pipes.loader.world import Share

LAST = ("drop", "pad", "partial")


class Cursor(NamedTuple):
    """The next row: row `position` of epoch `epoch`."""

    epoch: int
    position: int


class Steps(NamedTuple):
    """Global batches that follow each other: `length` of `rows` rows each, from `position` of `epoch` on.

    `following` is the cursor behind the last of them. More than one are always full.
    """

    epoch: int
    position: int
    rows: int
    length: int
    following: Cursor

    def cursor_after(self, index: int) -> Cursor:
        """The cursor behind batch number `index`."""
        if index == self.length - 1:
            return self.following
        return Cursor(self.epoch, self.position + (index + 1) * self.rows)

    def some(self, first: int, count: int) -> Steps:
        """`count` of these batches, from number `first` on."""
        following = self.cursor_after(first + count - 1)
        return Steps(self.epoch, self.position + first * self.rows, self.rows, count, following)

    def one_by_one(self) -> Iterator[Steps]:
        """The same steps, each of them alone."""
        for index in range(self.length):
            yield self.some(index, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """Batch size (over all hosts), number of epochs (None: no end), what to do with the last rows, and our share."""

    batch_size: int
    epochs: int | None
    last: str
    share: Share

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
        return self.share.slice_of(rows)

    def host_of(self, place: int, rows: int) -> tuple[int, int]:
        """The host that gets a place of a global batch, and the index in its slice."""
        if self.last != "partial":
            rows = self.batch_size
        host = ((place + 1) * self.share.count - 1) // rows
        return host, place - host * rows // self.share.count

    def next_steps(self, cursor: Cursor, size_of: Callable[[int], int | None], *, most: int = 1) -> Steps | None:
        """The steps at or after a cursor, up to `most` full ones of one epoch; None behind the last one.

        `size_of` gives the rows of an epoch, None for one without end.
        """
        epoch, position = cursor
        batch_size = self.batch_size
        while self.epochs is None or epoch < self.epochs:
            size = size_of(epoch)
            if size is None:
                return Steps(epoch, position, batch_size, most, Cursor(epoch, position + most * batch_size))
            rows, count = batch_size, min(most, (size - position) // batch_size)
            if not count and size > position and self.last != "drop":
                rows, count = size - position, 1
            if count:
                end = position + count * rows
                done = end == size or (self.last == "drop" and size - end < batch_size)
                return Steps(epoch, position, rows, count, Cursor(epoch + 1, 0) if done else Cursor(epoch, end))
            if not self.steps_of(size):
                return None  # no epoch has a step: without this, a run without end would look for one for ever
            epoch, position = epoch + 1, 0
        return None

    def groups(self, cursor: Cursor, size_of: Callable[[int], int | None], length: int) -> Iterator[Steps]:
        """All steps from a cursor on, in groups of 1, 2, 4 and so on up to `length`: the first comes at once."""
        most = 1
        while (steps := self.next_steps(cursor, size_of, most=most)) is not None:
            yield steps
            cursor = steps.following
            most = min(2 * most, length)
