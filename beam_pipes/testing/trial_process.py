"""Trials in processes of their own: forked from one that has imported this package and nothing of the user's.

A fork at that point is safe (no thread of the user's libraries is there yet) and cheap; the child imports the user's
modules itself, so nothing of an earlier trial is left in it. A hash seed is for a whole process: each has its server.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

_START = "from beam_pipes.testing.trial_process import serve; serve()"
_GRACE_SECS = 60.0
_POLL_SECS = 0.002


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a trial ended: with a `result`, or with an `error` (its type and words), by a `signal`, or `late` at what it
    was doing."""

    result: Any = None
    error: tuple[str, str] | None = None
    signal: int = 0
    late: str | None = None


class TrialProcesses:
    """Starts trials, one at a time for each hash seed; usable in a `with` block, which ends its processes."""

    def __init__(self) -> None:
        self._servers: dict[int, _Server] = {}
        self._lock = threading.Lock()

    def run(
        self,
        function: str,
        argument: Any,
        *,
        timeout_secs: float,
        hash_seed: int = 1,
        clock: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        """Calls `function` ("module:name") with `argument`; `clock` sets the clock of its process forward."""
        with self._lock:
            server = self._servers.get(hash_seed)
            if server is None:
                server = self._servers[hash_seed] = _Server(hash_seed)
        with tempfile.TemporaryDirectory(prefix="beam-pipes-trial-") as directory:
            Path(directory, "order").write_bytes(pickle.dumps((function, pickle.dumps(argument))))
            order = {
                "directory": directory,
                "path": [entry or os.getcwd() for entry in sys.path],
                "working_directory": os.getcwd(),
                "env": {**os.environ, "PYTHONHASHSEED": str(hash_seed), **(env or {})},
                "clock": clock,
                "timeout_secs": timeout_secs,
            }
            status = server.ask(order, timeout_secs)
            return _ended(Path(directory), status)

    def close(self) -> None:
        """Ends the processes; done twice it does nothing."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def __enter__(self) -> TrialProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: contextvars.ContextVar[TrialProcesses | None] = contextvars.ContextVar("shared trial processes", default=None)


@contextlib.contextmanager
def trial_processes() -> Iterator[TrialProcesses]:
    """The processes of the checks in this block: those of a block around it, or new ones, ended with it.

        with trial_processes():
            for name in declarations: assert_robust(name)

    starts and imports once what each `assert_robust` alone would start.
    """
    shared = _shared.get()
    if shared is not None:
        yield shared
        return
    with TrialProcesses() as processes:
        token = _shared.set(processes)
        try:
            yield processes
        finally:
            _shared.reset(token)


class _Server:
    """The parent's end of a process that forks for each trial."""

    def __init__(self, hash_seed: int) -> None:
        lifeline, self._lifeline = os.pipe()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(lifeline)],
                env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                pass_fds=(lifeline,),
            )
        finally:
            os.close(lifeline)
        self._lock = threading.Lock()

    def ask(self, order: Mapping[str, Any], timeout_secs: float) -> int | None:
        """The wait status of the trial; None where it was late, or where there is no answer at all."""
        with self._lock:
            assert self._process.stdin is not None and self._process.stdout is not None
            try:
                self._process.stdin.write(json.dumps(order) + "\n")
                self._process.stdin.flush()
                if not wait([self._process.stdout.fileno()], timeout_secs + _GRACE_SECS):
                    return None
                answer = self._process.stdout.readline()
            except (BrokenPipeError, ConnectionResetError):
                return None
            status: int | None = json.loads(answer or "null")
            return status

    def close(self) -> None:
        os.close(self._lifeline)
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_GRACE_SECS)
        self._process.stdout.close()


def _ended(directory: Path, status: int | None) -> Ended:
    reply, progress, said = (directory / name for name in ("reply", "progress", "said"))
    if status is None:
        return Ended(late=progress.read_text() if progress.exists() else "starting")
    if os.WIFSIGNALED(status):
        return Ended(signal=os.WTERMSIG(status))
    if not reply.exists():
        last = said.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        return Ended(error=("ProcessError", f"exit code {os.WEXITSTATUS(status)}: {last[-1]}"))
    result, error = pickle.loads(reply.read_bytes())
    return Ended(result=result, error=error)


def serve() -> None:
    """In the process that forks: one order a line, one wait status a line."""
    import beam_pipes.testing.trials  # noqa: F401  what every trial would import

    lifeline = int(sys.argv[1])
    sys.argv = sys.argv[:1]
    orders, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for line in orders:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(order, lifeline)
        replies.write(json.dumps(_wait(pid, order["timeout_secs"])) + "\n")
        replies.flush()


def _wait(pid: int, timeout_secs: float) -> int | None:
    """The wait status of a child, ended by force where it is late; what it has started ends with it."""
    deadline = time.monotonic() + timeout_secs
    late = False
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if not late and time.monotonic() > deadline:
            late = True
            _kill_group(pid)
        time.sleep(_POLL_SECS)
    _kill_group(pid)
    return None if late else status


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # the group is made by the child itself, a moment after it has started
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _child(order: Mapping[str, Any], lifeline: int) -> None:
    global _progress
    code = 1
    try:
        os.setsid()
        said = os.open(f"{order['directory']}/said", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        _progress = Path(order["directory"], "progress")
        os.environ.clear()
        os.environ.update(order["env"])
        time.tzset()
        os.chdir(order["working_directory"])
        sys.path[:] = order["path"]
        threading.Thread(target=_follow, args=(lifeline,), daemon=True).start()
        _call(order)
        code = 0
    finally:
        # Not through the end of the interpreter: threads of the user's libraries may wait there for ever.
        sys.stderr.flush()
        os._exit(code)


def _follow(lifeline: int) -> None:
    """Ends this process and what it has started when nobody waits for it any more."""
    os.read(lifeline, 1)
    os.killpg(os.getpid(), signal.SIGKILL)


def _call(order: Mapping[str, Any]) -> None:
    import importlib

    import numpy as np

    from beam_pipes.cache import locks as kill_points

    random.seed()  # as in a fresh process: forks share what was seeded before
    np.random.seed()
    kill_points.arm(os.environ.get(kill_points.VARIABLE, ""))
    if order["clock"]:
        from beam_pipes.testing.surroundings import shift_clock

        shift_clock()
    directory = Path(order["directory"])
    function, packed = pickle.loads((directory / "order").read_bytes())
    module, _, name = function.partition(":")
    outcome: tuple[Any, tuple[str, str] | None]
    try:
        outcome = getattr(importlib.import_module(module), name)(pickle.loads(packed)), None
    except Exception as error:
        outcome = None, (type(error).__name__, str(error))
    (directory / "reply.part").write_bytes(pickle.dumps(outcome))
    os.replace(directory / "reply.part", directory / "reply")


# Where this process says what it is at; its parent reads it when it loses patience.
_progress: Path | None = None


def tell_progress(what: str) -> None:
    """Says what this process is at, for the case that it does not end."""
    if _progress is not None:
        _progress.write_text(what)
