"""Trials in separate processes: `TrialProcesses` starts them, and says how each one ended.

    TrialProcesses → beam_pipes.testing.trial_server, one for each hash seed → a fork for each trial

An order goes to the server as a line of JSON and a directory with the pickled function and argument; the trial leaves
its reply, its output, and its progress (`tell_progress`) in that directory.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from multiprocessing.connection import wait
from pathlib import Path

_START = "from beam_pipes.testing.trial_server import serve; serve()"
_GRACE_SECS = 60.0


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a trial ended: with a `result`, or with an `error` (its type and words), by a `signal`, or `late` with its
    last progress."""

    result: object = None
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
        argument: object,
        *,
        timeout_secs: float,
        hash_seed: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        """Calls `function` ("module:name") with `argument`."""
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
                "timeout_secs": timeout_secs,
            }
            status = server.ask(order, timeout_secs)
            return _ended(Path(directory), status)

    def close(self) -> None:
        """Ends the processes; a second call does nothing."""
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

    starts and imports once instead of once per `assert_robust`.
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

    def ask(self, order: Mapping[str, object], timeout_secs: float) -> int | None:
        """The wait status of the trial; None if it was late or did not answer."""
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


# Where this process records its progress; its parent reads it after a timeout.
_progress: Path | None = None


def tell_progress_in(path: Path) -> None:
    """From now on `tell_progress` writes to this file."""
    global _progress
    _progress = path


def tell_progress(what: str) -> None:
    """Records what this process is doing, in case it hangs. Does nothing outside a trial."""
    if _progress is not None:
        _progress.write_text(what)
