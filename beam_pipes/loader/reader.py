"""Reading steps: from positions to places to batches of this host.

    Steps ──_places──► places of our rows ──gathered──► rows as stored ──finished──► batches, transformed and padded

Called by the loader for single steps, and by its iterator, on threads or not, for groups of them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from beam_pipes.cache.split import Split
from beam_pipes.errors import BeamPipesError, LoaderError, TransformError
from beam_pipes.loader.batches import (
    LENGTHS,
    Batch,
    Fills,
    PadValue,
    fills_of_result,
    mask_rows,
    pad_rows,
    stack_batches,
)
from beam_pipes.loader.delivery import named_failure
from beam_pipes.loader.epochs import ROW_OF_PLACE
from beam_pipes.loader.mesh import SequenceShare
from beam_pipes.loader.order import Indices, row_keys
from beam_pipes.loader.packed_rows import cu_seqlens_of
from beam_pipes.loader.rows import InMemory, Mask, varying
from beam_pipes.loader.steps import Run, StepOptions, Steps
from beam_pipes.loader.stream import Places, Stream

VALID = "valid"
CU_SEQLENS = "cu_seqlens"


class PendingBatch(NamedTuple):
    """A batch of a group that `made` copies on request.

    The copy is then in the nearest CPU cache for its next reader, and the batch owns its memory: on batches
    of 32 × 1,024 tokens, 19 µs against 25 µs for slices of a group of 8.
    """

    columns: Mapping[str, InMemory]
    first: int
    last: int
    finish: Callable[[Batch], Batch] | None

    def made(self) -> Batch:
        first, last = self.first, self.last
        batch = {name: column.rows(first, last) for name, column in self.columns.items()}
        return batch if self.finish is None else self.finish(batch)


Batches = list[Batch | PendingBatch]
# Steps, their batches, and the reason why there are no more.
Made = tuple[Steps, Batches, Exception | None]

_KEPT_WINDOWS = 4
# Batches are gathered in groups of up to this size and handed out as slices. A batch of 32 × 1,024 tokens takes
# 16 µs to copy and 17 µs of calls around it, which a group pays once. Compared with a bare index into a memory map,
# groups of 1, 4, 8, 16 and 32 such batches reach 0.48, 0.72, 0.80, 0.84 and 0.78 of its speed; the largest leave the
# caches.
_GROUP_BYTES = 2 << 20
MAX_GROUP = 64


def checked_result(result: object, rows: int) -> Batch:
    """The result of a transform for that many rows; raises `LoaderError` unless it consists of arrays of them."""
    if not isinstance(result, Mapping):
        raise LoaderError(f"transform should return a dict of arrays, got {type(result).__name__}")
    for name, array in result.items():
        if np.shape(array)[:1] != (rows,) and name + LENGTHS not in result:
            raise LoaderError(
                f"transform should keep the rows of a batch as the first axis of every array: {name!r} has the shape "
                f"{np.shape(array)} for {rows} rows. Give each row a value, and leave out records when the cache is "
                "built.",
                feature=name,
            )
    return result  # type: ignore[return-value]


def failed_transform(transform: object, error: Exception) -> TransformError:
    """The error that replaces the one that a transform raised: `transform decode failed: ValueError: no JPEG`."""
    name = getattr(transform, "__qualname__", type(transform).__name__)
    return TransformError(f"transform {name} failed: {type(error).__name__}: {error}".removesuffix(": "))


class BatchReader:
    """Reads steps of one stream. Thread-safe."""

    def __init__(
        self,
        stream: Stream,
        steps: StepOptions,
        *,
        fills: Fills,
        pad_value: PadValue,
        transform: Callable[[Batch], Batch] | None,
        cu_seqlens: bool | Literal["padded"],
        sequence: SequenceShare | None = None,
        masks: bool = False,
    ) -> None:
        self.stream = stream
        self._steps = steps
        self._fills = fills
        self._pad_value = pad_value
        self._transform = transform
        self._cu_seqlens = cu_seqlens
        self._sequence = sequence
        self._masks = masks
        self._host_places = self._located = steps.host_places(steps.batch_size, steps.batch_size)
        self.host_rows = len(self._host_places)
        # The width of varying columns is that of the global batch, so its places are needed, both ours and the others'.
        self._sees_whole = steps.share.count > 1 and bool(varying(stream.columns))
        if self._sees_whole:
            self._located = np.arange(steps.batch_size)
        self._located_rows = stream.located_rows
        row_bytes = stream.row_bytes
        fitting = 1 if row_bytes is None else _GROUP_BYTES // max(1, row_bytes * self.host_rows)
        self.group_length = max(1, min(fitting, MAX_GROUP))
        self._finishes = bool(cu_seqlens) or steps.last == "pad" or sequence is not None or masks
        self._windows: dict[tuple[int, int, int], Places] = {}
        self._lock = threading.Lock()

    def read(self, steps: Steps) -> list[Batch]:
        """This process's slices of global batches, gathered together. They share memory, but no elements."""
        return self.finished(self.gathered(steps), steps)

    @functools.cached_property
    def pends(self) -> bool:
        """Whether a batch is just a copy of mapped memory."""
        if self._transform is not None or self._masks or self.stream.row_bytes is None or not self.host_rows:
            return False
        return self.stream.located(self.stream.no_places) is not None

    @property
    def gives_own_arrays(self) -> bool:
        """Whether nothing else holds the arrays of a batch; a transform may return the same array repeatedly."""
        return self._transform is None and all(isinstance(rows.split, Split) for rows in self.stream.sources)

    def pending(self, steps: Steps) -> Made:
        """Like `read_until_failure`, but copies each batch only when it is returned, if nothing else must be done."""
        if steps.length == 1 or not self.pends:
            return self.read_until_failure(steps)
        if self.stream.fetches_ahead:
            self.stream.approach(steps.epoch, steps.position)
        try:
            columns = self.stream.located(self._places(steps))
        except Exception:
            columns = None  # read one by one, so that the batches before the failing one come first
        if columns is None:
            return self.read_until_failure(steps)
        rows = self.host_rows
        finish = functools.partial(self._finish, steps=steps, fills=self._fills) if self._finishes else None
        starts = range(0, steps.length * rows, rows)
        return steps, [PendingBatch(columns, start, start + rows, finish) for start in starts], None

    def read_until_failure(self, steps: Steps) -> Made:
        """Like `read`; if that fails, the batches before the failing one, and its error, naming the record.

        A group that fails is read again batch by batch, so that an error comes when its own batch is due.
        """
        try:
            return steps, [*self.read(steps)], None
        except Exception as error:
            if steps.length == 1:
                return steps, [], self.named(error, steps)
        batches: Batches = []
        for number in range(steps.length):
            one = steps.some(number, 1)
            try:
                batches += self.read(one)
            except Exception as error:
                return steps.some(0, max(1, number)), batches, self.named(error, one)
        return steps, batches, None

    def read_one(self, steps: Steps) -> Batch:
        """This process's slice of one global batch; an error names its record."""
        try:
            return self.read(steps)[0]
        except Exception as error:
            named = self.named(error, steps)
            if named is error:
                raise
            raise named from named.__cause__ or error

    def read_consecutive(self, run: Run, step: int, count: int) -> Batch:
        """This process's slices of `count` global batches from a step of the run on, stacked."""
        cursor, parts = run.cursor_at(step), []
        left = count
        while left:
            found = self._steps.next_steps(cursor, self.stream.size_of, most=left)
            if found is None:
                raise run.outside(step + count - 1)
            try:
                parts.append(self.read_stacked(found))
            except Exception:
                for number in range(found.length):  # names the record, unless reading succeeds now
                    self.read_one(found.some(number, 1))
                raise
            cursor, left = found.following, left - found.length
        if len(parts) == 1:
            return parts[0]
        stack_batches([{name: array[0] for name, array in part.items()} for part in parts])  # refuses other shapes
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def named(self, error: Exception, steps: Steps) -> Exception:
        """The error of one batch, with its record, to be raised instead of the batch."""
        return named_failure(
            error, steps, self.stream, lambda: self._own_places(steps), functools.partial(self._read_rows, steps)
        )

    def _own_places(self, steps: Steps) -> Places:
        places = self._places(steps)
        return places[self._own(steps)] if self._sees_whole else places

    def _read_rows(self, steps: Steps, places: Places) -> None:
        rows = self.stream.gather(places)
        if self._transform is not None:
            self._transform_rows(rows, steps, places, places.reshape(len(places), -1)[:, -1])

    def _transform_rows(self, rows: Batch, steps: Steps, places: Places, positions: Indices) -> Batch:
        assert self._transform is not None
        draw, count = getattr(self._transform, "of_rows", None), len(places)
        try:
            if draw is None:
                made = self._transform(rows)
            else:  # a row of a mixture may occur several times in an epoch
                made = draw(rows, row_keys(steps.epoch, places & ROW_OF_PLACE if places.ndim == 1 else positions))
        except (BeamPipesError, MemoryError):
            raise
        except Exception as error:
            raise failed_transform(self._transform, error) from error
        return checked_result(made, count)

    def gathered(self, steps: Steps) -> Batch:
        """The rows of all steps, as stored."""
        if self.stream.fetches_ahead:
            self.stream.approach(steps.epoch, steps.position)
        return self.stream.gather(*self._places_to_read(steps))

    def _places_to_read(self, steps: Steps) -> tuple[Places, Places | None]:
        """The places of this process's rows, and of other rows that determine the width of columns."""
        places = self._places(steps)
        beside = None
        if self._sees_whole:
            beside, places = places, places[self._own(steps)]
        if self._transform is not None and not self._has_own(steps):
            # The transform's result for no rows may have another dtype or width than that for some: a row of another
            # host, which `finished` removes again, shows which.
            places = self.stream.locate(steps.epoch, np.array([steps.position]))
        return places, beside

    def finished(self, whole: Batch, steps: Steps) -> list[Batch]:
        """The result of `gathered`, transformed and cut into batches."""
        whole = self._transformed(whole, steps)
        fills, hidden = self._fills, self._hidden(steps)
        is_short = self._steps.last == "pad" and steps.rows < steps.full_rows
        masks_some = hidden is not None and bool(hidden.any())
        if self._transform is not None and (is_short or masks_some):
            fills = fills_of_result(whole, fills, self._pad_value)
        if hidden is not None and masks_some:
            whole = mask_rows(whole, hidden, fills)
        if steps.length == 1:
            batches = [whole if self._has_own(steps) else {name: array[:0] for name, array in whole.items()}]
        else:
            rows = self.host_rows
            starts = range(0, steps.length * rows, rows)
            batches = [{name: array[start : start + rows] for name, array in whole.items()} for start in starts]
        if hidden is not None:
            for batch, mine in zip(batches, hidden.reshape(steps.length, -1), strict=True):
                batch[VALID] = ~mine[: len(self._own(steps))]
        return [self._finish(batch, steps, fills) for batch in batches] if self._finishes else batches

    def _hidden(self, steps: Steps) -> Mask | None:
        """Which of the rows of `gathered` have a record that is taken down; None if rows are not masked."""
        if not self._masks:
            return None
        places = self._places_to_read(steps)[0]
        sources, rows = self.stream.rows_at(places)
        hidden = np.zeros(len(places), bool)
        for source in np.unique(sources).tolist():
            mine = sources == source
            hidden[mine] = self.stream.sources[source].is_gone(rows[mine])
        return hidden

    def read_stacked(self, steps: Steps) -> Batch:
        """Like `read`, but as one batch whose arrays have the steps as first dimension."""
        if self.stream.row_bytes is None:
            return stack_batches([batch for step in steps.one_by_one() for batch in self.read(step)])
        if self._finishes or steps.length == 1:
            return stack_batches(self.read(steps))
        whole = self._transformed(self.gathered(steps), steps)
        shape = (steps.length, self.host_rows)
        return {name: array.reshape(*shape, *array.shape[1:]) for name, array in whole.items()}

    def _transformed(self, whole: Batch, steps: Steps) -> Batch:
        if self._transform is None:
            return whole
        own = self._own(steps) if self._has_own(steps) else np.zeros(1, np.int64)
        starts = steps.position + np.arange(steps.length) * steps.rows
        positions = (starts[:, None] + own).reshape(-1)
        return self._transform_rows(whole, steps, self._places_to_read(steps)[0], positions)

    def _own(self, steps: Steps) -> Indices:
        """This process's rows of each of these global batches, without padding rows."""
        rows = steps.rows
        if rows == self._steps.batch_size == steps.full_rows:
            return self._host_places
        places = self._steps.host_places(rows, steps.full_rows)
        return places[: np.searchsorted(places, rows)]

    def _has_own(self, steps: Steps) -> bool:
        return len(self._own(steps)) > 0

    def _finish(self, batch: Batch, steps: Steps, fills: Fills) -> Batch:
        if self._steps.last == "pad":
            own, rows = len(self._own(steps)), len(self._steps.host_places(steps.rows, steps.full_rows))
            valid = batch.pop(VALID) if self._masks else np.ones(own, bool)
            if own < rows:
                batch = pad_rows(batch, rows, fills)
            batch[VALID] = np.pad(valid, (0, rows - own))
        if self._cu_seqlens:
            most = self.stream.most_segments if self._cu_seqlens == "padded" else None
            stream = self.stream
            batch[CU_SEQLENS] = cu_seqlens_of(
                batch, most_segments=most, multiple=stream.segment_multiple, width=stream.lengths_width
            )
        if self._sequence is not None:
            by_segment = self._sequence.order == "segments"
            bounds = cu_seqlens_of(batch, multiple=self.stream.segment_multiple) if by_segment else None
            batch = self._sequence.cut(batch, bounds)
        return batch

    def _places(self, steps: Steps) -> Places:
        """The places of this process's rows, or of all rows of a global batch if these affect them."""
        epoch, position, rows, left, _, _ = steps
        batch_size, host_rows = self._steps.batch_size, len(self._located)
        alone = rows < batch_size or not self._steps.even
        if alone or host_rows >= self._located_rows or not self._is_known(epoch, position):
            located = np.arange(rows) if self._sees_whole else self._own(steps)
            starts = position + np.arange(left) * rows
            return self.stream.locate(epoch, (starts[:, None] + located).reshape(-1))
        # Steps begin at multiples of the batch size; `offset` rows later after restoring a state of another batch size.
        number, offset = divmod(position, batch_size)
        per_window = self._located_rows // host_rows
        found = []
        while left:
            window, index = divmod(number, per_window)
            taken = min(left, per_window - index)
            places = self._window(epoch, offset, window, per_window)
            found.append(places[index * host_rows : (index + taken) * host_rows])
            number += taken
            left -= taken
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _is_known(self, epoch: int, position: int) -> bool:
        """False before the last change of a mixture's rates, where `locate` raises."""
        segment = self.stream.segment(epoch)
        return segment is None or position >= segment.start

    def _window(self, epoch: int, offset: int, window: int, per_window: int) -> Places:
        key = (epoch, offset, window)
        places = self._windows.get(key)
        if places is not None:
            return places
        with self._lock:
            places = self._windows.get(key)  # another thread may have computed it meanwhile
            if places is None:
                places = self._windows[key] = self._locate_window(*key, per_window)
                while len(self._windows) > _KEPT_WINDOWS:
                    del self._windows[next(iter(self._windows))]
        return places

    def _locate_window(self, epoch: int, offset: int, window: int, per_window: int) -> Places:
        batch_size = self._steps.batch_size
        starts = (window * per_window + np.arange(per_window)) * batch_size + offset
        size = self.stream.size_of(epoch)
        if size is not None:
            starts = starts[starts + batch_size <= size]
        segment = self.stream.segment(epoch)
        if segment is not None:
            # Rows before the last change of rates cannot be located; the caller ensures that none is requested.
            starts = np.maximum(starts, segment.start)
        return self.stream.locate(epoch, (starts[:, None] + self._located).reshape(-1))
