"""A worker process: an interpreter, fresh or forked from a fresh one, that receives its work over a socket.

`WorkerProcess` is the parent's end, `serve` the child's. Between them is the *cell*, a page of shared memory in which
the worker shows what it is doing. It is memory and no message because a worker that hangs sends none: a C call that
never returns blocks every thread of the process, and Python's signal handlers too. A store costs about 0.1 µs a record;
`ProcessFigures` reads what the system knows of a process in 3 µs.

`multiprocessing` does not serve here. Its spawned children import the parent's `__main__`, which a script without a
guard does not survive, and its forked children deadlock with tokenizers and frameworks that have threads. A worker here
imports the declaration by its reference or is sent it by value, runs no main script, and needs no Beam.

User code that raises `SystemExit`, `KeyboardInterrupt` or `GeneratorExit` would end the process silently, after
`sys.exit(0)` even as if it had succeeded; `exit_as_error` makes a `BuildError` of it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import NamedTuple, Protocol

from beam_pipes.errors import BuildError, text_of
from beam_pipes.identity.source_code import now_a_worker, python_path, where_raised


class RunningProcess(Protocol):
    """A process as its parent sees it: a `subprocess.Popen`, or a fork of another process."""

    @property
    def pid(self) -> int: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...

    def kill(self) -> None: ...


class StartsProcesses(Protocol):
    """Starts workers without a new interpreter for each, as `fork_server.ForkServer` does."""

    def start(self, files: Sequence[int]) -> RunningProcess:
        """A process that shares these descriptors and runs `serve` with them."""


def start_interpreter(code: str, *, files: Sequence[int], arguments: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """`python -c CODE FILES... ARGUMENTS...`, where FILES are descriptors that the child shares.

    Not `-m`: the package may import a module before it would be run.
    """
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, files), *arguments],
        pass_fds=files,
        env={**os.environ, "PYTHONPATH": python_path()},
        stdin=subprocess.DEVNULL,
    )


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessFigures:
    """Memory and waiting time of a process (of its main thread); 0 if the system does not say, or it is gone."""

    def __init__(self, pid: int) -> None:
        self._memory = _open(f"/proc/{pid}/statm")
        self._schedule = _open(f"/proc/{pid}/task/{pid}/schedstat")
        self._state = _open(f"/proc/{pid}/stat")

    def memory_bytes(self) -> int:
        """Its resident memory."""
        return _field(self._memory, 1) * _PAGE_BYTES

    def waiting_secs(self) -> float:
        """How long it was runnable without a core since it began: time that is not its own fault."""
        return _field(self._schedule, 1) * 1e-9

    def is_stopped(self) -> bool:
        """Whether it stands still after SIGSTOP."""
        try:
            return self._state is None or os.pread(self._state, 512, 0).rpartition(b")")[2].split()[0] in (b"T", b"Z")
        except (OSError, IndexError):
            return True

    def close(self) -> None:
        for file in (self._memory, self._schedule, self._state):
            if file is not None:
                os.close(file)
        self._memory = self._schedule = self._state = None


def _open(path: str) -> int | None:
    with contextlib.suppress(OSError):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def _field(file: int | None, position: int) -> int:
    if file is not None:
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int(os.pread(file, 256, 0).split()[position])
    return 0


def exit_as_error(error: BaseException) -> BuildError:
    """A `BuildError` that says what was raised and where, to be raised instead."""
    return BuildError(
        f"expected the code that was called to return or to raise an Exception, but {where_raised(error)} raised "
        f"{type(error).__name__}({text_of(error)}), which would have ended the process early. Do not "
        "call sys.exit there: raise an Exception, such as ValueError, that says what is wrong."
    )


#: The largest batch whose ordinals the cell can hold.
MOST_RECORDS = 256

_UNIT, _RUN, _INDEX, _COUNT, _MEMORY = range(5)
_ORDINALS = 8
_BYTES = 8 * (_ORDINALS + MOST_RECORDS)


class Glimpse(NamedTuple):
    """What a supervisor saw: the position of the running unit, how many have run before, the index of the record (-1
    for a whole batch), the records of the batch, and the memory that the worker had when the unit began.
    """

    unit: int
    run: int
    record: int
    num_records: int
    memory_bytes: int


class WorkerCell:
    """One end of the cell; the other end is made from `file`."""

    def __init__(self, file: int) -> None:
        self._map = mmap.mmap(file, _BYTES)
        self._cells = memoryview(self._map).cast("q")
        #: Where the index of the current record is stored.
        self.index_cell = self._cells[_INDEX : _INDEX + 1]
        self._runs = 0

    def enter(self, unit: int, ordinals: Sequence[int], memory_bytes: int) -> None:
        """In the worker: the unit at this position begins with a batch of these records."""
        cells = self._cells
        cells[_UNIT] = -1  # invalidate the previous entry first
        for position, ordinal in enumerate(ordinals):
            cells[_ORDINALS + position] = ordinal
        cells[_INDEX] = -1
        cells[_COUNT] = len(ordinals)
        cells[_MEMORY] = memory_bytes
        self._runs += 1
        cells[_RUN] = self._runs
        cells[_UNIT] = unit

    def leave(self) -> None:
        """In the worker: no unit runs."""
        self._cells[_UNIT] = -1

    def look(self) -> Glimpse | None:
        """In the supervisor: what the worker is doing; None outside of a stage."""
        cells = self._cells
        seen = Glimpse(cells[_UNIT], cells[_RUN], cells[_INDEX], cells[_COUNT], cells[_MEMORY])
        return seen if seen.unit >= 0 else None

    def ordinals(self, num_records: int) -> list[int]:
        """In the supervisor, for a dead worker: the source ordinals of the batch it was at."""
        return self._cells[_ORDINALS : _ORDINALS + min(num_records, MOST_RECORDS)].tolist()

    def close(self) -> None:
        self.index_cell.release()
        self._cells.release()
        self._map.close()


def new_cell() -> tuple[WorkerCell, int]:
    """A cell, and a file descriptor for the other end; the file has no name."""
    with tempfile.TemporaryFile() as file:
        os.ftruncate(file.fileno(), _BYTES)
        cell = WorkerCell(file.fileno())
        cell.leave()
        return cell, os.dup(file.fileno())


# Where the interpreter writes its call stack when the process gets the signal, even in the middle of a C call.
_WHERE_SIGNAL = signal.SIGUSR1
_WHERE_SECS = 0.5

# Frames from this file on down are not the stage's.
_CALLER = "/beam_pipes/engine/execute.py"

_START = "from beam_pipes.building.workers.process import main; main()"

# How long to wait for a killed process.
_KILLED_SECS = 60.0


class WorkerProcess:
    """The parent's end. Messages are pickled; `connection` can be waited for together with others.

    With `server` the worker is forked from that, otherwise it is an interpreter of its own.
    """

    def __init__(self, server: StartsProcesses | None = None) -> None:
        self.cell, cell = new_cell()
        self._where = tempfile.TemporaryFile()
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(True)  # a program, or Beam's sign-in to Google, may have set a default timeout for sockets
        # The child sees the end of this pipe when we die, in whatever way, and then ends itself.
        lifeline_read, lifeline_write = os.pipe()
        passed = (theirs.fileno(), lifeline_read, cell, self._where.fileno())
        self.process: RunningProcess
        try:
            self.process = server.start(passed) if server is not None else start_interpreter(_START, files=passed)
        except BaseException:
            ours.close()
            os.close(lifeline_write)
            raise
        finally:
            theirs.close()
            os.close(lifeline_read)
            os.close(cell)
        self._lifeline = lifeline_write
        self.connection: Connection = Connection(ours.detach())

    def send(self, message: object) -> None:
        """Sends one message; a worker that is gone is noticed when it is waited for."""
        try:
            self.connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def send_file(self, file: int) -> None:
        """Sends a file descriptor; `receive_file` gets it in the worker."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            send_handle(self.connection, file, self.process.pid)

    def stand_still(self, *, most_secs: float = 0.2) -> None:
        """Suspends the worker; `go_on` resumes it."""
        self.process.send_signal(signal.SIGSTOP)
        figures = ProcessFigures(self.process.pid)
        deadline = time.monotonic() + most_secs
        while not figures.is_stopped() and time.monotonic() < deadline:
            time.sleep(0.001)
        figures.close()

    def go_on(self) -> None:
        """After `stand_still`."""
        self.process.send_signal(signal.SIGCONT)

    def where(self) -> str:
        """The call stack of a stopped worker inside a stage, innermost first; empty if unknown.

        This resumes the worker, and the signal may interrupt what it waits for: use it only before killing one.
        """
        self._where.seek(0)
        self._where.truncate()
        self.process.send_signal(_WHERE_SIGNAL)
        self.process.send_signal(signal.SIGCONT)
        size, deadline = 0, time.monotonic() + _WHERE_SECS
        while time.monotonic() < deadline:
            time.sleep(0.01)
            before, size = size, os.fstat(self._where.fileno()).st_size
            if size and size == before:
                break
        self._where.seek(0)
        threads = self._where.read().decode("utf-8", "replace").split("\n\n")
        frames = next((thread for thread in threads if _CALLER in thread), "").splitlines()[1:]
        return "\n".join(itertools.takewhile(lambda line: _CALLER not in line, frames))

    def kill(self) -> None:
        """Kills the worker at once, whatever it is doing."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """Ends the worker: by closing its lifeline, and by SIGKILL where that is not enough."""
        if self.connection.closed:
            return
        os.close(self._lifeline)
        self.connection.close()
        self.wait()
        self._where.close()
        self.cell.close()

    def wait(self, *, timeout_secs: float = 5.0) -> int:
        """The exit code of a worker that should be ending; if it does not end, it is killed."""
        try:
            return self.process.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            self.process.kill()
        try:
            return self.process.wait(_KILLED_SECS)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL  # it is ending: the kernel waits for a disk that does not answer


def ended_by(code: int) -> str:
    """How a process with this exit code ended, in words: `exit code 3`, `SIGSEGV`, `signal 40`."""
    if code >= 0:
        return f"exit code {code}"
    known = {each.value: each.name for each in signal.Signals}
    return known.get(-code, f"signal {-code}")  # most real-time signals have no name


def portable(error: BaseException) -> Exception:
    """`error` if it survives pickling, else a `BuildError` with its words; also for anything but an `Exception`, which
    would end the parent."""
    if not isinstance(error, Exception):
        return exit_as_error(error)
    try:
        return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]
    except Exception:
        return BuildError(f"{type(error).__name__}: {text_of(error)}")


def receive_file() -> int:
    """In the worker: a file descriptor that `send_file` sent after the current call."""
    assert _connection is not None
    return recv_handle(_connection)


def worker_cell() -> WorkerCell:
    """The cell that the parent reads; called in the worker."""
    assert _cell is not None
    return _cell


_connection: Connection | None = None
_cell: WorkerCell | None = None


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
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()  # what a stage has printed: the process does not exit normally
        try:
            connection.send(result)
        except (BrokenPipeError, ConnectionResetError):
            return  # the build has already ended for another reason


def _follow(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


def main() -> None:
    """The child's end in an interpreter of its own."""
    serve(*map(int, sys.argv[1:]))


def serve(connection: int, lifeline: int, cell: int, where: int) -> None:
    """The child's end: runs calls until the parent is gone."""
    global _connection, _cell
    now_a_worker()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, lambda *_: None)  # likewise; not SIG_IGN, which programs that a stage starts inherit
    for file in (connection, lifeline, cell, where):
        os.set_inheritable(file, False)  # a program that a stage starts may outlive the worker
    threading.Thread(target=_follow, args=(lifeline,), daemon=True).start()
    # All threads: the signal may reach one that Python did not start.
    faulthandler.register(_WHERE_SIGNAL, file=where, all_threads=True)
    _cell = WorkerCell(cell)
    os.close(cell)
    _connection = Connection(connection)
    _serve(_connection)
