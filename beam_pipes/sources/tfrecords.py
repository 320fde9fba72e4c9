"""Records of TFRecord files: bytes, proto messages or decoded examples."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import IO, Protocol, runtime_checkable

from google.protobuf.message import DecodeError, Message

from beam_pipes.checks import integer
from beam_pipes.errors import CorruptRecordError, SourceError, SpecError
from beam_pipes.format.codec import ExampleCodec
from beam_pipes.format.framing import FRAME_BYTES, HEADER_BYTES, Frame, frames, headers, masked_crc32c
from beam_pipes.format.spec import ExampleSpec
from beam_pipes.sources.byte_stream import (
    READ_BYTES,
    advice_if_not_utf8,
    codec_of,
    open_input,
    read_error,
    slice_chunks,
)
from beam_pipes.sources.file_source import FileSource, Range, even_cuts
from beam_pipes.sources.record_batch import Batcher, RecordBatch, StoredPiece, is_message
from beam_pipes.sources.selection import FoundFile, Paths
from beam_pipes.sources.source import Slice

_LENGTH = struct.Struct("<Q")
_HEADER = struct.Struct("<QI")


@runtime_checkable
class Decodes(Protocol):
    """Decodes records to dicts of values. `config` is JSON that stands for it in fingerprints."""

    def decode(self, raw: bytes) -> dict[str, object]:
        """Raises `CorruptRecordError` if it cannot."""
        ...

    def config(self) -> object: ...


@dataclass(frozen=True)
class TFRecords(FileSource):
    """Every TFRecord is one record. Record ids are `name@offset of the frame` (decompressed).

    `message`: None gives payloads as `bytes`; a proto class (`Example`, or your own) gives messages; an `ExampleSpec`
    gives examples, decoded to a `dict` of arrays; so does what decodes by itself, such as `TfdsFeatures`.

    Checksums are always checked. A record whose payload is damaged, or does not parse, is a bad record; if the length
    is damaged, the next record cannot be found, and reading stops with an error that names file and offset. Large files
    are split between records; `.gz`, `.bz2` and `.zst` are read as a stream.

    `max_record_bytes`: a length above it counts as damaged; this bounds memory if lengths cannot be trusted.
    """

    paths: Paths
    message: type[Message] | ExampleSpec | Decodes | None = None
    _: KW_ONLY
    max_record_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        super().__post_init__()
        is_class = isinstance(self.message, type) and is_message(self.message)
        if self.message is not None and not is_class and not isinstance(self.message, (ExampleSpec, Decodes)):
            raise SourceError(
                f"message should be None (for bytes), a proto class or an ExampleSpec, got {self.message!r:.100}"
            )
        most = integer(self.max_record_bytes, least=1, what="max_record_bytes", error=SourceError)
        object.__setattr__(self, "max_record_bytes", most)

    __hash__ = FileSource.__hash__

    def _inputs(self) -> Paths:
        return self.paths

    @property
    def output_type(self) -> type:
        if self.message is None:
            return bytes
        return self.message if isinstance(self.message, type) else dict

    @cached_property
    def _decode(self) -> Callable[[bytes], object] | None:
        if self.message is None:
            return None
        if isinstance(self.message, type):
            return self.message.FromString
        return ExampleCodec(self.message).decode if isinstance(self.message, ExampleSpec) else self.message.decode

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_decode"}

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        if file.size <= target_shard_bytes or codec_of(file.name):
            return [Range(0, file.size, file.size)]
        return _frame_ranges(file, target_shard_bytes)

    def read_slice(self, batcher: Batcher, part: Slice, path: str) -> Iterator[RecordBatch]:
        chunks = slice_chunks(path, part, size=min(READ_BYTES, batcher.batch_bytes))
        refuse = partial(self._refuse, part.file)
        for found in frames(chunks, offset=part.start, most_bytes=self.max_record_bytes, refuse=refuse):
            yield from self._add(batcher, part.file, found)

    def _refuse(self, file: str, offset: int, found: bytes, missing: int) -> None:
        if missing:
            raise SourceError(
                f"input {file} is truncated: the record at byte {offset} has {len(found)} bytes, expected "
                f"{len(found) + missing}",
                file=file,
                offset=offset,
            )
        header = found[:HEADER_BYTES]
        length, crc = _HEADER.unpack(header)
        if crc != masked_crc32c(header[:8]):
            raise SourceError(
                f"input {file} is damaged at byte {offset}: the length of the record there does not match its "
                "checksum, so the next record cannot be found. This is not a TFRecord file, or its bytes have changed"
                + (advice_if_not_utf8(header) if offset == 0 else ""),
                file=file,
                offset=offset,
            )
        if length > self.max_record_bytes:
            raise SourceError(
                f"input {file} has a record of {length} bytes at byte {offset}, expected at most "
                f"max_record_bytes={self.max_record_bytes}",
                file=file,
                offset=offset,
            )

    def _add(self, batcher: Batcher, file: str, found: list[Frame]) -> Iterator[RecordBatch]:
        positions, payloads = [at for at, _, _ in found], [payload for _, payload, _ in found]
        damaged = {k for k, (_, payload, crc) in enumerate(found) if crc != masked_crc32c(payload)}
        piece = StoredPiece(file=file, first_ordinal=batcher.next_ordinal, positions=positions, raws=payloads)
        size = sum(map(len, payloads)) + FRAME_BYTES * len(payloads)
        if self._decode is None and not damaged:
            return batcher.add(piece, [*payloads], num_bytes=size)

        def parse(k: int) -> object:
            if k in damaged:
                raise SourceError(
                    f"the payload ({len(payloads[k])} bytes) does not match its checksum",
                    file=file,
                    offset=positions[k],
                )
            return self.parse(payloads[k], file=file, position=positions[k])

        return batcher.add_parsed(piece, len(payloads), parse, num_bytes=size)

    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        if self._decode is None:
            return raw
        try:
            return self._decode(raw)
        except (DecodeError, CorruptRecordError, SpecError) as error:
            expected = "an example of the declared features"
            if isinstance(self.message, type):
                expected = f"a {self.message.DESCRIPTOR.full_name}"
            raise SourceError(f"expected {expected}: {error}", file=file, offset=position) from error

    def fingerprint_config(self) -> Mapping[str, object]:
        message: object = None
        if isinstance(self.message, type):
            message = self.message.DESCRIPTOR.full_name
        elif self.message is not None:
            message = self.message.to_json() if isinstance(self.message, ExampleSpec) else self.message.config()
        return {**super().fingerprint_config(), "message": message}


def _frame_ranges(file: FoundFile, target_shard_bytes: int) -> list[Range]:
    try:
        with open_input(file.path) as handle:
            return ranges_of_frames(file, target_shard_bytes, frame_offsets(handle, file.size))
    except OSError as error:
        raise read_error(file.name, error, offset=0) from error


def ranges_of_frames(file: FoundFile, target_shard_bytes: int, offsets: Iterable[int]) -> list[Range]:
    """Ranges that begin at the first record at or after a multiple of the target; `offsets` are those of the records.

    After a damaged length the rest is one range: reading it reports what is wrong.
    """
    bounds = [0]
    cuts = iter(even_cuts(file.size, target_shard_bytes))
    cut = next(cuts, None)
    for offset in offsets:
        if cut is None:
            break
        if offset >= cut:
            bounds.append(offset)
            while cut is not None and cut <= offset:
                cut = next(cuts, None)
    bounds.append(file.size)
    return [Range(start, end, end - start) for start, end in zip(bounds[:-1], bounds[1:], strict=True)]


def frame_offsets(handle: IO[bytes], size: int) -> Iterator[int]:
    """The start of each record, as far as lengths are intact."""
    known = headers()
    window, base, offset = b"", 0, 0
    while offset < size:
        at = offset - base
        if at + HEADER_BYTES > len(window):
            handle.seek(offset)
            window, base, at = handle.read(READ_BYTES), offset, 0
            if len(window) < HEADER_BYTES:
                return
        (length,) = _LENGTH.unpack_from(window, at)
        if offset + length + FRAME_BYTES > size or window[at : at + HEADER_BYTES] != known[length]:
            return
        yield offset
        offset += length + FRAME_BYTES
