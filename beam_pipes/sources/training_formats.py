"""Corpora written for other training stacks: Megatron's `.bin` and `.idx`, ArrayRecord, MDS.

Their files have an index, so records are known by number: slices are ranges of records, and ids are `name@number`.

    web_text_document.bin   5 6 7 | 8 9       tokens, one document after the other
    web_text_document.idx   3 2               their lengths, and the documents they form
                            │
                            ▼
    {"tokens": [5, 6, 7]}, {"tokens": [8, 9]}

Megatron's layout is read as `megatron.core.datasets.indexed_dataset` documents it; importing that needs CUDA's Triton.
MDS is read as `streaming.base.format.mds` of MosaicML Streaming 0.13.0 lays it out: that package wants NumPy below 2.2.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import SourceError
from beam_pipes.extras import require
from beam_pipes.format.dtypes import Array
from beam_pipes.sources.byte_stream import content_digest_of, open_input, read_error
from beam_pipes.sources.digests import key_of
from beam_pipes.sources.file_source import NumberedSource
from beam_pipes.sources.selection import FoundFiles
from beam_pipes.storage.local import is_remote, storage_for


class _OffsetFile(ABC):
    """An open file of consecutive records: `starts` are their offsets, and the end of the last one."""

    starts: npt.NDArray[np.int64]

    def __init__(self, path: str, file: str) -> None:
        self.path, self.file = path, file
        try:
            self._data = open_input(path)
        except OSError as error:
            raise read_error(file, error, offset=0) from error
        try:
            self._open(size=self._data.seek(0, 2))
        except BaseException:
            self._data.close()
            raise

    @abstractmethod
    def _open(self, *, size: int) -> None:
        """Finds `starts` in a file of that many bytes. Raises `SourceError` for a damaged one."""

    @property
    def num_records(self) -> int:
        return len(self.starts) - 1

    @property
    def num_bytes(self) -> int:
        return int(self.starts[-1] - self.starts[0])

    def records(self, start: int, stop: int) -> Sequence[bytes]:
        first = int(self.starts[start])
        data = self._read(first, int(self.starts[stop]))
        bounds = (self.starts[start : stop + 1] - first).tolist()
        return [data[begin:end] for begin, end in zip(bounds, bounds[1:], strict=False)]

    def _read(self, start: int, end: int) -> bytes:
        """Bytes `start … end`."""
        self._data.seek(start)
        found = b""
        while len(found) < end - start and (piece := self._data.read(end - start - len(found))):
            found += piece
        if len(found) < end - start:
            raise SourceError(
                f"input {self.file} ends at byte {start + len(found)}, expected {end}", file=self.file, offset=start
            )
        return found

    def close(self) -> None:
        self._data.close()


# Megatron.

MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
#: Code in the header → dtype.
MEGATRON_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
_MEGATRON_HEADER = len(MEGATRON_MAGIC) + 8 + 1 + 8 + 8


class _MegatronFile(_OffsetFile):
    """An open `.bin` with its `.idx`; records are documents."""

    def _open(self, *, size: int) -> None:
        index = _index_beside(self.path, self.file)
        if size != index.starts[-1]:
            raise SourceError(
                f"input {self.file} should have {index.starts[-1]} bytes, as its .idx says, found {size}. Copy both "
                "files again.",
                file=self.file,
            )
        self.starts, self.dtype = index.starts, index.dtype
        self.kind = self.dtype.str.encode()
        known = content_digest_of(self._data)
        self.content_digest = None if known is None else f"{known}/{index.digest}"


class _Index(NamedTuple):
    """An `.idx`: dtype, byte offsets of documents and of the end, sha256 of the file."""

    dtype: np.dtype
    starts: npt.NDArray[np.int64]
    digest: str


def _index_beside(path: str, file: str) -> _Index:
    """The index of a `.bin`. Every slice needs it, so it is cached while the file is unchanged."""
    index = path.removesuffix(".bin") + ".idx"
    try:
        if is_remote(index):
            with open_input(index) as handle:
                return _parsed_index(index, file, content_digest_of(handle))
        status = os.stat(index)
        return _parsed_index(index, file, (status.st_mtime_ns, status.st_size, status.st_ino))
    except OSError as error:
        raise SourceError(
            f"input {file} needs its index {file.removesuffix('.bin')}.idx beside it: {error}", file=file
        ) from error


@functools.lru_cache(maxsize=4)
def _parsed_index(path: str, file: str, version: object) -> _Index:
    read = storage_for(path).read_bytes(path)
    return _Index(*_megatron_index(read, file), hashlib.sha256(read).hexdigest())


def _megatron_index(read: bytes, file: str) -> tuple[np.dtype, npt.NDArray[np.int64]]:
    index = f"{file.removesuffix('.bin')}.idx"
    if read[: len(MEGATRON_MAGIC)] != MEGATRON_MAGIC or len(read) < _MEGATRON_HEADER:
        raise SourceError(
            f"input {index} should begin with {MEGATRON_MAGIC!r}, found {read[:9]!r}: it is not an index of Megatron's "
            "indexed dataset. Other .bin files cannot be read.",
            file=file,
        )
    (version,) = np.frombuffer(read, "<u8", 1, 9)
    code = read[17]
    sequences, documents = (int(each) for each in np.frombuffer(read, "<u8", 2, 18))
    if version != 1 or code not in MEGATRON_DTYPES:
        raise SourceError(
            f"input {index} has version {version} and dtype code {code}; known are version 1 and the codes "
            f"{', '.join(f'{number} ({np.dtype(name)})' for number, name in MEGATRON_DTYPES.items())}.",
            file=file,
        )
    expected = _MEGATRON_HEADER + 12 * sequences + 8 * documents
    if len(read) not in (expected, expected + sequences):  # with a mode for each sequence, which is not read
        raise SourceError(
            f"input {index} should have {expected} bytes for {sequences} sequences and {documents - 1} documents, "
            f"found {len(read)}. Copy it again.",
            file=file,
        )
    dtype = np.dtype(MEGATRON_DTYPES[code])
    lengths = np.frombuffer(read, "<i4", sequences, _MEGATRON_HEADER).astype(np.int64)
    pointers = np.frombuffer(read, "<i8", sequences, _MEGATRON_HEADER + 4 * sequences)
    bounds = np.frombuffer(read, "<i8", documents, _MEGATRON_HEADER + 12 * sequences)
    ends = np.concatenate(([0], np.cumsum(lengths))) * dtype.itemsize
    in_order = documents and bounds[0] == 0 and bounds[-1] == sequences and (np.diff(bounds) >= 0).all()
    if (lengths < 0).any() or not np.array_equal(pointers, ends[:-1]) or not in_order:
        raise SourceError(
            f"input {index} should describe sequences that follow each other, in documents from 0 to {sequences}. "
            "Merge or write the dataset again with Megatron's tools.",
            file=file,
        )
    return dtype, ends[bounds]


@dataclass(frozen=True)
class MegatronTokens(NumberedSource[_MegatronFile]):
    """Every document of Megatron's indexed datasets is one record: `{"tokens": array}`. Ids are `name@document`.

    `MegatronTokens("corpus")` reads all `.bin` files below `corpus`, each with the `.idx` beside it. Arrays have the
    dtype of the index (uint16 for small vocabularies). If a document has several sequences, they are concatenated.
    `field` is the name of the tokens in the dict.
    """

    _: KW_ONLY
    pattern: str | Sequence[str] = "**/*.bin"
    field: str = "tokens"

    @property
    def output_type(self) -> type:
        return dict

    def _keys(self, files: FoundFiles, target_shard_bytes: int) -> bytes:
        # Digests are kept by the times of the .bin, and the .idx may change while that does not.
        return b"".join(
            key_of(file, f"megatron/{_index_beside(file.path, file.name).digest}/{target_shard_bytes}")
            for file in files
        )

    def _open(self, path: str, file: str) -> contextlib.AbstractContextManager[_MegatronFile]:
        return contextlib.closing(_MegatronFile(path, file))

    def _value(self, raw: bytes, opened: _MegatronFile) -> dict[str, Array]:
        return {self.field: np.frombuffer(raw, opened.dtype)}


# ArrayRecord.


class ArrayRecordFile:
    """An open ArrayRecord file."""

    kind = b""
    content_digest = None  # only for files of this machine

    def __init__(self, path: str, file: str) -> None:
        if is_remote(path):
            raise SourceError(
                f"input {path} cannot be read: the library of ArrayRecord opens local files. Copy it to this machine.",
                file=file,
            )
        try:
            with open_input(path) as handle:
                self.num_bytes = handle.seek(0, 2)
        except OSError as error:
            raise read_error(file, error, offset=0) from error
        module = require("array_record.python.array_record_module", purpose="ArrayRecords")
        self.file = file
        self._reader = module.ArrayRecordReader(path)
        self.num_records = int(self._reader.num_records())
        if not self._reader.ok():
            raise SourceError(
                f"input {file} cannot be read as ArrayRecord: its footer is damaged or missing. Copy it again.",
                file=file,
            )

    def records(self, start: int, stop: int) -> Sequence[bytes]:
        try:
            found: Sequence[bytes] = self._reader.read(start, stop)
        except (RuntimeError, ValueError, IndexError) as error:
            raise SourceError(
                f"input {self.file} cannot be read as ArrayRecord, records {start} to {stop}: {error}",
                file=self.file,
                offset=start,
            ) from error
        return found

    def close(self) -> None:
        self._reader.close()


@dataclass(frozen=True)
class ArrayRecords(NumberedSource[ArrayRecordFile]):
    """Every record of ArrayRecord files is one record, `bytes`. Ids are `name@record`.

    `ArrayRecords("corpus")` reads all files with `array_record` in their names below `corpus`, on this machine: TFDS
    and Grain write them. A stage parses the bytes, an `Example` in most cases. Needs array_record (extra `formats`).
    """

    _: KW_ONLY
    pattern: str | Sequence[str] = "**/*array_record*"

    @property
    def output_type(self) -> type:
        return bytes

    def _open(self, path: str, file: str) -> contextlib.AbstractContextManager[ArrayRecordFile]:
        return contextlib.closing(ArrayRecordFile(path, file))

    def _value(self, raw: bytes, opened: ArrayRecordFile) -> bytes:
        return raw


# MDS, of MosaicML Streaming.

_SCALARS = {name: np.dtype(f"<{code}") for name, code in
            {"uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8", "int8": "i1", "int16": "i2", "int32": "i4",
             "int64": "i8", "int": "i8", "float16": "f2", "float32": "f4", "float64": "f8"}.items()}  # fmt: skip
# Dtype numbers in values that name their own dtype.
_MDS_DTYPES = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32",
               34: "float32", 64: "uint64", 65: "int64", 66: "float64"}  # fmt: skip
_MDS_TEXTS: Mapping[str, Callable[[bytes], object]] = {
    "bytes": bytes,
    "jpeg": bytes,
    "png": bytes,
    "str": lambda raw: raw.decode("utf-8"),
    "str_int": int,
    "str_float": float,
    "str_decimal": lambda raw: Decimal(raw.decode("utf-8")),
    "json": json.loads,
}
# The bytes in front of the number of elements.
_MDS_LISTS = {"list[jpeg]": 4, "list[png]": 4, "jpeg_array": 0, "jpegarray": 0}


def mds_array(raw: bytes, dtype: str | None, shape: tuple[int, ...] | None) -> Array:
    """An `ndarray` column's value; the data begin with what the encoding does not fix: a dtype, then a shape.

    `bytes([33, 4, 2]) + two int32` → an int32 array of shape (2,): dtype 33, one dimension with sizes of a byte, 2.
    """
    at = 0
    if dtype is None:
        dtype, at = _MDS_DTYPES[raw[0]], 1
    if shape is None:
        ndim, code = divmod(raw[at], 4)
        shape = tuple(np.frombuffer(raw, f"<u{1 << code}", ndim, at + 1).tolist())
        at += 1 + (ndim << code)
    return np.frombuffer(raw, _SCALARS[dtype], offset=at).reshape(shape)


class _Column(NamedTuple):
    name: str
    size: int | None
    decode: Callable[[bytes], object]


def _decoder_of(encoding: str) -> Callable[[bytes], object] | None:
    """The function that decodes a column's bytes; None for an unsupported encoding."""
    if encoding in _MDS_TEXTS:
        return _MDS_TEXTS[encoding]
    if encoding in _SCALARS:
        dtype = _SCALARS[encoding]
        return (lambda raw: int(np.frombuffer(raw, dtype)[0])) if encoding == "int" else (
            lambda raw: np.frombuffer(raw, dtype)[0]
        )  # fmt: skip
    if encoding in _MDS_LISTS:
        return functools.partial(_mds_list, skip=_MDS_LISTS[encoding])
    kind, _, options = encoding.partition(":")
    if kind != "ndarray":
        return None
    dtype_name, _, sizes = options.partition(":")
    if dtype_name not in ("", *_MDS_DTYPES.values()):
        return None
    shape = tuple(map(int, sizes.split(","))) if sizes else None
    return functools.partial(mds_array, dtype=dtype_name or None, shape=shape)


def _mds_list(raw: bytes, skip: int) -> list[bytes]:
    (count,) = np.frombuffer(raw, "<u4", 1, skip).tolist()
    ends = np.cumsum(np.frombuffer(raw, "<u4", count, skip + 4)) + skip + 4 + 4 * count
    return (
        [raw[begin:end] for begin, end in zip((skip + 4 + 4 * count, *ends[:-1]), ends, strict=True)] if count else []
    )


class _MDSFile(_OffsetFile):
    """An open shard: the number of samples, their offsets and the end, the columns; then the samples."""

    def _open(self, *, size: int) -> None:
        self.content_digest = content_digest_of(self._data)
        (count,) = np.frombuffer(self._read(0, 4), "<u4").tolist() if size >= 4 else (0,)
        head = 4 * (count + 2)
        if size < head + 2:
            raise self._damaged(f"expected {count} samples and their offsets, found {size} bytes")
        self.starts = np.frombuffer(self._read(4, head), "<u4").astype(np.int64)
        if self.starts[0] < head or (np.diff(self.starts) < 0).any() or self.starts[-1] != size:
            raise self._damaged(
                f"the offsets of {count} samples should go from {head} up to its {size} bytes, found "
                f"{self.starts[0]} to {self.starts[-1]}"
            )
        self.kind = self._read(head, int(self.starts[0]))
        self.columns = self._columns_of(self.kind)

    def _columns_of(self, config: bytes) -> list[_Column]:
        try:
            found = json.loads(config)
            columns = list(zip(found["column_names"], found["column_encodings"], found["column_sizes"], strict=True))
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(f"its header's description of the columns cannot be read: {error}") from error
        made = []
        for name, encoding, size in columns:
            decode = _decoder_of(encoding)
            if decode is None:
                raise SourceError(
                    f"input {self.file} has a column {name!r} of the encoding {encoding!r}, which is not read"
                    + (": unpickling it could run any code" if encoding == "pkl" else "")
                    + f". Write it as one of: {', '.join([*_MDS_TEXTS, *_MDS_LISTS, 'ndarray', *_SCALARS])}.",
                    file=self.file,
                )
            made.append(_Column(name, size, decode))
        return made

    def _damaged(self, what: str) -> SourceError:
        return SourceError(
            f"input {self.file} cannot be read as a shard of MDS: {what}. Copy it again; compressed shards "
            "(.mds.zstd) have to be decompressed first.",
            file=self.file,
        )


@dataclass(frozen=True)
class MDS(NumberedSource[_MDSFile]):
    """Every sample of the MDS shards of MosaicML Streaming is one record: column → value. Ids are `name@sample`.

    `MDS("corpus/train")` reads all `.mds` files below the directory, in the order of their names, which is that of
    `index.json`; `build("c", {"train": MDS("corpus/train"), "val": MDS("corpus/val")}, …)` reads splits. The shards
    describe their own columns, so `index.json` is not needed. Values are those of Streaming's reader, except images,
    which remain the bytes of a JPEG or PNG file for a stage to decode: `{"image": b"\\xff\\xd8…", "label": 3}`.

    Columns of `pkl` and `pil`, and compressed shards, are refused.
    """

    _: KW_ONLY
    pattern: str | Sequence[str] = "**/*.mds"

    @property
    def output_type(self) -> type:
        return dict

    def _open(self, path: str, file: str) -> contextlib.AbstractContextManager[_MDSFile]:
        return contextlib.closing(_MDSFile(path, file))

    def _value(self, raw: bytes, opened: _MDSFile) -> dict[str, object]:
        varying = sum(column.size is None for column in opened.columns)
        value: dict[str, object] = {}
        try:
            sizes = iter(np.frombuffer(raw, "<u4", varying).tolist())
            at = 4 * varying
            for column in opened.columns:
                end = at + (next(sizes) if column.size is None else column.size)
                if end > len(raw):
                    raise ValueError(f"it ends at byte {len(raw)}, within the column {column.name!r}")
                value[column.name] = column.decode(raw[at:end])
                at = end
        except (ValueError, KeyError, IndexError, ArithmeticError) as error:
            raise SourceError(
                f"input {opened.file} has a sample that cannot be decoded: {type(error).__name__}: {error}",
                file=opened.file,
            ) from error
        return value
