"""The index of a shard, `<shard>.index`: one row per record, stored by columns.

    magic "bp-index" | version u32 | bytes of the header u32 | header JSON, padded with spaces to 64 bytes
    one column after the other, each padded with zeros to 64 bytes
    crc32c of everything before u32 | "xdni"

All numbers are little-endian. The header is `{"columns":[[name,dtype],...],"records":n}`, so the position of every
column follows from the names of the columns and the number of records.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
from collections.abc import Mapping, Sequence

import google_crc32c
import numpy as np

from beam_pipes.errors import CorruptIndexError, UnsupportedFormatError
from beam_pipes.format.dtypes import Array

MAGIC = b"bp-index"
END_MAGIC = b"xdni"
VERSION = 1
ALIGNMENT = 64


_PREFIX = struct.Struct("<8sII")
_TRAILER = struct.Struct("<I4s")

# Every index as a whole has this CRC, because it ends with the CRC of what stands before it and a fixed magic.
# Manifests with this value were written before `index_checksum` left the trailer out.
WHOLE_INDEX_CRC32C = 0x3A470BC8

ORDINAL = "ordinal"
OFFSET = "offset"
SIZE = "size"


def index_path(shard_path: str) -> str:
    """The path of the index beside a shard."""
    return shard_path + ".index"


def column_dtype(name: str) -> np.dtype:
    """uint64 for `offset` and `ordinal`, uint32 for `size`, `length/...` and `start/...`."""
    return np.dtype("<u8" if name in (OFFSET, ORDINAL) else "<u4")


def column_names(extra: Sequence[str], *, fixed: bool) -> tuple[str, ...]:
    """The columns of an index; with a fixed layout only the source ordinals, because the rest is arithmetic."""
    return (ORDINAL,) if fixed else (OFFSET, SIZE, ORDINAL, *extra)


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexLayout:
    """Where the columns of an index are: bytes before them, offset of each, bytes of the whole file."""

    prefix: bytes
    offsets: Mapping[str, int]
    records: int
    size: int


@functools.lru_cache(maxsize=4096)
def index_layout(columns: tuple[str, ...], records: int) -> IndexLayout:
    """The layout of an index with these columns and this many records."""
    described = [[name, column_dtype(name).str] for name in columns]
    header = json.dumps(
        {"columns": described, "records": records}, sort_keys=True, separators=(",", ":"), ensure_ascii=True
    ).encode()
    header = header.ljust(_aligned(_PREFIX.size + len(header)) - _PREFIX.size)
    prefix = _PREFIX.pack(MAGIC, VERSION, len(header)) + header
    offsets: dict[str, int] = {}
    position = len(prefix)
    for name in columns:
        offsets[name] = position
        position += _aligned(records * column_dtype(name).itemsize)
    return IndexLayout(prefix=prefix, offsets=offsets, records=records, size=position + _TRAILER.size)


def index_positions(columns: tuple[str, ...], records: Array) -> tuple[dict[str, Array], Array]:
    """Over many shards of one split: the offset of each column in every index, and the size of every index."""
    # The header differs only by the digits of the number of records.
    digits, inverse = np.unique(np.char.str_len(records.astype(str)), return_inverse=True)
    prefixes = np.array([len(index_layout(columns, 10 ** int(n) - 1).prefix) for n in digits], np.int64)
    position = prefixes[inverse] if len(records) else np.zeros(0, np.int64)
    offsets: dict[str, Array] = {}
    for name in columns:
        offsets[name] = position
        position = position + -(-records * column_dtype(name).itemsize // ALIGNMENT) * ALIGNMENT
    return offsets, position + _TRAILER.size


def encode_index(columns: Mapping[str, Array]) -> bytes:
    """The bytes of an index with these columns, in this order."""
    records = len(next(iter(columns.values())))
    layout = index_layout(tuple(columns), records)
    parts = [layout.prefix]
    for name, values in columns.items():
        data = np.ascontiguousarray(values, column_dtype(name)).tobytes()
        parts.append(data.ljust(_aligned(len(data)), b"\0"))
    body = b"".join(parts)
    return body + _TRAILER.pack(google_crc32c.value(body), END_MAGIC)


def decode_index(data: bytes | Array, *, path: str) -> dict[str, Array]:
    """The columns of an index as views of `data`, bytes or an array of them.

    Raises:
        CorruptIndexError: the bytes are not what was written.
        UnsupportedFormatError: the index has a version that this library does not know.
    """
    if len(data) < _PREFIX.size + _TRAILER.size or bytes(data[: len(MAGIC)]) != MAGIC:
        raise corrupt_index(
            path, f"expected it to start with {MAGIC!r}, found {bytes(data[:8])!r} in {len(data)} bytes"
        )
    _, version, header_bytes = _PREFIX.unpack(bytes(data[: _PREFIX.size]))
    stored, end = _TRAILER.unpack(bytes(data[-_TRAILER.size :]))
    computed = google_crc32c.value(np.frombuffer(data, np.uint8)[: -_TRAILER.size])
    if end != END_MAGIC or stored != computed:
        raise corrupt_index(
            path, f"expected checksum {computed:#010x} and {END_MAGIC!r}, found {stored:#010x} and {end!r}"
        )
    if version != VERSION:
        raise UnsupportedFormatError(
            f"{path}: expected an index of version {VERSION}, found version {version}. Read it with the version of "
            "beam-pipes that wrote it, or build the cache again.",
            path=path,
            found=version,
        )
    try:
        header = json.loads(bytes(data[_PREFIX.size : _PREFIX.size + header_bytes]))
        names, records = tuple(str(name) for name, _ in header["columns"]), header["records"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise corrupt_index(path, f"its header cannot be read: {error!r:.200}") from error
    if type(records) is not int or not 0 <= records <= len(data) or not names or len(set(names)) != len(names):
        raise corrupt_index(
            path, f"{len(data)} bytes cannot hold {records!r:.40} records of the columns {names!r:.200}"
        )
    layout = index_layout(names, records)
    if layout.size != len(data) or bytes(data[: len(layout.prefix)]) != layout.prefix:
        raise corrupt_index(path, f"expected {layout.size} bytes for {layout.records} records, found {len(data)}")
    return {
        name: np.frombuffer(data, column_dtype(name), layout.records, offset) for name, offset in layout.offsets.items()
    }


def index_trailer(crc32c: int) -> bytes:
    """The bytes at the end of an index, which `index_crc32c` in the manifest does not cover."""
    return b"" if crc32c == WHOLE_INDEX_CRC32C else _TRAILER.pack(crc32c, END_MAGIC)


def index_checksum(data: bytes | Array, *, expected: int | None = None) -> int:
    """`index_crc32c` of an index: the CRC of everything before the trailer, which distinguishes indexes.

    Args:
        data: the whole index.
        expected: what the manifest says. An old manifest says `WHOLE_INDEX_CRC32C`, and gets the CRC of all bytes.
    """
    view = np.frombuffer(data, np.uint8)
    whole = expected == WHOLE_INDEX_CRC32C
    checksum: int = google_crc32c.value(view if whole else view[: -_TRAILER.size])
    return checksum


def corrupt_index(path: str, problem: str) -> CorruptIndexError:
    return CorruptIndexError(
        f"{path}: the index is damaged: {problem}. Its bytes have changed; rebuild or copy the shard and its index "
        "again.",
        path=path,
    )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
