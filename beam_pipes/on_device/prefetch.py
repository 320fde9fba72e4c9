"""Elements made ahead of their use on threads, in bounded buffers.

A `Stage` is one thread and one buffer. Two of them in a row overlap reading (host) with placing (device):

    source ──thread──► host buffer ──thread──► device buffer ──► consumer
"""

from __future__ import annotations

import atexit
import collections
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from beam_pipes.errors import LoaderError
from beam_pipes.loader.prefetch import Waiting, thread_place

T = TypeVar("T")
U = TypeVar("U")

# How long a waiting side sleeps before it looks whether the other side is still there.
LOOK_SECONDS = 0.2
JOIN_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrefetchOptions:
    """How many elements wait on the host and on the device; each buffer holds that many, its thread one more."""

    host_buffer: int = 2
    device_buffer: int = 2

    def __post_init__(self) -> None:
        for name in ("host_buffer", "device_buffer"):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise LoaderError(f"prefetching needs a {name} of at least 1 element, got {size!r}.")


class _Buffer(Generic[T]):
    """What the producing thread and the consumer share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.items: collections.deque[T] = collections.deque()
        self.changed = threading.Condition()
        self.closed = False
        self.ended = False
        self.error: BaseException | None = None

    def put(self, item: T) -> bool:
        """False when nobody wants items any more."""
        with self.changed:
            while len(self.items) >= self.size and not self.closed:
                self.changed.wait(LOOK_SECONDS)  # for as long as the consumer does something else
            if self.closed:
                return False
            self.items.append(item)
            self.changed.notify_all()
            return True

    def end(self, error: BaseException | None) -> None:
        with self.changed:
            self.ended, self.error = True, error
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.items.clear()
            self.changed.notify_all()


class Stage(Generic[T]):
    """An iterator over `items` that a thread keeps up to `size` items ahead.

    An error of `items` is raised after the items in front of it, as it was raised. `close()`, leaving a `with` block or
    dropping the stage ends the thread as soon as the item in work is done. A consumer that waits notices a thread
    that is gone (a process forked while prefetching has no threads) and raises `LoaderError`.
    """

    def __init__(self, items: Iterable[T], size: int, *, name: str = "prefetch") -> None:
        self._buffer: _Buffer[T] = _Buffer(size)
        self._upstream = items if isinstance(items, Stage) else None
        self._thread = threading.Thread(
            target=_produce, args=(self._buffer, items), name=f"beam-pipes-{name}", daemon=True
        )
        _open_stages.add(self)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        buffer = self._buffer
        waiting: Waiting | None = None
        with buffer.changed:
            while not buffer.items:
                if buffer.closed:
                    raise StopIteration
                if buffer.ended:
                    error, buffer.error = buffer.error, None
                    if error is not None:
                        raise error
                    raise StopIteration
                waiting = waiting or Waiting(lambda: thread_place(self._thread))
                if buffer.changed.wait(LOOK_SECONDS):
                    continue
                waiting.look()
                if not self._thread.is_alive() and not buffer.ended:
                    buffer.closed = True
                    raise LoaderError(
                        "the prefetching thread is gone without having ended or failed; was this process forked while "
                        "it was prefetching? Make the iterator in the process that uses it."
                    )
            item = buffer.items.popleft()
            buffer.changed.notify_all()
            return item

    @property
    def ready(self) -> int:
        """Elements that wait to be taken."""
        return len(self._buffer.items)

    def map(self, function: Callable[[T], U], size: int, *, name: str) -> Stage[U]:
        """A second stage that applies `function` on a thread of its own; closing it closes this one."""
        stage: Stage[U] = Stage((function(item) for item in self), size, name=name)
        stage._upstream = self
        return stage

    def close(self) -> None:
        """Ends the thread and drops what waits in the buffer; done twice it does nothing."""
        self._buffer.close()
        if self._upstream is not None:
            self._upstream.close()
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_SECONDS)

    def __enter__(self) -> Stage[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if "_thread" in self.__dict__ and self._thread.is_alive():
            self.close()


def _produce(buffer: _Buffer[T], items: Iterable[T]) -> None:
    iterator: Iterator[T] | None = None
    failure: BaseException | None = None
    try:
        iterator = iter(items)
        for item in iterator:
            wanted = buffer.put(item)
            del item  # a waiting thread must not keep the last batch's memory
            if not wanted:
                break
    except BaseException as error:
        failure = error
    try:
        close = getattr(iterator, "close", None)
        if callable(close):
            close()
    except BaseException as error:
        failure = failure or error
    buffer.end(failure)


_open_stages: weakref.WeakSet[Stage[Any]] = weakref.WeakSet()


@atexit.register
def _close_open_stages() -> None:
    # A thread inside TensorFlow, JAX or CUDA while the interpreter goes away crashes it.
    for stage in list(_open_stages):
        stage.close()
