"""Lineage: the fate of every source record, one file per source shard, `lineage/00003-of-00064`.

    magic "bp-lineage" | version u16 | bytes of the header u32 | header JSON, padded with spaces to 64 bytes
    steps, one per record: how far it lies behind the one before it in its run; padded with zeros to 64 bytes
    fates, one per record: a number in the header's list; padded with zeros to 64 bytes
    digests, one per record: the first 8 bytes of the sha256 of its content in the source
    crc32c of everything before u32

The header is `{"fates":[…],"records":n,"runs":[[file,first position,records],…],"types":[dtype of steps, of fates]}`.
A *run* is a stretch of records of one file in ascending order; runs follow each other in the order of the source shard,
so the *ordinal* of a record (what the index of a shard keeps of it) is its number over all runs. A *fate* is `[]` for
a record that was written, `[[stage, reason], …]` for one that was dropped, and `{"stage": …, "error": …}` for one that
is a dead letter. All numbers are little-endian.

Its digest finds a record again wherever it is in another snapshot (`cache.takedown`). Version 1 has none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

from beam_pipes.errors import CorruptIndexError, UnsupportedFormatError
from beam_pipes.format.dtypes import Array

if TYPE_CHECKING:
    from beam_pipes.publication.manifest import Manifest

MAGIC = b"bp-lineage"
VERSION = 2
# This much of the sha256 is kept: the chance that a record shares its digest with any of 10^9 others is 5 in 10^11.
DIGEST_BYTES = 8
DIRECTORY = "lineage"
# The entry of a manifest's fingerprints that covers all lineage files of its snapshot.
LINEAGE = "lineage"

_ALIGNMENT = 64
_PREFIX = struct.Struct("<10sHI")
_CRC = struct.Struct("<I")
_TYPES = ("|u1", "<u2", "<u4", "<u8")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fate:
    """The fate of one source record.

    `status` is "written", "dropped" or "dead". `drops` are the (stage, reason) pairs of a dropped record, in order;
    `stage` and `error` those of a dead letter.
    """

    status: str
    drops: tuple[tuple[str, str], ...] = ()
    stage: str | None = None
    error: str | None = None

    def to_json(self) -> object:
        if self.status == "dead":
            return {"stage": self.stage, "error": self.error}
        return [list(drop) for drop in self.drops]

    @classmethod
    def from_json(cls, made: object) -> Fate:
        """Raises `ValueError` if `made` is not what `to_json` returns."""
        if isinstance(made, Mapping) and made.keys() == {"stage", "error"}:
            if isinstance(made["stage"], str) and isinstance(made["error"], str):
                return cls(status="dead", stage=made["stage"], error=made["error"])
        elif isinstance(made, list) and all(
            isinstance(drop, list) and len(drop) == 2 and all(isinstance(part, str) for part in drop) for drop in made
        ):
            return cls(status="dropped" if made else "written", drops=tuple((stage, reason) for stage, reason in made))
        raise ValueError(f"a fate should be a list of [stage, reason], or stage and error, got {made!r:.80}")


WRITTEN = Fate(status="written")


class LineageWriter:
    """Collects the lineage of one source shard, batch by batch. 20 bytes per record."""

    def __init__(self) -> None:
        self._runs: list[tuple[str, int, int]] = []  # file, first position, number of records
        self._steps = array("Q")
        self._codes = array("I")
        self._digests = bytearray()
        self._fates: dict[Fate, int] = {WRITTEN: 0}
        self._last = 0

    def add(
        self, places: Iterable[tuple[str, Sequence[int]]], fates: Mapping[int, Fate], digests: bytes | Array
    ) -> None:
        """Adds the next records: (file, positions) in order, and the fates of those that were not written.

        `fates` is keyed by the number of the record among these; `digests` has 8 bytes for each of them.
        """
        before = len(self._steps)
        for file, positions in places:
            if not len(positions):
                continue
            column = np.frombuffer(array("Q", positions), np.uint64)  # twice as fast as from a list
            ascends = column[1:] > column[:-1]
            parts = [column] if ascends.all() else np.split(column, np.flatnonzero(~ascends) + 1)
            for part in parts:
                steps = array("Q", bytes(8))
                steps.frombytes((part[1:] - part[:-1]).tobytes())
                self._add_run(file, int(part[0]), int(part[-1]), steps)
        codes = array("I", bytes(4 * (len(self._steps) - before)))
        for number, fate in fates.items():
            codes[number] = self._fates.setdefault(fate, len(self._fates))
        self._codes += codes
        self._digests += bytes(digests)
        assert len(self._digests) == DIGEST_BYTES * len(self._codes), (len(self._digests), len(self._codes))

    def merge_from(self, other: LineageWriter) -> None:
        """Adds the records of `other`, which come next."""
        start = 0
        for file, first, count in other._runs:
            steps = other._steps[start : start + count]
            self._add_run(file, first, first + sum(steps), steps)
            start += count
        renumbered = [self._fates.setdefault(fate, len(self._fates)) for fate in other._fates]
        if renumbered == list(range(len(renumbered))):
            self._codes += other._codes
        elif len(other._codes):
            codes = np.array(renumbered, np.uint32)[np.frombuffer(other._codes, np.uint32)]
            self._codes.frombytes(codes.tobytes())
        self._digests += other._digests

    def _add_run(self, file: str, first: int, last: int, steps: array[int]) -> None:
        """Adds records of one file at ascending positions: the first step is 0, others lead from one to the next."""
        if self._runs and self._runs[-1][0] == file and first > self._last:
            steps[0] = first - self._last
            _, begin, records = self._runs[-1]
            self._runs[-1] = (file, begin, records + len(steps))
        else:
            self._runs.append((file, first, len(steps)))
        self._last = last
        self._steps += steps

    def to_bytes(self) -> bytes:
        """The file. The same records give the same bytes, however they were cut into batches."""
        # Numbered by first use: the order in which fates were added must not show.
        codes = np.frombuffer(self._codes, np.uint32) if len(self._codes) else np.empty(0, np.uint32)
        by_code = list(self._fates)
        used, firsts = np.unique(codes, return_index=True)
        order = [0, *(int(code) for code in used[np.argsort(firsts)].tolist() if code)]
        renumbered = np.zeros(len(by_code), np.uint32)
        renumbered[order] = np.arange(len(order))
        columns = [_narrow(np.frombuffer(self._steps, np.uint64) if len(self._steps) else np.empty(0, np.uint64))]
        columns.append(_narrow(renumbered[codes]))
        header = {
            "fates": [by_code[code].to_json() for code in order],
            "records": len(codes),
            "runs": self._runs,
            "types": [column.dtype.str for column in columns],
        }
        text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        text = text.ljust(_aligned(_PREFIX.size + len(text)) - _PREFIX.size)
        padded = [column.tobytes() for column in columns]
        body = b"".join(
            [
                _PREFIX.pack(MAGIC, VERSION, len(text)),
                text,
                *(column.ljust(_aligned(len(column)), b"\0") for column in padded),
                self._digests,
            ]
        )
        return body + _CRC.pack(google_crc32c.value(body))


@dataclasses.dataclass(frozen=True, eq=False)
class ShardLineage:
    """The lineage of one source shard.

    `runs` are (file, first ordinal, records); `positions` (n,) uint64, `codes` (n,) numbers in `fates`. `digests` (n,)
    uint64 distinguish contents; None in a file of version 1.
    """

    runs: tuple[tuple[str, int, int], ...]
    positions: Array
    codes: Array
    fates: tuple[Fate, ...]
    digests: Array | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def record_id(self, ordinal: int) -> str:
        """`books/emma.txt@1024`."""
        firsts = self._firsts
        run = int(np.searchsorted(firsts, ordinal, side="right")) - 1
        return f"{self.runs[run][0]}@{int(self.positions[ordinal])}"

    def fate(self, ordinal: int) -> Fate:
        return self.fates[int(self.codes[ordinal])]

    def ordinals_at(self, file: str, positions: Array | None = None) -> Array:
        """The ordinals of the records of a file at the given positions (all of its records where None), ascending."""
        found = []
        for name, first, count in self.runs:
            if name != file:
                continue
            if positions is None:
                found.append(np.arange(first, first + count))
                continue
            here = self.positions[first : first + count]
            at = np.searchsorted(here, positions)
            hits = at[(at < count) & (here[np.minimum(at, count - 1)] == positions)]
            found.append(first + hits)
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(file for file, _, _ in self.runs))

    @property
    def _firsts(self) -> Array:
        return np.array([first for _, first, _ in self.runs], np.int64)


def lineage_file(index: int, count: int) -> str:
    """Where the lineage of a source shard is in a snapshot: `lineage/00003-of-00064`."""
    return f"{DIRECTORY}/{index:05d}-of-{count:05d}"


def lineage_checksum(data: bytes) -> int:
    """Represents a lineage file in completions and in the manifest: the checksum at its end.

    For a file of version 1 it is the crc32c of the whole file, its own checksum included, which is the same number for
    all files: it does not distinguish them, but old manifests hold it.
    """
    version = _PREFIX.unpack_from(data)[1] if len(data) >= _PREFIX.size else 0
    return int(google_crc32c.value(data if version == 1 else data[: -_CRC.size]))


def lineage_digest(checksums: Sequence[int]) -> str:
    """The manifest's entry for the lineage: `<number of files>:<sha256 of their crc32cs>`."""
    return f"{len(checksums)}:{hashlib.sha256(np.asarray(checksums, '<u4').tobytes()).hexdigest()}"


def num_lineage_files(manifest: Manifest) -> int:
    """How many lineage files a snapshot has, one for each source shard; 0 if it was built without."""
    count = str(manifest.fingerprints.get(LINEAGE, "0")).partition(":")[0]
    most = max([0, *(split.shard_count for split in manifest.splits.values())])
    return int(count) if count.isascii() and count.isdecimal() and len(count) < 20 and int(count) <= most else 0


def decode_lineage(data: bytes, *, path: str) -> ShardLineage:
    """The lineage that was written as `data`.

    Raises:
        CorruptIndexError: the bytes are not what was written.
        UnsupportedFormatError: a version that this library does not know.
    """
    if len(data) < _PREFIX.size + _CRC.size or data[: len(MAGIC)] != MAGIC:
        raise _corrupt(path, f"expected it to start with {MAGIC!r}, found {data[:10]!r} in {len(data)} bytes")
    _, version, header_bytes = _PREFIX.unpack_from(data)
    (stored,) = _CRC.unpack_from(data, len(data) - _CRC.size)
    computed = google_crc32c.value(data[: -_CRC.size])
    if stored != computed:
        raise _corrupt(path, f"expected checksum {computed:#010x}, found {stored:#010x}")
    if version not in (1, VERSION):
        raise UnsupportedFormatError(
            f"{path}: expected lineage of version 1 or {VERSION}, found version {version}. Read it with the version of "
            "beam-pipes that wrote it, or build to another directory.",
            path=path,
            found=version,
        )
    try:
        return _parsed(data, _PREFIX.size + header_bytes, version=version)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise _corrupt(path, str(error)) from error


def _parsed(data: bytes, start: int, *, version: int) -> ShardLineage:
    header = json.loads(data[_PREFIX.size : start])
    records, types = header["records"], header["types"]
    if type(records) is not int or not 0 <= records <= len(data):
        raise ValueError(f"a file of {len(data)} bytes has no {records!r:.40} records")
    if len(types) != 2 or any(each not in _TYPES for each in types):
        raise ValueError(f"expected two of the types {', '.join(_TYPES)}, found {types!r:.80}")
    steps_bytes = records * np.dtype(types[0]).itemsize
    codes_start = start + _aligned(steps_bytes)
    codes_bytes = records * np.dtype(types[1]).itemsize
    digests_start = codes_start + _aligned(codes_bytes)
    whole = codes_start + codes_bytes if version == 1 else digests_start + records * DIGEST_BYTES
    if whole != len(data) - _CRC.size:
        raise ValueError(f"expected columns for {records} records, found {len(data)} bytes in all")
    steps = np.frombuffer(data, types[0], records, start) if records else np.empty(0, np.uint8)
    codes = np.frombuffer(data, types[1], records, codes_start) if records else np.empty(0, np.uint8)
    digests = None
    if version > 1:
        digests = np.frombuffer(data, "<u8", records, digests_start) if records else np.empty(0, np.uint64)
    fates = tuple(map(Fate.from_json, header["fates"]))
    if records and int(codes.max()) >= len(fates):
        raise ValueError(f"record {int(np.argmax(codes))} has fate {int(codes.max())} of {len(fates)}")
    runs: list[tuple[str, int, int]] = []
    positions = np.empty(records, np.uint64)
    end = 0
    for file, first, count in header["runs"]:
        if not isinstance(file, str) or type(first) is not int or type(count) is not int or count < 1:
            raise ValueError(f"expected a run [file, first position, records], found {[file, first, count]!r:.80}")
        if end + count > records:
            raise ValueError(f"the runs have more than {records} records")
        if not 0 <= first < 1 << 63:
            raise ValueError(f"position {first} is none")
        piece = np.cumsum(steps[end : end + count], dtype=np.uint64)
        positions[end : end + count] = piece + np.uint64(first)
        runs.append((file, end, count))
        end += count
    if end != records:
        raise ValueError(f"the runs have {end} records, expected {records}")
    return ShardLineage(runs=tuple(runs), positions=positions, codes=codes, fates=fates, digests=digests)


def _corrupt(path: str, problem: str) -> CorruptIndexError:
    return CorruptIndexError(
        f"{path}: the lineage is damaged: {problem}. Its bytes have changed; rebuild or copy the cache again.",
        path=path,
    )


def _narrow(column: Array) -> Array:
    most = int(column.max()) if len(column) else 0
    size = next(size for size in (1, 2, 4, 8) if most < 1 << (8 * size))
    return column.astype(f"<u{size}")


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
