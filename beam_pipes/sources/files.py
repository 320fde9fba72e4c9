"""Whole files as records: bytes and relative path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from beam_pipes.sources.byte_stream import slice_bytes
from beam_pipes.sources.file_source import FileSource
from beam_pipes.sources.record_batch import Batcher, Piece, RecordBatch
from beam_pipes.sources.selection import Paths
from beam_pipes.sources.source import SourceShard, check_batch_limits


@dataclass(frozen=True, slots=True)
class FileContent:
    """One file: its name relative to the source's root, with `/` between the parts, and its bytes."""

    path: str
    content: bytes


class _FilePiece(Piece):
    __slots__ = ("content",)

    def __init__(self, *, file: str, first_ordinal: int, content: bytes) -> None:
        super().__init__(file=file, first_ordinal=first_ordinal)
        self.content = content

    def position(self, k: int) -> int:
        return 0

    def raw(self, k: int) -> bytes:
        return self.content


@dataclass(frozen=True)
class Files(FileSource):
    """Every file is one record, a `FileContent`; files without bytes too. Record ids are `name@0`.

    `Files("corpus", pattern="**/*.py")` → `FileContent(path="a/b.py", content=b"import os\\n")`, …

    A file is never split, and is held in memory whole. Compressed files are given as they are stored.
    """

    root: Paths

    keeps_empty_files: ClassVar[bool] = True

    def _inputs(self) -> Paths:
        return self.root

    @property
    def output_type(self) -> type:
        return FileContent

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        check_batch_limits(batch_records, batch_bytes)
        selection = self.selection()
        batcher = Batcher(batch_records=batch_records, batch_bytes=batch_bytes)
        for part in shard.slices:
            content = b"".join(slice_bytes(selection.path_of(part.file), part))
            piece = _FilePiece(file=part.file, first_ordinal=batcher.next_ordinal, content=content)
            yield from batcher.add(piece, [FileContent(part.file, content)], num_bytes=len(content))
        yield from batcher.finish()

    def parse(self, raw: bytes, *, file: str, position: int) -> FileContent:
        return FileContent(file, raw)

    def fingerprint_config(self) -> Mapping[str, Any]:
        return {"source": "Files", "version": 1}
