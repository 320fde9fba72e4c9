"""Lines of text as records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from beam_pipes.errors import SourceError
from beam_pipes.sources.line_source import LineSource, decoded
from beam_pipes.sources.lines import BOM, LineBlock, LinePiece, split_lines
from beam_pipes.sources.record_batch import Batcher, RecordBatch
from beam_pipes.sources.selection import Paths

ERRORS = ("dead_letter", "replace")


@dataclass(frozen=True)
class TextLines(LineSource):
    """Every line of UTF-8 text is one record, a `str`. Record ids are `name@byte offset` (decompressed).

    A file holding `b"one\\r\\n\\ntwo"` → `"one"`, `""`, `"two"`.

    Lines end with LF or CRLF; a final newline may be missing; empty lines are kept; a byte order mark at a file's start
    is dropped. Large files are split, except `.gz`, `.bz2` and `.zst`, which are read as a stream.

    `errors`: a line that is not UTF-8 is a bad record (`"dead_letter"`), or has U+FFFD where it is not (`"replace"`).
    `strip_newline=False`: lines keep their LF or CRLF.
    """

    paths: Paths
    _: KW_ONLY
    errors: str = "dead_letter"
    strip_newline: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.errors not in ERRORS:
            raise SourceError(f"errors should be one of {', '.join(map(repr, ERRORS))}, got {self.errors!r}")

    def _inputs(self) -> Paths:
        return self.paths

    @property
    def output_type(self) -> type:
        return str

    def _add(self, batcher: Batcher, file: str, block: LineBlock) -> Iterator[RecordBatch]:
        data = block.data
        piece = LinePiece(
            file=file, first_ordinal=batcher.next_ordinal, block=block, with_terminator=not self.strip_newline
        )
        if block.offset == 0 and data.startswith(BOM):
            data = data[len(BOM) :]
        if self.strip_newline and b"\r" in data:  # one byte is looked for 20 times faster than two
            data = data.replace(b"\r\n", b"\n")
        try:
            text = data.decode("utf-8", "strict" if self.errors == "dead_letter" else "replace")
        except UnicodeDecodeError:
            values, ordinals, bad = self._parse_each(piece, range(len(split_lines(block.data))))
            return batcher.add(piece, values, num_bytes=len(data), ordinals=ordinals, bad=bad)
        lines = text.split("\n")
        last = lines.pop()
        if not self.strip_newline:
            lines = [line + "\n" for line in lines]
        if last or not lines:  # not lines: a file that holds a byte order mark only is one empty line
            lines.append(last)
        return batcher.add(piece, lines, num_bytes=len(data))

    def parse(self, raw: bytes, *, file: str, position: int) -> str:
        if position == 0 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
        if self.errors == "replace":
            return raw.decode("utf-8", "replace")
        return decoded(raw, file=file, position=position)

    def fingerprint_config(self) -> Mapping[str, Any]:
        return {
            "source": "TextLines",
            "version": 1,
            "errors": self.errors,
            "strip_newline": self.strip_newline,
            "max_line_bytes": self.max_line_bytes,
        }
