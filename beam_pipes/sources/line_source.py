"""What all sources whose records are lines share: reading blocks of lines, and splitting large files between lines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from beam_pipes.errors import SourceError
from beam_pipes.sources.byte_stream import codec_of, slice_chunks
from beam_pipes.sources.file_source import FileSource, Range
from beam_pipes.sources.lines import (
    LINE_READ_BYTES,
    LineBlock,
    LinePiece,
    check_max_line_bytes,
    line_blocks,
    line_ranges,
    overlong_error,
)
from beam_pipes.sources.record_batch import BadRecord, Batcher, Piece, RecordBatch
from beam_pipes.sources.selection import FoundFile
from beam_pipes.sources.source import Slice, SourceShard, check_batch_limits


@dataclass(frozen=True, kw_only=True)
class LineSource(FileSource):
    """A source of files of lines.

    `max_line_bytes`: a longer line is a bad record with its first 64 KiB: what keeps memory bounded.
    """

    max_line_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_max_line_bytes(self.max_line_bytes)

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        if file.size <= target_shard_bytes or codec_of(file.name):
            return [(0, file.size, file.size)]
        return line_ranges(file, target_shard_bytes)

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        check_batch_limits(batch_records, batch_bytes)
        selection = self.selection()
        batcher = Batcher(batch_records=batch_records, batch_bytes=batch_bytes)
        size = min(LINE_READ_BYTES, batch_bytes)
        for part in shard.slices:
            yield from self._read_slice(batcher, part, selection.path_of(part.file), size)
        yield from batcher.finish()

    def _read_slice(self, batcher: Batcher, part: Slice, path: str, size: int) -> Iterator[RecordBatch]:
        chunks = slice_chunks(path, part, size=size)
        for block in line_blocks(chunks, offset=part.start, max_line_bytes=self.max_line_bytes):
            if block.is_overlong:
                yield from self._add_overlong(batcher, part.file, block)
            else:
                yield from self._add(batcher, part.file, block)

    @abstractmethod
    def _add(self, batcher: Batcher, file: str, block: LineBlock) -> Iterator[RecordBatch]:
        """Parses the lines of a block and hands them to the batcher."""

    def _add_overlong(self, batcher: Batcher, file: str, block: LineBlock) -> Iterator[RecordBatch]:
        piece = LinePiece(file=file, first_ordinal=batcher.next_ordinal, block=block, with_terminator=True)
        error = overlong_error(file, block, self.max_line_bytes)
        bad = BadRecord(ordinal=piece.first_ordinal, file=file, position=block.offset, raw=block.data, error=error)
        return batcher.add(piece, [], num_bytes=len(block.data), ordinals=(), bad=[bad])

    def _parse_each(self, piece: Piece, ks: Sequence[int]) -> tuple[list[Any], list[int] | None, list[BadRecord]]:
        """Parses records `ks` of a piece one by one; the ordinals are None where none is bad."""
        values: list[Any] = []
        ordinals: list[int] = []
        bad: list[BadRecord] = []
        for k in ks:
            ordinal, position, raw = piece.first_ordinal + k, piece.position(k), piece.raw(k)
            try:
                values.append(self.parse(raw, file=piece.file, position=position))
                ordinals.append(ordinal)
            except SourceError as error:
                bad.append(BadRecord(ordinal=ordinal, file=piece.file, position=position, raw=raw, error=error))
        return values, (ordinals if bad else None), bad


def decoded(raw: bytes, *, file: str, position: int) -> str:
    """UTF-8 text, or a `SourceError` that says which byte is not."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(
            f"expected UTF-8, found byte 0x{raw[error.start]:02x} at byte {error.start} of the record: {error.reason}",
            file=file,
            offset=position,
        ) from error
