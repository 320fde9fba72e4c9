"""Lines of bytes, many at a time: the base of sources whose records are lines, and `TextLines` and `JSONLines`.

    bytes of a range ──line_blocks──▶ blocks of whole lines ──▶ batches of lines, each with its offset

Large files are cut between lines. Rows of text that may span lines (quoted CSV) are located within their block.
"""

from __future__ import annotations

import bisect
import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import IO, ClassVar, NamedTuple

import numpy as np

from beam_pipes.checks import choice, integer
from beam_pipes.errors import SourceError
from beam_pipes.format.spec import Record
from beam_pipes.lineage.lineage import DIGEST_BYTES
from beam_pipes.sources.byte_stream import (
    LATIN_1,
    READ_BYTES,
    Frame,
    codec_of,
    frame_chunks,
    frames_of,
    open_input,
    read_error,
    refuse_unless_text,
    slice_chunks,
)
from beam_pipes.sources.file_source import FileSource, Range, even_cuts
from beam_pipes.sources.record_batch import BadRecord, Batcher, Piece, RecordBatch, content_digest
from beam_pipes.sources.schema import Convert, Schema, check_schema, describe_schema, json_converters, number_of_json
from beam_pipes.sources.selection import FoundFile, Paths
from beam_pipes.sources.source import Slice
from beam_pipes.sources.tables import partition_values

# 256 KiB of text and the strings made of it stay in a core's own cache: 20 % quicker than 1 MiB (64 KiB - 1 MiB tried).
LINE_READ_BYTES = 256 << 10

BOM = b"\xef\xbb\xbf"
# For the dead letter of an overlong line, this much of it is kept.
OVERLONG_KEPT_BYTES = 64 << 10


class LineBlock(NamedTuple):
    """Whole lines of one file; `offset` of the first in the (decompressed) file.

    Every line but a file's last ends with a newline. A line longer than allowed is a separate block: `length` is its
    length, and `data` holds only its beginning.
    """

    offset: int
    data: bytes
    length: int

    @property
    def is_overlong(self) -> bool:
        return self.length != len(self.data)


def line_blocks(chunks: Iterator[bytes], *, offset: int, max_line_bytes: int) -> Iterator[LineBlock]:
    """Cuts a stream of bytes, which starts at `offset`, after newlines.

    No chunk may be longer than `max_line_bytes`: which lines are overlong must not depend on chunk boundaries.
    """
    held: list[bytes] = []
    num_held = 0
    skipping: bytes | None = None  # the beginning of the overlong line whose end is searched for
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
        # Inlined, because every line of a build passes through here: 0.5 µs per line against 0.9.
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
    integer(max_line_bytes, least=READ_BYTES, what="max_line_bytes", error=SourceError)


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
    return [Range(start, end, end - start) for start, end in zip(bounds[:-1], bounds[1:], strict=True)]


def _framed_ranges(file: FoundFile, target_shard_bytes: int) -> list[Range]:
    """Ranges of a compressed file, each of which begins at the first line that starts in or after a frame.

    The frame is the first one at or after a multiple of the target. A frame with lines of two ranges is read twice.
    """
    frames = frames_of(file.path, file.name, file.size)
    total = frames[-1].base + frames[-1].length if frames else 0
    bounds = [(0, 0)]  # byte of the decompressed file, number of its frame
    for at in even_cuts(file.size, target_shard_bytes) if frames else ():
        number = bisect.bisect_left(frames, (at,))
        if bounds[-1][1] < number < len(frames):
            start = _framed_line_start(file, frames, number)
            if start < total:
                bounds.append((start, _frame_at(frames, start)))
    if len(bounds) == 1:
        return [Range(0, file.size, file.size)]
    begins = [0, *(frames[number].start for _, number in bounds[1:]), file.size]
    ends = [*(start for start, _ in bounds[1:]), total]
    ranges = []
    for (start, number), end, begin, after in zip(bounds, ends, begins[:-1], begins[1:], strict=True):
        stored = begin, frames[_frame_at(frames, end - 1)].end, frames[number].base
        ranges.append(Range(start, end, after - begin, stored))
    return ranges


def _frame_at(frames: list[Frame], position: int) -> int:
    """The number of the frame that holds a byte of the decompressed file."""
    return bisect.bisect_right(frames, position, key=lambda frame: frame.base) - 1


def _framed_line_start(file: FoundFile, frames: list[Frame], number: int) -> int:
    """Where the first line starts that begins in frame `number` or later."""
    last = b""
    for chunk in frame_chunks(file.path, file.name, frames[number - 1]):
        last = chunk[-1:]
    if last == b"\n":
        return frames[number].base
    for frame in frames[number:]:
        at = frame.base
        for chunk in frame_chunks(file.path, file.name, frame):
            if (found := chunk.find(b"\n")) >= 0:
                return at + found + 1
            at += len(chunk)
    return at


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


# Start and end within a block, the line's end included.
Span = tuple[int, int]


class RowPiece(Piece):
    """The rows of a block at `spans`; raw bytes come without the final LF or CRLF."""

    __slots__ = ("block", "spans")

    def __init__(self, *, file: str, first_ordinal: int, block: LineBlock, spans: list[Span]) -> None:
        super().__init__(file=file, first_ordinal=first_ordinal)
        self.block = block
        self.spans = spans

    def position(self, k: int) -> int:
        return self.block.offset + self.spans[k][0]

    def positions_of(self, start: int, stop: int) -> list[int]:
        offset = self.block.offset
        return [offset + first for first, _ in self.spans[start:stop]]

    def raw(self, k: int) -> bytes:
        start, end = self.spans[k]
        return strip_newline(self.block.data[start:end])

    def digests_of(self, start: int, stop: int) -> bytes:
        if b"\r" in self.block.data:
            return super().digests_of(start, stop)
        data, sha256 = self.block.data, hashlib.sha256
        # Inlined as in `LinePiece`.
        rows = [data[first:last].removesuffix(b"\n") for first, last in self.spans[start:stop]]
        return b"".join([sha256(row).digest()[:DIGEST_BYTES] for row in rows])


def line_starts(data: bytes) -> list[int]:
    """Where each line starts, and the end of the data. `b"a\\nbc"` → `[0, 2, 4]`."""
    starts = [0, *(np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1).tolist()]
    if starts[-1] != len(data):
        starts.append(len(data))
    return starts


def line_spans(data: bytes) -> list[Span]:
    """The lines of a block that are not blank."""
    starts = line_starts(data)
    return [
        (start, end)
        for start, end in zip(starts[:-1], starts[1:], strict=True)
        if data[start] > 32 or data[start:end].strip()
    ]


@dataclass(frozen=True, kw_only=True)
class LineSource(FileSource):
    """A source of files of lines.

    `max_line_bytes`: a longer line is a bad record with its first 64 KiB; this bounds memory.
    """

    paths: Paths = field(kw_only=False)
    max_line_bytes: int = 64 << 20

    # Of sources whose records are rows: columns whose values are in the names of directories.
    partitions: ClassVar[Mapping[str, str] | None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_max_line_bytes(self.max_line_bytes)

    def _inputs(self) -> Paths:
        return self.paths

    @property
    def output_type(self) -> type:
        return dict

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        if file.size <= target_shard_bytes:
            return [Range(0, file.size, file.size)]
        return (
            _framed_ranges(file, target_shard_bytes) if codec_of(file.name) else line_ranges(file, target_shard_bytes)
        )

    def read_slice(self, batcher: Batcher, part: Slice, path: str) -> Iterator[RecordBatch]:
        batcher.beside = partition_values(self.partitions, part.file)
        for block in self._blocks(batcher, part, path):
            if block.is_overlong:
                yield from self._add_overlong(batcher, part.file, block)
            else:
                yield from self._add(batcher, part.file, block)

    def _blocks(self, batcher: Batcher, part: Slice, path: str, *, prefix: bytes = b"") -> Iterator[LineBlock]:
        """The lines of a slice. Raises `SourceError` for a file that begins as no text in UTF-8 does."""
        chunks = slice_chunks(path, part, size=min(LINE_READ_BYTES, batcher.batch_bytes), prefix=prefix)
        for block in line_blocks(chunks, offset=part.start, max_line_bytes=self.max_line_bytes):
            if block.offset == 0:
                refuse_unless_text(part.file, block.data)
            yield block

    @abstractmethod
    def _add(self, batcher: Batcher, file: str, block: LineBlock) -> Iterator[RecordBatch]:
        """Parses the lines of a block and adds them to the batcher."""

    def _add_overlong(self, batcher: Batcher, file: str, block: LineBlock) -> Iterator[RecordBatch]:
        piece = LinePiece(file=file, first_ordinal=batcher.next_ordinal, block=block, with_terminator=True)
        error = overlong_error(file, block, self.max_line_bytes)
        bad = BadRecord(ordinal=piece.first_ordinal, file=file, position=block.offset, raw=block.data, error=error)
        return batcher.add(piece, [], num_bytes=len(block.data), ordinals=(), bad=[bad])

    def _add_each(self, batcher: Batcher, piece: Piece, count: int, num_bytes: int) -> Iterator[RecordBatch]:
        def parse(k: int) -> Record:
            return self.parse(piece.raw(k), file=piece.file, position=piece.position(k))

        return batcher.add_parsed(piece, count, parse, num_bytes=num_bytes)


def decoded(raw: bytes, *, file: str, position: int) -> str:
    """UTF-8 text, or a `SourceError` that says which byte is not."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(
            f"expected UTF-8, found byte 0x{raw[error.start]:02x} at byte {error.start} of the record: {error.reason}"
            f"{LATIN_1}",
            file=file,
            offset=position,
        ) from error


ERRORS = ("dead_letter", "replace")


@dataclass(frozen=True)
class TextLines(LineSource):
    """Every line of UTF-8 text is one record, a `str`. Record ids are `name@byte offset` (decompressed).

    A file holding `b"one\\r\\n\\ntwo"` → `"one"`, `""`, `"two"`.

    Lines end with LF or CRLF; a final newline may be missing; empty lines are kept; a byte order mark at a file's start
    is dropped. A file in UTF-16, or compressed without a name that says so, is refused as a whole. Large files are
    split; compressed ones where they consist of frames (bgzip, several zstd frames).

    `errors`: a line that is not UTF-8 is a bad record (`"dead_letter"`), or has U+FFFD in place of invalid bytes
    (`"replace"`). `strip_newline=False`: lines keep their LF or CRLF.
    """

    _: KW_ONLY
    errors: str = "dead_letter"
    strip_newline: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        choice(self.errors, of=ERRORS, what="errors", error=SourceError)

    @property
    def output_type(self) -> type:
        return str

    def _add(self, batcher: Batcher, file: str, block: LineBlock) -> Iterator[RecordBatch]:
        data = block.data
        piece = LinePiece(
            file=file, first_ordinal=batcher.next_ordinal, block=block, with_terminator=not self.strip_newline
        )
        if block.offset == 0:
            data = data.removeprefix(BOM)
        if self.strip_newline and b"\r" in data:  # searching for one byte is 20 times faster than for two
            data = data.replace(b"\r\n", b"\n")
        try:
            text = data.decode("utf-8", "strict" if self.errors == "dead_letter" else "replace")
        except UnicodeDecodeError:
            return self._add_each(batcher, piece, len(split_lines(block.data)), len(data))
        lines = text.split("\n")
        last = lines.pop()
        if not self.strip_newline:
            lines = [line + "\n" for line in lines]
        if last or not lines:  # not lines: a file with only a byte order mark is one empty line
            lines.append(last)
        return batcher.add(piece, lines, num_bytes=len(data))

    def parse(self, raw: bytes, *, file: str, position: int) -> str:
        if position == 0 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
        if self.errors == "replace":
            return raw.decode("utf-8", "replace")
        return decoded(raw, file=file, position=position)


# What json.loads calls, without skipping blanks around the object: half the time for a short line.
_scan_object = json.JSONDecoder(parse_float=number_of_json).raw_decode


@dataclass(frozen=True)
class JSONLines(LineSource):
    """Every line is one record, a JSON object as a `dict`. Record ids are `name@byte offset` (decompressed).

    `b'{"text": "hi", "n": 3}\\n'` → `{"text": "hi", "n": 3}`

    With a `schema` (see `schema.py`) values have exactly its keys, converted; without one, they are unchanged. A line
    that is not a JSON object in UTF-8, has a number that no float holds (`1e400`), or does not fit the schema, is a bad
    record; `NaN` and `Infinity` mean themselves. Blank lines are skipped. Large files are split, as those of
    `TextLines`. `partitions`: as of `Parquet`; a row's own value comes first.
    """

    _: KW_ONLY
    schema: Schema | None = None
    partitions: Mapping[str, str] | None = None  # type: ignore[misc]

    VERSION: ClassVar[int] = 2  # 1 took numbers that no float holds for infinite

    def __post_init__(self) -> None:
        super().__post_init__()
        check_schema(self.schema, scalars_only=False)

    __hash__ = LineSource.__hash__

    @cached_property
    def _converters(self) -> dict[str, Convert] | None:
        return None if self.schema is None else json_converters(self.schema)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_converters"}

    def _add(self, batcher: Batcher, file: str, block: LineBlock) -> Iterator[RecordBatch]:
        spans = line_spans(block.data)
        if block.offset == 0 and block.data.startswith(BOM) and not block.data[len(BOM) : spans[0][1]].strip():
            del spans[0]  # a line with only a byte order mark is blank
        piece = RowPiece(file=file, first_ordinal=batcher.next_ordinal, block=block, spans=spans)
        quick = self._quickly(block)
        if quick is not None and len(quick) == len(piece.spans):
            return batcher.add(piece, quick, num_bytes=len(block.data))
        return self._add_each(batcher, piece, len(piece.spans), len(block.data))

    def _quickly(self, block: LineBlock) -> list[dict[str, object]] | None:
        """All values of a block in which every line begins and ends with its object; None if any does not."""
        values = []
        try:
            for line in block.data.decode("utf-8").split("\n"):
                if line and line != "\r":
                    value, end = _scan_object(line)
                    if type(value) is not dict or line[end:] not in ("", "\r"):
                        return None
                    values.append(value)
            if self._converters is not None:
                convert = list(self._converters.items())
                values = [{name: each(value.get(name)) for name, each in convert} for value in values]
        except (ValueError, RecursionError):
            return None
        return values

    def parse(self, raw: bytes, *, file: str, position: int) -> dict[str, object]:
        if position == 0 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
        text = decoded(raw, file=file, position=position)
        try:
            value = json.loads(text, parse_float=number_of_json)
        except (ValueError, RecursionError) as error:
            problem = f"expected a JSON object, found {text[:80]!r}: {error}{_advice_on_json(text, position, error)}"
            raise SourceError(problem, file=file, offset=position) from error
        if not isinstance(value, dict):
            problem = f"expected a JSON object, found {text[:80]!r}{_advice_on_json(text, position, None)}"
            raise SourceError(problem, file=file, offset=position)
        converters = self._converters
        beside = partition_values(self.partitions, file)
        if converters is None:
            return {**beside, **value}
        row = beside
        for name, convert in converters.items():
            try:
                row[name] = convert(value.get(name))
            except ValueError as error:
                raise SourceError(f"key {name!r}: {error}", file=file, offset=position, column=name) from error
        return row

    def fingerprint_config(self) -> Mapping[str, object]:
        own = {**super().fingerprint_config(), "schema": describe_schema(self.schema)}
        return {name: value for name, value in own.items() if name != "partitions" or value is not None}


def _advice_on_json(text: str, position: int, error: Exception | None) -> str:
    """What to add to a message about a line that is not a JSON object: what the file is, and how to convert it."""
    begins = text.lstrip()
    if position == 0 and begins.startswith(('[{"role"', '[{"from"', '[{"content"')):
        return ". A line is a list of messages, and JSON Lines has one object on each: jq -c '{messages: .}' FILE > NEW"
    if position == 0 and begins.startswith("["):
        return ". The file is a JSON array, not JSON Lines, which has one object on each line: jq -c '.[]' FILE > NEW"
    if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
        if text[error.pos :].strip() == ",":
            return ". JSON Lines has one object on each line, without a comma after it: sed 's/,$//' FILE > NEW"
        return ". JSON Lines has one object on each line, and nothing after it: jq -c . FILE > NEW writes such lines"
    is_cut = isinstance(error, json.JSONDecodeError) and error.pos >= len(text.rstrip())
    if position == 0 and begins.startswith("{") and is_cut:
        return ". The file has an object over several lines, and JSON Lines one on each line: jq -c . FILE > NEW"
    return ""
