"""Corpora that were written for other training stacks: Megatron's `.bin` and `.idx`, and ArrayRecord.

Their files have an index, so records are known by number: slices are ranges of records, and ids are `name@number`.

    web_text_document.bin   5 6 7 | 8 9       tokens, one document after the other
    web_text_document.idx   3 2               their lengths, and what documents they form
                            │
                            ▼
    {"tokens": [5, 6, 7]}, {"tokens": [8, 9]}

Megatron's layout is read as `megatron.core.datasets.indexed_dataset` documents it; importing that needs CUDA's Triton.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.storage import is_remote, storage_for
from beam_pipes.errors import SourceError
from beam_pipes.extras import require
from beam_pipes.sources.byte_stream import content_digest_of, object_range_digest, open_input, read_error
from beam_pipes.sources.file_source import FileSource, Range
from beam_pipes.sources.record_batch import Batcher, RecordBatch, StoredPiece
from beam_pipes.sources.selection import FoundFile, Paths
from beam_pipes.sources.source import SourceShard, check_batch_limits

# Records that are read at once.
_GROUP_BYTES = 4 << 20


class Numbered(Protocol):
    """An open file whose records are numbered from 0."""

    @property
    def num_records(self) -> int: ...

    @property
    def num_bytes(self) -> int:
        """Of all records."""
        ...

    @property
    def kind(self) -> bytes:
        """What the meaning of the bytes depends on, such as a dtype."""
        ...

    @property
    def content_digest(self) -> str | None:
        """What an object store says of the whole content; None for files, which have to be read."""
        ...

    def records(self, start: int, stop: int) -> Sequence[bytes]:
        """The bytes of records `start … stop`."""
        ...


NumberedT = TypeVar("NumberedT", bound=Numbered)


@dataclass(frozen=True)
class NumberedSource(FileSource, Generic[NumberedT]):
    """A source of files whose records are numbered; large files are cut into ranges of records of about equal bytes."""

    paths: Paths

    def _inputs(self) -> Paths:
        return self.paths

    @abstractmethod
    def _open(self, path: str, file: str) -> contextlib.AbstractContextManager[NumberedT]:
        """Opens a file. Raises `SourceError`, naming it, where it is damaged."""

    @abstractmethod
    def _value(self, raw: bytes, opened: NumberedT) -> object:
        """The value of a record."""

    # Planning.

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        with self._open(file.path, file.name) as opened:
            count, num_bytes = opened.num_records, opened.num_bytes
        # A number of records that does not depend on the end: a file that grows keeps its first slices.
        each = max(1, count * target_shard_bytes // max(1, num_bytes))
        each = 1 << (each.bit_length() - 1) if each < count else max(1, count)
        return [
            (start, min(start + each, count), -(-num_bytes * (min(start + each, count) - start) // count))
            for start in range(0, count, each)
        ]

    def _digest(self, file: FoundFile, start: int, end: int) -> str:
        with self._open(file.path, file.name) as opened:
            digest = _Digest(opened)
            if opened.content_digest is None:
                for _, raws in _groups(opened, start, end):
                    digest.update(raws)
            return digest.of(start, end)

    # Reading.

    def read(
        self, shard: SourceShard, *, batch_records: int = 256, batch_bytes: int = 1 << 20
    ) -> Iterator[RecordBatch]:
        check_batch_limits(batch_records, batch_bytes)
        selection = self.selection()
        batcher = Batcher(batch_records=batch_records, batch_bytes=batch_bytes)
        for part in shard.slices:
            with self._open(selection.path_of(part.file), part.file) as opened:
                digest = _Digest(opened)
                for first, raws in _groups(opened, part.start, min(part.end, opened.num_records)):
                    digest.update(raws)
                    numbers = range(first, first + len(raws))
                    piece = StoredPiece(
                        file=part.file, first_ordinal=batcher.next_ordinal, positions=numbers, raws=raws
                    )
                    values = [self._value(raw, opened) for raw in raws]
                    yield from batcher.add(piece, values, num_bytes=sum(map(len, raws)))
                if (found := digest.of(part.start, part.end)) != part.digest:
                    raise SourceError(
                        f"input {part.file} changed after it was planned: records {part.start} to {part.end} should "
                        f"have sha256 {part.digest[:12]}…, found {found[:12]}…; plan again",
                        file=part.file,
                        offset=part.start,
                    )
        yield from batcher.finish()

    def parse(self, raw: bytes, *, file: str, position: int) -> object:
        with self._open(self.selection().path_of(file), file) as opened:
            return self._value(raw, opened)


def _groups(opened: Numbered, start: int, stop: int) -> Iterator[tuple[int, Sequence[bytes]]]:
    each = max(1, opened.num_records * _GROUP_BYTES // max(1, opened.num_bytes))
    for first in range(start, stop, each):
        yield first, opened.records(first, min(first + each, stop))


class _Digest:
    """The digest of a range of records: of their bytes, or of what an object store says of the whole content."""

    def __init__(self, opened: Numbered) -> None:
        self._content = opened.content_digest
        self._read = hashlib.sha256(opened.kind)

    def update(self, raws: Sequence[bytes]) -> None:
        """The next records of the range."""
        if self._content is None:
            for raw in raws:
                self._read.update(b"%d:" % len(raw))
                self._read.update(raw)

    def of(self, start: int, stop: int) -> str:
        """What the digest of records `start … stop` is."""
        return self._read.hexdigest() if self._content is None else object_range_digest(self._content, start, stop)


# Megatron.

MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
#: Code in the header → dtype.
MEGATRON_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
_MEGATRON_HEADER = len(MEGATRON_MAGIC) + 8 + 1 + 8 + 8


class _MegatronFile:
    """An open `.bin` with its `.idx`: `starts` are where documents begin, in bytes, and the end of the last one."""

    def __init__(self, path: str, file: str) -> None:
        self.file = file
        try:
            self._data = open_input(path)
        except OSError as error:
            raise read_error(file, error, offset=0) from error
        try:
            self._index = _index_beside(path, file)
            size = self._data.seek(0, 2)
            if size != self.num_bytes:
                raise SourceError(
                    f"input {file} should have {self.num_bytes} bytes, as its .idx says, found {size}. Copy both files "
                    "again.",
                    file=file,
                )
        except BaseException:
            self._data.close()
            raise
        self.starts, self.dtype = self._index.starts, self._index.dtype
        self.kind = self.dtype.str.encode()
        known = content_digest_of(self._data)
        self.content_digest = None if known is None else f"{known}/{self._index.digest}"

    @property
    def num_records(self) -> int:
        return len(self.starts) - 1

    @property
    def num_bytes(self) -> int:
        return int(self._index.starts[-1])

    def records(self, start: int, stop: int) -> Sequence[bytes]:
        first, last = int(self.starts[start]), int(self.starts[stop])
        self._data.seek(first)
        data = b""
        while len(data) < last - first and (piece := self._data.read(last - first - len(data))):
            data += piece
        if len(data) < last - first:
            raise SourceError(
                f"input {self.file} ends at byte {first + len(data)}, expected {last}", file=self.file, offset=first
            )
        bounds = (self.starts[start : stop + 1] - first).tolist()
        return [data[begin:end] for begin, end in zip(bounds, bounds[1:], strict=False)]

    def close(self) -> None:
        self._data.close()


class _Index(NamedTuple):
    """An `.idx`: dtype, byte offsets of documents and of the end, sha256 of the file."""

    dtype: np.dtype[Any]
    starts: npt.NDArray[np.int64]
    digest: str


def _index_beside(path: str, file: str) -> _Index:
    """The index of a `.bin`. Each slice asks for it, so it is kept as long as the file is the same."""
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


def _megatron_index(read: bytes, file: str) -> tuple[np.dtype[Any], npt.NDArray[np.int64]]:
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
    dtype that the index says (uint16 for small vocabularies). The sequences of a document, where it has several, come
    one after the other. `field` is the name of the tokens in the dict.
    """

    _: KW_ONLY
    pattern: str | Sequence[str] = "**/*.bin"
    field: str = "tokens"

    @property
    def output_type(self) -> type:
        return dict

    def _variant(self, file: FoundFile, target_shard_bytes: int) -> str:
        # Digests are kept by the times of the .bin, and the .idx may change while that does not.
        index = _index_beside(file.path, file.name)
        return f"megatron/{index.digest}/{super()._variant(file, target_shard_bytes)}"

    def _open(self, path: str, file: str) -> contextlib.AbstractContextManager[_MegatronFile]:
        return contextlib.closing(_MegatronFile(path, file))

    def _value(self, raw: bytes, opened: _MegatronFile) -> dict[str, npt.NDArray[Any]]:
        return {self.field: np.frombuffer(raw, opened.dtype)}

    def fingerprint_config(self) -> Mapping[str, Any]:
        return {"source": "MegatronTokens", "version": 1, "field": self.field}


# ArrayRecord.


class _ArrayRecordFile:
    """An open ArrayRecord file."""

    kind = b""
    content_digest = None  # of files of this machine alone

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
class ArrayRecords(NumberedSource[_ArrayRecordFile]):
    """Every record of ArrayRecord files is one record, `bytes`. Ids are `name@record`.

    `ArrayRecords("corpus")` reads all files with `array_record` in their names below `corpus`, on this machine: TFDS
    and Grain write them. A stage parses the bytes, an `Example` in most cases. Needs array_record (extra `formats`).
    """

    _: KW_ONLY
    pattern: str | Sequence[str] = "**/*array_record*"

    @property
    def output_type(self) -> type:
        return bytes

    def _open(self, path: str, file: str) -> contextlib.AbstractContextManager[_ArrayRecordFile]:
        return contextlib.closing(_ArrayRecordFile(path, file))

    def _value(self, raw: bytes, opened: _ArrayRecordFile) -> bytes:
        return raw

    def fingerprint_config(self) -> Mapping[str, Any]:
        return {"source": "ArrayRecords", "version": 1}
