"""Steps: how a sequence of rows is cut into global batches, and those into slices for hosts.

    rows of an epoch   0 1 2 3 4 5 6 7 8 9 …      position = index of a row in the order of its epoch
    steps (batch 4)    [ step 0 ][ step 1 ] …     step     = number of a global batch, counted over all epochs
    hosts (2)          [h0 ][h1 ][h0 ][h1 ] …     share    = the slice of each global batch that a host reads

`StepOptions` is the arithmetic of one epoch. `Run` adds the sizes of all epochs of a stream, and so converts between
cursors, step numbers and places. Nothing here reads data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal, NamedTuple, get_args

from beam_pipes.checks import choice
from beam_pipes.errors import LoaderError, UnboundedLoaderError
from beam_pipes.loader.order import Indices, check_integer
from beam_pipes.loader.packed_rows import PackedRows
from beam_pipes.loader.stream import Stream
from beam_pipes.loader.windows import WindowRows
from beam_pipes.loader.world import HostSlice


class Cursor(NamedTuple):
    """The next row: row `position` of epoch `epoch`."""

    epoch: int
    position: int


class Steps(NamedTuple):
    """Consecutive global batches: `length` of `rows` rows each, from `position` of `epoch` on.

    `following` is the cursor after the last of them. If there are several, they are full; `full_rows` is the size of
    a full one, the batch size unless batches are cut by tokens.
    """

    epoch: int
    position: int
    rows: int
    length: int
    following: Cursor
    full_rows: int

    def cursor_after(self, index: int) -> Cursor:
        """The cursor after batch number `index`."""
        if index == self.length - 1:
            return self.following
        return Cursor(self.epoch, self.position + (index + 1) * self.rows)

    def some(self, first: int, count: int) -> Steps:
        """`count` of these batches, from number `first` on."""
        following = self.cursor_after(first + count - 1)
        return Steps(self.epoch, self.position + first * self.rows, self.rows, count, following, self.full_rows)

    def one_by_one(self) -> Iterator[Steps]:
        """The same steps, one by one."""
        for index in range(self.length):
            yield self.some(index, 1)


class StepOfRow(NamedTuple):
    """The step of an epoch that contains a row, its first position, its rows, and those of a full one."""

    step: int
    start: int
    rows: int
    full_rows: int


#: What happens to rows at the end of an epoch that do not fill a global batch: see `Loader`.
Last = Literal["drop", "pad", "partial"]
LAST: tuple[Last, ...] = get_args(Last)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """Batch size (over all hosts), number of epochs (None: no end), what to do with the last rows, and this process's
    share.
    """

    batch_size: int
    epochs: int | None
    last: Last
    share: HostSlice

    even: ClassVar[bool] = True  # whether all batches but the last one of an epoch have the same number of rows

    def __post_init__(self) -> None:
        choice(self.last, of=LAST, what="last", error=LoaderError)

    def steps_of(self, rows: int) -> int:
        """Steps of an epoch with that many rows."""
        return rows // self.batch_size if self.last == "drop" else -(-rows // self.batch_size)

    def steps_from(self, epoch: int, position: int, rows: int) -> int:
        """Steps from a position to the end of an epoch with that many rows."""
        return self.steps_of(max(0, rows - position))

    def start_of(self, epoch: int, step: int) -> int:
        """The position at which a step of an epoch begins."""
        return step * self.batch_size

    def placed(self, epoch: int, position: int, rows: int | None) -> StepOfRow:
        """The step that contains a position, in an epoch of that many rows (None: endless)."""
        step, size = position // self.batch_size, self.batch_size
        start = step * size
        return StepOfRow(step, start, size if rows is None else min(size, rows - start), size)

    @property
    def smallest_batch(self) -> int:
        """Rows of the smallest full batch."""
        return self.batch_size

    @property
    def rows_multiple(self) -> int:
        """A number that divides the rows of every full batch."""
        return self.batch_size

    def host_places(self, rows: int, full_rows: int) -> Indices:
        """This process's places in a global batch. A partial one is divided evenly, a padded one like a full one."""
        return self.share.places_of(rows if self.last == "partial" else full_rows)

    def host_of(self, place: int, rows: int, full_rows: int) -> tuple[int, int]:
        """The host that gets a place of a global batch, and the index in its slice."""
        return self.share.holder_of(place, rows if self.last == "partial" else full_rows)

    def next_steps(self, cursor: Cursor, size_of: Callable[[int], int | None], *, most: int = 1) -> Steps | None:
        """The steps at or after a cursor, up to `most` full ones of one epoch; None after the last one.

        `size_of` returns the rows of an epoch, None for an endless one.
        """
        epoch, position = cursor
        batch_size = self.batch_size
        while self.epochs is None or epoch < self.epochs:
            size = size_of(epoch)
            if size is None:
                following = Cursor(epoch, position + most * batch_size)
                return Steps(epoch, position, batch_size, most, following, batch_size)
            rows, count = batch_size, min(most, (size - position) // batch_size)
            if not count and size > position and self.last != "drop":
                rows, count = size - position, 1
            if count:
                end = position + count * rows
                done = end == size or (self.last == "drop" and size - end < batch_size)
                following = Cursor(epoch + 1, 0) if done else Cursor(epoch, end)
                return Steps(epoch, position, rows, count, following, batch_size)
            if not self.steps_of(size):
                return None  # no epoch has a step: without this, an endless run would look for one forever
            epoch, position = epoch + 1, 0
        return None

    def groups(
        self, cursor: Cursor, size_of: Callable[[int], int | None], length: int, *, factor: int = 2
    ) -> Iterator[Steps]:
        """All steps from a cursor on, in groups of 1, 2, 4 and so on up to `length`: the first one is ready at once."""
        most = 1
        while (steps := self.next_steps(cursor, size_of, most=most)) is not None:
            yield steps
            cursor = steps.following
            most = min(factor * most, length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowPlace:
    """Where a row comes: its step, the host that gets it, and its index in that host's batch.

    `source` counts the sources of a mixture (0 without one). `when_record` adds two facts: `taken_down`, if the record
    is now hidden, so that its place holds another one; and `stands_in_for`, the taken-down source record whose place
    this one has.
    """

    epoch: int
    position: int
    step: int
    host_index: int
    index: int
    source: int = 0
    taken_down: bool = False
    stands_in_for: str | None = None


class Run:
    """All epochs of a stream as steps: converts between cursors, step numbers and the places of rows.

    Epochs of one run may differ in size: a change of a mixture's rates moves where an epoch ends.
    """

    def __init__(self, stream: Stream, steps: StepOptions) -> None:
        self.stream = stream
        self.steps = steps

    @property
    def steps_per_epoch(self) -> int | None:
        """Global batches of an epoch; None for an endless mixture."""
        rows = self.stream.size
        return None if rows is None else self.steps.steps_of(rows)

    def __len__(self) -> int:
        """Steps of all epochs; `UnboundedLoaderError` if there is no end, or an unknown one."""
        if self.steps_per_epoch is None or self.steps.epochs is None:
            raise UnboundedLoaderError(
                "this loader has no end (epochs=None), hence no length; steps_per_epoch says how long an epoch is. If "
                "torch's DataLoader asked: write TorchDataLoader(loader) (beam_pipes.on_device) instead"
            )
        return self.steps_before(self.steps.epochs)

    def next_step(self, cursor: Cursor) -> Steps | None:
        """The step at or after a cursor; None after the last one."""
        return self.steps.next_steps(cursor, self.stream.size_of)

    def steps_before(self, epoch: int) -> int:
        """The total steps of the epochs before this one."""
        total = first = 0
        for count, rows in self.stream.epoch_sizes():
            count = epoch - first if count is None else min(count, epoch - first)
            first += count
            total += count * self.steps.steps_of(rows or 0)
        return total

    def steps_done(self, cursor: Cursor) -> int:
        """Steps before a cursor: the number of the next one, if the batch size never changed."""
        epoch, position = cursor
        before, rows = self.steps_before(epoch), self.stream.size_of(epoch)
        if rows is None:
            return before + -(-position // self.steps.batch_size)
        return before + self.steps.steps_of(rows) - self.steps.steps_from(epoch, position, rows)

    def steps_left(self, cursor: Cursor) -> int:
        """Steps from a cursor to the end of the run."""
        epoch, position = cursor
        steps = len(self)
        if self.steps.epochs is None or epoch >= self.steps.epochs:
            return 0
        rows = self.stream.size_of(epoch) or 0
        return self.steps.steps_from(epoch, position, rows) + steps - self.steps_before(epoch + 1)

    def cursor_at(self, step: int) -> Cursor:
        """The cursor at the start of a step, if the run has it."""
        step = check_integer("step", step, 0)
        epoch = 0
        for count, rows in self.stream.epoch_sizes():
            if rows is None:
                break
            steps = self.steps.steps_of(rows)
            if count is None or step < count * steps:
                if steps:
                    epoch, step = epoch + step // steps, step % steps
                return Cursor(epoch, self.steps.start_of(epoch, step) if steps else 0)
            epoch, step = epoch + count, step - count * steps
        return Cursor(epoch, self.steps.start_of(epoch, step))

    def at(self, step: int) -> Steps:
        """The global batch number `step`; raises `LoaderError` for one outside the run."""
        found = self.next_step(self.cursor_at(step))
        if found is None or (self.steps.epochs is not None and step >= len(self)):
            raise self.outside(step)
        return found

    def outside(self, step: int) -> LoaderError:
        """The error for a step outside the run."""
        if self.steps_per_epoch == 0:
            return LoaderError(f"there is no step {step}: {self.why_no_steps()}", step=step)
        return LoaderError(f"step {step} is outside the run of {len(self)} steps", step=step)

    def why_no_steps(self) -> str:
        """Why an epoch has no step, and what to do."""
        rows = self.stream.sources[0]
        dropped = rows.of_epoch(0).dropped_records if isinstance(rows, PackedRows) else 0
        if dropped and not self.stream.size:
            return (
                f"there are no rows to read: all {dropped} records with tokens are longer than a row, "
                "and overlong='drop' leaves them out. Pack into longer rows, or with overlong='split' or 'truncate'."
            )
        if isinstance(rows, WindowRows) and not self.stream.size and len(rows.split):
            return (
                "there are no rows to read: no sequence is long enough for a window inside of it. Make windows "
                "shorter, or pass ends='repeat' or 'fill'."
            )
        if not self.stream.size:
            return "there are no rows to read: the split is empty."
        return (
            f"{self.stream.size} rows give no batch of {self.steps.smallest_batch}. Use a smaller batch_size, or "
            'last="pad" or "partial".'
        )

    def check_epoch(self, epoch: int) -> int:
        """`epoch` as Python's integer; raises `UnboundedLoaderError` for one that an endless mixture does not have."""
        epoch = check_integer("epoch", epoch, 0)
        if epoch and self.stream.size is None:
            raise UnboundedLoaderError(
                f"expected epoch 0, got epoch {epoch}: a mixture with exhausted='repeat' is one epoch without end, so "
                "no step belongs to a later one. Ask for steps: when_record(…, last_step=1000), or --last-step 1000."
            )
        return epoch

    def place_of(self, epoch: int, position: int, source: int) -> RowPlace | None:
        """Where the row at a position of an epoch comes; None if it does not, under `last="drop"`."""
        step, start, rows, full_rows = self.steps.placed(epoch, position, self.stream.size_of(epoch))
        if self.steps.last == "drop" and rows < full_rows:
            return None
        host, index = self.steps.host_of(position - start, rows, full_rows)
        return RowPlace(
            epoch=epoch,
            position=position,
            step=self.steps_before(epoch) + step,
            host_index=host,
            index=index,
            source=source,
        )
