"""Work prepared ahead by threads, delivered in order; with the waits and iterators that belong to it.

    tasks ──take──► worker threads (at most `depth` ahead) ──put──► results by number ──► consumer, in order

All loaders that prefetch on threads use `OrderedPrefetcher`. Its guarantees: results come in the order
of the tasks; at most `depth` of them wait; an exception is raised where its result was due, and later results are not
computed; closing it, dropping it and reaching the end all end its threads.

`MadeAhead` uses it where results take long enough, and makes quick ones on request.

With `Waiting`, no wait is silent: each wakes up to check that the other side is alive, and after five minutes prints to
standard error what it waits for. The user decides whether that is too long: a batch may legitimately take minutes.

Loaders return a `SharedIterator`: a generator that several threads may share.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import os
import signal
import statistics
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

from beam_pipes.errors import LoaderError

# Far longer than a batch takes; the same as a build waits for a sign of life from a source shard.
LATE_SECS = 300.0

# How long a waiting side sleeps before it checks who is late, and whether the other side is there at all.
LOOK_SECS = 0.5


class Waiting:
    """One wait: created when it begins, checked in between.

        waiting = Waiting(lambda: f"worker process 3 is at examples {indices}")
        while not ready(timeout=LOOK_SECS):
            waiting.look()

    After `late_secs` (300) a line on standard error says how long nothing has come and what `who` returns, and again
    after each such period.
    """

    def __init__(
        self,
        who: Callable[[], str],
        *,
        late_secs: float | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self._who = who
        self._late_secs = LATE_SECS if late_secs is None else late_secs
        self._report = report if report is not None else _print
        self._since = time.monotonic()
        self._told = self._since

    def look(self) -> None:
        """Reports if it is time to."""
        now = time.monotonic()
        if now - self._told >= self._late_secs:
            self._told = now
            self._report(f"beam-pipes: nothing has come for {now - self._since:.0f} s; {self._who()}.")


def thread_place(thread: threading.Thread) -> str:
    """What a thread is doing, in words: `thread beam_pipes-prefetch-0 is at shard_store.py, line 74, in _copy`."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return f"thread {thread.name} has ended"
    code = frame.f_code
    return f"thread {thread.name} is at {os.path.basename(code.co_filename)}, line {frame.f_lineno}, in {code.co_name}"


def join_saying_who(thread: threading.Thread, *, who: Callable[[], str] | None = None) -> None:
    """Joins a thread that is about to end; while it does not, reports what it is doing, or what `who` returns."""
    waiting = Waiting(who or (lambda: f"{thread_place(thread)}, and has been asked to end"))
    while thread.is_alive():
        thread.join(LOOK_SECS)
        waiting.look()


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Ctrl-C inside the block takes effect after it; blocks may be nested.

    Python runs its handler in the main thread whichever thread a signal reaches, so masking only that thread would not
    hold it back if a library has threads. Does nothing in other threads, where no `KeyboardInterrupt` is raised, nor if
    the handler is not Python's, because it could not be restored.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)


T = TypeVar("T")
Task = TypeVar("Task")
Result = TypeVar("Result")


class OrderedPrefetcher(Generic[Task, Result]):
    """Iterates over `function(task)` for each task, in order, computed by `workers` threads up to `depth` ahead.

        for image in OrderedPrefetcher(decode, iter(files), workers=4, depth=8): ...

    Threads suit work that releases the interpreter lock (copies, reads, decompression). Tasks are taken one at a time,
    by any free thread; a generator of them is closed by the thread that took the last. `close()`, leaving the
    object to the garbage collector, and the end of the tasks all end the threads, and so does the end of the process:
    a thread inside TensorFlow, JAX or CUDA would crash an interpreter that is shutting down. Prefetchers may read from
    each other: closing one closes the one that supplies its tasks.

    An error of the function or of the tasks is raised unchanged, after earlier results. A waiting consumer notices dead
    threads (a process forked while prefetching has none) and raises `LoaderError`. A long wait reports the next task in
    the words of `describe`, by default the place of each thread.
    """

    def __init__(
        self,
        function: Callable[[Task], Result],
        tasks: Iterator[Task],
        *,
        workers: int,
        depth: int,
        name: str = "beam_pipes-prefetch",
        describe: Callable[[Task], str] | None = None,
    ) -> None:
        self._upstream = tasks if isinstance(tasks, OrderedPrefetcher) else None
        self._shared = shared = _Shared(function, tasks, max(depth, workers))
        self._threads = [
            threading.Thread(target=_work, args=(shared,), name=f"{name}-{index}", daemon=True)
            for index in range(workers)
        ]
        # The threads know only `shared`, so that an abandoned prefetcher is collected and stops them.
        self._describe = describe
        keep_freed_memory()
        self._finalizer = weakref.finalize(self, shared.stop)
        _open_prefetchers.add(self)
        with interrupts_held_back():  # an interrupted start() would leave a thread that waits for its starter
            for thread in self._threads:
                thread.start()
                _threads_at_work.add(thread)

    def __iter__(self) -> OrderedPrefetcher[Task, Result]:
        return self

    def __next__(self) -> Result:
        shared = self._shared
        waiting: Waiting | None = None
        at_work = True
        while (delivered := shared.deliver()) is None:
            if shared.ended:
                raise StopIteration
            if not at_work:  # before that look: threads that end have left their results
                raise LoaderError(
                    "the prefetching threads are gone without having ended or failed; was this process forked "
                    "while it was prefetching? Make the iterator in the process that uses it."
                )
            waiting = waiting or Waiting(self._who_is_late)
            if not shared.news.acquire(timeout=LOOK_SECS):
                waiting.look()
            at_work = any(thread.is_alive() for thread in self._threads)
        result, error = delivered
        if isinstance(error, StopIteration):
            self.close()
            raise RuntimeError("what was prefetched raised StopIteration, which would look like its end") from error
        if error is not None:
            self.close()
            raise error
        return result  # type: ignore[return-value]  # None only beside an error

    @property
    def ready(self) -> int:
        """Results that are ready to be taken."""
        return len(self._shared.results)

    def close(self, *, most_secs: float | None = None) -> None:
        """Ends the threads, and waits (at most `most_secs`, if given) for their current work."""
        self._shared.stop()
        if self._upstream is not None:
            self._upstream.close(most_secs=most_secs)
        for thread in set(self._threads) - {threading.current_thread()}:
            if most_secs is None:
                join_saying_who(thread, who=self._who_is_late if self._describe is not None else None)
            else:
                thread.join(most_secs)

    def _who_is_late(self) -> str:
        at_work = dict(self._shared.at_work)
        if self._describe is not None and at_work:
            return self._describe(at_work[min(at_work)])
        return "; ".join(thread_place(thread) for thread in self._threads if thread.is_alive())


@functools.cache
def keep_freed_memory() -> None:
    """Lets glibc keep memory that batches free for the next ones, up to 64 MB, instead of returning it to the kernel.

    glibc returns everything beyond twice the largest block that it has ever mapped and freed, 32 MB at most, so a block
    of that size is mapped and freed here. Its pages are never touched, and cost nothing; fresh pages for each batch
    cost up to a third of its time.
    """
    np.empty(31 << 20, np.uint8)


class _Shared(Generic[Task, Result]):
    """The state shared by threads and consumer. `pulling` is held while a task is taken, `lock` only briefly.

    The consumer is often the main thread, where Ctrl-C may raise inside any function written in Python. So it enters
    `lock`, which is C, and never `changed`: interrupted inside `Condition.__enter__` it would keep the lock, and the
    threads would never end; interrupted inside `Condition.wait` it would release a lock that it does not hold. It
    waits for `news`, a lock that is free while something may have changed.
    """

    def __init__(self, function: Callable[[Task], Result], tasks: Iterator[Task], depth: int) -> None:
        self.function = function
        self.tasks = tasks
        self.depth = depth
        self.pulling = threading.Lock()
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.news = threading.Lock()
        self.results: dict[int, tuple[Result | None, BaseException | None]] = {}
        self.at_work: dict[int, Task] = {}
        self.taken = 0
        self.delivered = 0
        self.exhausted_at: int | None = None
        self.stopped = False

    @property
    def ended(self) -> bool:
        """Whether nothing more will be delivered."""
        return self.stopped or (self.exhausted_at is not None and self.delivered >= self.exhausted_at)

    def deliver(self) -> tuple[Result | None, BaseException | None] | None:
        """The next result, or None if it is not ready: `news` is released when something has changed."""
        with self.lock:
            number = self.delivered
            if number not in self.results:
                if self.ended:
                    self._announce()  # for others who wait
                else:
                    self.news.acquire(blocking=False)
                return None
            self.delivered = number + 1  # first: an interrupt may lose a result, and the next one is still due
            delivered = self.results.pop(number)
            if self.delivered in self.results:
                self._announce()
            self.changed.notify_all()
            return delivered

    def _announce(self) -> None:
        """Wakes the consumer; `lock` is held."""
        if self.news.locked():
            self.news.release()

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            self.results.clear()
            self._announce()
            self.changed.notify_all()

    def take(self) -> tuple[int, Task] | None:
        """The next task and its number; None when there is nothing more to do."""
        with self.pulling:
            with self.changed:
                while not self.stopped and self.exhausted_at is None and self.taken - self.delivered >= self.depth:
                    self.changed.wait(LOOK_SECS)
                if self.stopped or self.exhausted_at is not None:
                    self._end(None)
                    return None
            # Not while holding the lock: making a task may take long, and the consumer can take earlier results
            # meanwhile.
            try:
                task = next(self.tasks)
            except StopIteration:
                self._end(None)
                return None
            except BaseException as error:  # noqa: B036 - handed to the consumer, as those of the function are
                self._end(error)
                return None
            with self.changed:
                number = self.taken
                self.taken += 1
                self.at_work[number] = task
            return number, task

    def _end(self, error: BaseException | None) -> None:
        """No more tasks are taken; the first thread that sees it closes their generator."""
        tasks, self.tasks = self.tasks, iter(())
        try:
            close = None if isinstance(tasks, OrderedPrefetcher) else getattr(tasks, "close", None)
            if callable(close):
                close()
        except BaseException as failure:  # noqa: B036 - handed to the consumer
            error = error or failure
        with self.changed:
            if error is not None and self.exhausted_at is None:
                self.results[self.taken] = (None, error)
                self.exhausted_at = self.taken + 1
            elif self.exhausted_at is None:
                self.exhausted_at = self.taken
            self._announce()
            self.changed.notify_all()

    def put(self, number: int, result: Result | None, error: BaseException | None) -> None:
        with self.changed:
            del self.at_work[number]
            if self.stopped:
                return
            self.results[number] = (result, error)
            if error is not None:
                self.exhausted_at = min(number + 1, self.exhausted_at or number + 1)
            self._announce()
            self.changed.notify_all()


def _work(shared: _Shared[Task, Result]) -> None:
    while (work := shared.take()) is not None:
        number, task = work
        try:
            result = shared.function(task)
        except BaseException as error:  # noqa: B036 - handed to the consumer, which raises it
            shared.put(number, None, error)
            shared.take()  # ends the tasks
            return
        shared.put(number, result, None)
        del work, task, result  # a waiting thread must not keep a batch in memory


_open_prefetchers: weakref.WeakSet[OrderedPrefetcher[Any, Any]] = weakref.WeakSet()
# Includes those of prefetchers that are gone: leaving a loop drops its prefetcher, whose threads are asked to end, but
# first finish what they have begun.
_threads_at_work: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
# How long the end of a process waits for its threads.
END_SECS = 5.0


@atexit.register
def _close_open_prefetchers() -> None:
    for prefetcher in list(_open_prefetchers):
        prefetcher.close(most_secs=END_SECS)
    latest = time.monotonic() + END_SECS
    for thread in list(_threads_at_work):
        thread.join(max(0.0, latest - time.monotonic()))


#: Results that take fewer seconds are made on request. A thread that hands one over takes 0.05 ms of two processors and
#: waits for the interpreter lock; a training step hides neither, and does not notice half a millisecond.
QUICK_SECS = 0.0005
# Number of results before a decision; by their median, because some of them wait for other processes.
_LOOKED_AT = 32


class MadeAhead(Generic[Task, Result]):
    """Iterates over (task, `function(task)`) for each of `tasks`, in order: by threads, or on request where quicker.

    Begins with `workers` threads that prepare up to `depth` results ahead. If most of the last ones took less than
    `QUICK_SECS`, the next ones are made on request, until most of them take more than twice that. `is_quick` is the
    current mode, and the initial one. It affects no result, and none is made twice.
    """

    def __init__(
        self,
        function: Callable[[Task], Result],
        tasks: Iterator[Task],
        *,
        workers: int,
        depth: int,
        is_quick: bool = False,
    ) -> None:
        self._function = function
        self._tasks = tasks
        self._workers, self._depth = workers, depth
        self._secs: collections.deque[float] = collections.deque(maxlen=_LOOKED_AT)
        self._threads: OrderedPrefetcher[Task, tuple[Task, Result]] | None = None
        self.is_quick = is_quick
        if not is_quick:
            self._start_threads()

    def _start_threads(self) -> None:
        self._threads = OrderedPrefetcher(self._timed, self._to_threads(), workers=self._workers, depth=self._depth)

    def _to_threads(self) -> Iterator[Task]:
        while not self.is_quick:
            try:
                yield next(self._tasks)
            except StopIteration:
                return

    def _timed(self, task: Task) -> tuple[Task, Result]:
        start = time.perf_counter()
        made = self._function(task)
        self._secs.append(time.perf_counter() - start)
        return task, made

    def __iter__(self) -> MadeAhead[Task, Result]:
        return self

    def __next__(self) -> tuple[Task, Result]:
        if len(self._secs) == _LOOKED_AT:
            self._decide()
        if self._threads is not None:
            try:
                return next(self._threads)
            except StopIteration:
                # At their end, or asked to stop: then everything made ahead was returned.
                self._threads = None
        return self._timed(next(self._tasks))

    def _decide(self) -> None:
        typical = statistics.median(tuple(self._secs))
        self._secs.clear()
        self.is_quick = typical < (2 * QUICK_SECS if self.is_quick else QUICK_SECS)
        if not self.is_quick and self._threads is None:
            self._start_threads()

    def close(self) -> None:
        """Ends the threads, and with them the iteration."""
        threads, self._threads, self._tasks = self._threads, None, iter(())
        if threads is not None:
            threads.close()


CLOSED = "this iterator was closed, or replaced by a newer one of the same loader; call iter(loader) again"


def not_copied(what: str, remedy: str) -> LoaderError:
    """The error for pickling or copying something that belongs to this process: its threads and its position."""
    return LoaderError(f"{what} belongs to its process and cannot be pickled or copied. {remedy}")


class SharedIterator(Generic[T]):
    """A generator that threads may share: each element is returned once, in the order of the calls.

    Threads that call `next()` on a bare generator at the same time get "ValueError: generator already executing".
    """

    def __init__(self, elements: Generator[T, None, None]) -> None:
        self._elements = elements
        self._lock = threading.RLock()
        self._replaced = False

    def __iter__(self) -> SharedIterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            if self._replaced:
                raise LoaderError(CLOSED)
            return next(self._elements)

    def close(self) -> None:
        """Ends the iteration after the element in progress."""
        with self._lock:
            self._elements.close()

    def replace(self) -> None:
        """Ends the iteration because a newer one has begun; using this one then raises an error."""
        with self._lock:
            self._elements.close()
            self._replaced = True

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise not_copied(
            "an iterator", "Pickle or copy the loader itself, or save its state_dict() and call iter(loader) there."
        )
