"""Loading ahead for the map-style loader: in worker processes, or on threads of this process.

    loader ──(epoch, indices)──► pipe ──► serve(): load_examples ──► encode ──► pipe ──► loader, in order
    loader ──indices──► OrderedPrefetcher: load_examples ──► loader, in order

`load_examples` reads the examples of one batch; any error names the example. Processes are started with
`spawn`: a forked child inherits locks held by threads that it does not have; tokenizers, TensorFlow and JAX deadlock
there. Each worker is connected to the loader by one pipe and ends with it, so none outlives its loader or the loader's
process, even if that is killed. Large arrays travel outside the pickle, without another copy on either side. Ctrl-C is
blocked while a process is started and registered, which must not be interrupted halfway.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import numpy as np

from beam_pipes.errors import ExampleError, LoaderWorkerError
from beam_pipes.loader.prefetch import LOOK_SECS, OrderedPrefetcher, Waiting, interrupts_held_back
from beam_pipes.map_style.protocol import MapStyle, example_error, reading_epoch


def load_examples(dataset: MapStyle, indices: list[int], epoch: int) -> list[object]:
    """Returns the examples at `indices`, in one call where the dataset has `__getitems__(indices)` as torch's may.

    Any exception becomes an `ExampleError` with the `index` (or the `indices`) and the original as its cause.
    """
    with reading_epoch(epoch):
        return _load_all(dataset, indices)


def _load_all(dataset: MapStyle, indices: list[int]) -> list[object]:
    together = getattr(dataset, "__getitems__", None)
    if together is None:
        return [_load(dataset, index) for index in indices]
    try:
        examples = list(together(indices))
    except Exception as error:
        raise ExampleError(
            f"loading examples {short(indices)} failed: {type(error).__name__}: {error}", indices=indices
        ) from error
    if len(examples) != len(indices):
        raise ExampleError(
            f"{type(dataset).__name__}.__getitems__ should give one example for each of {len(indices)} indices, "
            f"got {len(examples)} for {short(indices)}",
            indices=indices,
        )
    return examples


def short(indices: list[int]) -> str:
    """Shows indices; of many, only the first eight."""
    if len(indices) <= 8:
        return str(indices)
    return f"[{', '.join(map(str, indices[:8]))}, … {len(indices) - 8} more]"


def _load(dataset: MapStyle, index: int) -> object:
    try:
        return dataset[index]
    except Exception as error:
        raise example_error(f"loading example {index}", index, error) from error


@contextlib.contextmanager
def children_deaf_to_interrupts() -> Iterator[None]:
    """A process started inside the block ignores Ctrl-C until it unblocks the signal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# Smaller arrays stay inside the pickle: a separate message costs two system calls.
BESIDE_BYTES = 64 * 1024


def encode(value: object) -> list[bytes | memoryview]:
    """Returns the messages that encode `value`; errors of pickling are raised before anything is sent."""
    beside: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < BESIDE_BYTES:
            return True
        beside.append(raw)
        return False

    body = pickle.dumps(value, protocol=5, buffer_callback=keep)
    return [pickle.dumps([raw.nbytes for raw in beside]), body, *beside]


def send(connection: Connection, messages: list[bytes | memoryview]) -> None:
    """Sends what `encode` returned."""
    for message in messages:
        connection.send_bytes(message)


def receive(connection: Connection) -> Any:
    """Receives one value; its arrays are writable and own their memory. Raises `EOFError` at the end of the pipe."""
    sizes = pickle.loads(connection.recv_bytes())
    body = connection.recv_bytes()
    beside = [np.empty(size, dtype=np.uint8) for size in sizes]
    for buffer in beside:
        connection.recv_bytes_into(buffer)
    return pickle.loads(body, buffers=beside)


@dataclasses.dataclass(frozen=True)
class Failure:
    """An exception to be sent to the parent: its message, its cause if picklable, and the traceback as text."""

    message: str
    attributes: dict[str, object]
    cause: BaseException | None
    trace: str


def serve(connection: Connection, number: int) -> None:
    """Runs in the worker process; the first message is the pickled dataset, later ones are (epoch, indices)."""
    # Ctrl-C reaches the whole group: only the parent acts on it, and closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked since before this process began
    try:
        packed = connection.recv_bytes()
    except (EOFError, OSError):
        return  # the loader ended before this process was ready
    requests: queue.SimpleQueue[tuple[int, list[int]]] = queue.SimpleQueue()
    # A thread reads the pipe at all times, so the parent never blocks on a full one, and its end is noticed at once.
    threading.Thread(target=_read_requests, args=(connection, requests), daemon=True).start()
    dataset = _unpack(packed, number)
    while True:
        epoch, indices = requests.get()
        outcome = dataset if isinstance(dataset, Failure) else _outcome(dataset, indices, epoch)
        try:
            messages = encode(outcome)
        except Exception as error:
            words = f"examples {short(indices)} cannot be sent from a worker process: {type(error).__name__}: {error}"
            messages = encode(_failure(ExampleError(words, indices=indices), error))
        try:
            send(connection, messages)
        except ConnectionError:
            return  # nobody waits for the answer


def _read_requests(connection: Connection, requests: queue.SimpleQueue[tuple[int, list[int]]]) -> None:
    try:
        while True:
            requests.put(receive(connection))
    except (EOFError, OSError):
        # The loader was closed or its process ended: exit, even from the middle of user code.
        os._exit(0)


def _unpack(packed: bytes, number: int) -> MapStyle | Failure:
    what = "the dataset cannot be unpickled in a worker process"
    try:
        dataset, init = pickle.loads(packed)
        what = f"worker_init_fn({number}) failed"
        if init is not None:
            init(number)
        loaded: MapStyle = dataset
        return loaded
    except Exception as error:
        return _failure(ExampleError(f"{what}: {type(error).__name__}: {error}"), error)


def _outcome(dataset: MapStyle, indices: list[int], epoch: int) -> list[object] | Failure:
    try:
        return load_examples(dataset, indices, epoch)
    except ExampleError as error:
        return _failure(error, error.__cause__)


def _failure(error: ExampleError, cause: BaseException | None) -> Failure:
    trace = "".join(traceback.format_exception(cause)) if cause is not None else ""
    return Failure(error.message, error.attributes, cause if _travels(cause) else None, trace)


def _travels(cause: BaseException | None) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(cause))) is type(cause)
    except Exception:
        return False  # an exception class may fail in any way when pickled or rebuilt


JOIN_SECS = 5.0


class RemoteTraceback(Exception):
    """Holds the traceback of a worker process as text, so that it is printed with the error it caused."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class WorkerPool:
    """Worker processes that each hold the dataset, and answer requests in order.

    A pool serves one `load` at a time, and is closed if that stops half-way, so that no answer is left in a pipe.
    """

    def __init__(
        self, dataset: MapStyle, num_workers: int, worker_init_fn: Callable[[int], object] | None = None
    ) -> None:
        self._workers: list[tuple[SpawnProcess, Connection]] = []
        try:
            packed = pickle.dumps((dataset, worker_init_fn), protocol=5)
        except Exception as error:
            raise LoaderWorkerError(
                f"the dataset ({type(dataset).__name__}){' or worker_init_fn' * (worker_init_fn is not None)} cannot "
                f"be sent to worker processes: {type(error).__name__}: {error}. Define its classes and functions at "
                "the top of a module, or use worker_type='thread'"
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
        failures: list[Exception] = []  # of the sampler: raised after the batches before them
        batches = _until_failure(batches, failures)
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
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Ends every worker by closing its pipe, or by force if that does not help within seconds."""
        with interrupts_held_back():
            for _, connection in self._workers:
                connection.close()
            deadline = time.monotonic() + JOIN_SECS
            for process, _ in self._workers:
                process.join(max(0.0, deadline - time.monotonic()))
                if process.is_alive():
                    process.kill()
                    process.join(JOIN_SECS)
                if not process.is_alive():  # SIGKILL waits for the kernel, for example for an unresponsive disk
                    process.close()
            self._workers.clear()

    def __del__(self) -> None:
        if hasattr(self, "_workers"):  # an interrupt may have come before the pool was complete
            self.close()

    def _start(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, number), name=f"map-style-loader-{number}", daemon=True)
        resource_tracker.ensure_running()  # if it is not running, starting it later unblocks Ctrl-C
        try:
            with children_deaf_to_interrupts():
                process.start()
        finally:
            theirs.close()
        self._workers.append((process, ours))

    def _request(self, number: int, epoch: int, indices: list[int]) -> tuple[int, list[int]]:
        connection = self._workers[number][1]
        with contextlib.suppress(ConnectionError):  # a dead worker is reported when its answer is missing
            send(connection, encode((epoch, indices)))
        return number, indices

    def _answer(self, number: int, indices: list[int], timeout: float | None) -> list[object]:
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
            outcome: list[object] | Failure = receive(connection)
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


def _until_failure(batches: Iterator[list[int]], failures: list[Exception]) -> Iterator[list[int]]:
    try:
        yield from batches
    except Exception as error:
        failures.append(error)


def _rebuilt(failure: Failure, number: int) -> ExampleError:
    """Turns a worker's exception into one of ours, with its cause and the remote traceback."""
    remote = RemoteTraceback(f"in worker process {number}:\n{failure.trace}")
    error = ExampleError(failure.message, **failure.attributes)
    error.__cause__ = failure.cause or remote
    if failure.cause is not None:
        failure.cause.__cause__ = remote
    return error


Loaded = tuple[list[int], list[object]]


def load_on_threads(
    dataset: MapStyle, batches: Iterator[list[int]], epoch: int, *, num_workers: int, prefetch: int
) -> Generator[Loaded, None, None]:
    """Yields `(indices, examples)` of each batch in order, with `num_workers * prefetch` batches in flight.

    The threads live as long as this iterator: closing it lets each finish its current example, and joins them.
    """
    stopped = threading.Event()

    def load(indices: list[int]) -> Loaded:
        if not hasattr(dataset, "__getitems__"):
            # One by one, so that closing waits for an example rather than a batch.
            return indices, [
                example
                for index in indices
                if not stopped.is_set()
                for example in load_examples(dataset, [index], epoch)
            ]
        return indices, load_examples(dataset, indices, epoch)

    def at_examples(indices: list[int]) -> str:
        closed = " that was closed is still at one of the" if stopped.is_set() else " is at"
        return f"a thread of the loader{closed} examples {short(indices)}"

    loaded = OrderedPrefetcher(
        load, batches, workers=num_workers, depth=num_workers * prefetch, name="map-style-loader", describe=at_examples
    )
    try:
        # Not `yield from`, which would close it before the threads are stopped.
        while (batch := next(loaded, None)) is not None:
            yield batch
    finally:
        stopped.set()
        loaded.close()
