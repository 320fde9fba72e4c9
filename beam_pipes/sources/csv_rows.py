"""From bytes to the fields of rows: where rows begin and end when quoted fields may hold newlines."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from beam_pipes.sources.row_piece import Span, line_starts


@dataclass(slots=True)
class Rows:
    """Rows of a piece of text. `fields[k]` is a list of str, or a message where row `k` cannot be parsed.

    From `rest` on lies a row whose quotes are not closed yet.
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

    def _reader(self, lines: Iterable[str]) -> Any:
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote, strict=True)

    def _aligned(self, lines: list[str]) -> list[list[str] | str] | None:
        """One row per line in one go, if that is what the lines are."""
        try:
            fields = list(self._reader(lines))
        except csv.Error:
            return None
        return fields if len(fields) == len(lines) else None

    def _one(self, line: str) -> list[str] | str:
        try:
            return next(self._reader([line]), [])
        except csv.Error as error:
            return _message(error)

    def _join_lines(self, rows: Rows, lines: list[str], spans: list[Span], *, is_last: bool) -> None:
        reader: Iterator[list[str]] = self._reader(lines)
        done = 0
        while done < len(lines):
            fields: list[str] | str
            try:
                fields = next(reader, [])
            except csv.Error as error:
                fields = _message(error)
            end: int = reader.line_num  # type: ignore[attr-defined]
            if isinstance(fields, str) and end >= len(lines) and not is_last:
                rows.rest = spans[done][0]  # perhaps its end is yet to come
                return
            rows.fields.append(fields)
            rows.spans.append((spans[done][0], spans[end - 1][1]))
            done = end


def allow_fields_of(num_bytes: int) -> None:
    """The csv module refuses fields above a limit of the whole process, 128 KiB at first: raises it if need be."""
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
