"""`ShardFiles`: where the records of a split lie, and their bytes."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Iterator
from typing import Any

import google_crc32c
import numpy as np

from beam_pipes.cache.codec import RecordCodec
from beam_pipes.cache.fields import Field
from beam_pipes.cache.framing import FRAME_BYTES, HEADER_BYTES, check_frame, read_records
from beam_pipes.cache.index import (
    OFFSET,
    ORDINAL,
    SIZE,
    column_dtype,
    column_names,
    corrupt_index,
    decode_index,
    index_path,
    index_positions,
)
from beam_pipes.cache.regions import Region, open_region
from beam_pipes.cache.split_manifest import SplitManifest
from beam_pipes.errors import ExampleIndexError

Array = np.ndarray[Any, Any]


class ShardFiles:
    """The shards of one split as one sequence of records.

    `place(indices)` gives (shard, position within the shard) for each; the other methods take these. Files are mapped
    when they are first needed. Thread-safe.
    """

    def __init__(self, directory: str, name: str, split: str, manifest: SplitManifest, codec: RecordCodec) -> None:
        self._directory = directory
        self._name = name
        self._split = split
        self._manifest = manifest
        self.layout = manifest.layout
        self.columns = column_names(codec.index_columns, fixed=getattr(codec, "fixed_layout", None) is not None)
        self._records = np.asarray(manifest.records, np.int64)
        self._file_bytes = np.asarray(manifest.bytes, np.int64)
        self._ends = np.cumsum(self._records)
        self._begins = self._ends - self._records
        self.num_records = int(self._ends[-1]) if len(self._ends) else 0

    def path(self, shard: int) -> str:
        return os.path.join(self._directory, self._manifest.file_name(self._name, self._split, shard))

    @property
    def num_shards(self) -> int:
        return len(self._records)

    @property
    def shard_sizes(self) -> Array:
        """Records of each shard."""
        sizes: Array = self._records.copy()
        return sizes

    @functools.cached_property
    def _data(self) -> Region:
        return open_region(self.path, self._manifest.bytes)

    @functools.cached_property
    def _positions(self) -> tuple[dict[str, Array], Array]:
        return index_positions(self.columns, self._records)

    @functools.cached_property
    def _index(self) -> Region:
        return open_region(
            lambda shard: index_path(self.path(shard)), self._positions[1].tolist(), check=self._check_index
        )

    def _check_index(self, shard: int, data: Array) -> None:
        path = index_path(self.path(shard))
        expected = self._manifest.index_crc32c[shard]
        found = google_crc32c.value(data)
        if found != expected:
            raise corrupt_index(path, f"expected checksum {expected:#010x}, as the manifest says, found {found:#010x}")
        columns = tuple(decode_index(data.tobytes(), path=path))
        if columns != self.columns:
            raise corrupt_index(path, f"expected the columns {list(self.columns)}, found {list(columns)}")

    def place(self, indices: Any) -> tuple[Array, Array]:
        """(shard, position) of each record; negative indices count from the end.

        Raises `ExampleIndexError` for an index outside the split.
        """
        wanted = np.asarray(indices)
        if wanted.size == 0:
            wanted = wanted.astype(np.int64)
        if wanted.dtype.kind not in "iu" or wanted.ndim != 1:
            raise ExampleIndexError(
                f"split {self._split!r}: expected indices, a list or one-dimensional array of ints, got "
                f"{wanted.dtype} of "
                f"shape {wanted.shape}",
                split=self._split,
                found=indices,
            )
        wanted = wanted.astype(np.int64, copy=False)
        if wanted.size and (int(wanted.min()) < 0 or int(wanted.max()) >= self.num_records):
            outside = (wanted < -self.num_records) | (wanted >= self.num_records)
            if outside.any():
                raise self.outside(int(wanted[np.argmax(outside)]))
            wanted = np.where(wanted < 0, wanted + self.num_records, wanted)
        shards = np.searchsorted(self._ends, wanted, side="right")
        return shards, wanted - self._begins[shards]

    def place_one(self, index: int) -> tuple[int, int]:
        """(shard, position) of one record."""
        wanted = operator.index(index)
        if not -self.num_records <= wanted < self.num_records:
            raise self.outside(wanted)
        wanted %= self.num_records
        shard = int(np.searchsorted(self._ends, wanted, side="right"))
        return shard, wanted - int(self._begins[shard])

    def outside(self, index: int) -> ExampleIndexError:
        return ExampleIndexError(
            f"split {self._split!r} has {self.num_records} records, and there is no record {index}: expected an "
            "index from "
            f"{-self.num_records} to {self.num_records - 1}",
            split=self._split,
            index=index,
        )

    def column(self, name: str, shards: Array, positions: Array) -> Array:
        """One column of the index for the given records, as int64."""
        dtype = column_dtype(name)
        offsets = self._positions[0][name][shards] + positions * dtype.itemsize
        return self._index.rows(shards, offsets, dtype, 1)[:, 0].astype(np.int64)

    def whole_column(self, name: str) -> Array:
        """One column of the index for all records, in order, in its stored dtype."""
        dtype = column_dtype(name)
        made = np.empty(self.num_records, dtype)
        starts = self._positions[0][name]
        for shard in np.flatnonzero(self._records).tolist():
            start, count = int(starts[shard]), int(self._records[shard])
            begin = int(self._begins[shard])
            made[begin : begin + count] = self._index.file(shard)[start : start + count * dtype.itemsize].view(dtype)
        return made

    def source_ordinals(self) -> Array:
        return self.whole_column(ORDINAL)

    def payload_starts(self, shards: Array, positions: Array) -> Array:
        """The offset within its file at which each record's payload starts."""
        if self.layout is not None:
            return positions * self.layout.stride + HEADER_BYTES
        return self.column(OFFSET, shards, positions) + HEADER_BYTES

    def rows(self, shards: Array, offsets: Array, dtype: np.dtype[Any], count: int) -> Array:
        """`count` elements at each offset of a shard file: (n, count)."""
        self._check_bounds(shards, offsets, count * dtype.itemsize, dtype.itemsize)
        return self._data.rows(shards, offsets, dtype, count)

    def values(self, shards: Array, offsets: Array, lengths: Array, dtype: np.dtype[Any]) -> Array:
        """`lengths[i]` elements at each offset of a shard file, one run after the other."""
        self._check_bounds(shards, offsets, lengths * dtype.itemsize, dtype.itemsize)
        return self._data.values(shards, offsets, lengths, dtype)

    def _check_bounds(self, shards: Array, offsets: Array, sizes: Any, itemsize: int) -> None:
        """No read leaves its file, whatever an index says."""
        if self.layout is not None:
            return  # the manifest was checked when it was read
        outside = (offsets + sizes > self._file_bytes[shards]) | (offsets % itemsize != 0)
        if outside.any():
            shard = int(shards[np.argmax(outside)])
            raise corrupt_index(index_path(self.path(shard)), "it points outside of the shard")

    def payload(self, index: int) -> bytes:
        """The payload of one record, both checksums checked."""
        return self._payload(*self.place_one(index))

    def chosen_payloads(self, shards: Array, positions: Array) -> list[bytes]:
        """The payloads of the given records, both checksums checked."""
        return [self._payload(*place) for place in zip(shards.tolist(), positions.tolist(), strict=True)]

    def _payload(self, shard: int, position: int) -> bytes:
        if self.layout is not None:
            offset, size = position * self.layout.stride, self.layout.stride
        else:
            shards, positions = np.array([shard]), np.array([position])
            offset = int(self.column(OFFSET, shards, positions)[0])
            size = int(self.column(SIZE, shards, positions)[0]) + FRAME_BYTES
        frame = self._data.file(shard)[offset : offset + size].tobytes()
        return check_frame(self.path(shard), offset, frame)

    def payloads(self) -> Iterator[bytes]:
        """The payloads of all records in order, read as a stream."""
        for shard in np.flatnonzero(self._records).tolist():
            yield from read_records(self.path(shard))

    def file(self, shard: int) -> Array:
        """The bytes of a shard, read-only and not copied."""
        return self._data.file(shard)


def starts_of(files: ShardFiles, field: Field, constant: dict[str, int], shards: Array, positions: Array) -> Array:
    """Where the bytes of a direct field start in their file, for each record."""
    payloads = files.payload_starts(shards, positions)
    if files.layout is not None:
        return payloads + files.layout.fields[field.name][0]
    if field.name in constant:
        return payloads + constant[field.name]
    return payloads + files.column(f"start/{field.name}", shards, positions)
