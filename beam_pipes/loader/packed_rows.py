"""Rows of a fixed length: one record each, padded (`PaddedRows`), or several, packed by a plan (`PackedRows`).

    records [5, 6, 7], [8, 9]   padded to 5   [5, 6, 7, 0, 0] and [8, 9, 0, 0, 0]
                                packed in 6   [5, 6, 7, 8, 9, 0], segment_ids [1, 1, 1, 2, 2, 0]

Both give the same columns, so that a consumer of one can read the other. Streams gather them as they gather the records
of a split (`SplitRows`); `cu_seqlens_of` turns segment ids into the boundaries that attention kernels take.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import known
from beam_pipes.errors import CorruptIndexError, LoaderError
from beam_pipes.format.dtypes import Array
from beam_pipes.loader.batches import Batch, ranges
from beam_pipes.loader.columns import columns_of, entries_left, put_into, read_consistently, rows_of, widest_row
from beam_pipes.loader.order import Indices
from beam_pipes.loader.packing.pack import plan_of_epoch
from beam_pipes.loader.packing.plan import PackingPlan, rounded_up
from beam_pipes.loader.row_source import PaddedSplit
from beam_pipes.loader.rows import ColumnSpec, GatherOptions, InMemory, Mask, Rows, Shapes, checked_name, varying

_NOTHING = np.zeros(1, np.int64)
_KEPT_NUMBERS = 1 << 14
SEGMENT_LENGTHS = "segment_lengths"
_KNOWN = ColumnSpec(dtype="int32", shape=())


class PaddedRows(Rows):
    """The rows of a `PaddedSplit`."""

    def __init__(self, padded: PaddedSplit, options: GatherOptions) -> None:
        if options.ragged != "pad" or options.pad_to is not None:
            raise LoaderError("rows of a PaddedSplit have its sequence lengths; leave out ragged= and pad_to=")
        unknown = sorted(set(options.features or ()) - set(padded.sequence_lengths))
        if unknown:
            raise LoaderError(
                f"these rows have no feature {unknown[0]!r}; they have: {', '.join(padded.sequence_lengths)}",
                feature=unknown[0],
            )
        features = options.features or tuple(padded.sequence_lengths)
        super().__init__(padded.split, len(padded.split), features, options.pad_value)
        self._padded = padded
        self.draws_anew = bool(getattr(padded.split, "draws_anew", False))
        columns: dict[str, ColumnSpec] = {}
        for name in self.features:
            spec, length = padded.split.spec[name], padded.sequence_lengths[name]
            shape = spec.shape if length is None else (length, *spec.shape[1:])
            columns[name] = ColumnSpec(dtype=spec.dtype, shape=shape)
            for added in ("segment_ids", "positions") if padded.segments and spec.ragged else ():
                column = checked_name(f"{name}_{added}", self.features)
                columns[column] = ColumnSpec(dtype="int32", shape=shape[:1])
        self.columns = columns
        self._varying = [name for name in self.features if None in columns[name].shape]

    def costs(self, epoch: int) -> Indices:
        raise LoaderError(
            "BalancedShuffle balances rows of different cost, and rows of a PaddedSplit all have the same lengths. "
            "Pass shuffle=True."
        )

    def widest(self, rows: Indices) -> Shapes:
        found: dict[str, tuple[int, ...]] = {}
        for name in self._varying:
            own, length = widest_row(self.split, name, rows), self._padded.sequence_lengths[name]
            found[name] = own if length is None else (length, *own[1:])
            for added in ("segment_ids", "positions"):
                if None in self.columns.get(f"{name}_{added}", _KNOWN).shape:
                    found[f"{name}_{added}"] = own[:1]
        return found

    def gather(self, rows: Indices, shapes: Shapes | None = None) -> Batch:
        return read_consistently([self.split], lambda: self._gather(rows, shapes or {}))

    def _gather(self, rows: Indices, shapes: Shapes) -> Batch:
        batch: Batch = {}
        for name, (values, lengths) in columns_of(self.split, self.features, rows).items():
            if lengths is None:
                batch[name] = values
                continue
            length = self._padded.sequence_lengths[name]
            longest, *inner = (
                shapes[name] if shapes and name in self._varying else (int(lengths.max(initial=0)), *values.shape[1:])
            )
            width = longest if length is None else length
            if (lengths > width).any():
                values, lengths = self._cut(name, rows, values, lengths, width)
            batch[name] = rows_of(values, lengths, width, inner=inner, fill=self.fills[name])
            if self._padded.segments:
                inside = np.arange(width, dtype=np.int32) < lengths[:, None]
                batch[f"{name}_segment_ids"] = inside.astype(np.int32)
                batch[f"{name}_positions"] = np.arange(width, dtype=np.int32) * inside
        return batch

    def _cut(self, name: str, rows: Indices, values: Array, lengths: Indices, width: int) -> tuple[Array, Indices]:
        if self._padded.overlong == "error":
            row = int(np.argmax(lengths > width))
            raise LoaderError(
                f"record {int(rows[row]) % max(1, self.size)} has {int(lengths[row])} entries of feature {name!r}, "
                f"more than a row takes ({width}). Trim it, raise the length, or pass overlong='truncate'.",
                feature=name,
                record=int(rows[row]) % max(1, self.size),
            )
        steps = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return values[steps < width], np.minimum(lengths, width)


class _Entries(NamedTuple):
    """Pieces of records, in the order of rows; `starts` and `lengths` have one column per feature of the plan.

    A piece whose record is taken down, but keeps its place, is of segment 0, as padding is.
    """

    segments: Indices
    records: Indices
    row_of_entry: Indices
    starts: Indices
    lengths: Indices

    def some(self, which: Array) -> _Entries:
        return _Entries(*(each[which] for each in self))

    @property
    def are_there(self) -> Array:
        return self.segments > 0


class _Joined(NamedTuple):
    """A column whose rows are pieces of memory, one after the other; a piece without a place is a piece of `fill`.

    Joining views of bytes is one call for all pieces, and each costs 0.2 µs. For comparison, on 60 pieces of 2 KiB,
    `np.concatenate` of arrays takes 47 µs against 28 µs, and an index for each of their elements 190 µs.
    """

    memory: memoryview
    begins: list[int]  # of each piece; `~begin` of a piece of `fill`
    ends: list[int]
    bounds: list[int]  # (rows + 1,): the first piece of each row
    fill: memoryview  # padding, and what begins segments
    dtype: np.dtype
    shape: tuple[int, ...]
    keeps: object  # owner of the memory

    def rows(self, first: int, last: int) -> Array:
        pieces = slice(self.bounds[first], self.bounds[last])
        memory, fill = self.memory, self.fill
        joined = bytearray().join(
            [
                memory[begin:end] if begin >= 0 else fill[~begin:end]
                for begin, end in zip(self.begins[pieces], self.ends[pieces], strict=True)
            ]
        )
        made: Array = np.ndarray((last - first, *self.shape), self.dtype, joined)
        return made


class _Repeated(NamedTuple):
    """A column whose rows are numbers, each repeated that many times."""

    numbers: npt.NDArray[np.int32]
    counts: Indices
    bounds: list[int]
    width: int

    def rows(self, first: int, last: int) -> Array:
        pieces = slice(self.bounds[first], self.bounds[last])
        return self.numbers[pieces].repeat(self.counts[pieces]).reshape(last - first, self.width)


class _Counted(NamedTuple):
    """A column whose rows count from 0 in each piece: `n` gives that many numbers, `-n` that many zeros."""

    numbers: _Numbers
    counts: list[int]
    bounds: list[int]
    width: int

    def rows(self, first: int, last: int) -> Array:
        counts = self.counts[self.bounds[first] : self.bounds[last]]
        joined = bytearray().join(map(self.numbers.__getitem__, counts))
        made: Array = np.ndarray((last - first, self.width), np.int32, joined)
        return made


class _Lengths(NamedTuple):
    """The column of the segments' lengths."""

    lengths: npt.NDArray[np.int32]

    def rows(self, first: int, last: int) -> Array:
        made: Array = self.lengths[first:last].copy()
        return made


class _Numbers(dict[int, memoryview]):
    """n → the bytes of the numbers from 0 to n - 1; -n → those of n zeros. Cached: a view costs more than a look-up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._numbers, self._zeros = _bytes_of(np.arange(width, dtype=np.int32)), _bytes_of(np.zeros(width, np.int32))

    def __missing__(self, count: int) -> memoryview:
        if len(self) >= _KEPT_NUMBERS:
            self.clear()
        made = self[count] = self._numbers[: 4 * count] if count > 0 else self._zeros[: -4 * count]
        return made


class _Bos(NamedTuple):
    """What begins segments, and the entries that it precedes in addition to what their records have."""

    value: Array
    precedes: npt.NDArray[np.bool_]


class _Pieces:
    """Rows of one feature as pieces that follow each other without gaps: those of entries, and padding between them."""

    def __init__(self, entries: _Entries, lengths: Indices, rows: int, width: int, multiple: int) -> None:
        slots = 1 if multiple == 1 else 2  # per entry: its data and its padding; per row: the tail
        self._places = np.arange(len(lengths)) * slots + entries.row_of_entry
        in_row = np.bincount(entries.row_of_entry, minlength=rows)
        last = np.cumsum(in_row)
        tails = last * slots + np.arange(rows)
        taken = rounded_up(lengths, multiple) if multiple > 1 else lengths
        total = np.concatenate((_NOTHING, np.cumsum(taken)))
        sizes = np.zeros(slots * len(lengths) + rows, np.int64)
        sizes[self._places] = lengths
        if multiple > 1:
            sizes[self._places + 1] = taken - lengths
        sizes[tails] = width - total[last] + total[last - in_row]
        numbers = np.zeros(len(sizes), np.int32)
        numbers[self._places] = entries.segments
        has_any = sizes != 0
        self._kept = np.flatnonzero(has_any)
        self._slots, self._width = len(sizes), width
        self._counts = sizes[self._kept]
        self._bounds: list[int] = np.concatenate((_NOTHING, np.cumsum(has_any)[tails])).tolist()
        self.segment_ids = _Repeated(numbers[self._kept], self._counts, self._bounds, width)

    def joined(
        self, memory: memoryview, begins: Indices, item: Array, bos: _Bos | None = None, keeps: object = None
    ) -> _Joined:
        """The column whose entries begin at these bytes of `memory`, or are padding (below 0), made from `item`."""
        starts = np.full(self._slots, -1)
        starts[self._places] = np.maximum(begins, -1)
        starts, counts, bounds = starts[self._kept], self._counts, self._bounds
        fill = np.full((self._width, *item.shape), item)
        if bos is not None:
            at = np.searchsorted(self._kept, self._places[bos.precedes])
            counts = counts.copy()
            counts[at] -= 1
            starts, counts = np.insert(starts, at, ~fill.nbytes), np.insert(counts, at, 1)
            bounds = (np.asarray(bounds) + np.searchsorted(at, bounds)).tolist()
            fill = np.append(fill, bos.value)
        ends = np.where(starts < 0, ~starts, starts)
        ends += counts * item.nbytes
        shape = (self._width, *item.shape)
        return _Joined(memory, starts.tolist(), ends.tolist(), bounds, _bytes_of(fill), item.dtype, shape, keeps)

    def positions(self, numbers: _Numbers) -> _Counted:
        segments = self.segment_ids.numbers
        counts = np.where(segments > 0, self._counts, -self._counts).tolist()
        return _Counted(numbers, counts, self._bounds, self._width)


def _bytes_of(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class PackedRows(Rows):
    """The bins of a plan: tokens, segment ids (from 1 in a row, 0 on padding), positions (from 0 in a segment).

    Records [5, 6, 7] and [8, 9] in a row of 6:

        tokens       [5, 6, 7, 8, 9, 0]
        segment_ids  [1, 1, 1, 2, 2, 0]
        positions    [0, 1, 2, 0, 1, 0]

    A taken-down record leaves its row; the others close up and keep their segment numbers: without [5, 6, 7]

        tokens       [8, 9, 0, 0, 0, 0]
        segment_ids  [2, 2, 0, 0, 0, 0]

    With `forgotten="mask"` nothing moves, so that attention within the other segments adds the same numbers in the same
    order as if the record had been padding from the start:

        tokens       [0, 0, 0, 8, 9, 0]
        segment_ids  [0, 0, 0, 2, 2, 0]

    With `bos_id=1` in a row of 8, each segment begins with it:

        tokens       [1, 5, 6, 7, 1, 8, 9, 0]
        segment_ids  [1, 1, 1, 1, 2, 2, 2, 0]
        positions    [0, 1, 2, 3, 0, 1, 2, 0]

    With `segment_multiple=4` in a row of 8, each segment takes a multiple of 4 positions:

        tokens       [5, 6, 7, 0, 8, 9, 0, 0]
        segment_ids  [1, 1, 1, 0, 2, 2, 0, 0]

    With `segments="lengths"`, of at most 3 segments in a row:

        tokens           [5, 6, 7, 8, 9, 0]
        segment_lengths  [3, 2, 0]

    Plans of several features have `<feature>_segment_ids` and `<feature>_positions` for each, with the same segment
    number for the same record, even if one of its features is empty.
    """

    def __init__(self, plan: PackingPlan, options: GatherOptions) -> None:
        if plan.split is None:
            raise LoaderError(
                "this packing plan is not bound to a split: pass one to PackingPlan.load(path, split), "
                "or call plan.bind(split)"
            )
        if options.ragged != "pad" or options.pad_to is not None:
            raise LoaderError("packed rows have the plan's sequence length; leave out ragged= and pad_to=")
        for name in options.features or ():
            known(name, among=plan.features, what="feature", where="packing plan", error=LoaderError, feature=name)
        super().__init__(plan.split, len(plan), options.features or plan.features, options.pad_value)
        self._plan = plan
        self._keeps_places = options.keeps_places
        self.draws_anew = plan.reshuffle_each_iteration
        self.of_epoch: Callable[[int], PackingPlan] = functools.lru_cache(maxsize=2)(functools.partial(_of_epoch, plan))
        self._columns = []
        columns: dict[str, ColumnSpec] = {}
        for name in self.features:
            spec = plan.split.spec[name]
            columns[name] = ColumnSpec(dtype=spec.dtype, shape=(plan.sequence_lengths[name], *spec.shape[1:]))
            pad = self.fills[name]
            prefix = "" if len(plan.features) == 1 else f"{name}_"
            self._gives_lengths = options.segments == "lengths"
            kinds = (SEGMENT_LENGTHS,) if self._gives_lengths else ("segment_ids", "positions")
            added = tuple(checked_name(prefix + what, self.features) for what in kinds)
            shape = (plan.most_segments,) if self._gives_lengths else columns[name].shape[:1]
            columns |= dict.fromkeys(added, ColumnSpec(dtype="int32", shape=shape))
            self._columns.append((name, plan.features.index(name), plan.sequence_lengths[name], pad, added))
        self.columns = columns
        self._numbers = {width: _Numbers(width) for width in plan.sequence_lengths.values()}

    @property
    def block_sizes(self) -> Indices:
        raise LoaderError(
            "packed rows draw records from anywhere, so a block-wise shuffle cannot bound what they read; "
            "pack each shard group into its own split, or use shuffle=True on a local copy"
        )

    def costs(self, epoch: int) -> Indices:
        plan = self.of_epoch(epoch if self.draws_anew else 0)
        squares = ((plan.lengths + plan.added(plan.starts)) ** 2).sum(axis=1)
        ends = np.concatenate(([0], np.cumsum(squares)))[plan.bin_offsets.astype(np.int64)]
        return np.asarray(np.diff(ends), np.int64)

    def identity(self) -> dict[str, object]:
        source = self._plan.source
        return {"manifest": source.manifest, "split": source.split, "rows": self.size, "plan": self._plan.digest}

    def widest(self, rows: Indices) -> Shapes:
        names = varying(self.columns)
        records = self._entries_there(self._entries(rows)).records if names else rows
        return {name: (self._plan.sequence_lengths[name], *widest_row(self.split, name, records)[1:]) for name in names}

    def gather(self, rows: Indices, shapes: Shapes | None = None) -> Batch:
        return read_consistently([self.split], lambda: self._gather(rows, shapes or {}))

    def is_gone(self, rows: Indices) -> Mask:
        entries = self._entries(rows)
        gone = np.ones(len(rows), bool)
        gone[entries.row_of_entry[entries.are_there]] = False
        return gone

    @property
    def most_segments(self) -> int | None:
        return self._plan.most_segments

    def give_lengths_of(self, most_segments: int) -> int:
        """Makes columns of segment lengths that wide, as a mixture needs, and returns the width of the rows."""
        self._most_lengths = most_segments
        added = [name for *_, names in self._columns for name in names]
        self.columns = {**self.columns, **dict.fromkeys(added, ColumnSpec(dtype="int32", shape=(most_segments,)))}
        return self._columns[0][2]

    @property
    def segment_multiple(self) -> int:
        return self._plan.segment_multiple

    def plan_of(self, row: int) -> tuple[PackingPlan, int]:
        """The plan of a row, and the row's number in it: a repacked plan has one for each epoch."""
        epoch, number = divmod(row, self.size) if self.draws_anew else (0, row)
        return self.of_epoch(epoch), number

    def _entries(self, rows: Indices) -> _Entries:
        """The entries of the plan that are in these rows."""
        if not self.draws_anew:
            found = _entries_of(self._plan, rows)
        else:
            epochs = rows // self.size
            parts = []
            for epoch in np.unique(epochs).tolist() or [0]:
                here = np.flatnonzero(epochs == epoch)
                part = _entries_of(self.of_epoch(epoch), rows[here] - epoch * self.size)
                parts.append(part._replace(row_of_entry=here[part.row_of_entry]))
            found = parts[0]
            if len(parts) > 1:  # a mixture, whose passes over this source meet in one batch
                found = _Entries(*(np.concatenate(each) for each in zip(*parts, strict=True)))
                found = found.some(np.argsort(found.row_of_entry, kind="stable"))
        left = entries_left(self.split, found.records)
        if left is None:
            return found
        return found._replace(segments=found.segments * left) if self._keeps_places else found.some(left)

    def _entries_there(self, entries: _Entries) -> _Entries:
        return entries.some(entries.are_there) if self._keeps_places else entries

    def located(self, rows: Indices) -> Mapping[str, InMemory] | None:
        """Where the pieces of these rows are in memory; None if values must be made or read first."""
        return read_consistently([self.split], lambda: self._located(rows))

    def _located(self, rows: Indices) -> Mapping[str, InMemory] | None:
        locate = None if self._keeps_places else getattr(self.split, "located", None)
        entries = self._entries(rows)
        found = None if locate is None else locate(entries.records, self.features)
        if found is None:
            return None
        columns: dict[str, InMemory] = {}
        added = self._plan.added(entries.starts)[:, 0]
        for name, column, width, pad, names in self._columns:
            values, starts, lengths = found[name], entries.starts[:, column], entries.lengths[:, column]
            _check_pieces(starts, lengths, values.lengths)
            pieces = _Pieces(entries, lengths + added, len(rows), width, self.segment_multiple)
            item = np.full(values.shape, pad, values.dtype)
            begins, memory = values.addresses + starts * values.row_bytes, values.regions[0].memory
            bos = self._bos(name, values.dtype, memory, begins, entries)
            columns[name] = pieces.joined(memory, begins, item, bos, values)
            columns |= self._about_segments(names, entries, lengths + added, pieces, len(rows))
        return columns

    def _about_segments(
        self, names: Sequence[str], entries: _Entries, lengths: Indices, pieces: _Pieces, rows: int
    ) -> dict[str, InMemory]:
        """The columns of these names: segment ids and positions, or lengths."""
        if not self._gives_lengths:
            made = (pieces.segment_ids, pieces.positions(self._numbers[pieces.segment_ids.width]))
            return dict(zip(names, made, strict=True))
        found = np.zeros((rows, self._most_lengths), np.int32)
        found[entries.row_of_entry, entries.segments - 1] = lengths
        return {names[0]: _Lengths(found)}

    def _gather(self, rows: Indices, shapes: Shapes) -> Batch:
        entries = self._entries(rows)
        there = self._entries_there(entries)
        read = columns_of(self.split, [name for name, *_ in self._columns], there.records)
        batch: Batch = {}
        added = self._plan.added(entries.starts)[:, 0]
        for name, column, width, pad, names in self._columns:
            values, whole = read[name]
            assert whole is not None  # plans hold only ragged features
            starts, lengths = there.starts[:, column], there.lengths[:, column]
            _check_pieces(starts, lengths, whole)
            pieces = _Pieces(entries, entries.lengths[:, column] + added, len(rows), width, self.segment_multiple)
            _, *inner = shapes.get(name, (width, *values.shape[1:]))
            begins = np.cumsum(whole) - whole + starts
            if values.dtype == object or values.shape[1:] != tuple(inner):
                batch[name] = np.full((len(rows), width, *inner), pad, values.dtype)
                put_into(batch[name], pieces.segment_ids.rows(0, len(rows)) > 0, values[ranges(begins, lengths)])
            else:
                item = np.full(inner, pad, values.dtype)
                if len(begins) < len(entries.records):
                    begins, some = np.full(len(entries.records), -1), begins
                    begins[entries.are_there] = some
                memory, begins = _bytes_of(values), begins * item.nbytes
                bos = self._bos(name, values.dtype, memory, begins, entries)
                batch[name] = pieces.joined(memory, begins, item, bos).rows(0, len(rows))
            about = self._about_segments(names, entries, entries.lengths[:, column] + added, pieces, len(rows))
            batch |= {each: made.rows(0, len(rows)) for each, made in about.items()}
        return batch

    def _bos(self, name: str, dtype: np.dtype, memory: memoryview, begins: Indices, entries: _Entries) -> _Bos | None:
        """What begins the segments of a feature; None without BOS.

        Raises `LoaderError` for a record that does not begin as the plan says: with BOS, or without it.
        """
        plan = self._plan
        if plan.bos_ids is None:
            return None
        value = np.array(plan.bos_ids[name], dtype)
        if value != 0 or len(plan.features) == 1:  # other features than the tokens have 0
            firsts = np.flatnonzero((entries.starts[:, 0] == 0) & (begins >= 0))
            places = begins[firsts, None] + np.arange(dtype.itemsize)
            found = np.frombuffer(memory, np.uint8)[places].view(dtype)[:, 0]
            wrong = np.flatnonzero((found == value) != plan.bos_stored)
            if len(wrong):
                record = int(entries.records[firsts[wrong[0]]])
                stored = plan.bos_stored
                raise LoaderError(
                    f"the plan says that records are stored {'with' if stored else 'without'} bos_id={value} in front, "
                    f"and {name!r} of record {record} begins with {found[wrong[0]]}. If all do, pack the split with "
                    f"bos_stored={not stored}; else build the cache with one kind of record.",
                    feature=name,
                    record=record,
                )
        return _Bos(value, (plan.added(entries.starts)[:, 0] > 0) & entries.are_there)


def _entries_of(plan: PackingPlan, rows: Indices) -> _Entries:
    first = plan.bin_offsets[rows].astype(np.int64)
    counts = plan.bin_offsets[rows + 1].astype(np.int64) - first
    entries = ranges(first, counts)
    return _Entries(
        segments=ranges(np.ones(len(rows), np.int64), counts),
        records=plan.records[entries].astype(np.int64),
        row_of_entry=np.repeat(np.arange(len(rows)), counts),
        starts=plan.starts[entries].astype(np.int64),
        lengths=plan.lengths[entries].astype(np.int64),
    )


def _of_epoch(plan: PackingPlan, epoch: int) -> PackingPlan:
    if not epoch:
        return plan
    assert plan.split is not None  # checked by `PackedRows`
    return plan_of_epoch(plan.split, plan.sequence_lengths, plan, epoch)


def _check_pieces(starts: Indices, lengths: Indices, whole: Indices) -> None:
    """Raises `CorruptIndexError` if a plan takes more of a record than there is."""
    beyond = starts + lengths > whole
    if beyond.any():
        entry = int(np.argmax(beyond))
        raise CorruptIndexError(
            f"the packing plan takes values {int(starts[entry])} to {int(starts[entry] + lengths[entry])} of a record "
            f"that has {int(whole[entry])}. It is damaged: delete it and pack the split again."
        )


def give_lengths(sources: Sequence[Rows], most_segments: int | None) -> int:
    """Makes rows give the lengths of up to `most_segments` segments, and returns the width of rows."""
    packed = [rows for rows in sources if isinstance(rows, PackedRows)]
    if len(packed) < len(sources):
        raise LoaderError("segments='lengths' is for packed rows, and not all of these are. Pass pack(…), or omit it.")
    if most_segments is None:
        raise LoaderError(
            "segments='lengths' needs a maximum number of segments per row, but rows of concat_then_split with "
            "reshuffle_each_iteration=True have a different one in each epoch. Pass segments='ids', or a plan that is "
            "the same in each epoch."
        )
    return [rows.give_lengths_of(most_segments) for rows in packed][0]


def cu_seqlens_of(
    batch: Batch, *, most_segments: int | None = None, multiple: int = 1, width: int | None = None
) -> npt.NDArray[np.int32]:
    """Boundaries of all segments of the flattened batch, padding included: [[1, 1, 2, 0]] → [0, 2, 3, 4].

    If segments take a `multiple` of positions, the padding after each belongs to it: [[1, 0, 2, 2]], 2 → [0, 2, 4].
    With `most_segments` per row, always `rows · (most_segments + 1) + 1` of them: the end is repeated, as for segments
    without tokens. Three for the row above: [0, 2, 3, 4, 4]. For batches of lengths, `width` is that of rows.
    """
    kind = "segment_ids" if width is None else SEGMENT_LENGTHS
    names = [name for name in batch if name == kind or name.endswith(f"_{kind}")]
    if len(names) != 1:
        raise LoaderError(
            f"cu_seqlens needs rows packed from one feature, and these have {len(names)} columns of segment ids"
        )
    segments = batch[names[0]]
    if width is not None:
        ends = np.full((len(segments), segments.shape[1] + 1), width, np.int32)
        rounded_up(segments, multiple).cumsum(axis=1, out=ends[:, :-1])
        ends += np.arange(0, ends.shape[0] * width, width, dtype=np.int32)[:, None]
        found = _distinct(np.append(np.int32(0), ends))
    else:
        starts = np.ones(segments.shape, bool)
        np.not_equal(segments[:, 1:], segments[:, :-1], out=starts[:, 1:])
        found = np.append(np.flatnonzero(starts), segments.size).astype(np.int32)
        if multiple > 1:
            found = _distinct(-(-found // multiple) * multiple)
    if most_segments is None:
        return found
    bounds = np.full(len(segments) * (most_segments + 1) + 1, found[-1], np.int32)
    bounds[: len(found)] = found
    return bounds


def _distinct(ascending: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Each of these numbers once, as `np.unique` gives them, which sorts them: 3 µs in place of 8."""
    found: npt.NDArray[np.int32] = ascending[np.append(True, ascending[1:] != ascending[:-1])]
    return found
