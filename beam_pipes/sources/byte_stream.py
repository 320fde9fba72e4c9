"""The bytes of one slice, read in order: checked against the plan, and decompressed by the suffix.

A compressed file is a stream, unless it consists of *frames* that can be decompressed on their own: the blocks of
bgzip, or several zstd frames. `frames_of` finds them, so that such a file can be cut.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import hashlib
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, Protocol

from beam_pipes.errors import SourceError
from beam_pipes.extras import require
from beam_pipes.sources.source import Slice
from beam_pipes.storage.local import is_remote, storage_for

READ_BYTES = 1 << 20
# A 128 KiB block of zeros is four bytes of zstd: small inputs keep what one call gives back below 64 MiB.
_ZSTD_FEED_BYTES = 2048

CODEC_OF_SUFFIX = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}


def codec_of(name: str) -> str | None:
    """The compression that a file's suffix implies: gzip for `.gz`, bzip2 for `.bz2`, zstd for `.zst`, or none."""
    return CODEC_OF_SUFFIX.get(os.path.splitext(name)[1].lower())


# How files begin that are not UTF-8, or stand for others: what they are, and what to do with them.
_SUFFIX = "give the file a name that ends in "
_NONE_READS = "no source decompresses it: do so first"
_WORKBOOK = "convert it first: pandas.read_excel(FILE).to_csv(NEW, index=False)"
_BEGINNINGS: tuple[tuple[re.Pattern[bytes], str, str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), what, remedy)
    for pattern, what, remedy in (
        (rb"\x1f\x8b", "gzip data do", f"{_SUFFIX}.gz"),
        (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "bzip2 data do", f"{_SUFFIX}.bz2"),
        (rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", "zstd data do", f"{_SUFFIX}.zst"),
        (rb"\xfd7zXZ\0", "xz data do", _NONE_READS),
        (rb"PK\x03\x04.{26}(?:\[Content_Types\]\.xml|docProps/|_rels/|xl/)", "a workbook of Excel does", _WORKBOOK),
        (rb"PK\x03\x04", "zip data do", _NONE_READS),
        (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old workbook of Excel does", _WORKBOOK),
        (rb"SQLite format 3\0", "a database of SQLite does", "sqlite3 -header -csv FILE 'SELECT * FROM TABLE' > NEW"),
        (rb"PAR1", "Parquet does", f"{_SUFFIX}.parquet"),
        (rb"ARROW1\0\0", "a file of Arrow does", "pandas.read_feather(FILE).to_parquet(NEW)"),
        (rb"version https://git-lfs", "a pointer of Git LFS does", "fetch what it stands for: git lfs pull"),
        (rb"\x04\x22\x4d\x18", "lz4 data do", _NONE_READS),
        (rb"7z\xbc\xaf\x27\x1c", "7z data do", _NONE_READS),
        (rb"\xff\xfe\0\0|\0\0\xfe\xff", "UTF-32 does", "convert it to UTF-8 (iconv -f UTF-32 -t UTF-8 FILE > NEW)"),
        (rb"\xff\xfe|\xfe\xff", "UTF-16 does", "convert it to UTF-8 (iconv -f UTF-16 -t UTF-8 FILE > NEW)"),
    )
)
#: What to add to a message about a byte that is not UTF-8, in text that is not another Unicode encoding.
LATIN_1 = ". Convert it to UTF-8 if it is Latin-1: iconv -f latin1 -t utf-8 FILE > NEW"
# Bytes at the beginning of a text in which NULs are looked for.
_LOOKED_AT = 4096


def advice_if_not_utf8(beginning: bytes) -> str:
    """What to add to a message about a file that is not UTF-8 text: it is compressed and its name does not say so, or
    it is UTF-16 or UTF-32, with a byte order mark or without one.

    `b"\\x1f\\x8b…"` → `". It begins as gzip data do: …"`; nothing for other bytes.
    """
    for pattern, what, remedy in _BEGINNINGS:
        if pattern.match(beginning):
            return f". It begins as {what}: {remedy}"
    wide = _wide_encoding(beginning[:_LOOKED_AT]) if 0 in beginning[:_LOOKED_AT] else None
    if wide is None:
        return ""
    advice = f"convert it to UTF-8 (iconv -f {wide} -t UTF-8 FILE > NEW)"
    return f". It begins as {wide} does, without a byte order mark: {advice}"


def _begins_as(codec: str, beginning: bytes) -> bool:
    return any(what.startswith(f"{codec} ") and pattern.match(beginning) for pattern, what, _ in _BEGINNINGS)


def _wide_encoding(beginning: bytes) -> str | None:
    """The encoding of text in UTF-16 or UTF-32 without a byte order mark.

    Its NULs beside letters, digits, blanks and newlines are all at the same place of two bytes, or of four; and every
    newline is such a pair. Text of UTF-8 that has NULs has them elsewhere.
    """
    if beginning.count(0) * 16 < len(beginning):
        return None
    for width, codec in ((4, "UTF-32LE"), (4, "UTF-32BE"), (2, "UTF-16LE"), (2, "UTF-16BE")):
        empty = width - 1 if codec.endswith("LE") else 0
        whole = beginning[: len(beginning) // width * width]
        if len(whole) < 2 * width or (width == 2 and whole.count(0) != whole[empty::2].count(0)):
            continue
        text = whole.decode(codec, "replace")
        is_text = "\ufffd" not in text[:-1] and not any(c < " " and c not in "\t\n\r\f" for c in text)
        if is_text and text.count("\n") == whole.count(b"\n"):
            return codec
    return None


def refuse_unless_text(file: str, beginning: bytes) -> None:
    """Raises `SourceError` for a file that begins as no text in UTF-8 does.

    The file as a whole is refused, not its lines: some of them would be valid by chance.
    """
    if advice := advice_if_not_utf8(beginning):
        found = "stands for another file" if "Git LFS" in advice else "is not text in UTF-8"
        raise SourceError(f"input {file} {found}{advice}", file=file, offset=0)


def text_of(content: bytes) -> str:
    """The text of a whole file or member in UTF-8, without a byte order mark.

    Raises `ValueError` that says which byte is wrong, or what the content is instead.
    """
    try:
        text = content.decode("utf-8-sig")
        wrong = ""
    except UnicodeDecodeError as error:
        wrong = f", found byte 0x{content[error.start]:02x} at byte {error.start}"
    advice = advice_if_not_utf8(content)
    if wrong or advice:
        raise ValueError(f"expected text in UTF-8{wrong}{advice or LATIN_1}")
    return text


def open_input(path: str) -> IO[bytes]:
    """An input file on any storage; reads are not buffered further."""
    return storage_for(path).open_read(path)


def content_digest_of(handle: IO[bytes]) -> str | None:
    """The object store's digest of an opened input; None for files, which must be read."""
    found: str | None = getattr(handle, "content_digest", None)
    return found


def object_range_digest(content_digest: str, start: int, end: int, *, prefix: bytes = b"") -> str:
    """The digest (hex) of a range of an object, derived from the store's digest of its whole content.

    Any change to the object changes the digests of all its ranges: the price of not reading them.
    """
    text = f"object {content_digest} {start} {end} {len(prefix)}\n"
    return hashlib.sha256(text.encode() + prefix).hexdigest()


def read_error(file: str, error: OSError, *, offset: int) -> SourceError:
    missing = os.strerror(errno.ENOENT)
    reason = missing if isinstance(error, FileNotFoundError) else error.strerror or str(error)
    what = "vanished" if isinstance(error, FileNotFoundError) else "cannot be read"
    denied = ". Give this account the right to read it (chmod a+r FILE), or leave it out of the input"
    remedy = denied if error.errno == errno.EACCES else ""
    return SourceError(f"input {file} {what} (at byte {offset}): {reason}{remedy}", file=file, offset=offset)


def read_range(path: str, file: str, start: int, end: int, *, size: int = READ_BYTES) -> Iterator[bytes]:
    """Yields bytes `start … end` of a file in chunks of at most `size`; `SourceError` if the file ends early."""
    with _opened(path, file, start) as handle:
        yield from _read_range(handle, file, start, end, size)


@contextlib.contextmanager
def _opened(path: str, file: str, start: int) -> Iterator[IO[bytes]]:
    try:
        handle = open_input(path)
    except OSError as error:
        raise read_error(file, error, offset=start) from error
    with handle:
        yield handle


def _read_range(handle: IO[bytes], file: str, start: int, end: int, size: int) -> Iterator[bytes]:
    offset = start
    try:
        handle.seek(start)
        while offset < end:
            chunk = handle.read(min(size, end - offset))
            if not chunk:
                raise SourceError(
                    f"input {file} ends at byte {offset}, expected {end} bytes: it was cut short after it was "
                    "planned; plan again",
                    file=file,
                    offset=offset,
                )
            offset += len(chunk)
            yield chunk
    except OSError as error:
        raise read_error(file, error, offset=offset) from error


def hash_range(
    path: str, file: str, start: int, end: int, *, prefix: bytes = b"", content_digest: str | None = None
) -> str:
    """Sha256 (hex) of `prefix` and the bytes `start … end`; for an object, of its store's digest.

    With `content_digest` from a listing, no request is made.
    """
    if content_digest is not None:
        return object_range_digest(content_digest, start, end, prefix=prefix)
    if not start and end <= READ_BYTES and not is_remote(path):
        with contextlib.suppress(OSError):  # if this fails, what follows says why
            content = _content(path, end)
            if len(content) == end:
                return hashlib.sha256(prefix + content).hexdigest()
    with _opened(path, file, start) as handle:
        known = content_digest_of(handle)
        if known is not None:
            return object_range_digest(known, start, end, prefix=prefix)
        digest = hashlib.sha256(prefix)
        for chunk in _read_range(handle, file, start, end, READ_BYTES):
            digest.update(chunk)
        return digest.hexdigest()


def _content(path: str, size: int) -> bytes:
    """The first bytes of a file of this machine: of a million small files, opening takes longest."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def slice_bytes(path: str, piece: Slice, *, prefix: bytes = b"", size: int = READ_BYTES) -> Iterator[bytes]:
    """Yields the stored bytes of a slice; at its end, raises `SourceError` if they differ from the plan.

    `prefix` was hashed before the slice's own bytes in the plan.
    """
    start, end = (piece.start, piece.end) if piece.stored is None else piece.stored[:2]
    with _opened(path, piece.file, start) as handle:
        known = content_digest_of(handle)
        if known is not None:
            # Exactly the generation that was opened is read: it was planned, or none of it is returned.
            require_digest(piece, object_range_digest(known, start, end, prefix=prefix))
            yield from _read_range(handle, piece.file, start, end, size)
            return
        digest = hashlib.sha256(prefix)
        for chunk in _read_range(handle, piece.file, start, end, size):
            digest.update(chunk)
            yield chunk
    require_digest(piece, digest.hexdigest())


def require_digest(piece: Slice, found: str, *, unit: str = "bytes") -> None:
    """Raises `SourceError` if the content of a slice is not what was planned; `unit` is what slices count."""
    if found != piece.digest:
        raise SourceError(
            f"input {piece.file} changed after it was planned: {unit} {piece.start} to {piece.end} should have sha256 "
            f"{piece.digest[:12]}…, found {found[:12]}…; plan again",
            file=piece.file,
            offset=piece.start,
        )


def slice_chunks(path: str, piece: Slice, *, size: int = READ_BYTES, prefix: bytes = b"") -> Iterator[bytes]:
    """The bytes of a slice in chunks of at most `size`, decompressed by the file's suffix."""
    chunks = decompressed(
        slice_bytes(path, piece, size=size, prefix=prefix), codec=codec_of(piece.file), file=piece.file, size=size
    )
    return chunks if piece.stored is None else _within(chunks, piece.start - piece.stored[2], piece.end - piece.start)


def _within(chunks: Iterator[bytes], skip: int, count: int) -> Iterator[bytes]:
    """`count` bytes of a stream after the first `skip`. Reads it to its end, where its digest is compared."""
    for chunk in chunks:
        part = chunk[skip : skip + count]
        skip = max(0, skip - len(chunk))
        count -= len(part)
        if part:
            yield part


class _Decoder(Protocol):
    """One member of a compressed file, as far as its bytes have arrived."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


class _ZstdDecoder(_Decoder, Protocol):
    """What we use of zstandard's `decompressobj`, which has no types."""

    def decompress(self, data: bytes, /) -> bytes: ...


def decompressed(chunks: Iterator[bytes], *, codec: str | None, file: str, size: int = READ_BYTES) -> Iterator[bytes]:
    """Decompresses a stream into chunks of at most `size`; knows several members in one file, and truncation."""
    if codec is None:
        yield from chunks
        return
    steps: dict[str, Callable[[Any, bytes, int], Iterator[bytes]]] = {
        "gzip": _gzip_steps,
        "bzip2": _bzip2_steps,
        "zstd": _zstd_steps,
    }
    step = steps[codec]
    consumed = 0
    beginning = b""
    decoder: _Decoder | None = None

    def damaged(reason: object) -> SourceError:
        if beginning and not _begins_as(codec, beginning):
            advice = advice_if_not_utf8(beginning) or ". Take the suffix off its name if it is not compressed"
            return SourceError(f"input {file} is not {codec} data, as its name says{advice}", file=file, offset=0)
        return SourceError(
            f"input {file} is damaged: {codec} data breaks off or is invalid near byte {consumed}: {reason}",
            file=file,
            offset=consumed,
        )

    for chunk in chunks:
        data = chunk
        beginning = beginning or chunk[:_LOOKED_AT]
        while data:
            if decoder is None:
                if consumed and data[0] == 0:  # zeros between members, and after the last one, are legal
                    padding = len(data) - len(data.lstrip(b"\0"))
                    consumed, data = consumed + padding, data[padding:]
                    continue
                decoder = _new_decoder(codec)
            try:
                yield from step(decoder, data, size)
            except (OSError, EOFError, zlib.error, ValueError) as error:
                raise damaged(error) from error
            except Exception as error:
                if codec != "zstd" or type(error).__name__ != "ZstdError":
                    raise
                raise damaged(error) from error
            rest = decoder.unused_data if decoder.eof else b""
            consumed += len(data) - len(rest)
            data = rest
            if decoder.eof:
                decoder = None
    if decoder is not None:
        raise damaged("the file is truncated")


def _new_decoder(codec: str) -> _Decoder:
    if codec == "gzip":
        return zlib.decompressobj(zlib.MAX_WBITS | 16)
    if codec == "bzip2":
        return bz2.BZ2Decompressor()
    zstandard = require("zstandard", purpose="reading .zst files")
    # The largest possible window, of `zstd --long=31`: it takes only as much memory as a frame needs.
    return _ZstdMember(zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj())


def _gzip_steps(decoder: zlib._Decompress, data: bytes, size: int) -> Iterator[bytes]:
    while True:
        if out := decoder.decompress(data, size):
            yield out
        data = decoder.unconsumed_tail
        if decoder.eof or (not data and len(out) < size):
            return


def _bzip2_steps(decoder: bz2.BZ2Decompressor, data: bytes, size: int) -> Iterator[bytes]:
    while True:
        if out := decoder.decompress(data, size):
            yield out
        data = b""
        if decoder.eof or decoder.needs_input:
            return


class _ZstdMember:
    """One zstd frame, fed in small steps; `unused_data` includes what was not fed."""

    def __init__(self, decoder: _ZstdDecoder) -> None:
        self._decoder = decoder
        self._rest = b""
        self.decompress: Callable[[bytes], bytes] = decoder.decompress

    @property
    def eof(self) -> bool:
        return bool(self._decoder.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._decoder.unused_data) + self._rest

    def keep(self, rest: bytes) -> None:
        self._rest = rest


def _zstd_steps(decoder: _ZstdMember, data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), _ZSTD_FEED_BYTES):
        out = decoder.decompress(data[at : at + _ZSTD_FEED_BYTES])
        for first in range(0, len(out), size):
            yield out[first : first + size]
        if decoder.eof:
            decoder.keep(data[at + _ZSTD_FEED_BYTES :])
            return


class Frame(NamedTuple):
    """Bytes `start … end` of a compressed file: `length` bytes of the decompressed file, from byte `base` on."""

    start: int
    end: int
    base: int
    length: int


_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_ZSTD_MAGIC = 0xFD2FB528
# The fixed part of a gzip header that has an extra field, and the length of that field.
_GZIP_EXTRA = struct.Struct("<4s6xH")
_MOST_HEADER_BYTES = 18
_UINT32 = struct.Struct("<I")


def frames_of(path: str, file: str, size: int) -> list[Frame]:
    """The frames of a compressed file, in order; empty if it is one stream, or damaged.

    Headers alone are read, but for zstd frames that do not say how long they are decompressed: these are decompressed.
    Frames of an object are not looked for: every header would be a request. Raises `SourceError` for a file that cannot
    be read.
    """
    step = {"gzip": _bgzip_block, "zstd": _zstd_frame}.get(codec_of(file) or "")
    if step is None or is_remote(path):
        return []
    frames: list[Frame] = []
    at = base = 0
    with _opened(path, file, 0) as handle:
        try:
            while at < size:
                end, length = step(handle, at)
                if end > size:
                    return []
                if length is None:
                    length = sum(map(len, decompressed(read_range(path, file, at, end), codec="zstd", file=file)))
                if length:
                    frames.append(Frame(at, end, base, length))
                at, base = end, base + length
        except OSError as error:
            raise read_error(file, error, offset=at) from error
        except (ValueError, SourceError, struct.error):
            return []
    return frames


def frame_chunks(path: str, file: str, frame: Frame) -> Iterator[bytes]:
    """The decompressed bytes of a frame."""
    return decompressed(read_range(path, file, frame.start, frame.end), codec=codec_of(file), file=file)


def _read_at(handle: IO[bytes], at: int, size: int) -> bytes:
    handle.seek(at)
    return handle.read(size)


def _bgzip_block(handle: IO[bytes], at: int) -> tuple[int, int | None]:
    """Where a block of bgzip ends, and its decompressed length. `ValueError` for a gzip member of another kind."""
    header = _read_at(handle, at, _MOST_HEADER_BYTES)
    magic, extra = _GZIP_EXTRA.unpack_from(header)
    if magic != b"\x1f\x8b\x08\x04" or extra != 6 or header[12:16] != b"BC\x02\0":
        raise ValueError("no block of bgzip")
    end = at + int.from_bytes(header[16:18], "little") + 1
    return end, _UINT32.unpack(_read_at(handle, end - 4, 4))[0]


def _zstd_frame(handle: IO[bytes], at: int) -> tuple[int, int | None]:
    """The same for a zstd frame; None if it does not say how long it is. Skippable frames are 0 bytes long."""
    zstandard = require("zstandard", purpose="reading .zst files")
    header = _read_at(handle, at, _MOST_HEADER_BYTES)
    (magic,) = _UINT32.unpack_from(header)
    if magic in _SKIPPABLE:
        return at + 8 + _UINT32.unpack_from(header, 4)[0], 0
    if magic != _ZSTD_MAGIC:
        raise ValueError("no zstd frame")
    try:
        parameters = zstandard.get_frame_parameters(header)
        end, is_last = at + zstandard.frame_header_size(header), False
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    while not is_last:
        block = int.from_bytes(_read_at(handle, end, 3), "little")
        is_last = bool(block & 1)
        end += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)  # a run of one byte is stored as that byte
        if block == 0 and not _read_at(handle, end, 1):
            raise ValueError("the file ends within a frame")
    known = parameters.content_size != zstandard.CONTENTSIZE_UNKNOWN
    return end + 4 * parameters.has_checksum, parameters.content_size if known else None
