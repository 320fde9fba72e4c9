"""Waits that say who is late: after a while one line on standard error, and the wait goes on.

Whether a wait has lasted too long is for the user to decide: a batch may rightly take minutes. That it lasts, and on
what, should not be for the user to find out with a debugger.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

# Far beyond what a batch takes; the same as a build waits for a sign of life from a source shard.
LATE_SECS = 300.0

# How long a waiting side sleeps before it looks who is late, and whether the other side is there at all.
LOOK_SECS = 0.5


class Waiting:
    """One wait: made when it begins, looked at in between.

        waiting = Waiting(lambda: f"worker process 3 is at examples {indices}")
        while not ready(timeout=LOOK_SECS):
            waiting.look()

    After `late_secs` (300) a line on standard error says for how long nothing has come and what `who` returns, and
    again each time that as much has passed.
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
        """Reports where it is time to."""
        now = time.monotonic()
        if now - self._told >= self._late_secs:
            self._told = now
            self._report(f"beam-pipes: nothing has come for {now - self._since:.0f} s; {self._who()}.")


def thread_place(thread: threading.Thread) -> str:
    """What a thread is at, in words: `thread beam_pipes-prefetch-0 is at shard_store.py, line 74, in _copy`."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return f"thread {thread.name} has ended"
    code = frame.f_code
    return f"thread {thread.name} is at {os.path.basename(code.co_filename)}, line {frame.f_lineno}, in {code.co_name}"


def join_saying_who(thread: threading.Thread, *, late_secs: float | None = None) -> None:
    """Joins a thread that is about to end; says what it is at while it does not."""
    waiting = Waiting(lambda: f"{thread_place(thread)}, and has been asked to end", late_secs=late_secs)
    while thread.is_alive():
        thread.join(LOOK_SECS)
        waiting.look()


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
