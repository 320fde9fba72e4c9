"""A worker process: a fresh interpreter, told over a socket which shard jobs to run.

Not `multiprocessing`: its spawned children import the parent's `__main__`, which a script without a guard does not
survive, and its forked children deadlock with tokenizers and frameworks that have threads. A worker here imports the
declaration by its reference and nothing else, so it starts in about 0.3 s and needs no Beam.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from beam_pipes.errors import BuildError

# Not `-m runners.worker_process`: the package imports this module before it would be run.
_START = "from runners.worker_process import main; main()"


def python_path() -> str:
    """This process's import path, for the environment of workers, so that they find what is found here."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


class WorkerProcess:
    """The parent's end. Messages are pickled; `connection` can be waited for together with others."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # The child sees the end of this pipe when we die, however we die, and then ends itself.
        lifeline_read, lifeline_write = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno()), str(lifeline_read)],
                pass_fds=(theirs.fileno(), lifeline_read),
                env={**os.environ, "PYTHONPATH": python_path()},
                stdin=subprocess.DEVNULL,
            )
        finally:
            theirs.close()
            os.close(lifeline_read)
        self._lifeline = lifeline_write
        self.connection: Connection = Connection(ours.detach())

    def send(self, message: Any) -> None:
        """Sends one message; a worker that is gone is noticed when it is waited for."""
        try:
            self.connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def close(self) -> None:
        """Ends the worker: by closing its lifeline, and by SIGKILL where that is not enough."""
        os.close(self._lifeline)
        self.connection.close()
        self.wait()

    def wait(self, *, timeout_secs: float = 5.0) -> int:
        """The exit code of a worker that should be ending; one that does not is killed."""
        try:
            return self.process.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def portable(error: BaseException) -> BaseException:
    """`error` where it survives pickling, else a `BuildError` with its words."""
    try:
        return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]
    except Exception:
        return BuildError(f"{type(error).__name__}: {error}")


def _serve(connection: Connection) -> None:
    """Runs calls: each message is (function, arguments); generators send what they yield, then their result."""
    while True:
        try:
            function, arguments = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            result = "result", function(connection.send, *arguments)
        except BaseException as error:
            result = "error", portable(error)
        try:
            connection.send(result)
        except (BrokenPipeError, ConnectionResetError):
            return  # nobody is interested any more: the build has ended for another reason
        if result[0] == "error" and not isinstance(result[1], Exception):
            return


def _follow(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


def main() -> None:
    """The child's end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_follow, args=(int(sys.argv[2]),), daemon=True).start()
    _serve(Connection(int(sys.argv[1])))
