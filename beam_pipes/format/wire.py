"""The wire format of `tf.train.Example`, written and walked through by hand: protobuf takes ten times as long.

We write an Example as a concatenation of chunks `features { one feature }`. Occurrences of the singular message field
`features` merge, so any parser reads the chunks as one map; between chunks there may be *filler*, an unknown field
(number 15, bytes) that every parser skips, which puts the payload of the next feature on an aligned offset.

Other writers produce *plain* Examples: one `features`, and in it features of one list with one chunk of values each.
`plain_places` locates the values of one such record, and `WireForm` those of many that have the same features in the
same order, in a few NumPy calls for each feature, however long each record is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from beam_pipes.format.dtypes import Array

BYTES_LIST = 0x0A
FLOAT_LIST = 0x12
INT64_LIST = 0x1A

_TAGS = {"bytes_list": BYTES_LIST, "float_list": FLOAT_LIST, "int64_list": INT64_LIST}
_KINDS = {tag >> 3: kind for kind, tag in _TAGS.items()}
_MOST_LENGTH_BYTES = 5

FILLER_TAG = 0x7A  # field 15, length-delimited

# FILLER[n] are n bytes of filler. One byte alone is impossible: the gap is one alignment longer then.
FILLER = (b"", b"", *(bytes([FILLER_TAG, n - 2]).ljust(n, b"\0") for n in range(2, 10)))


def varint(value: int) -> bytes:
    """`varint(300)` → b"\\xac\\x02" """
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(tag: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return bytes([tag]) + varint(len(content)) + content


def chunk_header(name: bytes, kind: int, payload_bytes: int, *, single: bool = True) -> bytes:
    """All bytes of a chunk up to a payload of `payload_bytes`.

    With `single` the payload is the only value of a list of `kind`: one `bytes` value, or the packed numbers of a float
    or int64 list (both have the tag 0x0a). Without, it is the whole content of the list.
    """
    inner = b"\x0a" + varint(payload_bytes) if single else b""
    for tag in (kind, 0x12):  # the list in a Feature, which is the value of a map entry
        inner = bytes([tag]) + varint(len(inner) + payload_bytes) + inner
    inner = delimited(0x0A, name) + inner
    for _ in range(2):  # the map entry in Features, which is a field of Example
        inner = b"\x0a" + varint(len(inner) + payload_bytes) + inner
    return inner


K = TypeVar("K")
V = TypeVar("V")


class Computed(dict[K, V]):
    """Key → the result of a function, computed once each; holds up to 65,536 at a time."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        if len(self) >= 1 << 16:
            self.clear()
        made = self[key] = self._make(key)
        return made


_VARINTS: Computed[int, bytes] = Computed(lambda value: varint(value & 0xFFFF_FFFF_FFFF_FFFF))

# Up to this many numbers are looked up one by one, at 30 ns each; NumPy takes 8 µs for one and 20 ns for each more.
_FEW = 256


def packed_varints(values: np.ndarray) -> bytes:
    """The packed form of an int64 array (negative values take ten bytes).

    `packed_varints(np.array([1, 300]))` → b"\\x01\\xac\\x02"
    """
    if values.size <= _FEW:
        return b"".join(map(_VARINTS.__getitem__, values.tolist()))
    unsigned = np.ascontiguousarray(values, dtype=np.int64).view(np.uint64)
    greatest = int(unsigned.max())
    if greatest < 0x80:
        return bytes(unsigned.astype(np.uint8))
    width = -(-greatest.bit_length() // 7)
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    groups = unsigned[:, None] >> shifts
    more = np.zeros(groups.shape, bool)
    more[:, :-1] = groups[:, 1:] != 0
    digits = (groups & np.uint64(0x7F)).astype(np.uint8)
    digits[more] |= 0x80
    keep = groups != 0
    keep[:, 0] = True
    return bytes(digits[keep])


_MOST_VARINT_BYTES = 10


def decode_varints(flat: Array, run_ends: Array) -> tuple[Array, Array]:
    """Concatenated varints → (their values int64, how many there are before each of `run_ends`).

    Bytes `01 AC 02 07`, run ends `[3, 4]` → `[1, 300, 7]`, `[2, 3]`. Run ends are places in `flat`, each after the last
    byte of a varint. Raises `ValueError` for bytes that end within a varint, and for varints of more than ten bytes.
    """
    if len(flat) and flat[-1] >= 0x80:
        raise ValueError("the bytes end within an integer")
    begins = np.ones(len(flat), np.bool_)
    np.less(flat[:-1], 0x80, out=begins[1:])
    starts = np.flatnonzero(begins)
    return _values(flat, starts), np.searchsorted(starts, run_ends)


def unpacked_varints(packed: bytes) -> Array:
    """The inverse of `packed_varints`; raises `ValueError` as `decode_varints` does."""
    flat = np.frombuffer(packed, np.uint8)
    return flat.astype(np.int64) if packed.isascii() else decode_varints(flat, _NO_ENDS)[0]


_NO_ENDS = np.zeros(0, np.int64)


def _values(flat: Array, starts: Array) -> Array:
    """The integers that begin at `starts`.

    Computes, for every byte, the integer of at most four bytes that would begin there: plain loops over all bytes are
    several times faster than gathering the bytes of each integer. Cache-sized pieces were slower: two threads reached
    0.76 of tf.data with them, and 1.0 without, because each call of NumPy takes the interpreter's lock.
    """
    size = len(flat)
    bits, goes_on = np.zeros(size + 3, np.uint8), np.zeros(size + 3, np.uint8)
    np.bitwise_and(flat, 0x7F, out=bits[:size])
    np.negative(flat >> np.uint8(7), out=goes_on[:size])
    more = goes_on[:size]
    words: Array = (bits[1 : size + 1] & more).astype(np.uint16)  # two bytes hold 14 bits
    words <<= np.uint16(7)
    words |= bits[:size]
    more = more & goes_on[1 : size + 1]
    for step in (2, 3):
        if not more.any():
            short: Array = words[starts].astype(np.int64)
            return short
        words = words.astype(np.uint32, copy=False)
        words |= (bits[step : size + step] & more).astype(np.uint32) << np.uint32(7 * step)
        more &= goes_on[step : size + step]
    values: Array = words[starts].astype(np.uint64)
    longer = np.flatnonzero(more[starts])
    for step in range(4, _MOST_VARINT_BYTES):
        byte = flat[starts[longer] + step]
        values[longer] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * step)
        longer = longer[byte >= 0x80]
    if len(longer):
        raise ValueError("an integer takes more than ten bytes")
    return values.view(np.int64)


@dataclasses.dataclass(frozen=True)
class Values:
    """Where the values of one feature are: the kind of list, and for each record the first byte and the number of
    bytes.
    """

    kind: str
    starts: Array
    sizes: Array


# Feature → (kind of list, first byte of its values, end), in the order of the record.
Places = dict[str, tuple[str, int, int]]


def plain_places(payload: bytes) -> Places | None:
    """Where the values of each feature are in a plain record; None for other records, and for other bytes."""
    places: Places = {}
    try:
        ((number, start, end),) = delimited_fields(payload, 0, len(payload))
        if number != 1:
            return None
        for number, *entry in delimited_fields(payload, start, end):
            (one, key_start, key_end), (two, start, end) = delimited_fields(payload, *entry)
            ((kind, start, end),) = delimited_fields(payload, start, end)
            ((values, start, end),) = delimited_fields(payload, start, end)
            name = payload[key_start:key_end].decode()
            if (number, one, two, values) != (1, 1, 2, 1) or kind not in _KINDS or name in places:
                return None
            places[name] = (_KINDS[kind], start, end)
    except (IndexError, ValueError):
        return None
    return places


def delimited_fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field number, start, end) of the fields of a message; `IndexError` for one that is not length-delimited."""
    while start < end:
        tag, start = varint_at(data, start)
        size, start = varint_at(data, start)
        if tag & 7 != 2 or start + size > end:
            raise IndexError
        yield tag >> 3, start, start + size
        start += size


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends)."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


class WireForm:
    """The features of plain records, their lists and their order: the bytes and the lengths that lead to the values."""

    def __init__(self, places: Places) -> None:
        self._literals = {
            (name, kind): [
                np.frombuffer(literal, np.uint8)
                for literal in (b"\x0a", delimited(0x0A, name.encode()) + b"\x12", bytes([_TAGS[kind]]), b"\x0a")
            ]
            for name, (kind, _, _) in places.items()
        }

    def walk(self, data: Array, starts: Array, sizes: Array) -> tuple[dict[str, Values], Array]:
        """Feature → where its values are in `data`, and which records (n, bool) are of this form.

        `starts` and `sizes` are those of the payloads.
        """
        ends = starts + sizes
        at = starts.copy()
        fits = np.ones(len(starts), np.bool_)
        last = max(len(data) - 1, 0)

        def length_after(literal: Array) -> Array:
            """Moves all records past bytes that are the same in all of them, and reads the length that follows."""
            nonlocal at, fits
            fits &= (data[np.minimum(at[:, None] + np.arange(len(literal)), last)] == literal).all(axis=1)
            at = at + len(literal)
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
            return np.where(fits, length, 0)

        length = length_after(np.frombuffer(b"\x0a", np.uint8))
        fits &= at + length == ends
        found: dict[str, Values] = {}
        for (name, kind), literals in self._literals.items():
            inner_ends = []
            for literal in literals:
                length = length_after(literal)
                inner_ends.append(at + length)
            # Entry, value, list and chunk must all end here; otherwise a length belongs to something else.
            for end in inner_ends:
                fits &= end == at + length
            fits &= at + length <= ends
            found[name] = Values(kind, at, np.where(fits, length, 0))
            at = at + length
        return found, fits & (at == ends)
