"""Loading ahead in worker processes, started with `spawn`.

A forked child inherits locks held by threads that it does not have: tokenizers, TensorFlow and JAX deadlock there.
Each worker is joined to the loader by one pipe and ends when that pipe does, so none outlives its loader or the
process of its loader, even one that is killed.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import pickle
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from beam_pipes.errors import ExampleError, LoaderWorkerError
from beam_pipes.loader.waiting import LOOK_SECS, Waiting
from beam_pipes.map_style.datasets.base import MapStyle
from beam_pipes.map_style.loader.fetching import short
from beam_pipes.map_style.loader.interrupts import children_deaf_to_interrupts, interrupts_held_back
from beam_pipes.map_style.loader.threads import Loaded
from beam_pipes.map_style.loader.transport import encode, receive, send
from beam_pipes.map_style.loader.worker import Failure, serve

JOIN_SECS = 5.0


class RemoteTraceback(Exception):
    """Holds the traceback of a worker process as text, so that it is printed with the error it caused."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class WorkerPool:
    """Worker processes that each hold the dataset, and answer requests in the order they came.

    A pool serves one `load` at a time, and is closed where that stops half-way: no answer is ever left in a pipe.
    """

    def __init__(self, dataset: MapStyle, num_workers: int) -> None:
        self._workers: list[tuple[SpawnProcess, Connection]] = []
        try:
            packed = pickle.dumps(dataset, protocol=5)
        except Exception as error:
            raise LoaderWorkerError(
                f"the dataset ({type(dataset).__name__}) cannot be sent to worker processes: "
                f"{type(error).__name__}: {error}. Define its classes and functions at the top of a module, or use "
                "worker_type='thread'"
            ) from error
        try:
            for number in range(num_workers):
                with interrupts_held_back():
                    self._start(number)
            for _, connection in self._workers:
                with contextlib.suppress(ConnectionError):
                    connection.send_bytes(packed)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the workers."""
        return [process.pid for process, _ in self._workers]

    def load(
        self, batches: Iterator[list[int]], epoch: int, *, prefetch: int, timeout: float | None
    ) -> Iterator[Loaded]:
        """Yields `(indices, examples)` of each batch in order; batch k is loaded by worker k modulo their number."""
        turns = itertools.cycle(range(len(self._workers)))
        pending: deque[tuple[int, list[int]]] = deque()
        for indices in itertools.islice(batches, len(self._workers) * prefetch):
            pending.append(self._request(next(turns), epoch, indices))
        while pending:
            number, indices = pending.popleft()
            examples = self._answer(number, indices, timeout)
            for following in itertools.islice(batches, 1):
                pending.append(self._request(next(turns), epoch, following))
            yield indices, examples

    def close(self) -> None:
        """Ends every worker: by closing its pipe, by force where that does not help within seconds."""
        with interrupts_held_back():
            for _, connection in self._workers:
                connection.close()
            deadline = time.monotonic() + JOIN_SECS
            for process, _ in self._workers:
                process.join(max(0.0, deadline - time.monotonic()))
                if process.is_alive():
                    process.kill()
                    process.join(JOIN_SECS)
                if not process.is_alive():  # SIGKILL waits for the kernel, as for a disk that does not answer
                    process.close()
            self._workers.clear()

    def __del__(self) -> None:
        if hasattr(self, "_workers"):  # an interrupt may have come before anyone held the pool, or it held anything
            self.close()

    def _start(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs,), name=f"transforms-loader-{number}", daemon=True)
        resource_tracker.ensure_running()  # a start that finds it gone unblocks Ctrl-C again
        try:
            with children_deaf_to_interrupts():
                process.start()
        finally:
            theirs.close()
        self._workers.append((process, ours))

    def _request(self, number: int, epoch: int, indices: list[int]) -> tuple[int, list[int]]:
        connection = self._workers[number][1]
        with contextlib.suppress(ConnectionError):  # a worker that died is reported where its answer is missed
            send(connection, encode((epoch, indices)))
        return number, indices

    def _answer(self, number: int, indices: list[int], timeout: float | None) -> list[Any]:
        process, connection = self._workers[number]
        if timeout is None:
            waiting = Waiting(
                lambda: (
                    f"worker process {number} (pid {process.pid}) is at examples {short(indices)}; "
                    "DataLoader(timeout=…) makes an error of it"
                )
            )
            while not wait([connection, process.sentinel], LOOK_SECS):
                waiting.look()
        elif not wait([connection, process.sentinel], timeout):
            raise LoaderWorkerError(
                f"worker process {number} (pid {process.pid}) gave no batch within timeout={timeout} s; it is at "
                f"examples {short(indices)}",
                indices=indices,
            )
        try:
            outcome: list[Any] | Failure = receive(connection)
        except (EOFError, OSError) as error:
            raise self._died(number, indices) from error
        if isinstance(outcome, Failure):
            raise _rebuilt(outcome, number)
        return outcome

    def _died(self, number: int, indices: list[int]) -> LoaderWorkerError:
        process = self._workers[number][0]
        process.join(JOIN_SECS)
        return LoaderWorkerError(
            f"worker process {number} (pid {process.pid}) ended with exit code {process.exitcode} while loading "
            f"examples {short(indices)}. A negative code is a signal (-9: killed, often for memory). A script that "
            "loads with processes has to start under `if __name__ == '__main__':`",
            worker=number,
            exit_code=process.exitcode,
            indices=indices,
        )


def _rebuilt(failure: Failure, number: int) -> ExampleError:
    """Makes the exception of a worker one of ours, with the cause and the remote traceback behind it."""
    remote = RemoteTraceback(f"in worker process {number}:\n{failure.trace}")
    error = ExampleError(failure.message, **failure.attributes)
    error.__cause__ = failure.cause or remote
    if failure.cause is not None:
        failure.cause.__cause__ = remote
    return error
