"""Loading ahead on threads of this process."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from typing import Any

from beam_pipes.loader.waiting import LOOK_SECS, Waiting
from beam_pipes.map_style.datasets.base import MapStyle
from beam_pipes.map_style.loader.fetching import load_examples, short

Loaded = tuple[list[int], list[Any]]


def load_on_threads(
    dataset: MapStyle, batches: Iterator[list[int]], epoch: int, *, num_workers: int, prefetch: int
) -> Iterator[Loaded]:
    """Yields `(indices, examples)` of each batch in order, with `num_workers * prefetch` batches under way.

    The threads live as long as this iterator: closing it lets each finish the example it is at, and joins them.
    """
    stopped = threading.Event()

    def load(indices: list[int]) -> list[Any]:
        if not hasattr(dataset, "__getitems__"):
            # One by one, so that a closed iterator waits for an example and not for a batch.
            return [
                example
                for index in indices
                if not stopped.is_set()
                for example in load_examples(dataset, [index], epoch)
            ]
        return load_examples(dataset, indices, epoch)

    pending: deque[tuple[list[int], Future[list[Any]]]] = deque()
    executor = ThreadPoolExecutor(num_workers, thread_name_prefix="transforms-loader")
    try:
        for indices in itertools.islice(batches, num_workers * prefetch):
            pending.append((indices, executor.submit(load, indices)))
        while pending:
            indices, future = pending.popleft()
            _await(future, indices, "a thread of the loader is at examples {}")
            examples = future.result()
            for following in itertools.islice(batches, 1):
                pending.append((following, executor.submit(load, following)))
            yield indices, examples
    finally:
        stopped.set()
        executor.shutdown(wait=False, cancel_futures=True)
        for indices, future in pending:
            _await(future, indices, "a thread of the loader that was closed is still at one of the examples {}")
        executor.shutdown(wait=True)


def _await(future: Future[list[Any]], indices: list[int], where: str) -> None:
    """Waits until a batch is there, and says which examples it is at where that takes long."""
    if future.done():
        return
    waiting = Waiting(lambda: where.format(short(indices)))
    while not wait_for_futures([future], LOOK_SECS).done:
        waiting.look()
