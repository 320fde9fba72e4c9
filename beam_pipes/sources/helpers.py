"""`Helpers`: processes that list directories and read small files for a plan, on all cores.

    with Helpers() as helpers:
        helpers.map(os.path.getsize, ["a.txt", "b.txt"])  →  [120, 7]

A helper is a fresh interpreter with this process's import path. It receives (function, item) over a pipe, and answers
whether it succeeded, and the result. Helpers only save time: what one cannot do, because the function cannot be
imported there, fails, or ends the process, is done here.

Threads do not help, since one interpreter lock holds all of them up; neither does
`concurrent.futures.ProcessPoolExecutor`: its workers import the caller's `__main__`, or are forks of a process with
threads.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from beam_pipes.identity.source_code import python_path

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_START = "from beam_pipes.sources.helpers import serve; serve({})"
_MOST_HELPERS = 16


class _Helper(NamedTuple):
    process: subprocess.Popen[bytes]
    connection: Connection


class Helpers:
    """Processes that list directories and read many files; as many as there are cores, and at most 16.

    They start with the first `map`. Whatever fails in one of them is repeated in this process, which raises the error.
    With only one core, or no interpreter to start, this process does everything.
    """

    def __init__(self) -> None:
        self.count = min(os.cpu_count() or 1, _MOST_HELPERS)
        self._helpers: list[_Helper] | None = None
        self._idle: queue.SimpleQueue[_Helper] = queue.SimpleQueue()

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process, connection in self._helpers or ():
            process.kill()  # it holds nothing
            connection.close()
            process.wait()

    def map(self, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """`[function(item) for item in items]`; function, items and results must be picklable."""
        if self._helpers is None:
            self._helpers = list(self._started()) if self.count > 1 else []
        if not self._helpers:
            return [function(item) for item in items]

        def call(item: _Item) -> _Result:
            helper = self._idle.get()
            try:
                done, result = _answer(helper.connection, function, item)
            finally:
                self._idle.put(helper)
            return result if done else function(item)

        with ThreadPoolExecutor(len(self._helpers), thread_name_prefix="helpers") as pool:
            return list(pool.map(call, items))

    def _started(self) -> Iterator[_Helper]:
        import multiprocessing  # takes milliseconds, which a plan of few files need not wait for

        with contextlib.suppress(OSError, TypeError):  # TypeError: an embedded Python has no sys.executable
            for _ in range(self.count):
                ours, theirs = multiprocessing.Pipe()
                with theirs:
                    process = subprocess.Popen(
                        [sys.executable, "-c", _START.format(theirs.fileno())],
                        stdin=subprocess.DEVNULL,
                        stdout=2,  # what a module prints
                        pass_fds=[theirs.fileno()],
                        env={**os.environ, "PYTHONPATH": python_path()},
                    )
                helper = _Helper(process, ours)
                self._idle.put(helper)
                yield helper


def _answer(connection: Connection, function: Callable[[_Item], object], item: _Item) -> tuple[bool, Any]:
    """Whether a helper succeeded, and the result."""
    with contextlib.suppress(Exception):  # not picklable, or the process has ended
        connection.send((function, item))
        done, result = connection.recv()
        return done, result
    return False, None


def serve(descriptor: int) -> None:
    """What a helper runs: answers until its input ends."""
    from multiprocessing.connection import Connection

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    connection = Connection(descriptor)
    with contextlib.suppress(EOFError, OSError):
        while True:
            request, answer = connection.recv_bytes(), (False, None)
            with contextlib.suppress(Exception):  # a class that this process cannot import, or what the function raises
                function, item = pickle.loads(request)
                answer = (True, function(item))
            connection.send(answer)
