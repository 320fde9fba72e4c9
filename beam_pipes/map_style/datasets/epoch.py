"""Which epoch examples are read for: what a transform that draws has to know besides the index.

It is kept per thread of execution, not in the dataset: two iterators, in two epochs, may read one dataset at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_EPOCH: ContextVar[int] = ContextVar("transforms_datasets_epoch", default=0)


def current_epoch() -> int:
    """Returns the epoch that examples are being read for; 0 outside of a `DataLoader` and of `reading_epoch`."""
    return _EPOCH.get()


@contextlib.contextmanager
def reading_epoch(epoch: int) -> Iterator[None]:
    """Examples read in this block are those of `epoch`; a `DataLoader` does it by itself."""
    token = _EPOCH.set(epoch)
    try:
        yield
    finally:
        _EPOCH.reset(token)
