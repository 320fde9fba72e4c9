"""Work done ahead of its use, by threads, delivered in order.

Bounded: at most `depth` results wait. An exception is raised where its result was due, later results are not computed.
No wait is silent: every one wakes up to see whether the other side is still alive, and says who is late.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from beam_pipes.errors import LoaderError
from beam_pipes.loader.waiting import LOOK_SECS, Waiting, join_saying_who, thread_place

Task = TypeVar("Task")
Result = TypeVar("Result")


class OrderedPrefetcher(Generic[Task, Result]):
    """Iterates over `function(task)` for each task, in order, computed by `workers` threads up to `depth` ahead.

    Threads suit work that releases the interpreter lock (copies, reads, decompression). `close()`, leaving the object
    to the garbage collector, and the end of the tasks all end the threads.
    """

    def __init__(self, function: Callable[[Task], Result], tasks: Iterator[Task], *, workers: int, depth: int) -> None:
        self._shared = shared = _Shared(function, tasks, max(depth, workers))
        self._threads = [
            threading.Thread(target=_work, args=(shared,), name=f"beam_pipes-prefetch-{index}", daemon=True)
            for index in range(workers)
        ]
        # The threads know only `shared`, so that an abandoned prefetcher is collected and stops them.
        self._finalizer = weakref.finalize(self, shared.stop)
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> OrderedPrefetcher[Task, Result]:
        return self

    def __next__(self) -> Result:
        shared = self._shared
        waiting: Waiting | None = None
        with shared.changed:
            while shared.delivered not in shared.results:
                if shared.stopped:
                    raise StopIteration
                if shared.exhausted_at is not None and shared.delivered >= shared.exhausted_at:
                    raise StopIteration
                if not any(thread.is_alive() for thread in self._threads):
                    raise LoaderError("all prefetch threads ended without a result; was the interpreter shut down?")
                waiting = waiting or Waiting(self._who_is_late)
                if not shared.changed.wait(LOOK_SECS):
                    waiting.look()
            result, error = shared.results.pop(shared.delivered)
            shared.delivered += 1
            shared.changed.notify_all()
        if error is not None:
            self.close()
            raise error
        return result  # type: ignore[return-value]  # None only beside an error

    @property
    def ready(self) -> int:
        """Results that wait to be taken."""
        return len(self._shared.results)

    def close(self) -> None:
        """Ends the threads, and waits for what they are doing at the moment."""
        self._shared.stop()
        for thread in self._threads:
            if thread is not threading.current_thread():
                join_saying_who(thread)

    def _who_is_late(self) -> str:
        return "; ".join(thread_place(thread) for thread in self._threads if thread.is_alive())


class _Shared(Generic[Task, Result]):
    def __init__(self, function: Callable[[Task], Result], tasks: Iterator[Task], depth: int) -> None:
        self.function = function
        self.tasks = tasks
        self.depth = depth
        self.changed = threading.Condition()
        self.results: dict[int, tuple[Result | None, BaseException | None]] = {}
        self.taken = 0
        self.delivered = 0
        self.exhausted_at: int | None = None
        self.stopped = False

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def take(self) -> tuple[int, Task] | None:
        """The next task and its number; None when there is nothing more to do."""
        with self.changed:
            while not self.stopped and self.exhausted_at is None and self.taken - self.delivered >= self.depth:
                self.changed.wait(LOOK_SECS)
            if self.stopped or self.exhausted_at is not None:
                return None
            try:
                task = next(self.tasks)
            except StopIteration:
                self.exhausted_at = self.taken
                self.changed.notify_all()
                return None
            except BaseException as error:  # noqa: B036 - handed to the consumer, as those of the function are
                self.results[self.taken] = (None, error)
                self.exhausted_at = self.taken + 1
                self.changed.notify_all()
                return None
            number = self.taken
            self.taken += 1
            return number, task

    def put(self, number: int, result: Result | None, error: BaseException | None) -> None:
        with self.changed:
            self.results[number] = (result, error)
            if error is not None:
                self.exhausted_at = min(number + 1, self.exhausted_at or number + 1)
            self.changed.notify_all()


def _work(shared: _Shared[Task, Result]) -> None:
    while (work := shared.take()) is not None:
        number, task = work
        try:
            result = shared.function(task)
        except BaseException as error:  # noqa: B036 - handed to the consumer, which raises it
            shared.put(number, None, error)
            return
        shared.put(number, result, None)
