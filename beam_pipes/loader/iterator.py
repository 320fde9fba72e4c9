"""The iterator of a loader: batches from its cursor on, made by threads ahead of their use if so asked."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import LoaderError
from beam_pipes.loader.batches import Batch
from beam_pipes.loader.prefetch import OrderedPrefetcher

if TYPE_CHECKING:
    from beam_pipes.loader.loader import Cursor, Loader

    _Task = tuple[Cursor, int, Cursor]


class LoaderIterator:
    """Yields the batches of a loader and moves its cursor; has the loader's state methods.

    Close it, exhaust it or drop it: each ends its threads.
    """

    def __init__(self, loader: Loader, *, workers: int, prefetch: int) -> None:
        self._loader = loader
        self._workers = workers
        self._prefetch = prefetch
        self._prefetcher: OrderedPrefetcher[_Task, tuple[Batch, Cursor]] | None = None
        self._closed = False

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Batch:
        if self._closed:
            raise LoaderError(
                "this iterator was closed, or replaced by a newer one of the same loader; call iter(loader) again"
            )
        loader = self._loader
        if not self._workers:
            task = loader._next_batch(loader._cursor)
            if task is None:
                raise StopIteration
            batch, cursor = _make(loader, task)
        else:
            self.start_prefetch()
            assert self._prefetcher is not None
            try:
                batch, cursor = next(self._prefetcher)
            except StopIteration:
                self._stop()
                raise
        loader._cursor = cursor
        return batch

    def start_prefetch(self) -> None:
        """Starts the threads now, not at the first batch."""
        if self._workers and self._prefetcher is None and not self._closed:
            self._prefetcher = OrderedPrefetcher(
                functools.partial(_make, self._loader),
                _tasks(self._loader, self._loader._cursor),
                workers=self._workers,
                depth=self._prefetch,
            )

    def restart(self) -> None:
        """Forgets what was prefetched: the loader's cursor or rates were set anew."""
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
        if self._prefetcher is not None:
            self._prefetcher.close()
            self._prefetcher = None


# Functions of the loader, not methods: threads that knew the iterator would keep it alive, and so themselves.


def _make(loader: Loader, task: _Task) -> tuple[Batch, Cursor]:
    cursor, rows, following = task
    return loader._read(cursor, rows), following


def _tasks(loader: Loader, cursor: Cursor) -> Iterator[_Task]:
    while (task := loader._next_batch(cursor)) is not None:
        yield task
        cursor = task[2]
