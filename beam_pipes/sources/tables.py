"""Rows of tables as records: Parquet files, and streams of Arrow, which `save_to_disk` of Hugging Face datasets writes.

Slices are ranges of rows: whole row groups of Parquet, whole record batches of a stream. `dataset_splits` finds the
splits of a folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, NamedTuple, Protocol
from urllib.parse import unquote

from beam_pipes.errors import CacheNotFoundError, SourceError, StorageError
from beam_pipes.extras import require
from beam_pipes.sources.arrow_values import ArrowBatch, ArrowSchema, num_leaves, rows_of, table_of
from beam_pipes.sources.byte_stream import (
    advice_if_not_utf8,
    hash_range,
    open_input,
    read_error,
    read_range,
    require_digest,
)
from beam_pipes.sources.file_source import FileSource, Range
from beam_pipes.sources.record_batch import Batcher, Piece, RecordBatch, digests_of_table
from beam_pipes.sources.selection import FoundFile, Paths, select
from beam_pipes.sources.source import Slice, Source
from beam_pipes.storage.checked_json import JsonObject
from beam_pipes.storage.local import directory_path, is_remote, storage_for


class _ColumnChunk(Protocol):
    """What we use of a `pyarrow.parquet.ColumnChunkMetaData`."""

    @property
    def data_page_offset(self) -> int: ...
    @property
    def has_dictionary_page(self) -> bool: ...
    @property
    def dictionary_page_offset(self) -> int | None: ...
    @property
    def total_compressed_size(self) -> int: ...


class _RowGroup(Protocol):
    """What we use of a `pyarrow.parquet.RowGroupMetaData`."""

    @property
    def num_rows(self) -> int: ...
    @property
    def num_columns(self) -> int: ...
    def column(self, index: int, /) -> _ColumnChunk: ...


class _ParquetMetadata(Protocol):
    """What we use of a `pyarrow.parquet.FileMetaData`."""

    @property
    def num_row_groups(self) -> int: ...
    def row_group(self, index: int, /) -> _RowGroup: ...


class _ParquetFile(Protocol):
    """What we use of a `pyarrow.parquet.ParquetFile`."""

    @property
    def metadata(self) -> _ParquetMetadata: ...
    @property
    def schema_arrow(self) -> ArrowSchema: ...
    def iter_batches(
        self, batch_size: int, *, row_groups: list[int], columns: list[str], use_threads: bool
    ) -> Iterator[ArrowBatch]: ...


# The directory for rows without a value for a partition.
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class _Tables(FileSource):
    """A source of files of rows; `columns` selects some of them."""

    paths: Paths
    _: KW_ONLY
    columns: Sequence[str] | None = None

    # 1 gave times in nanoseconds as objects of pandas, where that is installed, 2 times of a day as lengths.
    VERSION: ClassVar[int] = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is not None:
            if isinstance(self.columns, str) or not self.columns or not all(isinstance(c, str) for c in self.columns):
                raise SourceError(f"columns should be a list of names, got {self.columns!r}")
            object.__setattr__(self, "columns", tuple(self.columns))

    def _inputs(self) -> Paths:
        return self.paths

    @property
    def output_type(self) -> type:
        return dict

    def _digest(self, file: FoundFile, each: Range) -> str:
        return self._digest_of(file.path, file.name, each.start, each.end, content_digest=file.content_digest)

    @abstractmethod
    def _digest_of(self, path: str, name: str, start: int, end: int, *, content_digest: str | None = None) -> str:
        """The digest of rows `start … end`."""

    @abstractmethod
    def _arrow_batches(self, path: str, part: Slice, batch_records: int) -> Iterator[ArrowBatch]:
        """The rows of a slice as Arrow batches of at most `batch_records`."""

    def _names(self, schema: ArrowSchema, file: str) -> list[str]:
        found = list(schema.names)
        if len(set(found)) < len(found):
            twice = sorted({name for name in found if found.count(name) > 1})
            raise SourceError(f"{file} should have each column once, found twice: {twice}. Rename them", file=file)
        if self.columns is None:
            return found
        missing = [name for name in self.columns if name not in found]
        if missing:
            raise SourceError(
                f"{file} should have columns {list(self.columns)}, found {found}: {missing} missing", file=file
            )
        return list(self.columns)

    # Reading.

    def read_slice(self, batcher: Batcher, part: Slice, path: str) -> Iterator[RecordBatch]:
        require_digest(part, self._digest_of(path, part.file, part.start, part.end), unit="rows")
        row = part.start
        for batch in self._arrow_batches(path, part, batcher.batch_records):
            piece = RowsPiece(file=part.file, first_ordinal=batcher.next_ordinal, row=row, batch=batch)
            row += batch.num_rows
            yield from batcher.add(piece, table_of(batch), num_bytes=int(batch.nbytes))

    def parse(self, raw: bytes, *, file: str, position: int) -> dict[str, object]:
        pyarrow = require("pyarrow", purpose="Parquet")
        try:
            with pyarrow.ipc.open_stream(raw) as stream:
                (row,) = [row for batch in stream for row in rows_of(batch)]
        except (pyarrow.ArrowInvalid, OSError, ValueError) as error:
            raise SourceError(f"expected one row as an Arrow stream: {error}", file=file, offset=position) from error
        return row


@dataclass(frozen=True)
class Parquet(_Tables):
    """Every row is one record, a `dict` of column name → value. Record ids are `name@row number`.

    Values are Python's (`int`, `float`, `str`, `bytes`, `bool`, `datetime`, None for null, `dict` for a struct), lists
    of numbers are NumPy arrays. `columns` selects top-level columns, in this order; the others are not read and do
    not affect fingerprints. `partitions` are columns whose values are in the names of directories, as Hive and Spark
    write them, each with its dtype ("int64", "float64" or "str"): `year=2024/a.parquet` with
    `partitions={"year": "int64"}` → rows with `"year": 2024`. Files are split between row groups. Needs pyarrow.
    """

    _: KW_ONLY
    partitions: Mapping[str, str] | None = None

    __hash__ = FileSource.__hash__

    def fingerprint_config(self) -> Mapping[str, object]:
        own = super().fingerprint_config()
        return {name: value for name, value in own.items() if name != "partitions" or value is not None}

    # Digests cover the bytes of the selected columns.

    def _variant(self, target_shard_bytes: int | None) -> str:
        # "parquet" alone covered no columns with a dot in their names.
        return f"parquet-2/{json.dumps(self.columns)}/{target_shard_bytes or 'whole'}"

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        ranges: list[Range] = []
        start = end = num_bytes = 0
        with opened_parquet(file.path, file.name) as parquet:
            metadata = parquet.metadata
            for index in range(metadata.num_row_groups):
                group = metadata.row_group(index)
                end += group.num_rows
                num_bytes += sum(size for _, size in self._chunks(parquet, index, file.name))
                if num_bytes >= target_shard_bytes or index == metadata.num_row_groups - 1:
                    if end > start:
                        ranges.append(Range(start, end, num_bytes))
                    start, num_bytes = end, 0
        return ranges

    def _digest_of(self, path: str, name: str, start: int, end: int, *, content_digest: str | None = None) -> str:
        with opened_parquet(path, name) as parquet:
            metadata = parquet.metadata
            names = self._names(parquet.schema_arrow, name)
            schema = [[each, str(parquet.schema_arrow.field(each).type)] for each in names]
            digest = hashlib.sha256(json.dumps(schema).encode())
            groups = _groups(metadata, name, start, end)
            chunks = [chunk for group in groups for chunk in self._chunks(parquet, group, name)]
        if is_remote(path):
            digest.update(hash_range(path, name, start, end, content_digest=content_digest).encode())
            return digest.hexdigest()
        for offset, size in chunks:
            digest.update(f"{size}:".encode())
            for part in read_range(path, name, offset, offset + size):
                digest.update(part)
        return digest.hexdigest()

    def _chunks(self, parquet: _ParquetFile, group: int, file: str) -> Iterator[tuple[int, int]]:
        """Offset and size of each selected column's bytes in a row group."""
        # Arrow ends the process when asked for the metadata of a damaged column; when it reads the column, it raises.
        next(
            parquet.iter_batches(
                1, row_groups=[group], columns=self._names(parquet.schema_arrow, file), use_threads=False
            ),
            None,
        )
        row_group = parquet.metadata.row_group(group)
        for index, name in enumerate(columns_of_leaves(parquet.schema_arrow, row_group.num_columns)):
            if self.columns is None or name is None or name in self.columns:
                column = row_group.column(index)
                offset = column.data_page_offset
                if column.has_dictionary_page and column.dictionary_page_offset:
                    offset = min(offset, column.dictionary_page_offset)
                yield offset, column.total_compressed_size

    def _arrow_batches(self, path: str, part: Slice, batch_records: int) -> Iterator[ArrowBatch]:
        with opened_parquet(path, part.file) as parquet:
            names = self._names(parquet.schema_arrow, part.file)
            groups = _groups(parquet.metadata, part.file, part.start, part.end)
            for batch in parquet.iter_batches(
                batch_size=batch_records, row_groups=groups, columns=names, use_threads=False
            ):
                yield self._with_partitions(batch.select(names), part.file)

    def _with_partitions(self, batch: ArrowBatch, file: str) -> ArrowBatch:
        pyarrow = require("pyarrow", purpose="Parquet")
        for name, value in partition_values(self.partitions, file).items():
            kind = getattr(pyarrow, {"str": "string"}.get(dtype := (self.partitions or {})[name], dtype))()
            batch = batch.append_column(name, pyarrow.array([value] * batch.num_rows, kind))
        return batch


@dataclass(frozen=True)
class ArrowRows(_Tables):
    """Every row of Arrow's IPC streams is one record, as with `Parquet`. Record ids are `name@row number`.

    `save_to_disk` of Hugging Face datasets writes such files; `dataset_splits("wiki")` finds them by split. `columns`
    selects columns of the records, in this order; digests cover the bytes of all. Large files are split between record
    batches; on object stores a file is read as a whole. Needs pyarrow.
    """

    _: KW_ONLY
    pattern: str | Sequence[str] = "**/*.arrow"

    def _variant(self, target_shard_bytes: int | None) -> str:
        return f"arrow/{target_shard_bytes or 'whole'}"

    def _ranges(self, file: FoundFile, target_shard_bytes: int) -> list[Range]:
        ranges: list[Range] = []
        start = end = num_bytes = 0
        for message in _messages(file.path, file.name):
            end += message.batch.num_rows
            num_bytes += message.end - message.begin
            if num_bytes >= target_shard_bytes and not is_remote(file.path):
                ranges.append(Range(start, end, num_bytes))
                start, num_bytes = end, 0
        if end > start:
            ranges.append(Range(start, end, num_bytes))
        return ranges

    def _digest_of(self, path: str, name: str, start: int, end: int, *, content_digest: str | None = None) -> str:
        if is_remote(path):
            return hash_range(path, name, start, end, content_digest=content_digest)
        messages = list(_messages_of(path, name, start, end))
        digest = hashlib.sha256(str(messages[0].batch.schema.remove_metadata()).encode())
        for message in messages:
            for part in read_range(path, name, message.begin, message.end):
                digest.update(part)
        return digest.hexdigest()

    def _arrow_batches(self, path: str, part: Slice, batch_records: int) -> Iterator[ArrowBatch]:
        for message in _messages_of(path, part.file, part.start, part.end):
            names = self._names(message.batch.schema, part.file)
            for at in range(0, message.batch.num_rows, batch_records):
                yield message.batch.slice(at, batch_records).select(names)


class _Message(NamedTuple):
    """A record batch of a stream: its first row, its bytes in the file, its values."""

    row: int
    begin: int
    end: int
    batch: ArrowBatch


def _messages(path: str, file: str) -> Iterator[_Message]:
    pyarrow = require("pyarrow", purpose="ArrowRows")
    row = 0
    try:
        with contextlib.ExitStack() as stack:
            # Mapped, so that passing over a batch reads only its header.
            where = stack.enter_context(open_input(path) if is_remote(path) else pyarrow.memory_map(path))
            stream = stack.enter_context(pyarrow.ipc.open_stream(where))
            while True:
                begin = where.tell()
                try:
                    batch = stream.read_next_batch()
                except StopIteration:
                    return
                batch.validate()
                yield _Message(row, begin, where.tell(), batch)
                row += batch.num_rows
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # without one, Arrow reports a file that ends early
            raise read_error(file, error, offset=0) from error
        advice = ""
        if row == 0 and next(read_range(path, file, 0, 6), b"") == b"ARROW1":
            advice = ". It is in Arrow's file format: write it with pyarrow.ipc.new_stream, or as Parquet"
        raise SourceError(
            f"input {file} cannot be read as a stream of Arrow, at or after row {row}: {error}{advice}",
            file=file,
            offset=row,
        ) from error


def _messages_of(path: str, file: str, start: int, end: int) -> Iterator[_Message]:
    """The record batches that contain rows `start … end`."""
    row = 0
    for message in _messages(path, file):
        row = message.row + message.batch.num_rows
        if start <= message.row and row <= end:
            yield message
        elif message.row < end and start < row:
            raise SourceError(
                f"input {file} changed after it was planned: rows {start} to {end} should be whole record batches, "
                f"found one from {message.row} to {row}; plan again",
                file=file,
                offset=message.row,
            )
        if row >= end:
            return
    raise SourceError(f"input {file} has {row} rows, expected {end}; plan again", file=file, offset=row)


class RowsPiece(Piece):
    """Rows of an Arrow batch; raw bytes are an Arrow stream of one row, because a row has no bytes in the file."""

    __slots__ = ("row", "batch")

    def __init__(self, *, file: str, first_ordinal: int, row: int, batch: ArrowBatch) -> None:
        super().__init__(file=file, first_ordinal=first_ordinal)
        self.row = row
        self.batch = batch

    def position(self, k: int) -> int:
        return self.row + k

    def raw(self, k: int) -> bytes:
        pyarrow = require("pyarrow", purpose="Parquet")
        sink = pyarrow.BufferOutputStream()
        row = self.batch.slice(k, 1)
        with pyarrow.ipc.new_stream(sink, row.schema) as stream:
            stream.write_batch(row)
        return bytes(sink.getvalue().to_pybytes())

    def digests_of(self, start: int, stop: int) -> bytes:
        # Digests of values: the bytes of an Arrow stream depend on the version of pyarrow.
        table = table_of(self.batch.slice(start, stop - start))
        return digests_of_table(table, file=self.file, first=self.row + start)


def partitions_of(file: str) -> dict[str, str | None]:
    """What a file's directories say about its rows: `"year=2024/city=K%C3%B6ln/a.parquet"` → year 2024, city Köln."""
    pairs = [part.partition("=") for part in file.split("/")[:-1] if "=" in part[1:]]
    return {unquote(name): None if value == HIVE_NULL else unquote(value) for name, _, value in pairs}


def partition_values(partitions: Mapping[str, str] | None, file: str) -> dict[str, object]:
    """The values of partitions in the rows of a file. Raises `SourceError` if its directories do not say one."""
    if not partitions:
        return {}
    there, values = partitions_of(file), dict[str, object]()
    for name, dtype in partitions.items():
        try:
            read = {"int64": int, "float64": float}.get(dtype, str)
            values[name] = None if (value := there[name]) is None else read(value)
        except (KeyError, ValueError):
            raise SourceError(
                f"input {file} should have a directory of the partition {name!r} with a value of type {dtype} "
                f"(such as {name}=1), found {there or 'none'}",
                file=file,
            ) from None
    return values


def columns_of_leaves(schema: ArrowSchema, num_leaf_columns: int) -> list[str | None]:
    """For each Parquet column, the Arrow column that it is a part of; None if that is unknown.

    Not by its path: `a.b` is the path of a column `a.b` and of the key `b` of a column `a`.
    """
    names: list[str | None] = []
    for index, name in enumerate(schema.names):
        names += [name] * num_leaves(schema.field(index).type)
    return names if len(names) == num_leaf_columns else [None] * num_leaf_columns


def _groups(metadata: _ParquetMetadata, file: str, start: int, end: int) -> list[int]:
    """The row groups that contain rows `start … end`."""
    groups, row = [], 0
    for index in range(metadata.num_row_groups):
        following = row + metadata.row_group(index).num_rows
        if start <= row and following <= end:
            groups.append(index)
        elif row < end and start < following:
            raise SourceError(
                f"input {file} changed after it was planned: rows {start} to {end} should be whole row groups, found "
                f"one from {row} to {following}; plan again",
                file=file,
                offset=row,
            )
        row = following
    if row < end:
        raise SourceError(f"input {file} has {row} rows, expected {end}; plan again", file=file, offset=row)
    return groups


@contextlib.contextmanager
def opened_parquet(path: str, file: str) -> Iterator[_ParquetFile]:
    """A Parquet file; raises `SourceError`, naming it, if it cannot be read."""
    pyarrow = require("pyarrow", purpose="Parquet")
    parquet = require("pyarrow.parquet", purpose="Parquet")
    try:
        # pyarrow opens a path of this machine itself, and does not need Python to read it.
        with contextlib.ExitStack() as stack:
            where = stack.enter_context(open_input(path)) if is_remote(path) else path
            yield stack.enter_context(parquet.ParquetFile(where))
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        advice = ""
        if str(error).startswith("Expected all lists to be of size="):
            advice = ". pyarrow reads no null in a column of lists of a fixed size: write it as a list of any size"
        elif "magic bytes" in str(error):
            begins = next(read_range(path, file, 0, 64), b"")
            advice = "" if begins.startswith(b"PAR1") else advice_if_not_utf8(begins)
            advice = advice or ". Write or copy it again, or name the format that it has (--format)"
        words = str(error).rstrip(".")
        raise SourceError(f"input {file} cannot be read as Parquet: {words}{advice}", file=file, offset=0) from error
    except OSError as error:
        raise read_error(file, error, offset=0) from error


# `train-00000-of-00002`, optionally followed by a digest.
_SHARDED = re.compile(r"(.+?)-\d{5}-of-\d{5}(-[0-9a-f]+)?")


def dataset_splits(directory: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> dict[str, Source]:
    """The splits of a folder of Hugging Face datasets, each with its source: `build(name, dataset_splits("wiki"), …)`.

    | folder | splits |
    | --- | --- |
    | `DatasetDict.save_to_disk` (`dataset_dict.json`) | those that it names: `ArrowRows` |
    | `Dataset.save_to_disk` (`state.json`) | its own split, else `train`: `ArrowRows` |
    | Parquet: `data/train-00000-of-00002.parquet`, `train/0000.parquet`, `train.parquet` | `train`: `Parquet` |

    A Parquet file belongs to the split before `-00000-of-`, else to that of its directory (except `data`), else to that
    of its own name. The folder may be on an object store. Raises `SourceError` for a folder with none of these, for
    files of one split in several directories (configurations: name one of them), and for a dataset saved with an
    indices mapping.
    """
    top = directory_path(directory)
    named = _json_in(top, "dataset_dict.json")
    if named is not None:
        return {split: _saved(f"{top}/{split}", columns)[1] for split in named["splits"]}
    if _json_in(top, "state.json") is not None:
        return dict([_saved(top, columns)])
    places: dict[str, dict[str, list[str]]] = {}
    for file in select(top, pattern="**/*.parquet").find():
        parent, _, name = file.name.rpartition("/")
        stem, last = name.removesuffix(".parquet"), parent.rpartition("/")[2]
        sharded = _SHARDED.fullmatch(stem)
        split = sharded[1] if sharded else stem if last in ("", "data") else last
        places.setdefault(split, {}).setdefault(parent, []).append(file.path)
    for split, parents in places.items():
        if len(parents) > 1:
            raise SourceError(
                f"the folder {top!r} has files of the split {split!r} in {', '.join(map(repr, sorted(parents)))}: "
                "these are several configurations or versions. Name the directory of one.",
                file=top,
            )
    return {
        split: Parquet(paths, relative_to=top, columns=columns)
        for split, (paths,) in sorted((split, parents.values()) for split, parents in places.items())
    }


def _saved(directory: str, columns: Sequence[str] | None) -> tuple[str, Source]:
    """The split that `save_to_disk` has written into a directory, and its source."""
    state = _json_in(directory, "state.json")
    files = [each.get("filename") for each in (state or {}).get("_data_files", ())]
    if state is None or not files or not all(isinstance(each, str) for each in files):
        raise SourceError(
            f"expected a dataset that save_to_disk has written, with its files in state.json, in {directory!r}. Save "
            "it again, or copy the whole folder.",
            file=directory,
        )
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise SourceError(
            f"the dataset in {directory!r} was saved with a mapping of indices, which is not read. Write it again: "
            "load_from_disk(…).flatten_indices().save_to_disk(…).",
            file=directory,
        )
    paths = [f"{directory}/{name}" for name in files]
    return state.get("_split") or "train", ArrowRows(paths, relative_to=directory, columns=columns)


def _json_in(directory: str, name: str) -> JsonObject | None:
    path = f"{directory}/{name}"
    try:
        found = json.loads(storage_for(path).read_bytes(path))
    except CacheNotFoundError:
        return None
    except (StorageError, ValueError) as error:
        raise SourceError(f"input {path} cannot be read: {error}", file=path) from error
    return found if isinstance(found, dict) else {}
