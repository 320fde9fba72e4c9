"""From bytes to the fields of rows: where rows begin and end if quoted fields may contain newlines.

Comma- and tab-separated rows as records.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from beam_pipes.cache.storage import storage_for
from beam_pipes.errors import SourceError
from beam_pipes.sources.byte_stream import (
    READ_BYTES,
    advice_if_compressed,
    codec_of,
    decompressed,
    hash_range,
    read_error,
    read_range,
    slice_chunks,
)
from beam_pipes.sources.file_source import Range
from beam_pipes.sources.lines import (
    BOM,
    OVERLONG_KEPT_BYTES,
    LineBlock,
    LineSource,
    RowPiece,
    Span,
    line_blocks,
    line_starts,
)
from beam_pipes.sources.record_batch import BadRecord, Batcher, RecordBatch
from beam_pipes.sources.schema import Convert, Schema, check_schema, describe_schema, text_converters
from beam_pipes.sources.selection import FoundFile
from beam_pipes.sources.source import Slice

if TYPE_CHECKING:
    import _csv

NEWLINE = b"\n"


@dataclass(slots=True)
class Rows:
    """Rows of a piece of text. `fields[k]` is a list of str, or a message if row `k` cannot be parsed.

    From `rest` on there is a row with unclosed quotes.
    """

    rest: int
    spans: list[Span] = field(default_factory=list)
    fields: list[list[str] | str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How fields are separated and quoted."""

    delimiter: str
    quote: str
    quoted_newlines: bool
    max_quoted_lines: int | None = None

    def rows(self, data: bytes, start: int, *, is_last: bool) -> Rows:
        """The rows of whole lines `data[start:]`, blank lines left out. `is_last`: nothing follows in this file."""
        starts = [start + at for at in line_starts(data[start:])]
        spans = list(zip(starts[:-1], starts[1:], strict=True))
        try:
            text, check = data[start:].decode("utf-8"), False
        except UnicodeDecodeError:
            text, check = data[start:].decode("utf-8", "surrogateescape"), True
        rows = Rows(rest=len(data))
        lines = [line + "\n" for line in text.split("\n")]
        if len(lines) > len(spans):
            lines.pop()  # what follows the last newline
        bulk = self._aligned(lines)
        if bulk is not None:
            rows.fields, rows.spans = bulk, spans
        elif self.quoted_newlines:
            self._join_lines(rows, lines, spans, is_last=is_last)
        else:
            rows.fields = [self._one(line) for line in lines]
            rows.spans = spans
        if [] in rows.fields:
            kept = [k for k, fields in enumerate(rows.fields) if fields != []]
            rows.fields, rows.spans = [rows.fields[k] for k in kept], [rows.spans[k] for k in kept]
        if check:
            rows.fields = [_utf8_or_error(fields) for fields in rows.fields]
        return rows

    def row(self, raw: bytes) -> list[str] | str:
        """The fields of one row, or a message."""
        rows = self.rows(raw, 0, is_last=True)
        if len(rows.fields) != 1:
            return f"expected one row, found {len(rows.fields)}"
        return rows.fields[0]

    def _reader(self, lines: Iterable[str]) -> _csv.Reader:
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote, strict=True)

    def _aligned(self, lines: list[str]) -> list[list[str] | str] | None:
        """One row per line in one go, if that is what the lines are."""
        try:
            fields: list[list[str] | str] = list(self._reader(lines))
        except csv.Error:
            return None
        return fields if len(fields) == len(lines) else None

    def _one(self, line: str) -> list[str] | str:
        try:
            return next(self._reader([line]), [])
        except csv.Error as error:
            return _message(error)

    def _join_lines(self, rows: Rows, lines: list[str], spans: list[Span], *, is_last: bool) -> None:
        """Rows of one line or several. If quotes do not close, only the line in which they open is a bad row: a stray
        quote must not swallow the rows after it."""
        reader, begun, done = self._reader(lines), 0, 0
        while done < len(lines):
            fields: list[str] | str
            is_open, why = False, None
            try:
                fields = next(reader, [])
            except csv.Error as error:
                fields, is_open = _message(error), "unexpected end" in str(error)
                why = str(error)
            end: int = begun + reader.line_num
            too_long = self.max_quoted_lines is not None and end - done > self.max_quoted_lines
            if is_open and not too_long and not is_last:
                rows.rest = spans[done][0]  # perhaps its end is yet to come
                return
            if end - done > 1 and (too_long or isinstance(fields, str)):
                fields, end = Stray(self._stray(why)), done + 1
                reader, begun = self._reader(itertools.islice(lines, end, None)), end
            rows.fields.append(fields)
            rows.spans.append((spans[done][0], spans[end - 1][1]))
            done = end

    def _stray(self, error: str | None) -> str:
        why = f"they do not within max_quoted_lines={self.max_quoted_lines} lines" if error is None else error
        return (
            f"the quotes that open in this row to close: {why}. The lines after it were read as rows of their own. "
            "Double a quote inside of quotes; for a field of more lines raise max_quoted_lines (None: no limit)"
        )


class Stray(str):
    """The message about a row with unclosed quotes."""


def allow_fields_of(num_bytes: int) -> None:
    """Raises the csv module's process-wide limit on fields, 128 KiB by default, if needed."""
    if csv.field_size_limit() < num_bytes:
        csv.field_size_limit(num_bytes)


def _message(error: csv.Error) -> str:
    return f"expected a row of delimited fields: {error}"


def _utf8_or_error(fields: list[str] | str) -> list[str] | str:
    for number, each in enumerate(fields if isinstance(fields, list) else (), start=1):
        try:
            each.encode()
        except UnicodeEncodeError as error:
            return f"expected UTF-8, found byte 0x{ord(each[error.start]) - 0xDC00:02x} in field {number}"
    return fields


@dataclass(frozen=True)
class CSV(LineSource):
    """Every row is one record, a `dict` of column name → value. Record ids are `name@byte offset` (decompressed).

    `b"id,text\\n1,hi\\n"` with `schema={"id": int, "text": str}` → `{"id": 1, "text": "hi"}`

    Columns are named by each file's first row, or by `columns` (with `header=False` the first row is data; with both,
    the two must agree, but for names that the row leaves empty or has twice). With a
    `schema` (see `schema.py`) values hold its columns, converted; without, all, as `str`.
    A row with another number of fields, with a field that does not fit, or not in UTF-8 is a bad record. Blank lines
    are skipped. A quote within a quoted field is doubled.

    `quoted_newlines`: a quoted field may hold newlines; where a row starts is then known only from the file's start, so
    large files are not split. Pass False if no field does: then every line is a row, and large files are split.

    `max_quoted_lines`: how many lines a row with quoted newlines may have. A quote that is not closed by then, or is
    closed in the middle of a field, is stray: its line is a bad record, and later lines are rows again.
    """

    _: KW_ONLY
    columns: Sequence[str] | None = None
    header: bool = True
    schema: Schema | None = None
    delimiter: str = ","
    quote: str = '"'
    quoted_newlines: bool = True
    max_quoted_lines: int | None = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_schema(self.schema, scalars_only=True)
        for option in ("delimiter", "quote"):
            value = getattr(self, option)
            if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n":
                raise SourceError(f"{option} should be one ASCII character, got {value!r}")
        most = self.max_quoted_lines
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            raise SourceError(f"max_quoted_lines should be a positive int, or None for no limit, got {most!r}")
        if self.delimiter == self.quote:
            raise SourceError(f"delimiter and quote should differ, both are {self.quote!r}")
        if self.columns is not None:
            object.__setattr__(self, "columns", _checked_columns(self.columns, "columns"))
            self._check_schema_columns(tuple(self.columns), "columns")
        elif not self.header:
            raise SourceError("header=False leaves the columns unnamed: pass columns=['…', …]")

    __hash__ = LineSource.__hash__

    @property
    def dialect(self) -> Dialect:
        return Dialect(
            delimiter=self.delimiter,
            quote=self.quote,
            quoted_newlines=self.quoted_newlines,
            max_quoted_lines=self.max_quoted_lines,
        )

    # Planning. A later slice of a split file depends on the header too, so its digest covers both.

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        whole = Range(0, file.size, file.size)
        if self.quoted_newlines:
            return [whole]
        ranges = super()._ranges(file, target_shard_bytes)
        if len(ranges) > 1 and self.header:
            # The header belongs to the first slice, however many blank lines lie before it.
            header_end = _first_row(file.path, file.name, self)[1]
            kept = [each for each in ranges if each.start >= max(1, header_end)]
            if not kept:
                return [whole]
            *_, last = ranges[: len(ranges) - len(kept)]
            stored = None if last.stored is None else (0, last.stored[1], 0)
            ranges = [Range(0, last.end, file.size - sum(each.num_bytes for each in kept), stored), *kept]
        return ranges

    def _variant(self, target_shard_bytes: int | None) -> str:
        variant = super()._variant(target_shard_bytes)
        return variant if variant == "whole" else f"{variant}/{self.quoted_newlines:d}{self.header:d}"

    def _digest(self, file: FoundFile, each: Range) -> str:
        prefix = self._header_line(file.path, file.name) if each.start else b""
        start, end, _ = each.stored or each[:3]
        return hash_range(file.path, file.name, start, end, prefix=prefix, content_digest=file.content_digest)

    def _header_line(self, path: str, file: str) -> bytes:
        """The first row of a file in which every line is a row; empty if rows start at once."""
        return _first_row(path, file, self)[0] if self.header else b""

    # Reading.

    def _read_slice(self, batcher: Batcher, part: Slice, path: str, size: int) -> Iterator[RecordBatch]:
        allow_fields_of(self.max_line_bytes)
        prefix = self._header_line(path, part.file) if part.start else b""
        rows = _Rows(self, part.file, batcher)
        if not self.header:
            rows.use_columns(tuple(self.columns or ()))
        elif part.start:
            rows.use_columns(self.columns_in(prefix, part.file))
        chunks = slice_chunks(path, part, size=size, prefix=prefix)
        for block in line_blocks(chunks, offset=part.start, max_line_bytes=self.max_line_bytes):
            if block.is_overlong:
                yield from rows.finish()
                yield from self._add_overlong(batcher, part.file, block)
            else:
                yield from rows.add(block)
        yield from rows.finish()

    def _add(self, batcher: Batcher, file: str, block: LineBlock) -> Iterator[RecordBatch]:
        rows = _Rows(self, file, batcher)
        yield from rows.add(block)
        yield from rows.finish()

    def columns_in(self, header: bytes, file: str) -> tuple[str, ...]:
        """The columns that a header names, checked against those declared."""
        fields = self.dialect.row(header)
        if isinstance(fields, str):
            advice = advice_if_compressed(header)
            raise SourceError(f"the header of {file} cannot be parsed: {fields}{advice}", file=file, offset=0)
        found = tuple(fields)
        if self.columns is not None and len(found) == len(self.columns):
            # Names that a header leaves out, such as that of an index, or has twice are those declared.
            unclear = [not name or found.count(name) > 1 for name in found]
            found = tuple(name if is_so else own for is_so, name, own in zip(unclear, self.columns, found, strict=True))
        found = _checked_columns(found, f"the header of {file}", file=file)
        if self.columns is not None and found != tuple(self.columns):
            raise SourceError(
                f"the header of {file} should be the declared columns {list(self.columns)}, found {list(found)}",
                file=file,
                offset=0,
            )
        self._check_schema_columns(found, f"the header of {file}")
        return found

    def _check_schema_columns(self, columns: tuple[str, ...], where: str) -> None:
        missing = [name for name in self.schema or () if name not in columns]
        if missing:
            raise SourceError(
                f"{where} should hold all columns of the schema: {missing} missing, found {list(columns)}",
                columns=columns,
            )

    def parse(self, raw: bytes, *, file: str, position: int) -> dict[str, object]:
        columns = tuple(self.columns or ())
        if not columns:
            columns = self.columns_in(_first_row(self.selection().path_of(file), file, self)[0], file)
        try:
            return RowConverter(self, columns).value(self.dialect.row(raw))
        except ValueError as error:
            raise SourceError(str(error), file=file, offset=position) from error

    def fingerprint_config(self) -> Mapping[str, object]:
        return {
            "source": "CSV",
            "version": 2,
            "columns": None if self.columns is None else list(self.columns),
            "header": self.header,
            "schema": describe_schema(self.schema),
            "delimiter": self.delimiter,
            "quote": self.quote,
            "quoted_newlines": self.quoted_newlines,
            "max_quoted_lines": self.max_quoted_lines,
            "max_line_bytes": self.max_line_bytes,
        }


@dataclass(frozen=True)
class TSV(CSV):
    """`CSV` with tabs between the fields."""

    _: KW_ONLY
    delimiter: str = "\t"

    __hash__ = LineSource.__hash__


class RowConverter:
    """Fields → value, by the columns of one file and the schema."""

    def __init__(self, source: CSV, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._converters: list[tuple[str, int, Convert]] | None = None
        if source.schema is not None:
            convert = text_converters(source.schema)
            self._converters = [(name, columns.index(name), convert[name]) for name in convert]

    def values(self, rows: list[list[str] | str]) -> list[dict[str, object]] | None:
        """All values column by column, twice as quick; None if any row does not fit."""
        width = len(self._columns)
        if any(type(fields) is str or len(fields) != width for fields in rows):
            return None
        if self._converters is None:
            return [dict(zip(self._columns, fields, strict=True)) for fields in rows]
        columns = list(zip(*rows, strict=True))
        names = [name for name, _, _ in self._converters]
        try:
            converted = [list(map(convert, columns[index])) for _, index, convert in self._converters]
        except ValueError:
            return None
        return [dict(zip(names, row, strict=True)) for row in zip(*converted, strict=True)]

    def value(self, fields: list[str] | str) -> dict[str, object]:
        """Raises `ValueError` for a row that does not fit."""
        if isinstance(fields, str):
            raise ValueError(fields)
        if len(fields) != len(self._columns):
            raise ValueError(f"expected {len(self._columns)} fields ({', '.join(self._columns)}), found {len(fields)}")
        if self._converters is None:
            return dict(zip(self._columns, fields, strict=True))
        row = {}
        for name, index, convert in self._converters:
            try:
                row[name] = convert(fields[index])
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}") from error
        return row


class _Rows:
    """The rows of one slice: finds the header, and carries rows with open quotes from block to block."""

    def __init__(self, source: CSV, file: str, batcher: Batcher) -> None:
        self._source = source
        self._dialect = source.dialect
        self._file = file
        self._batcher = batcher
        self._converter: RowConverter | None = None
        self._held: list[LineBlock] = []  # blocks of an open row, joined when it closes: each byte is parsed once
        self._held_bytes = self._held_lines = 0
        self._lines = 0  # before the block that is taken
        self._skipping = False

    def use_columns(self, columns: tuple[str, ...]) -> None:
        self._converter = RowConverter(self._source, columns)

    def add(self, block: LineBlock) -> Iterator[RecordBatch]:
        closes = not self._held or self._may_close(block)
        self._hold(block)
        if closes:
            yield from self._take(self._joined(), is_last=False)
        if self._held_bytes > self._source.max_line_bytes:
            overlong = self._joined()
            if not self._skipping:
                kept = overlong._replace(data=overlong.data[:OVERLONG_KEPT_BYTES])
                yield from self._source._add_overlong(self._batcher, self._file, kept)
            # It goes on in the quotes it is in, its end is not a row of its own.
            self._skipping = True
            self._lines += overlong.data.count(b"\n")
            self._hold(LineBlock(overlong.offset + overlong.length - 1, self._source.quote.encode(), 1))

    def finish(self) -> Iterator[RecordBatch]:
        if self._held:
            yield from self._take(self._joined(), is_last=True)

    def _may_close(self, block: LineBlock) -> bool:
        """Whether a row that is open may end in a block: at a quote that is not doubled, or because it is too long."""
        most = self._dialect.max_quoted_lines
        if most is not None and self._held_lines + block.data.count(b"\n") > most:
            return True
        quote = self._source.quote.encode()
        return quote in block.data.replace(quote + quote, b"")

    def _hold(self, block: LineBlock) -> None:
        self._held.append(block)
        self._held_bytes += block.length
        self._held_lines += block.data.count(b"\n")

    def _joined(self) -> LineBlock:
        """Returns what is held as one block, and clears it."""
        data = b"".join(block.data for block in self._held)
        joined = LineBlock(self._held[0].offset, data, len(data))
        self._held, self._held_bytes, self._held_lines = [], 0, 0
        return joined

    def _take(self, block: LineBlock, *, is_last: bool) -> Iterator[RecordBatch]:
        data = block.data
        start = len(BOM) if block.offset == 0 and data.startswith(BOM) else 0
        rows = self._dialect.rows(data, start, is_last=is_last)
        if rows.rest < len(data):
            self._hold(LineBlock(block.offset + rows.rest, data[rows.rest :], len(data) - rows.rest))
        lines, self._lines = self._lines, self._lines + data.count(b"\n", 0, rows.rest)
        if self._skipping and rows.fields:
            del rows.spans[0], rows.fields[0]
            self._skipping = False
        if self._converter is None and rows.fields:
            first, end = rows.spans.pop(0)
            rows.fields.pop(0)
            self.use_columns(self._source.columns_in(data[first:end], self._file))
        if self._converter is None or not rows.fields:
            return
        piece = RowPiece(file=self._file, first_ordinal=self._batcher.next_ordinal, block=block, spans=rows.spans)
        whole = self._converter.values(rows.fields)
        if whole is not None:
            yield from self._batcher.add(piece, whole, num_bytes=rows.rest)
            return
        values: list[object] = []
        ordinals, bad = [], []
        for ordinal, fields in enumerate(rows.fields, start=piece.first_ordinal):
            try:
                values.append(self._converter.value(fields))
                ordinals.append(ordinal)
            except ValueError as error:
                k = ordinal - piece.first_ordinal
                position = piece.position(k)
                told = str(error)
                if isinstance(fields, Stray):
                    told = f"line {lines + data.count(NEWLINE, 0, rows.spans[k][0]) + 1}: expected {told}"
                reason = SourceError(told, file=self._file, offset=position)
                bad.append(
                    BadRecord(ordinal=ordinal, file=self._file, position=position, raw=piece.raw(k), error=reason)
                )
        yield from self._batcher.add(piece, values, num_bytes=rows.rest, ordinals=ordinals if bad else None, bad=bad)


def _first_row(path: str, file: str, source: CSV) -> tuple[bytes, int]:
    """The bytes of a file's first row, and where it ends."""
    try:
        size = storage_for(path).size(path)
    except OSError as error:
        raise read_error(file, error, offset=0) from error
    chunks = decompressed(read_range(path, file, 0, size), codec=codec_of(file), file=file, size=READ_BYTES)
    for block in line_blocks(chunks, offset=0, max_line_bytes=source.max_line_bytes):
        start = len(BOM) if block.data.startswith(BOM) else 0
        rows = source.dialect.rows(block.data, start, is_last=True)
        if rows.spans:
            first, end = rows.spans[0]
            return block.data[first:end], end
    return b"", 0


def _checked_columns(columns: Sequence[str], where: str, *, file: str | None = None) -> tuple[str, ...]:
    names = tuple(columns) if not isinstance(columns, str) else ()
    if not names or not all(isinstance(name, str) for name in names) or (file is None and not all(names)):
        raise SourceError(f"{where} should be a list of names, got {columns!r:.200}", file=file)
    # Of a file, the one who reads it can say what its columns are called.
    own = [
        name if name and name not in names[:number] else f"{name or 'column'}_{number + 1}"
        for number, name in enumerate(names)
    ]
    advice = f". Name them in the file, or for the source: columns={own!r:.200}" if file is not None else ""
    if not all(names):
        raise SourceError(
            f"{where} leaves column {names.index('') + 1} of {len(names)} without a name{advice}", file=file
        )
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SourceError(f"{where} should name each column once, found twice: {twice}{advice}", file=file)
    return names
