"""A device that is slow and overwrites memory, for `benchmarks.device --fake` and for tests without a GPU.

It stands for what a framework does below our loaders: one engine copies elements in the order in which copies were
begun, each copy takes `copy_secs`, and the host memory of an element is overwritten as soon as it has been copied, as
if it were used again. What is read from memory that nobody owns any more is therefore wrong, and seen.
"""

from __future__ import annotations

import collections
import concurrent.futures
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.on_device.conversions import map_leaves

POISON = 0xA5

Array = npt.NDArray[Any]


class FakeDevice:
    """`DeviceCopies` of a device that does not exist. `made` turns device memory into an array of a framework.

    `most_under_way` is the largest number of elements that were begun and not yet received at one time; `begun_here`
    counts those that the consumer's thread began, `made_count` those whose copy has ended; the copy number `fails_at`
    raises.
    """

    def __init__(
        self, made: Callable[[Array], Any] = np.asarray, *, copy_secs: float = 0.0, fails_at: int | None = None
    ) -> None:
        self._made = made
        self._copy_secs = copy_secs
        self._fails_at = fails_at
        self._engine = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="fake-device")
        self._lock = threading.Lock()
        self._order: collections.deque[int] = collections.deque()
        self.begun = self.begun_here = self.made_count = self.received_count = self.most_under_way = self.bytes = 0

    def copy(self, host: Any, *, here: bool) -> Any:
        """Starts a copy; the engine makes it after those before it."""
        with self._lock:
            number, self.begun = self.begun, self.begun + 1
            self.begun_here += here
            self.most_under_way = max(self.most_under_way, self.begun - self.received_count)
        if number == self._fails_at:
            raise RuntimeError(f"the copy of element {number} failed")
        return number, self._engine.submit(self._copied, host)

    def received(self, copying: Any) -> Any:
        """Waits for the copy, as a stream would."""
        number, copy = copying
        with self._lock:
            if number != self.received_count:
                raise AssertionError(f"element {number} was received as number {self.received_count}")
            self.received_count += 1
        return map_leaves(lambda array, _: self._made(array), copy.result())

    def _copied(self, host: Any) -> Any:
        time.sleep(self._copy_secs)
        made = map_leaves(self._copied_leaf, host)
        self.made_count += 1
        return made

    def _copied_leaf(self, leaf: Any, _: str) -> Array:
        array = np.asarray(leaf)
        on_device = np.array(array)
        self.bytes += array.nbytes
        if not array.flags.writeable:
            raise AssertionError("the memory of an element belongs to the device that copies it, and was read-only")
        array.reshape(-1).view(np.uint8)[...] = POISON
        return on_device

    def close(self) -> None:
        """Ends the engine."""
        self._engine.shutdown()
