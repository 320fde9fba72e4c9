"""Walking the wire format of many serialized Examples together, if they hold the same features in the same order.

One record determines which bytes come in which order: literal ones (tags and names), lengths, and values. Then all
records take each of these steps together, in a few NumPy calls, however long each of them is. Records of another form
are detected and left to a parser.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from beam_pipes.graph.tensors import Array

_KINDS = {1: "bytes_list", 2: "float_list", 3: "int64_list"}
_MOST_LENGTH_BYTES = 5


@dataclasses.dataclass(frozen=True)
class Values:
    """Where the values of one feature are: the kind of list, and for each record the first byte and the number of
    bytes.
    """

    kind: str
    starts: Array
    sizes: Array


@dataclasses.dataclass(frozen=True)
class _Step:
    literal: Array | None = None  # bytes that are the same in all records
    name: str = ""  # of the feature whose values follow, as many bytes as the last length said
    kind: str = ""


class WireForm:
    """The form of one record: which steps lead through it."""

    def __init__(self, steps: list[_Step], places: dict[str, tuple[int, int, str]]) -> None:
        self._steps = steps
        self.places = places

    @classmethod
    def of(cls, payload: bytes) -> WireForm | None:
        """The form of a record, and `places`: feature → (first byte, end, list) in it. None if it is not plain.

        Plain: features of one list with one chunk of values each, as all writers of Examples produce them.
        """
        steps: list[_Step] = []
        places: dict[str, tuple[int, int, str]] = {}
        pending = bytearray()

        def length() -> None:
            steps.append(_Step(literal=np.frombuffer(bytes(pending), np.uint8)))
            pending.clear()

        try:
            outer = _chunks(payload, 0, len(payload))
            if len(outer) != 1 or outer[0][0] != 1:
                return None
            pending += b"\x0a"
            length()
            for entry, entry_start, entry_end in _chunks(payload, outer[0][1], outer[0][2]):
                parts = _chunks(payload, entry_start, entry_end)
                if entry != 1 or [number for number, _, _ in parts] != [1, 2]:
                    return None
                key = payload[parts[0][1] : parts[0][2]]
                lists = _chunks(payload, parts[1][1], parts[1][2])
                if len(lists) != 1 or lists[0][0] not in _KINDS or len(key) > 127:
                    return None
                values = _chunks(payload, lists[0][1], lists[0][2])
                name = key.decode()
                if len(values) != 1 or values[0][0] != 1 or name in places:
                    return None
                pending += b"\x0a"
                length()
                pending += b"\x0a" + bytes([len(key)]) + key + b"\x12"
                length()
                pending += bytes([lists[0][0] << 3 | 2])
                length()
                pending += b"\x0a"
                length()
                steps.append(_Step(name=name, kind=_KINDS[lists[0][0]]))
                places[name] = (values[0][1], values[0][2], _KINDS[lists[0][0]])
        except (IndexError, UnicodeDecodeError):
            return None
        return cls(steps, places)

    def walk(self, data: Array, starts: Array, sizes: Array) -> tuple[dict[str, Values], Array]:
        """Feature → where its values are in `data`, and which records (n, bool) are of this form.

        `starts` and `sizes` are those of the payloads.
        """
        ends = starts + sizes
        at = starts.copy()
        fits = np.ones(len(starts), np.bool_)
        last = max(len(data) - 1, 0)
        length = np.zeros(len(starts), np.int64)
        found: dict[str, Values] = {}
        inner_ends: list[Array] = []
        outermost = True
        for step in self._steps:
            if step.literal is None:
                # Entry, value, list and chunk all end here: else a length belongs to something else.
                for end in inner_ends:
                    fits &= end == at + length
                inner_ends = []
                fits &= at + length <= ends
                found[step.name] = Values(step.kind, at, np.where(fits, length, 0))
                at = at + length
                continue
            size = len(step.literal)
            read = data[np.minimum(at[:, None] + np.arange(size), last)]
            fits &= (read == step.literal).all(axis=1)
            at = at + size
            byte = data[np.minimum(at, last)]
            length = (byte & 0x7F).astype(np.int64)
            at = at + 1
            more = byte >= 0x80
            shift = 7
            while shift < 7 * _MOST_LENGTH_BYTES and more.any():
                byte = np.where(more, data[np.minimum(at, last)], 0)
                length += (byte & 0x7F).astype(np.int64) << shift
                at = at + more
                more = byte >= 0x80
                shift += 7
            fits &= ~more
            at = np.where(fits, at, starts)
            length = np.where(fits, length, 0)
            if outermost:
                fits &= at + length == ends
                outermost = False
            else:
                inner_ends.append(at + length)
        return found, fits & (at == ends)


def decode_varints(flat: Array) -> tuple[Array, Array]:
    """Concatenated varints → (their values int64, where each ends): bytes `01 AC 02` → `[1, 300]`, `[0, 2]`.

    Raises `ValueError` for bytes that end within a varint, and for varints of more than ten bytes.
    """
    if len(flat) and flat[-1] >= 0x80:
        raise ValueError("the bytes end within an integer")
    ends = np.flatnonzero(flat < 0x80)
    starts = np.zeros_like(ends)
    np.add(ends[:-1], 1, out=starts[1:])
    # What an integer would be that begins at each byte, of four bytes at most: plain loops over all bytes are several
    # times faster than gathering the bytes of each integer.
    size = len(flat)
    bits = np.zeros(size + 3, np.uint8)
    np.bitwise_and(flat, 0x7F, out=bits[:size])
    goes_on = np.zeros(size + 3, np.uint8)
    np.negative(flat >> np.uint8(7), out=goes_on[:size])
    words, more = bits[:size].astype(np.uint32), goes_on[:size].copy()
    for step in (1, 2, 3):
        if not more.any():
            break
        words |= (bits[step : size + step] & more).astype(np.uint32) << np.uint32(7 * step)
        more &= goes_on[step : size + step]
    values = words.take(starts).astype(np.int64)
    if more.any():
        long = np.flatnonzero(ends - starts > 3)
        values[long] = _long_varints(flat, ends[long], ends[long] - starts[long] + 1)
    return values, ends


def _long_varints(flat: Array, ends: Array, lengths: Array) -> Array:
    """int64 of the varints that end at `ends`, byte by byte from their last ones."""
    if lengths.max() > 10:
        raise ValueError("an integer takes more than ten bytes")
    values: Array = flat[ends].astype(np.uint64)
    for step in range(1, int(lengths.max())):
        left = np.flatnonzero(lengths > step)
        values[left] = values[left] << np.uint64(7) | (flat[ends[left] - step] & np.uint8(0x7F))
    return values.view(np.int64)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends)."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _chunks(data: bytes, start: int, end: int) -> list[tuple[int, int, int]]:
    """(field number, start, end) of the length-delimited fields of a message; raises `IndexError` for other ones."""
    found = []
    while start < end:
        tag, start = _varint(data, start)
        if tag & 7 != 2:
            raise IndexError
        size, start = _varint(data, start)
        if start + size > end:
            raise IndexError
        found.append((tag >> 3, start, start + size))
        start += size
    return found
