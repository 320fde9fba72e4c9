"""Work that Ctrl-C may not cut in two, as starting a process and noting that it runs."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Ctrl-C inside the block is answered behind it; blocks may be nested.

    Python runs its handler in the main thread whichever thread a signal reaches, so a mask of that thread alone would
    not hold it back where a library has threads. Nothing is done in other threads: no `KeyboardInterrupt` is raised
    there. Nor where the handler is not Python's, which could not be put back.
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


@contextlib.contextmanager
def children_deaf_to_interrupts() -> Iterator[None]:
    """A process that is started inside the block does not hear Ctrl-C before it unblocks it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
