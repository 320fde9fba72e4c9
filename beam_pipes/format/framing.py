"""TFRecord framing: `length u64 | masked crc of the length u32 | payload | masked crc of the payload u32`, per record.

All numbers are little-endian. A file is its records one after the other, nothing else.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import google_crc32c
import numpy as np

from beam_pipes.errors import CacheNotFoundError, CorruptRecordError
from beam_pipes.format.wire import Computed
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.protocol import RecordSink, write_all

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES

# Records are framed and joined into writes of this size: 0.4 µs per record, against 3-4 µs with one write each.
WRITE_BYTES = 1 << 20
_READ_BYTES = 1 << 18

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER = struct.Struct("<QI")
_pack_crc, _unpack_crc, _unpack_length = _CRC.pack, _CRC.unpack_from, _LENGTH.unpack_from
_crc32c = google_crc32c.value


def masked_crc32c(data: bytes) -> int:
    """The crc32c of `data` as TFRecord stores it: rotated by 15 bits, plus a constant."""
    crc: int = _crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def header_of(length: int) -> bytes:
    """The 12 bytes in front of a payload of `length` bytes."""
    packed = _LENGTH.pack(length)
    return packed + _pack_crc(masked_crc32c(packed))


def headers() -> Computed[int, bytes]:
    """Payload length → header: comparing with a known one is cheaper than a checksum."""
    return Computed(header_of)


_headers = headers()


class RecordWriter:
    """Writes records to a TFRecord file, joined into large writes. Usable in a `with` block.

    `target` is a path, which is created or truncated, or a binary file, which stays open on `close`. Not thread-safe;
    use `ShardWriter` for a file that appears complete or not at all.
    """

    def __init__(self, target: str | os.PathLike[str] | RecordSink) -> None:
        self._owned = isinstance(target, (str, os.PathLike))
        self._file: RecordSink = open(target, "wb", buffering=0) if self._owned else target  # type: ignore[assignment, arg-type]
        self._pending: list[bytes] = []  # payloads
        self._pending_bytes = 0
        self._flushed = 0
        self._crc = 0
        self._closed = False

    def write(self, payload: bytes) -> None:
        """Appends one record."""
        self._pending.append(payload)
        self._pending_bytes += len(payload) + FRAME_BYTES
        if self._pending_bytes >= WRITE_BYTES:
            self.flush()

    def write_all(self, payloads: Sequence[bytes]) -> None:
        """Appends these records: `write` of each, at once."""
        num_bytes = sum(map(len, payloads)) + FRAME_BYTES * len(payloads)
        if num_bytes > WRITE_BYTES:  # so that no write is much larger
            for payload in payloads:
                self.write(payload)
            return
        self._pending += payloads
        self._pending_bytes += num_bytes
        if self._pending_bytes >= WRITE_BYTES:
            self.flush()

    @property
    def bytes_written(self) -> int:
        """Bytes of all records so far."""
        return self._flushed + self._pending_bytes

    @property
    def crc32c(self) -> int:
        """The crc32c of all bytes so far."""
        self.flush()
        return self._crc

    def flush(self) -> None:
        """Writes what is pending to the file."""
        if not self._pending:
            return
        joined = _framed(self._pending)
        write_all(self._file, joined)
        self._pending = []
        self._pending_bytes = 0
        self._crc = google_crc32c.extend(self._crc, joined)
        self._flushed += len(joined)

    def close(self) -> None:
        """Flushes, and closes a file that was opened by path. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
        finally:
            if self._owned:
                self._file.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _framed(payloads: list[bytes]) -> bytes:
    """Records one after the other, made of columns of headers, payloads and footers: half the time of a loop."""
    checksums = np.fromiter(map(_crc32c, payloads), np.uint32, len(payloads))
    masked = ((checksums >> np.uint32(15)) | (checksums << np.uint32(17))) + np.uint32(0xA282EAD8)
    parts = [b""] * (3 * len(payloads))
    parts[0::3] = map(_headers.__getitem__, map(len, payloads))
    parts[1::3] = payloads
    parts[2::3] = masked.astype("<u4", copy=False).view("V4").tolist()
    return b"".join(parts)


def read_records(path: str | os.PathLike[str], *, verify: bool = True) -> Iterator[bytes]:
    """Yields the payloads of a TFRecord file in order.

    Every length and checksum is checked before a payload is yielded (`verify=False` leaves out the payload's checksum,
    never the length's: no memory is allocated for a damaged length).

    Raises:
        CacheNotFoundError: there is no such file.
        CorruptRecordError: naming file and offset.
    """
    with _open(path) as file:
        name = os.fspath(path)
        size = file.seek(0, os.SEEK_END)
        file.seek(0)

        yield from payloads_of(iter(lambda: file.read(_READ_BYTES), b""), name, 0, size, verify=verify)


def payloads_of(
    chunks: Iterable[bytes], path: str, start: int, end: int, *, count: int | None = None, verify: bool = True
) -> Iterator[bytes]:
    """The payloads in the bytes from `start` to `end` of a TFRecord file, as in `read_records`; `count` of them."""

    def refuse(offset: int, found: bytes, missing: int) -> None:
        check_header(path, offset, found[:HEADER_BYTES], len(found) if missing else end - offset)

    yielded = 0
    for together in frames(chunks, offset=start, most_bytes=end - start - FRAME_BYTES, refuse=refuse):
        for offset, payload, stored in together:
            if verify and stored != masked_crc32c(payload):
                _check_payload(path, offset, payload, stored)
            yield payload
        yielded += len(together)
    if count is not None and yielded != count:
        raise CorruptRecordError(
            f"{path}: expected {count} records in the bytes {start} to {end}, as the manifest says, found {yielded}. "
            "Build the cache again, or copy the shard again.",
            path=path,
            offset=start,
        )


# Offset of the frame, payload, and its stored checksum.
Frame = tuple[int, bytes, int]


def frames(
    chunks: Iterable[bytes], *, offset: int = 0, most_bytes: int, refuse: Callable[[int, bytes, int], None]
) -> Iterator[list[Frame]]:
    """The frames of a stream that starts at a frame, grouped by the chunk in which they end. Payloads are not checked.

    Args:
        chunks: the bytes of the stream.
        offset: that of the first frame.
        most_bytes: longer payloads are refused.
        refuse: raises an error for a frame, given its offset, the bytes of it that there are, and how many more it
            should have: 0 if its length is damaged, or above `most_bytes`.
    """
    known = headers()
    parts: list[bytes] = []  # of a frame that is not complete yet
    missing = HEADER_BYTES
    for chunk in chunks:
        parts.append(chunk)
        missing -= len(chunk)
        if missing > 0:
            continue
        buffer, parts = b"".join(parts), []
        found: list[Frame] = []
        at = 0
        while True:
            missing = at + HEADER_BYTES - len(buffer)
            if missing > 0:
                break
            (length,) = _unpack_length(buffer, at)
            if length > most_bytes or not buffer.startswith(known[length], at):
                refuse(offset + at, buffer[at : at + HEADER_BYTES], 0)
            missing = at + FRAME_BYTES + length - len(buffer)
            if missing > 0:
                break
            start = at + HEADER_BYTES
            end = start + length
            found.append((offset + at, buffer[start:end], _unpack_crc(buffer, end)[0]))
            at = end + FOOTER_BYTES
        if at < len(buffer):
            parts.append(buffer[at:])
        offset += at
        if found:
            yield found
    if parts:
        refuse(offset, b"".join(parts), missing)


def scan_records(path: str | os.PathLike[str]) -> Iterator[tuple[int, int]]:
    """Yields (offset of the frame, payload bytes) for each record of a TFRecord file; checks lengths, not payloads."""
    with _open(path) as file:
        name = os.fspath(path)
        size = os.fstat(file.fileno()).st_size
        offset = 0
        while offset < size:
            header = os.pread(file.fileno(), HEADER_BYTES, offset)
            length = check_header(name, offset, header, size - offset)
            yield offset, length
            offset += length + FRAME_BYTES


def check_header(name: str, offset: int, header: bytes, available: int) -> int:
    """The payload length in a header, or `CorruptRecordError`; `available` counts from the frame's start."""
    if len(header) < HEADER_BYTES:
        raise CorruptRecordError(
            f"{name}: the record at offset {offset} is cut short: expected a header of {HEADER_BYTES} bytes, found "
            f"{len(header)}. The file was truncated; rebuild or copy it again.",
            path=name,
            offset=offset,
            problem="truncated",
        )
    length, crc = _HEADER.unpack(header)
    expected = masked_crc32c(header[:8])
    if crc != expected:
        raise CorruptRecordError(
            f"{name}: the length of the record at offset {offset} is damaged: expected checksum {expected:#010x}, "
            "found "
            f"{crc:#010x}. This is not a TFRecord file, or its bytes have changed; rebuild or copy it again.",
            path=name,
            offset=offset,
            problem="length",
        )
    if length + FRAME_BYTES > available:
        raise CorruptRecordError(
            f"{name}: the record at offset {offset} is cut short: expected {length + FRAME_BYTES} bytes, found "
            f"{available}. The file was truncated; rebuild or copy it again.",
            path=name,
            offset=offset,
            problem="truncated",
        )
    return int(length)


def intact_payload(frame: bytes) -> bytes | None:
    """The payload of one complete frame, its length and both checksums checked; None if `check_frame` raises."""
    end = len(frame) - FOOTER_BYTES
    payload = frame[HEADER_BYTES:end]
    if end < HEADER_BYTES or not frame.startswith(_headers[len(payload)]):
        return None
    crc = _crc32c(payload)
    whole = frame.endswith(_pack_crc((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF))
    return payload if whole else None


def check_frame(name: str, offset: int, frame: bytes) -> bytes:
    """The payload of one complete frame, after checking its length and both checksums, or `CorruptRecordError`."""
    length = check_header(name, offset, frame[:HEADER_BYTES], len(frame))
    payload = frame[HEADER_BYTES : HEADER_BYTES + length]
    _check_payload(name, offset, payload, _unpack_crc(frame, HEADER_BYTES + length)[0])
    return payload


def _check_payload(name: str, offset: int, payload: bytes, found: int) -> None:
    expected = masked_crc32c(payload)
    if found != expected:
        raise CorruptRecordError(
            f"{name}: the payload of the record at offset {offset} ({len(payload)} bytes) is damaged: it has checksum "
            f"{expected:#010x}, and {found:#010x} is stored. Its bytes have changed; rebuild or copy the file again.",
            path=name,
            offset=offset,
            problem="payload",
        )


def _open(path: str | os.PathLike[str]) -> IO[bytes]:
    try:
        return storage_for(path).open_read(os.fspath(path))
    except FileNotFoundError as error:
        raise CacheNotFoundError(
            f"expected a TFRecord file at {os.fspath(path)!r}, but there is none in {str(Path(path).parent)!r}",
            path=os.fspath(path),
        ) from error
