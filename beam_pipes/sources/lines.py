"""Lines of bytes, many at a time: shared by every source whose records are lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from beam_pipes.cache.lineage import DIGEST_BYTES
from beam_pipes.errors import SourceError
from beam_pipes.sources.byte_stream import READ_BYTES, open_input, read_error
from beam_pipes.sources.file_source import Range, even_cuts
from beam_pipes.sources.record_batch import Piece, content_digest
from beam_pipes.sources.selection import FoundFile

# 256 KiB of text and the strings made of it stay in a core's own cache: 20 % quicker than 1 MiB (64 KiB - 1 MiB tried).
LINE_READ_BYTES = 256 << 10

BOM = b"\xef\xbb\xbf"
# Of a line that is too long, as much as this is kept for its dead letter.
OVERLONG_KEPT_BYTES = 64 << 10


class LineBlock(NamedTuple):
    """Whole lines of one file; `offset` of the first in the (decompressed) file.

    Every line but a file's last ends with a newline. A line longer than allowed is a block of its own: `length` says
    how long it is, and `data` holds its beginning only.
    """

    offset: int
    data: bytes
    length: int

    @property
    def is_overlong(self) -> bool:
        return self.length != len(self.data)


def line_blocks(chunks: Iterator[bytes], *, offset: int, max_line_bytes: int) -> Iterator[LineBlock]:
    """Cuts a stream of bytes, of which the first lies at `offset`, after newlines.

    No chunk may be longer than `max_line_bytes`: what is overlong must not depend on where chunks end.
    """
    held: list[bytes] = []
    num_held = 0
    skipping: bytes | None = None  # the beginning of the overlong line whose end is looked for
    for chunk in chunks:
        if skipping is not None or num_held + len(chunk) > max_line_bytes:
            first = chunk.find(b"\n") + 1
            if skipping is None and (num_held + (first or len(chunk))) > max_line_bytes:
                skipping = b"".join([*held, chunk])[:OVERLONG_KEPT_BYTES]
                held = []
            if skipping is not None:
                num_held += first or len(chunk)
                if not first:
                    continue
                yield LineBlock(offset, skipping, num_held)
                offset, num_held, skipping, chunk = offset + num_held, 0, None, chunk[first:]
        cut = chunk.rfind(b"\n") + 1
        if cut:
            data = b"".join([*held, chunk[:cut]])
            yield LineBlock(offset, data, len(data))
            offset += len(data)
            held, num_held = [], 0
            chunk = chunk[cut:]
        if chunk:
            held.append(chunk)
            num_held += len(chunk)
    if skipping is not None:
        yield LineBlock(offset, skipping, num_held)
    elif num_held:
        yield LineBlock(offset, b"".join(held), num_held)


class LinePiece(Piece):
    """The lines of one block. `with_terminator`: whether raw bytes include the line's end."""

    __slots__ = ("block", "with_terminator", "_starts")

    def __init__(self, *, file: str, first_ordinal: int, block: LineBlock, with_terminator: bool = False) -> None:
        super().__init__(file=file, first_ordinal=first_ordinal)
        self.block = block
        self.with_terminator = with_terminator
        self._starts: list[int] | None = None

    def _line_starts(self) -> list[int]:
        if self._starts is None:
            ends = np.flatnonzero(np.frombuffer(self.block.data, np.uint8) == 10) + 1
            self._starts = [0, *ends.tolist(), len(self.block.data)]
        return self._starts

    def position(self, k: int) -> int:
        return self.block.offset + self._line_starts()[k]

    def positions_of(self, start: int, stop: int) -> list[int]:
        offset = self.block.offset
        return [offset + at for at in self._line_starts()[start:stop]]

    def raw(self, k: int) -> bytes:
        starts = self._line_starts()
        line = self.block.data[starts[k] : starts[k + 1]]
        return line if self.with_terminator else strip_newline(line)

    def digests_of(self, start: int, stop: int) -> bytes:
        if self.with_terminator or b"\r" in self.block.data:
            return super().digests_of(start, stop)
        data, starts, sha256 = self.block.data, self._line_starts(), hashlib.sha256
        # Written out, as every line of a build comes by here: 0.5 µs a line against 0.9.
        found = [
            sha256(data[first : last - 1]).digest()[:DIGEST_BYTES]
            for first, last in zip(starts[start : stop - 1], starts[start + 1 : stop], strict=True)
        ]
        return b"".join([*found, content_digest(self.raw(stop - 1))]) if stop > start else b""


def strip_newline(line: bytes) -> bytes:
    """Without a final LF or CRLF; a lone CR is data."""
    if line.endswith(b"\n"):
        return line[:-2] if line.endswith(b"\r\n") else line[:-1]
    return line


def split_lines(data: bytes) -> list[bytes]:
    """The lines of a block, without LF or CRLF. `b"a\\r\\n\\nb"` → `[b"a", b"", b"b"]`."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def check_max_line_bytes(max_line_bytes: int) -> None:
    if not isinstance(max_line_bytes, int) or max_line_bytes < READ_BYTES:
        raise SourceError(f"max_line_bytes should be an int of at least {READ_BYTES}, got {max_line_bytes!r}")


def overlong_error(file: str, block: LineBlock, max_line_bytes: int) -> SourceError:
    return SourceError(
        f"line is {block.length} bytes long, expected at most max_line_bytes={max_line_bytes}",
        file=file,
        offset=block.offset,
    )


def line_ranges(file: FoundFile, target_shard_bytes: int) -> list[Range]:
    """Ranges of a file of lines: each begins at the first line that starts at or after a multiple of the target."""
    bounds = [0]
    try:
        with open_input(file.path) as handle:
            for at in even_cuts(file.size, target_shard_bytes):
                start = _line_start(handle, at, file.size)
                if bounds[-1] < start < file.size:
                    bounds.append(start)
    except OSError as error:
        raise read_error(file.name, error, offset=bounds[-1]) from error
    bounds.append(file.size)
    return [(start, end, end - start) for start, end in zip(bounds[:-1], bounds[1:], strict=True)]


def _line_start(handle: IO[bytes], at: int, size: int) -> int:
    at -= 1  # the byte before a line's start is a newline
    while at < size:
        handle.seek(at)
        chunk = handle.read(1 << 16)
        if not chunk:
            break
        found = chunk.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(chunk)
    return size
