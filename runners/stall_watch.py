"""Who is late: one line for each shard job that has told nothing for long."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from beam_pipes.building.workers.worker_pool import HasShard, files_of

# The thread that watches may be writing to a standard error that nobody reads.
_JOIN_SECS = 5.0


class StallWatch:
    """Reports each running shard job once when it has told nothing for `stall_secs`, and again after it told something.

    It only reports: a record may rightly take hours, and whoever started the build decides.
    """

    def __init__(self, stall_secs: float, *, report: Callable[[str], None] | None = None) -> None:
        self._stall_secs = stall_secs
        self._report = report if report is not None else _print
        self._running: dict[int, tuple[HasShard, int, float]] = {}  # shard → (task, process, when it last told)
        self._reported: set[int] = set()

    def told(self, task: HasShard, *, pid: int) -> None:
        """The job has started, or gives a sign of life."""
        self._running[task.index] = (task, pid, time.monotonic())
        self._reported.discard(task.index)

    def finished(self, task: HasShard) -> None:
        """The job has ended."""
        self._running.pop(task.index, None)
        self._reported.discard(task.index)

    def check(self) -> None:
        """Reports who is late."""
        now = time.monotonic()
        for index, (task, pid, last) in list(self._running.items()):
            if now - last >= self._stall_secs and index not in self._reported:
                self._reported.add(index)
                self._report(
                    f"beam-pipes: source shard {index} ({files_of(task)}) has told nothing for {now - last:.0f} s; "
                    f"process {pid} is still working on it."
                )

    @contextlib.contextmanager
    def on_a_thread(self) -> Iterator[None]:
        """Checks from a thread meanwhile, for jobs that run in this process."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(min(1.0, self._stall_secs / 2)):
                self.check()

        thread = threading.Thread(target=watch, name="beam-pipes stall watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_JOIN_SECS)


def _print(line: str) -> None:
    # A progress line that is rewritten in place has no end of its own.
    print(f"{os.linesep if sys.stderr.isatty() else ''}{line}", file=sys.stderr, flush=True)
