"""The iterator of a loader: batches from its cursor on, made by threads ahead of their use if so asked."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import LoaderError
from beam_pipes.loader.batches import Batch
from beam_pipes.loader.prefetch import OrderedPrefetcher
from beam_pipes.loader.reader import BatchReader
from beam_pipes.loader.steps import Steps

if TYPE_CHECKING:
    from beam_pipes.loader.loader import Loader

_Made = tuple[Steps, list[Batch]]


class LoaderIterator:
    """Yields the batches of a loader and moves its cursor; has the loader's state methods.

    Close it, exhaust it or drop it: each ends its threads.
    """

    def __init__(self, loader: Loader, *, workers: int, prefetch: int) -> None:
        self._loader = loader
        self._workers = workers
        self._prefetch = prefetch
        self._groups: Any = None  # an iterator of groups of finished batches
        self._steps: Steps | None = None  # the group at hand, and what is left of it, last batch first
        self._ready: list[Batch] = []
        self._closed = False

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Batch:
        if not self._ready:
            if self._closed:
                raise LoaderError(
                    "this iterator was closed, or replaced by a newer one of the same loader; call iter(loader) again"
                )
            self.start_prefetch()
            try:
                self._steps, self._ready = next(self._groups)
            except BaseException:
                self._stop()
                raise
        batch = self._ready.pop()
        assert self._steps is not None
        self._loader._cursor = self._steps.cursor_after(self._steps.length - len(self._ready) - 1)
        return batch

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

    def close(self) -> None:
        """Ends the threads; the iterator gives nothing more. The loader's cursor stays where it is."""
        self._stop()
        self._closed = True

    def __enter__(self) -> LoaderIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        self._ready = []


def _make(reader: BatchReader, steps: Steps) -> _Made:
    return steps, reader.read(steps)[::-1]
