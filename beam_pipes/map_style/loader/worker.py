"""What a worker process does: unpickle the dataset, then answer requests for examples until the pipe ends."""

from __future__ import annotations

import dataclasses
import os
import pickle
import queue
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from beam_pipes.errors import ExampleError
from beam_pipes.map_style.loader.fetching import load_examples, short
from beam_pipes.map_style.loader.transport import encode, receive, send


@dataclasses.dataclass(frozen=True)
class Failure:
    """An exception on its way to the parent: its words, its cause if that can travel, and the traceback as text."""

    message: str
    attributes: dict[str, Any]
    cause: BaseException | None
    trace: str


def serve(connection: Connection) -> None:
    """Runs in the worker process; the first message is the pickled dataset, later ones are (epoch, indices)."""
    # Ctrl-C reaches the whole group: only the parent acts on it, and closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # held back since before this process began
    try:
        packed = connection.recv_bytes()
    except (EOFError, OSError):
        return  # the loader was gone before this process was up
    requests: queue.SimpleQueue[tuple[int, list[int]]] = queue.SimpleQueue()
    # A thread reads the pipe at all times: the parent can never block on a full one, and its end is noticed at once.
    threading.Thread(target=_read_requests, args=(connection, requests), daemon=True).start()
    dataset, broken = _unpack(packed)
    while True:
        epoch, indices = requests.get()
        outcome = broken if broken is not None else _outcome(dataset, indices, epoch)
        try:
            messages = encode(outcome)
        except Exception as error:
            words = f"examples {short(indices)} cannot be sent from a worker process: {type(error).__name__}: {error}"
            messages = encode(_failure(ExampleError(words, indices=indices), error))
        try:
            send(connection, messages)
        except ConnectionError:
            return  # nobody waits for it any more


def _read_requests(connection: Connection, requests: queue.SimpleQueue[tuple[int, list[int]]]) -> None:
    try:
        while True:
            requests.put(receive(connection))
    except (EOFError, OSError):
        # The loader was closed, or its process is gone, however it ended: leave, even from the middle of user code.
        os._exit(0)


def _unpack(packed: bytes) -> tuple[Any, Failure | None]:
    try:
        return pickle.loads(packed), None
    except Exception as error:
        words = f"the dataset cannot be unpickled in a worker process: {type(error).__name__}: {error}"
        return None, _failure(ExampleError(words), error)


def _outcome(dataset: Any, indices: list[int], epoch: int) -> list[Any] | Failure:
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
        return False  # an exception class may refuse to be pickled, or to be built again, in any way it likes
