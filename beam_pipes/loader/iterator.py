"""The iterator of a loader: batches from its cursor on, prepared ahead by threads if `workers` is set.

    steps ──groups of 1, 2, 4, …──► BatchReader (here, or on threads) ──► Progress: batches, popped one by one

`Progress` is what was returned, and so the loader's position: batches prepared ahead do not count. The iterator always
uses the loader's current reader.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol

from beam_pipes.errors import LoaderError
from beam_pipes.loader.batches import Batch
from beam_pipes.loader.prefetch import CLOSED, OrderedPrefetcher, not_copied
from beam_pipes.loader.reader import MAX_GROUP, Batches, BatchReader, Made, PendingBatch
from beam_pipes.loader.state import LoaderState, Stateful
from beam_pipes.loader.steps import Cursor, StepOptions, Steps
from beam_pipes.loader.world import HostSlice

_BEFORE_WORLD = (
    "this iterator began before the processes that train together were initialised, and so it gives each of them the "
    "same batches. Call iter(loader) again: it continues after the last batch, with the share of this process."
)

NOT_BY_INDEX = (
    "a Loader is read in order, by `for batch in loader`, and not by index: its elements are whole batches. For torch, "
    "write TorchDataLoader(loader) (beam_pipes.on_device) instead of torch's DataLoader(loader); for one batch "
    "loader.batch_at(step), and for one example cache['train'][i]."
)


def warn_of_repeated_order(epochs: int | None) -> None:
    """Warns users who loop over a loader again after its last epoch, and may expect another order."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("beam_pipes."):
        frame, level = frame.f_back, level + 1  # to the user's loop, which may be over a loader that wraps this one
    warnings.warn(
        f"this loop reads the same batches in the same order again: the loader's {epochs} epoch(s) have been read, and "
        "it starts over. For another order in each epoch, give epochs=… and loop over loader.epoch_batches() for each "
        "one; or shuffle=False, if the order is not to change.",
        stacklevel=level,
    )


class Progress:
    """What was returned: a group of batches, the remaining ones (last one first), and so the cursor."""

    def __init__(self, start: Cursor) -> None:
        self._start = start
        # Replaced as a whole: a thread that asks for the cursor never sees steps together with the batches of others.
        self._group: tuple[Steps, Batches] | None = None

    @property
    def cursor(self) -> Cursor:
        """The row after the last batch that was returned."""
        group = self._group
        if group is None:
            return self._start
        steps, ready = group
        return steps.cursor_after(steps.length - len(ready) - 1)

    def mark(self) -> Callable[[], Cursor]:
        """The cursor as it is now, computed when it is asked for: after most batches nobody asks."""
        group = self._group
        if group is None:
            start = self._start
            return lambda: start
        steps, ready = group
        return functools.partial(steps.cursor_after, steps.length - len(ready) - 1)

    def refill(self, steps: Steps, batches: Batches) -> None:
        """Takes a group, with its batches reversed for popping."""
        self._group = steps, batches

    def forget(self) -> None:
        """Drops the remaining batches; the cursor stays."""
        if self._group is None:
            return
        steps, ready = self._group
        left = 0
        with contextlib.suppress(IndexError):
            while True:  # one by one: another thread may be taking one at this moment
                ready.pop()
                left += 1
        self._start, self._group = steps.cursor_after(steps.length - left - 1), None


class IteratedLoader(Protocol):
    """What an iterator needs from its loader: its current reader and steps, its position, and its state."""

    _reader: BatchReader
    _steps: StepOptions
    _progress: Progress

    @property
    def share(self) -> HostSlice: ...
    @property
    def state(self) -> LoaderState: ...
    def restore(self, state: LoaderState) -> None: ...


class LoaderIterator(Stateful):
    """Yields the batches of a loader and moves its cursor; has the loader's state methods.

    Threads may share it: each batch is returned once, in the order of the calls. Closing, exhausting or dropping it
        ends its threads. After an error the loader is positioned before the failed batch, and the next call reads it
        again.
    """

    def __init__(self, loader: IteratedLoader, *, workers: int, prefetch: int) -> None:
        self._loader = loader
        self._workers = workers
        self._prefetch = prefetch
        self._groups: Iterator[Made] | None = None  # groups of finished batches
        self._error: Exception | None = None  # why no batch follows the ready ones
        self._progress = loader._progress
        self._ready: Batches = []
        self._closed = False
        self._reading = threading.RLock()  # held while a group is read, or waited for
        self._changing = threading.RLock()  # held briefly, so that closing never waits for a reading thread

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Batch:
        # For most batches nothing else happens: a batch is made in 4 µs, and a lock takes 1 % of that. `pop` is atomic.
        ready = self._ready
        if ready:
            try:
                batch = ready.pop()
            except IndexError:
                pass  # another thread took the last one
            else:
                return _made(batch, ready) if isinstance(batch, PendingBatch) else batch
        return self._next_of_next_group()

    def _next_of_next_group(self) -> Batch:
        with self._reading:
            while True:
                if not self._ready:  # no other thread has read a group meanwhile
                    self._refill()
                ready = self._ready
                with contextlib.suppress(IndexError):
                    batch = ready.pop()
                    return _made(batch, ready) if isinstance(batch, PendingBatch) else batch

    def _refill(self) -> None:
        if self._closed:
            raise LoaderError(CLOSED)
        error = self._error
        if error is not None:
            self._stop()
            raise error
        share = self._loader.share
        if self._groups is None:
            self.start_prefetch()
        elif not share.now().is_same_slice(share):
            raise LoaderError(_BEFORE_WORLD)
        groups = self._groups
        if groups is None:
            raise LoaderError(CLOSED)
        try:
            steps, batches, error = next(groups)
        except BaseException:
            if self._groups is groups:
                self._stop()
            raise
        with self._changing:
            if self._groups is not groups:  # closed or restarted by another thread while this one was reading
                raise error if error is not None and not batches else LoaderError(CLOSED)
            self._error = error
            if batches:
                batches.reverse()
                self._progress.refill(steps, batches)
                self._ready = batches

    def start_prefetch(self) -> None:
        """Starts the threads now instead of at the first batch."""
        with self._changing:
            if self._groups is not None or self._closed:
                return
            loader = self._loader
            reader = loader._reader
            # Planning a group of copies takes a fraction of a millisecond, so these may grow faster.
            most, factor = (reader.group_length, 2) if self._workers or not reader.pends else (MAX_GROUP, 4)
            groups = loader._steps.groups(loader._progress.cursor, reader.stream.size_of, most, factor=factor)
            # Tied to the reader, not to the iterator: threads that knew the iterator would keep it, and so themselves,
            # alive.
            if self._workers:
                depth = max(1, -(-self._prefetch // reader.group_length))
                make = reader.read_until_failure
                self._groups = OrderedPrefetcher(make, groups, workers=self._workers, depth=depth)
            else:
                self._groups = map(reader.pending, groups)

    def restart(self) -> None:
        """Drops batches prepared ahead, because the loader's cursor or rates changed."""
        self._stop()
        self._progress = self._loader._progress

    def close(self) -> None:
        """Ends the threads and the iteration. The loader's cursor stays where it is."""
        self._closed = True
        self._stop()

    def __enter__(self) -> LoaderIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ready_batches(self) -> int | None:
        """Batches available without waiting; None if nothing is prepared ahead (`workers=0`).

        Groups that threads have finished count as full ones.
        """
        if not self._workers:
            return None
        groups = self._groups.ready if isinstance(self._groups, OrderedPrefetcher) else 0
        return len(self._ready) + groups * self._loader._reader.group_length

    @property
    def state(self) -> LoaderState:
        """The state of the loader, whose cursor this iterator moves."""
        return self._loader.state

    def restore(self, state: LoaderState) -> None:
        """Continues the loader from a state."""
        self._loader.restore(state)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise not_copied(
            "an iterator of a Loader",
            "Pickle or copy the loader itself, which goes on where this iterator stands; or save loader.state_dict() "
            "and call load_state_dict there.",
        )

    def _stop(self) -> None:
        with self._changing:
            groups, self._groups, self._error = self._groups, None, None
            self._progress.forget()
        if isinstance(groups, OrderedPrefetcher):
            groups.close()


def _made(batch: PendingBatch, ready: Batches) -> Batch:
    """The batch, copied now; if that is interrupted or runs out of memory, the batch counts as not returned."""
    try:
        return batch.made()
    except BaseException:
        ready.append(batch)
        raise
