"""Two stages of prefetching in a row overlap reading (host) with placing (device):

    source ──thread──► host buffer ──thread──► device buffer ──► consumer

A `Stage` is one thread and one buffer: an `OrderedPrefetcher` with a single worker, whose guarantees it has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from beam_pipes.errors import LoaderError
from beam_pipes.loader.prefetch import END_SECS, OrderedPrefetcher

T = TypeVar("T")
U = TypeVar("U")


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


class Stage(OrderedPrefetcher[T, U], Generic[T, U]):
    """An iterator over `function` of the items that a thread keeps up to `size` results ahead, and one in work.

    Dropping the stage, or leaving a `with` block, closes it; closing it closes the stage before it.
    """

    def __init__(self, function: Callable[[T], U], items: Iterable[T], size: int, *, name: str = "prefetch") -> None:
        self._size = size
        super().__init__(function, iter(items), workers=1, depth=size + 1, name=f"beam-pipes-{name}")

    @property
    def ready(self) -> int:
        """Results that wait to be taken."""
        return min(super().ready, self._size)

    def close(self, *, most_secs: float | None = END_SECS) -> None:
        """Ends the thread and drops what waits; done twice it does nothing."""
        super().close(most_secs=most_secs)

    def __enter__(self) -> Stage[T, U]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if any(thread.is_alive() for thread in self.__dict__.get("_threads", ())):
            self.close()
