"""`ShardFiles`: where the records of a split are, and their bytes."""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
import os
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.local_copies import LocalCopies
from beam_pipes.cache.regions import Region, open_region
from beam_pipes.errors import ExampleIndexError
from beam_pipes.format.codec import RecordCodec
from beam_pipes.format.dtypes import Array
from beam_pipes.format.framing import FRAME_BYTES, HEADER_BYTES, check_frame, intact_payload, payloads_of, read_records
from beam_pipes.format.index import (
    OFFSET,
    ORDINAL,
    SIZE,
    column_dtype,
    column_names,
    corrupt_index,
    decode_index,
    index_checksum,
    index_path,
    index_positions,
)
from beam_pipes.publication.manifest import FILE_NAME, SplitManifest
from beam_pipes.storage.leases import ReaderLease, lease
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.locks import Hold, hold
from beam_pipes.storage.protocol import Storage

_INT64 = np.dtype(np.int64)


class RecordAddresses:
    """Some records of a split: the shard of each, its position within, and the address of its payload."""

    __slots__ = ("_begins", "_files", "_indices", "_payloads", "_positions", "shards")

    def __init__(self, files: ShardFiles, indices: Array, shards: Array, begins: Array) -> None:
        self._files = files
        self._indices = indices
        self._begins = begins
        self._payloads: Array | None = None
        self._positions: Array | None = None
        self.shards = shards

    def __len__(self) -> int:
        return len(self.shards)

    @property
    def indices(self) -> Array:
        """The records in the split, counted from its start."""
        return self._indices

    @property
    def positions(self) -> Array:
        """Computed once."""
        if self._positions is None:
            self._positions = self._indices - self._begins
        return self._positions

    @property
    def payloads(self) -> Array:
        """Computed once; the shards are open then."""
        if self._payloads is None:
            self._payloads = self._files.payload_addresses(self, self._indices)
        return self._payloads


class ShardFiles:
    """The shards of one split as one sequence of records. Files are mapped when first needed. Thread-safe."""

    def __init__(
        self,
        directory: str,
        name: str,
        split: str,
        manifest: SplitManifest,
        codec: RecordCodec,
        copies: LocalCopies | None = None,
        *,
        mmap: bool = True,
        storage: Storage | None = None,
    ) -> None:
        self._directory = directory
        self._storage = storage_for(directory) if storage is None else storage
        self._lease: ReaderLease | None = None
        self._mmap = mmap
        self._copies = copies
        self._name = name
        self._split = split
        self._manifest = manifest
        self.layout = manifest.layout
        self.columns = column_names(codec.index_columns, fixed=getattr(codec, "fixed_layout", None) is not None)
        self.shard_sizes: Array = np.asarray(manifest.records, np.int64)
        self._file_bytes = np.asarray(manifest.bytes, np.int64)
        self._ends = np.cumsum(self.shard_sizes)
        self._unsigned_ends = self._ends.astype(np.uint64)
        self.begins: Array = self._ends - self.shard_sizes
        self._column_starts: dict[str, Array] = {}
        self.num_records = int(self._ends[-1]) if len(self._ends) else 0
        self._held: Hold | None = None
        self.hold()

    def hold(self) -> None:
        """Keeps builds on this machine from removing the snapshot, until `close`."""
        if self._held is None:
            self._held = hold(os.path.join(self._directory, FILE_NAME))

    def lease(self) -> ReaderLease | None:
        """Takes the lease that keeps builds on any machine from removing the snapshot, until `close`."""
        if self._lease is None:
            self._lease = lease(self._storage, self._directory)
        return self._lease

    def path(self, shard: int) -> str:
        return os.path.join(self._directory, self._manifest.file_name(self._name, self._split, shard))

    @property
    def is_mapped(self) -> bool:
        """Whether shards are mapped where they are."""
        return self._mmap and self._copies is None

    @property
    def num_shards(self) -> int:
        return len(self.shard_sizes)

    @property
    def index_bytes(self) -> Array:
        """Bytes of the index of each shard."""
        return self._positions[1]

    @functools.cached_property
    def data(self) -> Region:
        self.hold()
        self.lease()
        if self._copies is not None:
            return open_region(self._copies.data, self._manifest.bytes, max_bytes=self._copies.max_bytes)
        return open_region(self.path, self._manifest.bytes, mmap=self._mmap)

    @functools.cached_property
    def _origins(self) -> Array:
        """Where the payload of record 0 would be if the records of a shard continued backwards to the split's first."""
        assert self.layout is not None
        origins: Array = self.data.bases[:-1] + HEADER_BYTES - self.begins * self.layout.stride
        return origins

    @functools.cached_property
    def _positions(self) -> tuple[dict[str, Array], Array]:
        return index_positions(self.columns, self.shard_sizes)

    @functools.cached_property
    def _index(self) -> Region:
        self.lease()
        sizes = self._positions[1].tolist()
        if self._copies is not None:
            paths, most = self._copies.index, self._copies.max_bytes
            return open_region(paths, sizes, check=self._check_index, max_bytes=most)
        return open_region(lambda shard: index_path(self.path(shard)), sizes, check=self._check_index, mmap=self._mmap)

    def _check_index(self, shard: int, data: Array) -> None:
        path = index_path(self.path(shard))
        expected = self._manifest.index_crc32c[shard]
        found = index_checksum(data, expected=expected)
        if found != expected:
            raise corrupt_index(path, f"expected checksum {expected:#010x}, as the manifest says, found {found:#010x}")
        columns = tuple(decode_index(data, path=path))
        if columns != self.columns:
            raise corrupt_index(path, f"expected the columns {list(self.columns)}, found {list(columns)}")

    def place(self, indices: npt.ArrayLike) -> RecordAddresses:
        """The records of the given indices; negative ones count from the end.

        Raises `ExampleIndexError` for an index outside the split.
        """
        wanted = np.asarray(indices)
        if wanted.dtype is not _INT64 or wanted.ndim != 1:
            wanted = self._as_indices(wanted, indices)
        # As unsigned numbers, negative ones are the largest: one search finds them and those beyond the end.
        shards = self._unsigned_ends.searchsorted(wanted.view(np.uint64), side="right")
        try:
            return RecordAddresses(self, wanted, shards, self.begins[shards])
        except IndexError:
            pass
        outside = (wanted < -self.num_records) | (wanted >= self.num_records)
        if outside.any():
            raise self._outside(int(wanted[np.argmax(outside)]))
        wanted = np.where(wanted < 0, wanted + self.num_records, wanted)
        shards = self._ends.searchsorted(wanted, side="right")
        return RecordAddresses(self, wanted, shards, self.begins[shards])

    def _as_indices(self, wanted: Array, given: object) -> Array:
        if wanted.ndim == 1 and (wanted.dtype.kind in "iu" or wanted.size == 0):
            if wanted.dtype != np.uint64 or wanted.size == 0 or int(wanted.max()) < 1 << 63:
                return wanted.astype(np.int64)
        raise ExampleIndexError(
            f"expected indices, a list or one-dimensional array of ints, got {wanted.dtype} of shape {wanted.shape}"
        ).about("split", self._split, found=given)

    def place_one(self, index: int) -> tuple[int, int]:
        """(shard, position) of one record."""
        wanted = operator.index(index)
        if not -self.num_records <= wanted < self.num_records:
            raise self._outside(wanted)
        if wanted < 0:
            wanted += self.num_records
        ends = self._end_numbers
        shard = bisect.bisect_right(ends, wanted)
        return shard, wanted - (ends[shard - 1] if shard else 0)

    @functools.cached_property
    def _end_numbers(self) -> list[int]:
        """The end of each shard as Python integers, which find the place of one record faster."""
        numbers: list[int] = self._ends.tolist()
        return numbers

    def _outside(self, index: int) -> ExampleIndexError:
        return ExampleIndexError(
            f"split {self._split!r} has {self.num_records} records, but there is no record {index}: expected an index "
            f"from {-self.num_records} to {self.num_records - 1}",
            split=self._split,
            index=index,
        )

    def payload_addresses(self, places: RecordAddresses, indices: Array) -> Array:
        """Where the payload of each record starts; opens its shard."""
        self.data.prepare(places.shards)
        if self.layout is not None:
            fixed: Array = indices * self.layout.stride + self._origins[places.shards]
            return fixed
        addresses: Array = self.data.bases[places.shards] + self.column(OFFSET, places) + HEADER_BYTES
        return addresses

    def column(self, name: str, places: RecordAddresses) -> Array:
        """One column of the index for the given records, as int64."""
        dtype = column_dtype(name)
        self._index.prepare(places.shards)
        starts = self._column_starts.get(name)
        if starts is None:
            starts = self._column_starts[name] = self._index.bases[:-1] + self._positions[0][name]
        rows = self._index.rows(starts[places.shards] + places.positions * dtype.itemsize, dtype.itemsize)
        return rows.view(dtype).astype(np.int64)

    def whole_column(self, name: str) -> Array:
        """One column of the index for all records, in order, in its stored dtype."""
        dtype = column_dtype(name)
        made = np.empty(self.num_records, dtype)
        starts = self._positions[0][name]
        for shard in np.flatnonzero(self.shard_sizes).tolist():
            start, count = int(starts[shard]), int(self.shard_sizes[shard])
            begin = int(self.begins[shard])
            made[begin : begin + count] = self._index.file(shard)[start : start + count * dtype.itemsize].view(dtype)
        return made

    def ordinals_of_shard(self, shard: int) -> Array:
        """(records of the shard,) uint64: the source ordinal of each, ascending."""
        start, count = int(self._positions[0][ORDINAL][shard]), int(self.shard_sizes[shard])
        dtype = column_dtype(ORDINAL)
        made: Array = self._index.file(shard)[start : start + count * dtype.itemsize].view(dtype).copy()
        return made

    def close(self) -> None:
        """Releases the mapped files: they are unmapped when no array uses them; the next read maps them again."""
        for name in ("data", "_index", "_origins"):
            self.__dict__.pop(name, None)
        self._held = self._lease = None
        self._column_starts.clear()

    def check_inside(
        self, places: RecordAddresses, addresses: Array, sizes: Array | int, *, alignment: int = 1
    ) -> None:
        """Raises `CorruptIndexError` if a read would leave its file: indexes are not trusted that far."""
        if self.layout is not None:
            return  # arithmetic on a manifest that was checked when it was read
        begins = self.data.bases[places.shards]
        outside = (addresses < begins) | (addresses + sizes > begins + self._file_bytes[places.shards])
        if alignment > 1:
            outside |= addresses % alignment != 0
        if outside.any():
            shard = int(places.shards[np.argmax(outside)])
            raise corrupt_index(index_path(self.path(shard)), "it points outside of the shard")

    def payload(self, index: int) -> bytes:
        """The payload of one record, both checksums checked."""
        return self._payload(*self.place_one(index))

    def chosen_payloads(self, places: RecordAddresses) -> list[bytes]:
        """The payloads of the given records, both checksums checked."""
        pairs = zip(places.shards.tolist(), places.positions.tolist(), strict=True)
        return [self._payload(shard, position) for shard, position in pairs]

    def offset(self, shard: int, position: int) -> int:
        """The byte of a shard's file at which a record begins."""
        if self.layout is not None:
            return position * self.layout.stride
        return self._index_value(OFFSET, shard, position)

    def _payload(self, shard: int, position: int) -> bytes:
        if self.layout is not None:
            size = self.layout.stride
            offset = position * size
        else:
            offset = self.offset(shard, position)
            size = self._index_value(SIZE, shard, position) + FRAME_BYTES
        frame = self.data.read(shard, offset, size)
        payload = intact_payload(frame)
        return check_frame(self.path(shard), offset, frame) if payload is None else payload

    def _index_value(self, name: str, shard: int, position: int) -> int:
        itemsize = column_dtype(name).itemsize
        start = int(self._positions[0][name][shard]) + position * itemsize
        return int.from_bytes(self._index.read(shard, start, itemsize), "little")

    def stream(self, rows: Sequence[int] | Array) -> Iterator[bytes] | None:
        """The payloads of these records, ascending, by requests for parts of their shards; checksums are checked.

        Between the first and the last of them in a shard everything is read. The index is needed only where a shard
        is not read from its first record to its last. None if the shards are on this machine, or are to be.
        """
        if self._copies is None or not self._copies.are_private:
            return None
        self.lease()
        return self._streamed(rows, self._copies)

    def _streamed(self, rows: Sequence[int] | Array, copies: LocalCopies) -> Iterator[bytes]:
        at = 0
        while at < len(rows):
            shard, first = self.place_one(int(rows[at]))
            begin, size = int(self.begins[shard]), int(self.shard_sizes[shard])
            behind = bisect.bisect_left(rows, begin + size, at)
            chosen, at = rows[at:behind], behind
            last = int(chosen[-1]) - begin + 1
            start = self.offset(shard, first) if first else 0
            end = self.offset(shard, last) if last < size else int(self._file_bytes[shard])
            path = self.path(shard)
            found = payloads_of(copies.ranges(shard, start, end), path, start, end, count=last - first)
            if len(chosen) < last - first:
                wanted = np.zeros(last - first, bool)
                wanted[np.asarray(chosen, np.int64) - (begin + first)] = True
                yield from itertools.compress(found, wanted.tolist())
            else:
                yield from found

    def payloads(self) -> Iterator[bytes]:
        """The payloads of all records in order, read as a stream; checksums and numbers are checked."""
        self.lease()
        for shard in np.flatnonzero(self._file_bytes).tolist():
            yield from read_records(self.path(shard))
