"""Where the records of TFRecord files lie: read from DALI's index files, or found by walking from header to header.

A DALI index is a text file of a line a record: `offset of the frame, bytes of the frame`, parted by a space.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from beam_pipes.cache.framing import FRAME_BYTES, HEADER_BYTES, header_of, scan_records
from beam_pipes.errors import CorruptIndexError

Array = np.ndarray[Any, Any]


def record_places(path: str, data: Array, index_path: str | None) -> tuple[Array, Array]:
    """(offset of each frame, bytes of each payload), int64, in the order of the file; `data` are its bytes."""
    if index_path is not None:
        return read_dali_index(index_path, num_bytes=len(data))
    alike = _frames_alike(data)
    if alike is not None:
        return alike
    found = np.array(list(scan_records(path)), np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def read_dali_index(path: str, *, num_bytes: int) -> tuple[Array, Array]:
    """(offset of each frame, bytes of each payload) of a DALI index, for a file of `num_bytes`.

    Raises `CorruptIndexError` for what is none, or belongs to another file.
    """
    with open(path, "rb") as file:
        text = file.read()
    words = text.split()
    try:
        numbers = np.array(words, dtype=np.int64)
    except ValueError:
        bad = next(word for word in words if not word.isdigit())
        raise _bad_index(path, f"expected numbers, found {bad[:20]!r}") from None
    if len(numbers) % 2 or len(numbers) != 2 * sum(1 for line in text.splitlines() if line.strip()):
        raise _bad_index(path, "expected two numbers a line")
    offsets, sizes = numbers[::2], numbers[1::2]
    if len(offsets) and (offsets.min() < 0 or sizes.min() < FRAME_BYTES or int((offsets + sizes).max()) > num_bytes):
        raise _bad_index(path, f"a record lies outside of the {num_bytes} bytes of the file")
    return offsets, sizes - FRAME_BYTES


def _bad_index(path: str, problem: str) -> CorruptIndexError:
    return CorruptIndexError(
        f"{path}: this is no index of the TFRecord file: {problem}. Make it anew, or leave index_path out.", path=path
    )


def _frames_alike(data: Array) -> tuple[Array, Array] | None:
    """The places where all frames of a file have one length, seen by comparing their headers at once; else None."""
    if len(data) < FRAME_BYTES:
        return None
    length = int.from_bytes(data[:8].tobytes(), "little")
    stride = length + FRAME_BYTES
    count, rest = divmod(len(data), stride)
    if rest or data[:HEADER_BYTES].tobytes() != header_of(length):
        return None
    headers = np.lib.stride_tricks.as_strided(data, (count, HEADER_BYTES), (stride, 1), writeable=False)
    if not np.array_equal(headers, np.broadcast_to(data[:HEADER_BYTES], headers.shape)):
        return None
    return np.arange(count, dtype=np.int64) * stride, np.full(count, length, np.int64)


def file_bytes(path: str) -> Array:
    """The bytes of a file, mapped."""
    if os.path.getsize(path) == 0:
        return np.zeros(0, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, "r"))  # plain: a subclass makes each slice cost more
