"""Rows of text that need not be one line each: where they lie within a block."""

from __future__ import annotations

import numpy as np

from beam_pipes.sources.lines import LineBlock, strip_newline
from beam_pipes.sources.record_batch import Piece

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
