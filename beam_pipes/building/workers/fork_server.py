"""The process that workers are forked from, so that they start at once.

A fresh interpreter takes 0.3 to 1 s of a core to import what every worker needs. Here one process imports it for all
workers of a pool, and for the replacements of killed ones. It imports none of the user's code and does nothing else, so
that its forks find nothing half done, unlike forks of the caller's process: tokenizers and frameworks have threads.
(The one library in it with threads, NumPy's OpenBLAS, ends them before a fork.)
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import traceback
import warnings
from collections.abc import Sequence

from beam_pipes.building.workers.process import ended_by, serve, start_interpreter
from beam_pipes.errors import BuildError

# How long the server may take for its imports and a fork.
_ANSWER_SECS = 120.0
_END_SECS = 5.0
# Between the end of its socket and its own.
_ENDED_SECS = 1.0
_KILLED_SECS = 60.0

# It exits without cleanup, because the parent would wait for that.
_START = "import os; from beam_pipes.building.workers.fork_server import main; main(); os._exit(0)"
_NUMBER = struct.Struct("<q")
_MOST_FILES = 16


def can_fork() -> bool:
    """Whether workers are forked here: on Linux from 5.3 on. Other systems' own libraries do not survive a fork."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def fork_server(*modules: str) -> ForkServer | None:
    """A server that has imported these modules; None if workers are not forked."""
    return ForkServer(*modules) if can_fork() else None


class ForkServer:
    """The parent's end; close it when the processes that it forked have ended."""

    def __init__(self, *modules: str) -> None:
        """Starts the server, which imports these modules."""
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_ANSWER_SECS)
        theirs.setblocking(True)  # whatever default timeout a program has set for sockets
        try:
            self.process = start_interpreter(_START, files=[theirs.fileno()], arguments=modules)
        finally:
            theirs.close()

    def start(self, files: Sequence[int]) -> ForkedProcess:
        """A process that shares these descriptors and runs `worker_process.serve` with them."""
        end, write_end = os.pipe()
        try:
            socket.send_fds(self._control, [b"."], [*files, write_end])
            answer, handles, _, _ = socket.recv_fds(self._control, _NUMBER.size, 1)
        except OSError as error:  # a timeout too
            os.close(end)
            raise self._silent(str(error) or type(error).__name__) from error
        finally:
            os.close(write_end)
        if not answer:
            os.close(end)
            raise self._silent("it has ended")  # at once: its end of the socket is closed
        return ForkedProcess(_NUMBER.unpack(answer)[0], handle=handles[0], end=end)

    def _silent(self, why: str) -> BuildError:
        try:
            code = self.process.wait(_ENDED_SECS)
        except subprocess.TimeoutExpired:
            what = f"gave no answer within {_ANSWER_SECS:.0f} s: {why}"
        else:
            what = f"has ended ({ended_by(code)})"
        return BuildError(
            f"process {self.process.pid}, which starts the workers, {what}. What it wrote stands above. Finished "
            "shards are kept: run the build again; with --workers 1 everything runs in a single process."
        )

    def close(self) -> None:
        """Ends the server."""
        self._control.close()
        try:
            self.process.wait(_END_SECS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_KILLED_SECS)


class ForkedProcess:
    """A process that the server has forked, with the methods of `subprocess.Popen` that the parent of a worker needs.

    `handle` is its pidfd, which never refers to another process; the server writes its exit code into `end`.
    """

    def __init__(self, pid: int, *, handle: int, end: int) -> None:
        self.pid = pid
        self._handle = handle
        self._end = end
        os.set_inheritable(handle, False)
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal; `subprocess.TimeoutExpired` if the process runs for longer."""
        if self._code is None:
            poll = select.poll()
            poll.register(self._end, select.POLLIN)
            if not poll.poll(None if timeout is None else 1000 * timeout):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            answer = os.read(self._end, _NUMBER.size)
            if not answer:  # the server was killed, so nobody knows how its forks end
                self.kill()
            self._code = _NUMBER.unpack(answer)[0] if answer else -signal.SIGKILL
            os.close(self._end)
            os.close(self._handle)
        return self._code

    def send_signal(self, number: int) -> None:
        """Does nothing if the process has ended."""
        if self._code is None:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def main() -> None:
    """The server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, lambda *_: None)
    control = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork.*")  # OpenBLAS's
    gc.collect()
    gc.freeze()  # otherwise the first collection of each fork would write to, and so copy, everything shared
    ended, wake = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    watched: list[socket.socket | int] = [control, ended]
    telling: dict[int, int] = {}  # process → the pipe for its exit code
    while True:
        ready, _, _ = select.select(watched, [], [])
        if ended in ready:
            os.read(ended, 1 << 16)
            _tell_ends(telling)
        if control in ready:
            try:
                asked, files, _, _ = socket.recv_fds(control, 1, _MOST_FILES)
            except ConnectionResetError:  # the parent was killed before it had read the last answer
                return
            if not asked:
                return  # the parent is gone, and with it the forks' lifelines
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for file in (control.detach(), ended, wake, *telling.values(), files[-1]):
                    os.close(file)
                _serve(files[:-1])
            telling[pid] = files[-1]
            for file in files[:-1]:
                os.close(file)
            handle = os.pidfd_open(pid)
            try:
                socket.send_fds(control, [_NUMBER.pack(pid)], [handle])
            except (BrokenPipeError, ConnectionResetError):
                return  # the parent was killed while it waited; the fork sees the end of its lifeline
            os.close(handle)


def _serve(files: Sequence[int]) -> None:
    """In the fork, which ends with it."""
    code = 1
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()  # otherwise all forks draw the same numbers; Python's `random` reseeds itself
    try:
        serve(*files)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _tell_ends(telling: dict[int, int]) -> None:
    while telling:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        file = telling.pop(pid)
        try:
            os.write(file, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
        except BrokenPipeError:
            pass  # the parent no longer waits for it
        os.close(file)
