"""The iterator of a loader: batches from its cursor on, made by threads ahead of their use if so asked."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import LoaderError
from beam_pipes.loader.batches import Batch
from beam_pipes.loader.prefetch import OrderedPrefetcher
from beam_pipes.loader.reader import BatchReader
from beam_pipes.loader.steps import Cursor, Steps

if TYPE_CHECKING:
    from beam_pipes.loader.loader import Loader

_Made = tuple[Steps, list[Batch]]

_CLOSED = "this iterator was closed, or replaced by a newer one of the same loader; call iter(loader) again"


class Progress:
    """What was handed out: a group of batches, those of it that are left (last one first), and so the cursor."""

    def __init__(self, start: Cursor) -> None:
        self._start = start
        self._steps: Steps | None = None
        self.ready: list[Batch] = []

    @property
    def cursor(self) -> Cursor:
        """The row behind the last batch that was handed out."""
        if self._steps is None:
            return self._start
        return self._steps.cursor_after(self._steps.length - len(self.ready) - 1)

    def refill(self, steps: Steps, batches: list[Batch]) -> None:
        self._steps = steps
        self.ready += reversed(batches)

    def forget(self) -> None:
        """Drops the batches that are left; the cursor stays."""
        self._start, self._steps = self.cursor, None
        self.ready.clear()


class LoaderIterator:
    """Yields the batches of a loader and moves its cursor; has the loader's state methods.

    Close it, exhaust it or drop it: each ends its threads.
    """

    def __init__(self, loader: Loader, *, workers: int, prefetch: int) -> None:
        self._loader = loader
        self._workers = workers
        self._prefetch = prefetch
        self._groups: Any = None  # an iterator of groups of finished batches
        self._progress = loader._progress
        self._ready = self._progress.ready
        self._closed = False

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Batch:
        # Nothing else happens for most batches: a batch is copied in 16 µs.
        ready = self._ready
        if not ready:
            ready = self._refill()
        return ready.pop()

    def _refill(self) -> list[Batch]:
        if self._closed:
            raise LoaderError(_CLOSED)
        self.start_prefetch()
        progress, groups = self._progress, self._groups
        try:
            made = next(groups)
        except BaseException:
            if self._groups is groups:
                self._stop()
            raise
        if self._groups is not groups:  # closed or set anew by another thread while this one was reading
            raise LoaderError(_CLOSED)
        progress.refill(*made)
        return progress.ready

    def start_prefetch(self) -> None:
        """Starts the threads now, not at the first batch."""
        if self._groups is not None or self._closed:
            return
        loader = self._loader
        reader = loader._reader
        groups = loader._steps.groups(loader._cursor, reader.stream.size_of, reader.group_length)
        # A function of the reader, not a method: threads that knew the iterator would keep it alive, and so themselves.
        make = functools.partial(_make, reader)
        if self._workers:
            depth = max(1, -(-self._prefetch // reader.group_length))
            self._groups = OrderedPrefetcher(make, groups, workers=self._workers, depth=depth)
        else:
            self._groups = map(make, groups)

    def restart(self) -> None:
        """Forgets what was made ahead: the loader's cursor or rates were set anew."""
        self._stop()
        self._progress = self._loader._progress
        self._ready = self._progress.ready

    def close(self) -> None:
        """Ends the threads; the iterator gives nothing more. The loader's cursor stays where it is."""
        self._stop()
        self._closed = True

    def __enter__(self) -> LoaderIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ready_batches(self) -> int | None:
        """Batches that can be had without a wait; None where nothing is made ahead (`workers=0`).

        Groups that threads have finished count as full ones.
        """
        if not self._workers:
            return None
        groups = self._groups.ready if isinstance(self._groups, OrderedPrefetcher) else 0
        return len(self._ready) + groups * self._loader._reader.group_length

    def get_state(self) -> bytes:
        return self._loader.get_state()

    def set_state(self, state: bytes | str) -> None:
        self._loader.set_state(state)

    def state_dict(self) -> dict[str, Any]:
        return self._loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loader.load_state_dict(state_dict)

    def _stop(self) -> None:
        if isinstance(self._groups, OrderedPrefetcher):
            self._groups.close()
        self._groups = None
        self._progress.forget()


def _make(reader: BatchReader, steps: Steps) -> _Made:
    return steps, reader.read(steps)
