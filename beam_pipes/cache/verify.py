"""Verification: reads everything once, and reports every problem with file and offset."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import io
import os
from collections.abc import Iterator
from typing import IO, Any

import google_crc32c
import numpy as np

from beam_pipes.errors import CacheError, CorruptCacheError, CorruptRecordError
from beam_pipes.format.codec import ExampleCodec
from beam_pipes.format.framing import FRAME_BYTES, HEADER_BYTES, check_frame, check_header
from beam_pipes.format.index import OFFSET, SIZE, column_names, decode_index, index_checksum, index_path
from beam_pipes.lineage.lineage import (
    DIRECTORY,
    LINEAGE,
    decode_lineage,
    lineage_checksum,
    lineage_digest,
    lineage_file,
    num_lineage_files,
)
from beam_pipes.publication.manifest import FILE_NAME, Manifest, SplitManifest
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.protocol import Storage

_READ_BYTES = 8 << 20
_BUFFER_BYTES = 128 << 10
_MAX_PROBLEMS_PER_FILE = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem: the file, the byte (None: the file as a whole), and a description."""

    file: str
    offset: int | None
    message: str

    def __str__(self) -> str:
        return self.message


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """What was read, and every problem found."""

    path: str
    shards: int
    records: int
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems

    def raise_if_damaged(self) -> None:
        """Raises `CorruptCacheError` with all problems, where there are some."""
        if self.problems:
            listed = "\n".join(f"  {problem}" for problem in self.problems[:20])
            more = f"\n  and {len(self.problems) - 20} more" if len(self.problems) > 20 else ""
            raise CorruptCacheError(
                f"{self.path}: expected an undamaged cache, found {len(self.problems)} problems:\n{listed}{more}",
                path=self.path,
                problems=self.problems,
            )


class _Verifier:
    def __init__(self, directory: str, storage: Storage) -> None:
        self.directory = directory
        self.storage = storage
        self.problems: list[Problem] = []
        self.shards = self.records = self.bytes = 0

    def report(self, path: str, offset: int | None, message: str) -> None:
        found = Problem(file=os.path.relpath(path, self.directory), offset=offset, message=message)
        self.problems.append(found)

    def size_is(self, path: str, expected: int) -> bool:
        """Whether the file exists with the expected size; reports it otherwise."""
        try:
            found = self.storage.size(path)
        except OSError as error:
            self.report(
                path, None, f"{path}: expected a file of {expected} bytes, but it cannot be opened: {_reason(error)}"
            )
            return False
        if found != expected:
            self.report(
                path, min(found, expected), f"{path}: expected {expected} bytes, as the manifest says, found {found}"
            )
        return True

    def checksum_is(self, path: str, expected: int, found: int) -> bool:
        """Whether a checksum is that of the manifest; reports it otherwise."""
        if found != expected:
            self.report(
                path, None, f"{path}: expected checksum {expected:#010x}, as the manifest says, found {found:#010x}"
            )
        return found == expected

    def open(self, path: str) -> IO[bytes]:
        raw: Any = self.storage.open_read(path)
        return io.BufferedReader(raw, _BUFFER_BYTES)


def _reason(error: OSError) -> str:
    return os.strerror(errno.ENOENT) if isinstance(error, FileNotFoundError) else error.strerror or str(error)


def verify_snapshot(directory: str, manifest: Manifest, *, storage: Storage | None = None) -> VerifyReport:
    """Checks all files of a snapshot: sizes, checksums of files and records, indexes against records, totals.

    The manifest is compared with the copy among the snapshot's files: nothing else vouches for its bytes.
    """
    verifier = _Verifier(directory, storage_for(directory) if storage is None else storage)
    own = os.path.join(directory, FILE_NAME)
    try:
        found_id = hashlib.sha256(verifier.storage.read_bytes(own)).hexdigest()
    except OSError as error:
        verifier.report(
            own, None, f"{own}: expected the snapshot's manifest, but it cannot be opened: {_reason(error)}"
        )
    else:
        if found_id != manifest.id:
            verifier.report(own, None, f"{own}: expected the manifest with the id {manifest.id}, found {found_id}")
    for name, split in manifest.splits.items():
        codec = None if split.spec is None else ExampleCodec(split.spec)
        columns = column_names(
            () if codec is None else codec.index_columns, fixed=codec is not None and codec.fixed_layout is not None
        )
        for shard in range(len(split.numbers)):
            path = os.path.join(directory, split.file_name(manifest.name, name, shard))
            _verify_shard(verifier, path, split, shard, columns, codec)
    _verify_lineage(verifier, manifest)
    for entry in (*manifest.assets, *manifest.dead_letters):
        path = os.path.join(directory, *entry.file.split("/"))
        if verifier.size_is(path, entry.bytes):
            crc = 0
            with verifier.open(path) as file:
                while data := file.read(_READ_BYTES):
                    crc = google_crc32c.extend(crc, data)
            verifier.checksum_is(path, entry.crc32c, crc)
    return VerifyReport(
        path=directory,
        shards=verifier.shards,
        records=verifier.records,
        bytes=verifier.bytes,
        problems=tuple(verifier.problems),
    )


def _verify_lineage(verifier: _Verifier, manifest: Manifest) -> None:
    count = num_lineage_files(manifest)
    checksums = []
    for index in range(count):
        path = os.path.join(verifier.directory, *lineage_file(index, count).split("/"))
        try:
            data = verifier.storage.read_bytes(path)
            decode_lineage(data, path=path)
        except OSError as error:
            verifier.report(path, None, f"{path}: expected lineage, but it cannot be opened: {_reason(error)}")
        except CacheError as error:
            verifier.report(path, None, str(error))
        else:
            checksums.append(lineage_checksum(data))
    if len(checksums) == count and count and lineage_digest(checksums) != manifest.fingerprints[LINEAGE]:
        path = os.path.join(verifier.directory, DIRECTORY)
        verifier.report(path, None, f"{path}: expected the lineage that the manifest names, found that of other files")


def _verify_shard(
    verifier: _Verifier,
    path: str,
    split: SplitManifest,
    shard: int,
    columns: tuple[str, ...],
    codec: ExampleCodec | None,
) -> None:
    verifier.shards += 1
    before = len(verifier.problems)
    places: list[tuple[int, int]] = []
    if verifier.size_is(path, split.bytes[shard]):
        crc = 0
        for offset, size, piece in _frames(verifier, path):
            crc = google_crc32c.extend(crc, piece)
            if size is not None:
                places.append((offset, size))
        verifier.records += len(places)
        verifier.bytes += verifier.storage.size(path)
        if len(verifier.problems) == before and len(places) != split.records[shard]:
            verifier.report(
                path,
                None,
                f"{path}: expected {split.records[shard]} records, as the manifest says, found {len(places)}",
            )
        if len(verifier.problems) == before:
            verifier.checksum_is(path, split.crc32c[shard], crc)
    _verify_index(verifier, index_path(path), split, shard, columns, places, whole=len(verifier.problems) == before)


def _frames(verifier: _Verifier, path: str) -> Iterator[tuple[int, int | None, bytes]]:
    """Yields (offset, payload bytes, frame); reports damaged payloads and continues, stops at a damaged length."""
    reported = 0
    with verifier.open(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        offset = 0
        while offset < size:
            header = file.read(HEADER_BYTES)
            try:
                length = check_header(path, offset, header, size - offset)
            except CorruptRecordError as error:
                verifier.report(path, offset, str(error))
                return
            frame = header + file.read(length + FRAME_BYTES - HEADER_BYTES)
            try:
                check_frame(path, offset, frame)
            except CorruptRecordError as error:
                reported += 1
                if reported <= _MAX_PROBLEMS_PER_FILE:
                    verifier.report(path, offset, str(error))
            yield offset, length, frame
            offset += len(frame)


def _verify_index(
    verifier: _Verifier,
    path: str,
    split: SplitManifest,
    shard: int,
    columns: tuple[str, ...],
    places: list[tuple[int, int]],
    *,
    whole: bool,
) -> None:
    try:
        data = verifier.storage.read_bytes(path)
    except OSError as error:
        verifier.report(path, None, f"{path}: expected an index, but it cannot be opened: {_reason(error)}")
        return
    crc32c = split.index_crc32c[shard]
    if not verifier.checksum_is(path, crc32c, index_checksum(data, expected=crc32c)):
        return
    try:
        found = decode_index(data, path=path)
    except CacheError as error:
        verifier.report(path, None, str(error))
        return
    records = len(next(iter(found.values())))
    if tuple(found) != columns or records != split.records[shard]:
        verifier.report(
            path,
            None,
            f"{path}: expected the columns {list(columns)} of {split.records[shard]} records, found {list(found)} of "
            f"{records}",
        )
        return
    if whole and OFFSET in found:
        truth = np.array(places, np.int64).reshape(-1, 2)
        wrong = (found[OFFSET] != truth[:, 0].astype(np.uint64)) | (found[SIZE] != truth[:, 1].astype(np.uint64))
        for row in np.flatnonzero(wrong)[:_MAX_PROBLEMS_PER_FILE].tolist():
            verifier.report(
                path,
                int(truth[row, 0]),
                f"{path}: expected record {row} at offset {truth[row, 0]} with {truth[row, 1]} bytes, found offset "
                f"{found[OFFSET][row]} and {found[SIZE][row]} bytes",
            )
