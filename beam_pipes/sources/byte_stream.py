"""The bytes of one slice, read in order: checked against the plan, and decompressed by the suffix."""

from __future__ import annotations

import bz2
import contextlib
import errno
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from beam_pipes.cache.storage import storage_for
from beam_pipes.errors import SourceError
from beam_pipes.extras import require
from beam_pipes.sources.source import Slice

READ_BYTES = 1 << 20
# A 128 KiB block of zeros is four bytes of zstd: small inputs keep what one call gives back below 64 MiB.
_ZSTD_FEED_BYTES = 2048

CODEC_OF_SUFFIX = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}


def codec_of(name: str) -> str | None:
    """The compression that a file's suffix implies: gzip for `.gz`, bzip2 for `.bz2`, zstd for `.zst`, or none."""
    return CODEC_OF_SUFFIX.get(os.path.splitext(name)[1].lower())


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
    return SourceError(f"input {file} {what} (at byte {offset}): {reason}", file=file, offset=offset)


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
    with _opened(path, file, start) as handle:
        known = content_digest_of(handle)
        if known is not None:
            return object_range_digest(known, start, end, prefix=prefix)
        digest = hashlib.sha256(prefix)
        for chunk in _read_range(handle, file, start, end, READ_BYTES):
            digest.update(chunk)
        return digest.hexdigest()


def slice_bytes(path: str, piece: Slice, *, prefix: bytes = b"", size: int = READ_BYTES) -> Iterator[bytes]:
    """Yields the stored bytes of a slice; at its end, raises `SourceError` if they differ from the plan.

    `prefix` was hashed before the slice's own bytes in the plan.
    """
    with _opened(path, piece.file, piece.start) as handle:
        known = content_digest_of(handle)
        if known is not None:
            # The generation that was opened is the one that is read: it was planned, or nothing of it is given.
            _require_digest(piece, object_range_digest(known, piece.start, piece.end, prefix=prefix))
            yield from _read_range(handle, piece.file, piece.start, piece.end, size)
            return
        digest = hashlib.sha256(prefix)
        for chunk in _read_range(handle, piece.file, piece.start, piece.end, size):
            digest.update(chunk)
            yield chunk
    _require_digest(piece, digest.hexdigest())


def _require_digest(piece: Slice, found: str) -> None:
    if found != piece.digest:
        raise SourceError(
            f"input {piece.file} changed after it was planned: bytes {piece.start} to {piece.end} should have sha256 "
            f"{piece.digest[:12]}…, found {found[:12]}…; plan again",
            file=piece.file,
            offset=piece.start,
        )


def slice_chunks(path: str, piece: Slice, *, size: int = READ_BYTES, prefix: bytes = b"") -> Iterator[bytes]:
    """The bytes of a slice in chunks of at most `size`, decompressed by the file's suffix."""
    stored = slice_bytes(path, piece, size=size, prefix=prefix)
    return decompressed(stored, codec=codec_of(piece.file), file=piece.file, size=size)


def decompressed(chunks: Iterator[bytes], *, codec: str | None, file: str, size: int = READ_BYTES) -> Iterator[bytes]:
    """Decompresses a stream into chunks of at most `size`; knows several members in one file, and truncation."""
    if codec is None:
        yield from chunks
        return
    step = {"gzip": _gzip_steps, "bzip2": _bzip2_steps, "zstd": _zstd_steps}[codec]
    consumed = 0
    decoder: Any = None

    def damaged(reason: object) -> SourceError:
        return SourceError(
            f"input {file} is damaged: {codec} data breaks off or is invalid near byte {consumed}: {reason}",
            file=file,
            offset=consumed,
        )

    for chunk in chunks:
        data = chunk
        while data:
            if decoder is None:
                if consumed and data[0] == 0:  # zeros between members, and after the last, are legal
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


def _new_decoder(codec: str) -> Any:
    if codec == "gzip":
        return zlib.decompressobj(zlib.MAX_WBITS | 16)
    if codec == "bzip2":
        return bz2.BZ2Decompressor()
    return _ZstdMember(require("zstandard", purpose="reading .zst files").ZstdDecompressor().decompressobj())


def _gzip_steps(decoder: Any, data: bytes, size: int) -> Iterator[bytes]:
    while True:
        if out := decoder.decompress(data, size):
            yield out
        data = decoder.unconsumed_tail
        if decoder.eof or (not data and len(out) < size):
            return


def _bzip2_steps(decoder: Any, data: bytes, size: int) -> Iterator[bytes]:
    while True:
        if out := decoder.decompress(data, size):
            yield out
        data = b""
        if decoder.eof or decoder.needs_input:
            return


class _ZstdMember:
    """One zstd frame, fed in small steps; `unused_data` includes what was no longer fed."""

    def __init__(self, decoder: Any) -> None:
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
