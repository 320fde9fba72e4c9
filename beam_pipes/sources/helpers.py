"""`Helpers`: processes that list directories and read small files for a plan, on all cores.

    with Helpers() as helpers:
        helpers.map(os.path.getsize, ["a.txt", "b.txt"])  →  [120, 7]

A helper is a fresh interpreter with this process's import path. It receives (function, item) as a pickle over a pipe,
each message preceded by its length, and answers whether it succeeded, and the result. Helpers only save time: what one
cannot do, because the function cannot be imported there, fails, or ends the process, is done here.

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
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, TypeVar

from beam_pipes.identity.source_code import python_path

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_START = "from beam_pipes.sources.helpers import serve; serve()"
_MOST_HELPERS = 16


class Helpers:
    """Processes that list directories and read many files; as many as there are cores, and at most 16.

    They start with the first `map`. Whatever fails in one of them is repeated in this process, which raises the error.
    With only one core, or no interpreter to start, this process does everything.
    """

    def __init__(self) -> None:
        self.count = min(os.cpu_count() or 1, _MOST_HELPERS)
        self._processes: list[subprocess.Popen[bytes]] | None = None
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self._processes or ():
            assert process.stdin is not None and process.stdout is not None
            process.kill()  # it holds nothing
            with contextlib.suppress(OSError):  # what was not sent yet
                process.stdin.close()
            process.stdout.close()
            process.wait()

    def map(self, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """`[function(item) for item in items]`; function, items and results must be picklable."""
        if self._processes is None:
            self._processes = list(self._started()) if self.count > 1 else []
        if not self._processes:
            return [function(item) for item in items]

        def call(item: _Item) -> _Result:
            process = self._idle.get()
            try:
                done, result = _answer(process, function, item)
            finally:
                self._idle.put(process)
            return result if done else function(item)

        with ThreadPoolExecutor(len(self._processes), thread_name_prefix="helpers") as pool:
            return list(pool.map(call, items))

    def _started(self) -> Iterator[subprocess.Popen[bytes]]:
        with contextlib.suppress(OSError, TypeError):  # TypeError: an embedded Python has no sys.executable
            for _ in range(self.count):
                process = subprocess.Popen(
                    [sys.executable, "-c", _START],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": python_path()},
                )
                self._idle.put(process)
                yield process


def _answer(process: subprocess.Popen[bytes], function: Callable[[_Item], object], item: _Item) -> tuple[bool, Any]:
    """Whether a process succeeded, and the result."""
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(Exception):  # not picklable, or the process has ended
        _send(process.stdin, (function, item))
        done, result = pickle.loads(_received(process.stdout))
        return done, result
    return False, None


_LENGTH = struct.Struct("<Q")


def _send(file: IO[bytes], value: object) -> None:
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    file.write(_LENGTH.pack(len(data)))
    file.write(data)
    file.flush()


def _received(file: IO[bytes]) -> bytes:
    """A whole message, so that the next one can be read whatever happens to this one. `EOFError` if none comes."""
    if len(length := file.read(_LENGTH.size)) < _LENGTH.size:
        raise EOFError
    return file.read(_LENGTH.unpack(length)[0])


def serve() -> None:
    """What a helper runs: answers until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output that a module prints must not mix with answers
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            request, answer = _received(sys.stdin.buffer), (False, None)
            with contextlib.suppress(Exception):  # a class that this process cannot import, or what the function raises
                function, item = pickle.loads(request)
                answer = (True, function(item))
            _send(answers, answer)
