"""Elements copied to a device ahead of their use, by threads or, where that costs less, by the consumer itself.

    source ──thread──► host buffer ──thread──► device buffer ──► consumer          elements that take long
    source ──────────────────────────────────► device buffer ──► consumer          quick ones

`DeviceCopies` is the seam: how elements get to a device. Each framework has its own, and tests put a device in its
place that is slow and overwrites what may not be read any more.

tf.data reads ahead by itself. TensorFlow copies to a GPU with `cuMemcpyHtoDAsync` on a stream of its own, which returns
before the copy has ended, and overlaps with kernels, only if the source is pinned. One operation of tf.data allocates
its results so wherever it stands, `MapAndBatch` (it asks for `gpu_compatible` memory); `Batch`, `Map` and
`numpy_function` take ordinary memory. So `pinned` makes a batch of one of every element, and drops the axis again
without a copy.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import statistics
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Protocol, TypeVar

from beam_pipes.errors import LoaderError
from beam_pipes.extras import TfDataset, TfTensor, require
from beam_pipes.loader.prefetch import OrderedPrefetcher
from beam_pipes.loader.state import StateDict
from beam_pipes.on_device.conversions import Nested

T = TypeVar("T")
U = TypeVar("U")

#: Elements that take fewer seconds, read and handed to the device, are made by the consumer. On an H200 two threads
#: that hand over an element of 128 KiB cost a loop of small steps 0.1 to 0.5 ms, since they want the interpreter's
#: lock while it starts kernels; the same work in the loop itself takes 0.06 ms.
DIRECT_SECS = 0.0002
_LOOKED_AT = 32
# What a few elements may take before threads take over, the slowest of them, often the first, not counted.
_PATIENCE_SECS = 0.05

# An element, and the native loader's state after it, computed when it is asked for.
Mark = Callable[[], StateDict]
Stated = tuple[Nested, Mark | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrefetchOptions:
    """How many elements each buffer keeps ready, on the host and on the device; its thread holds one more."""

    host_buffer: int = 2
    device_buffer: int = 2

    def __post_init__(self) -> None:
        for name in ("host_buffer", "device_buffer"):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise LoaderError(f"prefetching needs a {name} of at least 1 element, got {size!r}.")


def read_ahead(
    function: Callable[[T], U], items: Iterable[T], size: int, *, name: str = "prefetch"
) -> OrderedPrefetcher[T, U]:
    """`function` of the items, from a thread that stays up to `size` results ahead, with one more in progress."""
    return OrderedPrefetcher(function, iter(items), workers=1, depth=size + 1, name=f"beam-pipes-{name}")


class DeviceCopies(Protocol):
    """How elements get to a device."""

    def copy(self, host: Nested, *, here: bool) -> Nested:
        """Starts the copy of an element whose memory is not used again, and returns at once where the device can.

        `here`: in the thread of the consumer, and not in another one.
        """

    def received(self, copying: Nested) -> Nested:
        """In the consumer's thread: the arrays of a copy, for whatever this thread does next. Called in order, once."""


@dataclasses.dataclass(frozen=True)
class PlainCopies:
    """Copies by one function, in any thread, that are done when it returns."""

    place: Callable[[Nested], Nested]

    def copy(self, host: Nested, *, here: bool) -> Nested:
        return self.place(host)

    def received(self, copying: Nested) -> Nested:
        return copying


class PlacedAhead:
    """Iterates over (copy under way, state after the element), in order, `device_buffer` of them ahead.

    The consumer makes them itself, one or two at each call, while most take less than `DIRECT_SECS`: what a device
    copies by itself overlaps with its work all the same. Otherwise two threads make them, as many again ahead on the
    host. An error is raised where its element was due.
    """

    def __init__(
        self,
        elements: Iterator[Nested],
        hosted: Callable[[Nested], Stated],
        copies: DeviceCopies,
        options: PrefetchOptions,
    ) -> None:
        self._elements = elements
        self._hosted = hosted
        self._copies = copies
        self._options = options
        self._is_direct = True
        self._threads: OrderedPrefetcher[tuple[Stated, float], Stated] | None = None
        self._made: collections.deque[Stated] = collections.deque()  # by the consumer
        self._lead = 0  # how many of them to be ahead: one more at each call, so that the first comes at once
        self._end: Exception | None = None  # what follows them, in place of an element
        self._secs: collections.deque[float] = collections.deque(maxlen=_LOOKED_AT)

    def __iter__(self) -> PlacedAhead:
        return self

    def __next__(self) -> Stated:
        while True:
            if self._threads is None:
                self._make()
            if self._made:
                return self._made.popleft()
            if self._threads is None:
                assert self._end is not None
                raise self._end
            if len(self._secs) == _LOOKED_AT:
                self._is_direct = statistics.median(self._secs) < DIRECT_SECS
                self._secs.clear()
            try:
                return next(self._threads)
            except StopIteration:
                if not self._is_direct:
                    raise
                self._threads, self._lead = None, 0

    def _make(self) -> None:
        while self._end is None and self._threads is None and len(self._made) <= self._lead:
            began = time.perf_counter()
            try:
                host, state = self._hosted(next(self._elements))
                self._made.append((self._copies.copy(host, here=True), state))
            except Exception as error:
                self._end = error
                return
            secs = time.perf_counter() - began
            self._secs.append(secs)
            if secs > 2 * DIRECT_SECS and self._are_slow():
                self._start_threads()
        self._lead = min(self._lead + 1, self._options.device_buffer)

    def _are_slow(self) -> bool:
        secs = self._secs
        is_typical = len(secs) == _LOOKED_AT and statistics.median(secs) > 2 * DIRECT_SECS
        return is_typical or sum(secs) - max(secs) > _PATIENCE_SECS

    def _start_threads(self) -> None:
        self._is_direct = False
        self._secs.clear()
        copies, hosted, secs_of = self._copies, self._hosted, self._secs

        def on_host(read: tuple[Nested, float]) -> tuple[Stated, float]:
            began = time.perf_counter()
            return hosted(read[0]), read[1] + time.perf_counter() - began

        def on_device(made: tuple[Stated, float]) -> Stated:
            (host, state), secs = made
            began = time.perf_counter()
            copying = copies.copy(host, here=False)
            secs_of.append(secs + time.perf_counter() - began)
            return copying, state

        on_the_host = read_ahead(on_host, self._read(), self._options.host_buffer, name="host")
        self._threads = read_ahead(on_device, on_the_host, self._options.device_buffer, name="device")

    def _read(self) -> Generator[tuple[Nested, float], None, None]:
        """The elements for threads, until they are quick."""
        try:
            while not self._is_direct:
                began = time.perf_counter()
                try:
                    element = next(self._elements)
                except StopIteration as end:
                    self._end = end
                    return
                yield element, time.perf_counter() - began
        finally:
            if not self._is_direct:
                self._close_elements()

    def _close_elements(self) -> None:
        close = getattr(self._elements, "close", None)
        if callable(close):
            close()

    @property
    def ready(self) -> int:
        """Elements that are ready to be taken."""
        return len(self._made) + (0 if self._threads is None else self._threads.ready)

    def close(self, *, most_secs: float | None = None) -> None:
        """Ends the iteration and its threads, and waits (at most `most_secs`, if given) for their current work."""
        self._end = self._end or StopIteration()
        self._made.clear()
        if self._threads is None:
            self._close_elements()
        else:
            self._threads.close(most_secs=most_secs)


def pinned(dataset: TfDataset) -> TfDataset:
    """The elements, copied into memory that is pinned if TensorFlow has a GPU; unchanged if they hold text."""
    tf = require("tensorflow", purpose="DataLoader.prefetch_to_devices")
    batching = getattr(tf.data.experimental, "map_and_batch", None)  # deprecated, and without a replacement that pins
    specs = tf.nest.flatten(dataset.element_spec)
    if batching is None or not all(isinstance(spec, tf.TensorSpec) and spec.dtype != tf.string for spec in specs):
        return dataset
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it would name the deprecation
    try:
        as_they_are = tf.autograph.experimental.do_not_convert(lambda *element: element if element[1:] else element[0])
        batched = dataset.apply(batching(as_they_are, batch_size=1, num_parallel_calls=1))
    finally:
        logger.setLevel(level)

    def without_axis(*element: TfTensor) -> TfTensor:
        dropped = tf.nest.map_structure(lambda tensor: tf.squeeze(tensor, 0), element)
        return dropped if dropped[1:] else dropped[0]

    return batched.map(tf.autograph.experimental.do_not_convert(without_axis))


def copied(dataset: TfDataset, copies: DeviceCopies) -> TfDataset:
    """The elements through `copies`, whose arrays tf.data takes over."""
    tf = require("tensorflow", purpose="DataLoader.prefetch_to_devices")
    spec = dataset.element_spec
    specs = tf.nest.flatten(spec)

    def copy(*arrays: object) -> object:
        return copies.received(copies.copy(list(arrays), here=False))

    def through(*element: TfTensor) -> TfTensor:
        flat = tf.numpy_function(copy, tf.nest.flatten(element), [each.dtype for each in specs], stateful=True)
        shaped = [tf.ensure_shape(value, each.shape) for value, each in zip(flat, specs, strict=True)]
        return tf.nest.pack_sequence_as(spec, shaped)

    return dataset.map(tf.autograph.experimental.do_not_convert(through))
