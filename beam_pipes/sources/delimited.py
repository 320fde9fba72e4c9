"""From bytes to the fields of rows: where rows begin and end if quoted fields may contain newlines."""

from __future__ import annotations

import contextlib
import csv
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from beam_pipes.format.dtypes import Array
from beam_pipes.sources.byte_stream import LATIN_1
from beam_pipes.sources.lines import BOM, LINE_READ_BYTES, Span, line_starts

if TYPE_CHECKING:
    import _csv


@dataclass(slots=True)
class Rows:
    """Rows of a piece of text. `fields[k]` is a list of str, or a message if row `k` cannot be parsed.

    From `rest` on there is a row with unclosed quotes.
    """

    rest: int
    spans: list[Span] = field(default_factory=list)
    fields: list[list[str] | str] = field(default_factory=list)


class PlainRows(NamedTuple):
    """Lines that are rows of `width` fields each, without quotes; `spans` are those of the rows."""

    text: str
    delimiter: str
    width: int
    spans: list[Span]

    @property
    def fields(self) -> list[str]:
        """All fields, row by row."""
        fields = self.text.replace("\n", self.delimiter).split(self.delimiter)
        fields.pop()
        return fields

    def numbers(self) -> Numbers | None:
        """All fields as `float` reads them, if that is sure to be right: digits, a point, an exponent, a minus.

        None if any has zeros before its digits or more than 30 characters, or may be an integer that float64 rounds.
        """
        if self.delimiter in "0123456789.-+e" or self.text[:4096].translate(_NO_NUMBERS | {ord(self.delimiter): None}):
            return None
        with contextlib.suppress(ValueError, DeprecationWarning):  # by which NumPy says that it cannot read a number
            return _numbers(self.text.encode(), self.delimiter.encode(), self.width)
        return None


class Numbers(NamedTuple):
    """Arrays (columns, rows)."""

    values: Array
    #: Whether they are written as integers.
    is_whole: Array


_NO_NUMBERS: dict[int, None] = dict.fromkeys(b"0123456789.-+e\n")
_EXACT_DIGITS = 15  # all integers of so many digits are exact in float64, and so are these powers of ten
_POWERS = 10.0 ** np.arange(_EXACT_DIGITS + 1)


def _numbers(data: bytes, delimiter: bytes, width: int) -> Numbers | None:
    content = np.frombuffer(data, np.uint8)
    marks = np.flatnonzero(content - np.uint8(48) > 9)  # all that is no digit
    commas = bytes.maketrans(b"\n" + delimiter, b",,")
    written = content[marks].tobytes().translate(commas)
    if written.translate(None, b",-.e+") or delimiter != b"," and b"," in data:
        return None
    kinds = np.frombuffer(written, np.uint8)
    ends = np.flatnonzero(kinds == ord(","))  # of fields, among the marks
    before = np.concatenate([[-1], ends[:-1]])
    stops = marks[ends]
    starts = np.concatenate([[0], stops[:-1] + 1])
    num_marks, lengths = ends - before - 1, stops - starts
    is_negative = kinds[before + 1] == ord("-")
    first, digits = starts + is_negative, lengths - num_marks
    if digits.min() <= 0 or lengths.max() > 30 or (is_negative & (marks[before + 1] != starts)).any():
        return None
    if ((content[first] == 48) & (content[first + 1] - np.uint8(48) <= 9)).any():
        return None
    has_point, is_whole = kinds[ends - 1] == ord("."), num_marks == is_negative
    if b"+" in written and (content[marks[kinds == ord("+")] - 1] != ord("e")).any():
        return None
    is_usual = (written.count(b"-"), written.count(b".")) == (
        is_negative.sum(),
        has_point.sum(),
    ) and b"e" not in written
    if is_usual and digits.max() <= _EXACT_DIGITS:
        integers = np.fromstring(data.translate(commas, b"."), np.int64, sep=",")
        values = integers / _POWERS[np.where(has_point, stops - marks[ends - 1] - 1, 0)]
        values[(integers == 0) & is_negative] = -0.0
    else:
        values = np.fromstring(data.translate(commas), np.float64, sep=",")
        sizes = np.abs(values)
        if len(values) != len(ends) or not sizes.max() < np.inf or (sizes[is_whole] >= 2**53).any():
            return None
    return Numbers(*(np.ascontiguousarray(each.reshape(-1, width).T) for each in (values, is_whole)))


@dataclass(frozen=True, slots=True)
class Dialect:
    """How fields are separated and quoted."""

    delimiter: str
    quote: str | None
    quoted_newlines: bool
    max_quoted_lines: int | None = None

    def rows(self, data: bytes, start: int, *, is_last: bool, first_is_stray: bool = False) -> Rows:
        """The rows of whole lines `data[start:]`, blank lines left out. `is_last`: nothing follows in this file.

        `first_is_stray`: if the first row's quotes do not close in these lines, they never do.
        """
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
            self._join_lines(rows, lines, spans, is_last=is_last, first_is_stray=first_is_stray)
        else:
            rows.fields = [self._one(line) for line in lines]
            rows.spans = spans
        if [] in rows.fields:
            kept = [k for k, fields in enumerate(rows.fields) if fields != []]
            rows.fields, rows.spans = [rows.fields[k] for k in kept], [rows.spans[k] for k in kept]
        if check:
            rows.fields = [_utf8_or_error(fields) for fields in rows.fields]
        return rows

    def end_of_first(self, data: bytes, start: int) -> int:
        """Where the first row ends, if it certainly is the first line: not blank, and no quote in it; else 0."""
        end = data.find(b"\n", start) + 1
        line, quote = data[start:end], (self.quote or "").encode()
        return 0 if not line.strip() or (quote and quote in line) else end

    def first_rows(self, data: bytes, start: int = 0) -> Rows:
        """`rows` of what certainly holds the first row, mostly one line of it: files begin with blocks of megabytes."""
        return self.rows(data[: self.end_of_first(data, start) or len(data)], start, is_last=True)

    def plain_rows(self, data: bytes, start: int, width: int) -> PlainRows | None:
        """Whole lines `data[start:]` of `width` fields each.

        None if not every line is a row of as many fields, or any needs the csv module: for quotes, a lone CR or NUL.
        """
        data, quote = data[start:], (self.quote or "").encode()
        # CPython before 3.11 refuses NUL.
        if not data.endswith(b"\n") or b"\0" in data or (quote and quote in data):
            return None
        has_returns = b"\r" in data
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return None
        if has_returns and "\r" in (text := text.replace("\r\n", "\n")):
            return None
        delimiter = self.delimiter.encode()
        marks = data.translate(None, bytes(range(256)).translate(None, b"\n" + delimiter))
        if marks != (delimiter * (width - 1) + b"\n") * data.count(b"\n"):
            return None
        if width == 1 and (text.startswith("\n") or "\n\n" in text):
            return None  # blank lines are no rows
        starts = [start + at for at in line_starts(data)] if start else line_starts(data)
        return PlainRows(text, self.delimiter, width, [*zip(starts[:-1], starts[1:], strict=True)])

    def numbers_by_column(self, content: bytes) -> dict[str, Numbers] | None:
        """Column → its numbers, of the beginning of a file with a header; None unless it holds nothing else."""
        at = self.end_of_first(content, 0)
        names = self.row(content[:at]) if at and not content.startswith(BOM) else ""
        if isinstance(names, str) or not all(names) or len({*names}) < len(names):
            return None
        parts: list[Numbers] = []
        while at < len(content):
            end = content.rfind(b"\n", at, at + LINE_READ_BYTES) + 1 or len(content)
            rows = self.plain_rows(content[at:end], 0, len(names))
            if (found := rows and rows.numbers()) is None:
                return None
            parts.append(found)
            at = end
        if not parts:
            return None
        values, is_whole = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        return {name: Numbers(*pair) for name, *pair in zip(names, values, is_whole, strict=True)}

    def row(self, raw: bytes) -> list[str] | str:
        """The fields of one row, or a message."""
        rows = self.rows(raw, 0, is_last=True)
        if len(rows.fields) != 1:
            return f"expected one row, found {len(rows.fields)}"
        return rows.fields[0]

    def _reader(self, lines: Iterable[str]) -> _csv.Reader:
        if self.quote is None:
            return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE, strict=True)
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote, strict=True)

    def _aligned(self, lines: list[str]) -> list[list[str] | str] | None:
        """One row per line in a single call, if the lines allow it."""
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

    def _join_lines(
        self, rows: Rows, lines: list[str], spans: list[Span], *, is_last: bool, first_is_stray: bool
    ) -> None:
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
            if is_open and not too_long and not is_last and not (first_is_stray and done == 0):
                rows.rest = spans[done][0]  # its end may still come
                return
            if end - done > 1 and (too_long or isinstance(fields, str)):
                fields, end = Stray(self._stray(why)), done + 1
                reader, begun = self._reader(itertools.islice(lines, end, None)), end
            rows.fields.append(fields)
            rows.spans.append((spans[done][0], spans[end - 1][1]))
            done = end

    def _stray(self, error: str | None) -> str:
        why, more = error, ""
        if error is None:
            why = f"one is not within max_quoted_lines={self.max_quoted_lines} lines"
            more = "; for a field of more lines raise max_quoted_lines (None: no limit)"
        return (
            f"every quote that opens in this row to be closed: {why}. The lines after it were read as rows of their "
            f"own. Double a quote inside of quotes{more}"
        )

    def look_like_rows(self, data: bytes, *, width: int) -> bool:
        """Whether the lines after the first are rows of several fields, so that its quote was opened by mistake."""
        lines = data.decode("utf-8", "replace").split("\n")[1:-1]
        return width > 1 and bool(lines) and all(len(self._one(line)) == width for line in lines[:1000] if line)


class Stray(str):
    """The message about a row with unclosed quotes."""


def allow_fields_of(num_bytes: int) -> None:
    """Raises the csv module's process-wide limit on fields, 128 KiB by default, if needed."""
    if csv.field_size_limit() < num_bytes:
        csv.field_size_limit(num_bytes)


def _message(error: csv.Error) -> str:
    if "new-line character" in str(error):
        return (
            "expected lines that end in LF or CRLF, found CR alone, as old Macintoshes wrote it. Convert the file: "
            r"tr '\r' '\n' < FILE > NEW"
        )
    escaped = ""
    if "expected after" in str(error):
        escaped = """. A quote within quotes is doubled. If it has a backslash instead: sed 's/\\\\"/""/g' FILE > NEW"""
    return f"expected a row of delimited fields: {error}{escaped}"


def _utf8_or_error(fields: list[str] | str) -> list[str] | str:
    for number, each in enumerate(fields if isinstance(fields, list) else (), start=1):
        try:
            each.encode()
        except UnicodeEncodeError as error:
            byte = ord(each[error.start]) - 0xDC00
            return f"expected UTF-8, found byte 0x{byte:02x} in field {number}{LATIN_1}"
    return fields


def unique_names(names: Sequence[str]) -> list[str]:
    """Names for the columns of a header, made as pandas makes them: `["", "a", "a"]` → `["Unnamed: 0", "a", "a.1"]`."""
    named = [name or f"Unnamed: {number}" for number, name in enumerate(names)]
    there, counts, unique = set(named), Counter[str](), named[:]
    for number in sorted(range(len(names)), key=lambda number: not names[number]):  # existing names come first
        own = name = named[number]
        count = counts[name]
        while count > 0:
            counts[name] = count + 1
            own = f"{name}.{count}"
            count = count + 1 if own in there else counts[own]
        counts[own] += 1
        unique[number] = own
    return unique
