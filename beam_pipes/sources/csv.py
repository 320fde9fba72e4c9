"""Comma- and tab-separated rows as records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from typing import ClassVar

import numpy as np

from beam_pipes.checks import integer
from beam_pipes.engine.records import Table
from beam_pipes.errors import SourceError
from beam_pipes.format.spec import ColumnValues
from beam_pipes.sources.byte_stream import (
    READ_BYTES,
    codec_of,
    decompressed,
    hash_range,
    read_error,
    read_range,
    refuse_unless_text,
)
from beam_pipes.sources.delimited import Dialect, PlainRows, Rows, Stray, allow_fields_of, unique_names
from beam_pipes.sources.file_source import Range
from beam_pipes.sources.lines import (
    BOM,
    OVERLONG_KEPT_BYTES,
    LineBlock,
    LineSource,
    RowPiece,
    line_blocks,
)
from beam_pipes.sources.record_batch import Batcher, RecordBatch
from beam_pipes.sources.schema import (
    Convert,
    ConvertColumn,
    Schema,
    check_schema,
    column_converters,
    describe_schema,
    plain_kinds,
    text_converters,
    with_kind_kept,
    with_kinds_kept,
)
from beam_pipes.sources.selection import FoundFile
from beam_pipes.sources.source import Slice
from beam_pipes.sources.tables import partition_values
from beam_pipes.storage.local import storage_for

NEWLINE = b"\n"
_FEW_ROWS = 16


@dataclass(frozen=True)
class CSV(LineSource):
    """Every row is one record, a `dict` of column name → value. Record ids are `name@byte offset` (decompressed).

    `b"id,text\\n1,hi\\n"` with `schema={"id": int, "text": str}` → `{"id": 1, "text": "hi"}`

    Columns are named by each file's first row, or by `columns` (with `header=False` the first row is data; with both,
    the two must agree, but for names that the row leaves empty or has twice). With a
    `schema` (see `schema.py`) values hold its columns, converted; without, all, as `str`.
    A row with another number of fields, with a field that does not fit, or not in UTF-8 is a bad record. Blank lines
    are skipped. A quote within a quoted field is doubled; with `quote=None` quotes are text. Fields that are one of
    `null`, such as "NA", are empty. `decimal` is between the digits of floats: "," for `1,5`. In columns that
    are `inferred`, whose type was guessed from other rows, `007` is no number, and `1` is no bool. `partitions`:
    columns from the names of directories, as of `Parquet`; the schema does not hold them.

    `quoted_newlines`: a quoted field may hold newlines; where a row starts is then known only from the file's start, so
    large files are not split. Pass False if no field does: then every line is a row, and large files are split.

    `max_quoted_lines`: how many lines a row with quoted newlines may have, if there is a limit. A quote that is not
    closed by then, or by the end, or is closed in the middle of a field, is stray: its line is a bad record, and later
    lines are rows again.
    """

    _: KW_ONLY
    columns: Sequence[str] | None = None
    header: bool = True
    schema: Schema | None = None
    delimiter: str = ","
    quote: str | None = '"'
    quoted_newlines: bool = True
    max_quoted_lines: int | None = None
    null: Sequence[str] = ()
    decimal: str = "."
    inferred: Sequence[str] = ()
    partitions: Mapping[str, str] | None = None  # type: ignore[misc]

    VERSION: ClassVar[int] = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_schema(self.schema, scalars_only=True)
        if self.quote is None:
            object.__setattr__(self, "quoted_newlines", False)
        if isinstance(self.null, str) or not all(isinstance(each, str) for each in self.null):
            raise SourceError(f"null should be a list of texts that stand for nothing, got {self.null!r}")
        object.__setattr__(self, "null", tuple(self.null))
        object.__setattr__(self, "inferred", tuple(self.inferred))
        for option in ("delimiter", "quote", "decimal"):
            value = getattr(self, option)
            if option == "quote" and value is None:
                continue
            if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n":
                raise SourceError(f"{option} should be one ASCII character, got {value!r}")
        most = self.max_quoted_lines
        if most is not None:
            advice = "None is no limit."
            most = integer(most, least=1, what="max_quoted_lines", error=SourceError, advice=advice)
            object.__setattr__(self, "max_quoted_lines", most)
        if self.decimal == self.delimiter:
            raise SourceError(
                f"decimal and delimiter should differ, both are {self.decimal!r}: pass delimiter=';' (--delimiter ';')"
            )
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
        prefix = self.header_line(file.path, file.name) if each.start else b""
        start, end, _ = each.stored or each[:3]
        return hash_range(file.path, file.name, start, end, prefix=prefix, content_digest=file.content_digest)

    def header_line(self, path: str, file: str) -> bytes:
        """The first row of a file in which every line is a row; empty if rows start at once."""
        return _first_row(path, file, self)[0] if self.header else b""

    # Reading.

    def read_slice(self, batcher: Batcher, part: Slice, path: str) -> Iterator[RecordBatch]:
        allow_fields_of(self.max_line_bytes)
        batcher.beside = partition_values(self.partitions, part.file)
        prefix = self.header_line(path, part.file) if part.start else b""
        rows = _Rows(self, part.file, batcher)
        if not self.header:
            rows.use_columns(tuple(self.columns or ()))
        elif part.start:
            rows.use_columns(self.columns_in(prefix, part.file))
        for block in self._blocks(batcher, part, path, prefix=prefix):
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
            raise SourceError(f"the header of {file} cannot be parsed: {fields}", file=file, offset=0)
        found = tuple(fields)
        if self.columns is not None and len(found) == len(self.columns):
            # Names that a header leaves out, such as that of an index, or repeats, are taken from the declared ones.
            counts = Counter(found)
            unclear = [not name or counts[name] > 1 for name in found]
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
        there = set(columns)
        missing = [name for name in self.schema or () if name not in there]
        if missing:
            unnamed = "If the files have no header, name their columns (--names NAME,NAME). "
            raise SourceError(
                f"{where} should hold all columns of the schema: {missing} missing, found {list(columns)}. "
                f"{unnamed if 2 * len(missing) >= len(self.schema or ()) else ''}Name files "
                f"with the same columns, by a glob, or leave the others out (--type {missing[0]}=skip)",
                columns=columns,
            )

    def parse(self, raw: bytes, *, file: str, position: int) -> dict[str, object]:
        columns = tuple(self.columns or ())
        if not columns:
            columns = self.columns_in(_first_row(self.selection().path_of(file), file, self)[0], file)
        try:
            row = RowConverter(self, columns).value(self.dialect.row(raw))
            return {**partition_values(self.partitions, file), **row}
        except ValueError as error:
            raise SourceError(str(error), file=file, offset=position) from error

    def fingerprint_config(self) -> Mapping[str, object]:
        own = {**super().fingerprint_config(), "source": "CSV", "schema": describe_schema(self.schema)}
        if not self.null:
            del own["null"]  # as before this option existed
        if self.decimal == ".":
            del own["decimal"]
        if self.partitions is None:
            del own["partitions"]
        return own


@dataclass(frozen=True)
class TSV(CSV):
    """`CSV` with tabs between the fields, in which quotes are text: every line is a row.

    `quote='"'` reads what writers of CSV, such as spreadsheets and pandas, make with tabs.
    """

    _: KW_ONLY
    delimiter: str = "\t"
    quote: str | None = None

    __hash__ = LineSource.__hash__


# Added to a message about a row that does not fit below a header that begins with a #.
_COMMENTS = ". The header is the first row, and it begins with #: take comments out first, sed '/^#/d' FILE > NEW"


class RowConverter:
    """Fields → value, by the columns of one file and the schema."""

    def __init__(self, source: CSV, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self.width = len(columns)
        self._converters: list[tuple[str, int, Convert, ConvertColumn]] | None = None
        # Columns of one type: their names and places, and the function that converts them.
        self._alike: dict[tuple[str, bool], tuple[list[tuple[str, int]], ConvertColumn]] = {}
        if source.schema is not None:
            convert = text_converters(source.schema, decimal=source.decimal)
            of_column = column_converters(source.schema, decimal=source.decimal)
            for name in (inferred := frozenset(source.inferred)):
                convert[name] = with_kind_kept(name, source.schema[name], convert[name])
                of_column[name] = with_kinds_kept(name, source.schema[name], of_column[name])
            places = {name: index for index, name in enumerate(columns)}
            self._converters = [(name, places[name], convert[name], of_column[name]) for name in convert]
            for name, index, _, of_all in self._converters:
                alike = self._alike.setdefault((repr(source.schema[name]), name in inferred), ([], of_all))
                alike[0].append((name, index))
        self._null = frozenset(source.null)
        self._decimal = source.decimal
        self._plain_kinds = plain_kinds(source.schema or {})

    def table(self, rows: list[list[str] | str]) -> Table | None:
        """All values, column by column; None if any row does not fit, or rows are too few to gain by it."""
        if len(rows) < _FEW_ROWS or {*map(type, rows)} != {list} or {*map(len, rows)} != {self.width}:
            return None
        return self.table_of(list(chain.from_iterable(rows)))

    def plain_table(self, rows: PlainRows) -> Table | None:
        """`table_of` of their fields; of numbers without making text of each."""
        if len(rows.spans) < _FEW_ROWS or {*self._plain_kinds.values()} - {"int", "float"} or not self._plain_kinds:
            return self.table_of(rows.fields)
        if self._null or self._decimal != "." or (numbers := rows.numbers()) is None:
            return self.table_of(rows.fields)
        made: dict[str, ColumnValues] = {}
        for name, index, *_ in self._converters or ():
            made[name] = numbers.values[index]
            if self._plain_kinds[name] == "int":
                if not numbers.is_whole[index].all():
                    return None
                made[name] = numbers.values[index].astype(np.int64)
        return Table(made, len(rows.spans))

    def table_of(self, fields: list[str]) -> Table | None:
        """The table of the fields of all rows, one after the other; None if any does not fit, or they are too few."""
        width = self.width
        if len(fields) < _FEW_ROWS * (len(self._alike) or width):
            return None
        if self._null:
            fields = self._without_null(fields)
        if self._converters is None:
            texts = {name: fields[index::width] for index, name in enumerate(self._columns)}
            return Table(texts, len(fields) // width)
        made: dict[str, ColumnValues] = dict.fromkeys([name for name, *_ in self._converters], [])
        try:
            for columns, convert in self._alike.values():
                made |= _converted_alike(columns, convert, fields, width)
        except ValueError:
            return None
        return Table(made, len(fields) // width)

    def _without_null(self, fields: Iterable[str]) -> list[str]:
        return ["" if field in self._null else field for field in fields]

    def value(self, fields: list[str] | str) -> dict[str, object]:
        """Raises `ValueError` for a row that does not fit."""
        if isinstance(fields, str):
            raise ValueError(fields)
        if len(fields) != len(self._columns):
            names = ", ".join(self._columns[:20]) + (", …" if len(self._columns) > 20 else "")
            advice = _COMMENTS if self._columns[0].startswith("#") else ""
            raise ValueError(f"expected {len(self._columns)} fields ({names}), found {len(fields)}{advice}")
        fields = self._without_null(fields)
        if self._converters is None:
            return dict(zip(self._columns, fields, strict=True))
        row = {}
        for name, index, convert, _ in self._converters:
            try:
                row[name] = convert(fields[index])
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}") from error
        return row


def _converted_alike(
    columns: list[tuple[str, int]], convert: ConvertColumn, fields: list[str], width: int
) -> dict[str, ColumnValues]:
    """Columns of one type: all at once where nothing is missing, which would make lists of all, else one by one."""
    number, rows = len(columns), len(fields) // width
    if 1 < number:
        cells = fields if number == width else [*chain.from_iterable(fields[index::width] for _, index in columns)]
        if "" not in cells:
            try:
                made = convert(cells)
            except ValueError:
                made = []  # one of them, maybe, which then is converted one by one
            if len(made):
                if number == width:
                    return {name: made[index::width] for name, index in columns}
                return {name: made[at * rows : (at + 1) * rows] for at, (name, _) in enumerate(columns)}
    return {name: convert(fields[index::width]) for name, index in columns}


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
            width = 0 if self._converter is None else self._converter.width
            if not self._skipping and self._dialect.look_like_rows(overlong.data, width=width):
                yield from self._take(overlong, is_last=False, first_is_stray=True)
                return
            if not self._skipping:
                kept = overlong._replace(data=overlong.data[:OVERLONG_KEPT_BYTES])
                yield from self._source._add_overlong(self._batcher, self._file, kept)
            # It continues inside quotes, so its end is not the end of a row.
            self._skipping = True
            self._lines += overlong.data.count(b"\n")
            quote = (self._source.quote or "").encode()
            self._hold(LineBlock(overlong.offset + overlong.length - 1, quote, 1))

    def finish(self) -> Iterator[RecordBatch]:
        if self._held:
            yield from self._take(self._joined(), is_last=True)

    def _may_close(self, block: LineBlock) -> bool:
        """Whether an open row may end in a block: at a quote that is not doubled, or because it is too long."""
        most = self._dialect.max_quoted_lines
        if most is not None and self._held_lines + block.data.count(b"\n") > most:
            return True
        quote = (self._source.quote or "").encode()
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

    def _take(self, block: LineBlock, *, is_last: bool, first_is_stray: bool = False) -> Iterator[RecordBatch]:
        data = block.data
        start = len(BOM) if block.offset == 0 and data.startswith(BOM) else 0
        if self._converter is None and (end := self._dialect.end_of_first(data, start)):
            self.use_columns(self._source.columns_in(data[start:end], self._file))
            start = end
        if self._converter is not None and not self._skipping and not first_is_stray:
            plain = self._dialect.plain_rows(data, start, self._converter.width)
            whole = None if plain is None else self._converter.plain_table(plain)
            if plain is not None and whole is not None:
                self._lines += data.count(b"\n")
                piece = RowPiece(
                    file=self._file, first_ordinal=self._batcher.next_ordinal, block=block, spans=plain.spans
                )
                yield from self._batcher.add(piece, whole, num_bytes=len(data))
                return
        rows = self._dialect.rows(data, start, is_last=is_last, first_is_stray=first_is_stray)
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
        whole = self._converter.table(rows.fields)
        if whole is not None:
            yield from self._batcher.add(piece, whole, num_bytes=rows.rest)
            return
        yield from self._batcher.add_parsed(
            piece, len(rows.fields), lambda k: self._value(rows, k, piece, data, lines), num_bytes=rows.rest
        )

    def _value(self, rows: Rows, k: int, piece: RowPiece, data: bytes, lines: int) -> dict[str, object]:
        """The value of a row of `data`, before which the file has `lines` lines."""
        fields = rows.fields[k]
        try:
            assert self._converter is not None
            return self._converter.value(fields)
        except ValueError as error:
            problem = str(error)
            if isinstance(fields, Stray):
                problem = f"line {lines + data.count(NEWLINE, 0, rows.spans[k][0]) + 1}: expected {problem}"
            raise SourceError(problem, file=self._file, offset=piece.position(k)) from error


def _first_row(path: str, file: str, source: CSV) -> tuple[bytes, int]:
    """The bytes of a file's first row, and where it ends."""
    try:
        size = storage_for(path).size(path)
    except OSError as error:
        raise read_error(file, error, offset=0) from error
    chunks = decompressed(read_range(path, file, 0, size), codec=codec_of(file), file=file, size=READ_BYTES)
    for block in line_blocks(chunks, offset=0, max_line_bytes=source.max_line_bytes):
        if block.offset == 0:
            refuse_unless_text(file, block.data)
        start = len(BOM) if block.data.startswith(BOM) else 0
        rows = source.dialect.first_rows(block.data, start)
        if rows.spans:
            first, end = rows.spans[0]
            return block.data[first:end], end
    return b"", 0


def _checked_columns(columns: Sequence[str], where: str, *, file: str | None = None) -> tuple[str, ...]:
    names = tuple(columns) if not isinstance(columns, str) else ()
    if not names or not all(isinstance(name, str) for name in names) or (file is None and not all(names)):
        raise SourceError(f"{where} should be a list of names, got {columns!r:.200}", file=file)
    # For a file, its reader can say what its columns are called.
    advice = "" if file is None else f". Name them in the file, or for the source: columns={unique_names(names)!r:.200}"
    if not all(names):
        raise SourceError(
            f"{where} leaves column {names.index('') + 1} of {len(names)} without a name{advice}", file=file
        )
    if len(set(names)) != len(names):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        raise SourceError(f"{where} should name each column once, found twice: {twice}{advice}", file=file)
    return names
