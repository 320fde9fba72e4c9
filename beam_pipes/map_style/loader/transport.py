"""Objects through a pipe: large arrays travel beside the pickle, without a copy of their own on either side."""

from __future__ import annotations

import pickle
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

# Smaller arrays stay inside the pickle: a message of its own costs two system calls.
BESIDE_BYTES = 64 * 1024


def encode(value: Any) -> list[Any]:
    """Returns the messages that stand for `value`; raises what pickling raises, before anything is sent."""
    beside: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < BESIDE_BYTES:
            return True
        beside.append(raw)
        return False

    body = pickle.dumps(value, protocol=5, buffer_callback=keep)
    return [pickle.dumps([raw.nbytes for raw in beside]), body, *beside]


def send(connection: Connection, messages: list[Any]) -> None:
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
