"""Builds in processes of their own that can be killed: by a label, after a time, from outside.

`Builder` starts one process that has everything imported and forks for each build, so a build to be killed starts
within milliseconds, without importing everything.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.campaigns.session_members import processes_left

_START = "from benchmarks.campaigns.builder import serve; serve()"
_LIMIT_SECS = 120.0
_ORPHAN_SECS = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a build ended: the `signal` that killed it or 0, our `error` that it raised, processes it left behind.

    `told` is the terminal output of the build and its processes.
    """

    signal: int
    error: str | None
    error_type: str | None
    orphans: int
    secs: float
    told: str

    @property
    def killed(self) -> bool:
        return self.signal == signal.SIGKILL

    @property
    def succeeded(self) -> bool:
        return not self.signal and self.error is None


class Builder:
    """Runs builds of one declaration; usable in a `with` block."""

    def __init__(self, reference: str, *, env: Mapping[str, str] | None = None) -> None:
        self._reference = reference
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, **(env or {})},
        )

    def build(
        self,
        to: Path,
        *,
        at: str = "",
        after_secs: float | None = None,
        signal_number: int = signal.SIGKILL,
        workers: int = 1,
        meanwhile: Callable[[], None] | None = None,
        **env: str,
    ) -> Outcome:
        """One build, killed at the step `at` (`label` or `label#n`), or by a signal `after_secs`, or not at all.

        `meanwhile` is called repeatedly until the build has ended.
        """
        order = {"reference": self._reference, "to": str(to), "at": at, "after_secs": after_secs}
        order |= {"signal": int(signal_number), "workers": workers, "env": env}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        if meanwhile is not None:
            from multiprocessing.connection import wait

            while not wait([self._process.stdout], timeout=0.002):
                meanwhile()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_LIMIT_SECS)

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def serve() -> None:
    """In the process that forks: one order per line in, one outcome per line out."""
    import beam_pipes.runners.build  # noqa: F401  what every build would import
    import beam_pipes.runners.local  # noqa: F401

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps a build's output out of the outcomes
    for line in sys.stdin:
        order = json.loads(line)
        replies.write(json.dumps(_run(order)) + "\n")
        replies.flush()


def _run(order: Mapping[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    read, write = os.pipe()
    terminal = tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.dup2(terminal.fileno(), 2)
        _child(order, write)
    os.close(write)
    status = _wait(pid, order, started)
    with os.fdopen(read) as words:
        reported = json.loads(words.read() or "[null, null]")
    secs = time.monotonic() - started
    orphans = processes_left(pid, wait_secs=_ORPHAN_SECS)
    with terminal:
        terminal.seek(0)
        words = terminal.read().decode(errors="replace")
    return {
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "error": reported[1],
        "error_type": reported[0],
        "orphans": orphans,
        "secs": secs,
        "told": words,
    }


def _wait(pid: int, order: Mapping[str, Any], started: float) -> int:
    sent = False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        elapsed = time.monotonic() - started
        if not sent and order["after_secs"] is not None and elapsed >= order["after_secs"]:
            os.kill(pid, order["signal"])
            sent = True
        if elapsed > _LIMIT_SECS:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _child(order: Mapping[str, Any], words: int) -> None:
    from beam_pipes.runners.build import build
    from beam_pipes.runners.options import LocalOptions
    from beam_pipes.storage import locks as kill_points

    try:
        os.setsid()  # so that its child processes can be identified
        os.environ.update(order["env"])
        os.environ[kill_points.VARIABLE] = order["at"]  # for its workers
        kill_points.arm(order["at"])
        reported: list[str | None] = [None, None]
        try:
            build(order["reference"], order["to"], options=LocalOptions(workers=order["workers"]))
        except BaseException as error:
            reported = [type(error).__name__, str(error)]
        os.write(words, json.dumps(reported).encode())
    finally:
        os._exit(0)
