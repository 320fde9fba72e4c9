"""`MadeAhead`: batches made ahead by threads, or when they are asked for where that is quicker."""

from __future__ import annotations

import collections
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from beam_pipes.graph.feeding import Work
from beam_pipes.loader.prefetch import OrderedPrefetcher

Batch = TypeVar("Batch")

#: Seconds below which a batch is made when it is asked for. A thread that hands it over takes 0.05 ms of two processors
#: and waits for the interpreter lock; a training step hides neither, and half a millisecond it does not notice.
QUICK_SECS = 0.0005
# So many batches are looked at before a decision; by the median, as some of them wait for other processes.
_LOOKED_AT = 32


class MadeAhead(Generic[Batch]):
    """Iterates over (work, `function(work)`) for each of `works`, in order.

    Begins with `workers` threads that make up to `depth` batches ahead. Where most of the last batches took less than
    `QUICK_SECS`, the next ones are made when they are asked for, until most of them take more than twice that.
    `is_quick` says which way it is, and how it begins. It changes no batch, and none is made twice.
    """

    def __init__(
        self,
        function: Callable[[Work], Batch],
        works: Iterator[Work],
        *,
        workers: int,
        depth: int,
        is_quick: bool = False,
    ) -> None:
        self._function = function
        self._works = works
        self._workers, self._depth = workers, depth
        self._secs: collections.deque[float] = collections.deque(maxlen=_LOOKED_AT)
        self._threads: OrderedPrefetcher[Work, tuple[Work, Batch]] | None = None
        self.is_quick = is_quick
        if not is_quick:
            self._start_threads()

    def _start_threads(self) -> None:
        self._threads = OrderedPrefetcher(self._timed, self._to_threads(), workers=self._workers, depth=self._depth)

    def _to_threads(self) -> Iterator[Work]:
        while not self.is_quick and (work := next(self._works, None)) is not None:
            yield work

    def _timed(self, work: Work) -> tuple[Work, Batch]:
        start = time.perf_counter()
        made = self._function(work)
        self._secs.append(time.perf_counter() - start)
        return work, made

    def __iter__(self) -> MadeAhead[Batch]:
        return self

    def __next__(self) -> tuple[Work, Batch]:
        if len(self._secs) == _LOOKED_AT:
            self._decide()
        if self._threads is not None:
            try:
                return next(self._threads)
            except StopIteration:
                # At their end, or told to stop: then all that they made ahead was given.
                self._threads = None
        return self._timed(next(self._works))

    def _decide(self) -> None:
        typical = statistics.median(tuple(self._secs))
        self._secs.clear()
        self.is_quick = typical < (2 * QUICK_SECS if self.is_quick else QUICK_SECS)
        if not self.is_quick and self._threads is None:
            self._start_threads()

    def close(self) -> None:
        """Ends the threads, and with them the iteration."""
        threads, self._threads, self._works = self._threads, None, iter(())
        if threads is not None:
            threads.close()
