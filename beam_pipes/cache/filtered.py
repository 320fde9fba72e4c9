"""The numbers of chosen records: those that meet a condition, were in an older snapshot, or were added since.

    split.where("score > 0.8 and lang == 'en'")   ← a condition, read as Python and never run as Python
          │  parsed: which features it compares, and with what
          ▼
    columns of these features, a million records at once  →  one boolean per record
          │
          ▼
    Choice: the numbers of the records that are left, ascending, over the same files

The result depends on the snapshot and the condition alone. Records that are taken down are judged by their stored
values, so that a takedown changes no row number and no loader's state; their stand-ins are drawn from the remaining
records, so that what a filter excludes never comes back through it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from beam_pipes.cache.conditions import Condition
from beam_pipes.errors import ExampleIndexError
from beam_pipes.format.dtypes import Array
from beam_pipes.publication.publish import OlderShards

if TYPE_CHECKING:
    from beam_pipes.cache.columns import ColumnReader
    from beam_pipes.cache.shard_files import RecordAddresses


#: Records whose columns are held at once: 8 MB for a feature of 8 bytes. A multiple of 8.
RECORDS_AT_ONCE = 1 << 20


def rows_where(
    condition: Condition,
    columns: Callable[[], ColumnReader],
    records: Array | int,
    place: Callable[[Array], RecordAddresses],
) -> Array:
    """(k,), ascending: those of `records` (numbers, or a count from 0) that meet a condition.

    Memory: one bit per record, the columns of `RECORDS_AT_ONCE` records, and the result: 4 bytes per remaining record,
    8 where there are more than 2^32.
    """
    masks = []
    for begin, end in _portions(records if isinstance(records, int) else len(records)):
        some = np.arange(begin, end) if isinstance(records, int) else records[begin:end]
        masks.append(np.packbits(condition.of(columns, place(some))))
    return _rows_of(masks, records)


def _portions(total: int) -> Iterator[tuple[int, int]]:
    return ((begin, min(begin + RECORDS_AT_ONCE, total)) for begin in range(0, total, RECORDS_AT_ONCE))


def _rows_of(masks: Sequence[Array], records: Array | int) -> Array:
    """The records that bit masks choose, one mask per portion: allocated once, at the final size."""
    total = records if isinstance(records, int) else len(records)
    counts = [int(_BITS_OF[mask].sum()) for mask in masks]
    dtype = (np.uint32 if total <= 1 << 32 else np.int64) if isinstance(records, int) else records.dtype
    rows = np.empty(sum(counts), dtype)
    at = 0
    for (begin, end), mask, count in zip(_portions(total), masks, counts, strict=True):
        chosen = np.flatnonzero(np.unpackbits(mask, count=end - begin))
        rows[at : at + count] = chosen + begin if isinstance(records, int) else records[begin:end][chosen]
        at += count
    return rows


# Number of bits set in each byte.
_BITS_OF = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.int64)


def digest_of_rows(rows: Array) -> str:
    """Names a choice of rows: 12 hexadecimal digits of the sha256 of their numbers as little-endian int64."""
    digest = hashlib.sha256()
    for begin, end in _portions(len(rows)):
        digest.update(rows[begin:end].astype("<i8").tobytes())
    return digest.hexdigest()[:12]


def packed_rows(rows: Array, total: int) -> bytes:
    """`rows` out of `total` as one bit per record, the pickled form. `([0, 2], 3)` → `b"\\xa0"`."""
    masks = []
    for begin, end in _portions(total):
        first, last = bounds_of(rows, [begin, end])
        mask = np.zeros(end - begin, bool)
        mask[rows[first:last].astype(np.int64) - begin] = True
        masks.append(np.packbits(mask).tobytes())
    return b"".join(masks)


def unpacked_rows(data: bytes, total: int) -> Array:
    """The inverse of `packed_rows`."""
    bits = np.frombuffer(data, np.uint8)
    return _rows_of([bits[begin // 8 : -(-end // 8)] for begin, end in _portions(total)], total)


def checked_indices(indices: Sequence[int] | Array, total: int, *, split: str, where: object) -> Array:
    """`indices` of `total` records counted from the start; raises `ExampleIndexError` outside of them."""
    wanted = np.asarray(indices)
    if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
        raise ExampleIndexError(f"{where!r}: expected a sequence of indices, got {wanted.dtype} {wanted.shape}")
    wanted = wanted.astype(np.int64)
    outside = (wanted < -total) | (wanted >= total)
    if outside.any():
        index = int(wanted[np.argmax(outside)])
        raise ExampleIndexError(f"{where!r}: there is no record {index}", split=split, index=index)
    checked: Array = np.where(wanted < 0, wanted + total, wanted)
    return checked


def bounds_of(rows: Array, records: Sequence[int] | Array) -> Array:
    """Where `records` would stand in `rows` (ascending): (k,) int64."""
    wanted = np.asarray(records, np.int64)
    inside = np.minimum(wanted, np.iinfo(rows.dtype).max).astype(rows.dtype)  # else all rows would be converted
    found: Array = np.where(wanted > inside.astype(np.int64), len(rows), np.searchsorted(rows, inside))
    return found


def positions_of(rows: Array, records: Sequence[int] | Array) -> Array:
    """(k,) int64, ascending: the positions in `rows` (ascending) of those `records` that it contains."""
    wanted = np.asarray(records, np.int64)
    at = bounds_of(rows, wanted)
    inside = at < len(rows)
    at, wanted = at[inside], wanted[inside]
    found: Array = at[rows[at] == wanted]
    return found


def rows_between(starts: Array, ends: Array, total: int) -> Array:
    """The numbers of several ranges of records out of `total`, as small as `rows_where` makes them.

    `([0, 7], [2, 9], 9)` → `[0, 1, 7, 8]`
    """
    dtype = np.uint32 if total <= 1 << 32 else np.int64
    ranges = [np.arange(start, end, dtype=dtype) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.concatenate([*ranges, np.empty(0, dtype)])


class StoredAs(NamedTuple):
    """Where chosen records are stored: `sizes[i]` of them in shard `shards[i]`. A block-wise order permutes these runs.

    `older` is the older snapshot that had the same runs, and `manifest_id` identified the records there.
    """

    shards: Array
    sizes: Array
    older: OlderShards | None = None
    manifest_id: str | None = None


#: (chosen records so far (None: all), first record of each shard, older snapshot) → the remaining records.
FindRows: TypeAlias = "Callable[[Array | None, Array, OlderShards], tuple[Array, StoredAs]]"


def rows_of_older(rows: Array | None, begins: Array, older: OlderShards) -> tuple[Array, StoredAs]:
    """The `rows` (ascending; None: all) that an older snapshot also had, and how they were stored there.

    `begins` holds the first record of each shard, then the total number of records.
    """
    shards, counts = np.asarray(older.shards, np.int64), np.asarray(older.records, np.int64)
    found, sizes = _chosen_between(rows, begins[shards], begins[shards] + counts, int(begins[-1]))
    manifest_id = older.manifest_id
    if rows is not None:
        numbers = found.astype(np.int64) - np.repeat(begins[shards] - (np.cumsum(counts) - counts), sizes)
        manifest_id = f"{manifest_id}?{digest_of_rows(numbers)}"
    return found, StoredAs(shards, sizes, older, manifest_id)


def rows_since(rows: Array | None, begins: Array, older: OlderShards) -> tuple[Array, StoredAs]:
    """The `rows` (ascending; None: all) that an older snapshot did not have."""
    taken = np.zeros(len(begins), np.int64)
    np.maximum.at(taken, np.asarray(older.shards, np.int64), np.asarray(older.records, np.int64))
    found, sizes = _chosen_between(rows, (begins + taken)[:-1], begins[1:], int(begins[-1]))
    shards = np.flatnonzero(sizes)  # the next snapshot may have more shards without any
    return found, StoredAs(shards, sizes[shards])


def _chosen_between(rows: Array | None, starts: Array, ends: Array, total: int) -> tuple[Array, Array]:
    """The `rows` (None: all) within ranges of records, and how many there are in each range."""
    if rows is None:
        return rows_between(starts, ends, total), ends - starts
    starts, ends = bounds_of(rows, starts), bounds_of(rows, ends)
    return rows[rows_between(starts, ends, len(rows))], ends - starts


def numbers_in(whole: Choice | None, part: Choice | None) -> Array:
    """The numbers in one split of the records of a part of it: (k,), ascending."""
    assert part is not None
    return part.rows if whole is None else positions_of(whole.rows, part.rows)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """The records that a split has of its files: `rows` are their numbers, ascending, out of `total`.

    `stored` says in which shards they are, if that is known (`as_of`, `since`). `condition` is the one that they meet,
    and `part` describes the part of the snapshot that they are.
    """

    rows: Array
    total: int
    condition: str = ""
    part: str = ""
    stored: StoredAs | None = None

    @property
    def in_words(self) -> str:
        return " ".join([*([self.part] if self.part else []), *([f"where {self.condition}"] if self.condition else [])])

    @property
    def older(self) -> OlderShards | None:
        """The older snapshot whose records they are."""
        return None if self.stored is None else self.stored.older

    def manifest_id(self, whole: str) -> str:
        """The id of the manifest, with a digest of the chosen records."""
        known = None if self.stored is None else self.stored.manifest_id
        return f"{whole}?{self._digest}" if known is None else known

    @functools.cached_property
    def _digest(self) -> str:
        return digest_of_rows(self.rows)

    def shard_sizes(self, bounds: Array) -> Array:
        """How many chosen records are in each shard, or in each shard of the older snapshot."""
        sizes: Array = np.diff(bounds_of(self.rows, bounds)) if self.stored is None else self.stored.sizes.copy()
        return sizes

    def shards_of(self, blocks: Array) -> Array:
        """The shards of these blocks, as `shard_sizes` counts them."""
        if self.stored is None:
            return blocks
        shards: Array = self.stored.shards[blocks[self.stored.sizes[blocks] > 0]]
        return shards

    def __reduce__(self) -> tuple[object, ...]:
        return _choice, (packed_rows(self.rows, self.total), self.total, self.condition, self.part, self.stored)


def narrowed(chosen: Choice | None, rows: Array, total: int, condition: str) -> Choice:
    """The `rows` of a choice (None: all records) that also meet a condition."""
    before, part = ("", "") if chosen is None else (chosen.condition, chosen.part)
    both = f"({before}) and ({condition})" if before else condition
    return Choice(rows=rows, total=total, condition=both, part=part)


def _choice(packed: bytes, total: int, condition: str, part: str, stored: StoredAs | None) -> Choice:
    """Called when a `Choice` is unpickled."""
    return Choice(rows=unpacked_rows(packed, total), total=total, condition=condition, part=part, stored=stored)
