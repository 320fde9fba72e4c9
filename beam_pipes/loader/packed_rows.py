"""Rows of a fixed length: one record each, padded (`PaddedRows`), or several, packed by a plan (`PackedRows`).

    records [5, 6, 7], [8, 9]   padded to 5   [5, 6, 7, 0, 0] and [8, 9, 0, 0, 0]
                                packed in 6   [5, 6, 7, 8, 9, 0], segment_ids [1, 1, 1, 2, 2, 0]

Both give the same columns, so that a consumer of one can read the other. Streams gather them as they gather the records
of a split (`SplitRows`); `cu_seqlens_of` turns segment ids into the boundaries that attention kernels take.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import CorruptIndexError, LoaderError
from beam_pipes.loader.batches import Batch, fills_of, ranges
from beam_pipes.loader.columns import Column, columns_of, entries_left, put_into, read_consistently, rows_of, widest_row
from beam_pipes.loader.order import Indices
from beam_pipes.loader.packing.pack import plan_of_epoch
from beam_pipes.loader.packing.plan import PackingPlan, rounded_up
from beam_pipes.loader.row_source import PaddedSplit
from beam_pipes.loader.rows import ColumnSpec, GatherOptions, Shapes, checked_name, varying
from beam_pipes.loader.state import Identity

_KNOWN = ColumnSpec(dtype="int32", shape=())


class PaddedRows:
    """The rows of a `PaddedSplit`."""

    most_segments: int | None = 1
    segment_multiple: int = 1

    def __init__(self, padded: PaddedSplit, options: GatherOptions) -> None:
        if options.ragged != "pad" or options.pad_to is not None:
            raise LoaderError("rows of a PaddedSplit have its sequence lengths; leave out ragged= and pad_to=")
        unknown = sorted(set(options.features or ()) - set(padded.sequence_lengths))
        if unknown:
            raise LoaderError(
                f"these rows have no feature {unknown[0]!r}; they have: {', '.join(padded.sequence_lengths)}",
                feature=unknown[0],
            )
        self._padded = padded
        self.split = self._split = padded.split
        self.size = len(padded.split)
        self.features = options.features or tuple(padded.sequence_lengths)
        self.fills = fills_of(padded.split.spec, self.features, options.pad_value)
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

    @property
    def block_sizes(self) -> Indices:
        return np.asarray(self._split.shard_sizes, np.int64)

    def costs(self, epoch: int) -> Indices:
        raise LoaderError(
            "BalancedShuffle balances rows of different cost, and rows of a PaddedSplit all have the same lengths. "
            "Pass shuffle=True."
        )

    def identity(self) -> dict[str, Any]:
        return dataclasses.asdict(Identity.of_split(self._split))

    def will_need(self, blocks: Indices) -> None:
        """Does nothing: the split is local."""

    def check_room(self, windows: Sequence[Indices]) -> None:
        """Does nothing: the split is local."""

    def widest(self, rows: Indices) -> Shapes:
        found: dict[str, tuple[int, ...]] = {}
        for name in self._varying:
            own, length = widest_row(self._split, name, rows), self._padded.sequence_lengths[name]
            found[name] = own if length is None else (length, *own[1:])
            for added in ("segment_ids", "positions"):
                if None in self.columns.get(f"{name}_{added}", _KNOWN).shape:
                    found[f"{name}_{added}"] = own[:1]
        return found

    def gather(self, rows: Indices, shapes: Shapes | None = None) -> Batch:
        return read_consistently([self._split], lambda: self._gather(rows, shapes or {}))

    def _gather(self, rows: Indices, shapes: Shapes) -> Batch:
        batch: Batch = {}
        for name, (values, lengths) in columns_of(self._split, self.features, rows).items():
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

    def _cut(self, name: str, rows: Indices, values: Any, lengths: Any, width: int) -> tuple[Any, Any]:
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
    """Pieces of records, in the order of rows; `starts` and `lengths` have a column for each feature of the plan."""

    segments: Indices
    records: Indices
    row_of_entry: Indices
    starts: Indices
    lengths: Indices

    def some(self, which: npt.NDArray[Any]) -> _Entries:
        return _Entries(*(each[which] for each in self))


class PackedRows:
    """The bins of a plan: tokens, segment ids (from 1 in a row, 0 on padding), positions (from 0 in a segment).

    Records [5, 6, 7] and [8, 9] in a row of 6:

        tokens       [5, 6, 7, 8, 9, 0]
        segment_ids  [1, 1, 1, 2, 2, 0]
        positions    [0, 1, 2, 0, 1, 0]

    A taken-down record leaves its row; the others close up and keep their segment numbers: without [5, 6, 7]

        tokens       [8, 9, 0, 0, 0, 0]
        segment_ids  [2, 2, 0, 0, 0, 0]

    With `segment_multiple=4` in a row of 8, each segment takes a multiple of 4 positions:

        tokens       [5, 6, 7, 0, 8, 9, 0, 0]
        segment_ids  [1, 1, 1, 0, 2, 2, 0, 0]

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
        unknown = sorted(set(options.features or ()) - set(plan.features))
        if unknown:
            raise LoaderError(
                f"the packing plan has no feature {unknown[0]!r}; it has: {', '.join(plan.features)}",
                feature=unknown[0],
            )
        self._plan = plan
        self.draws_anew = plan.reshuffle_each_iteration
        self.of_epoch: Callable[[int], PackingPlan] = functools.lru_cache(maxsize=2)(functools.partial(_of_epoch, plan))
        self.split = self._split = plan.split
        self.features = options.features or plan.features
        self.size = len(plan)
        self.fills = fills_of(plan.split.spec, self.features, options.pad_value)
        self._columns = []
        columns: dict[str, ColumnSpec] = {}
        for name in self.features:
            spec = plan.split.spec[name]
            columns[name] = ColumnSpec(dtype=spec.dtype, shape=(plan.sequence_lengths[name], *spec.shape[1:]))
            pad = self.fills[name]
            prefix = "" if len(plan.features) == 1 else f"{name}_"
            added = tuple(checked_name(prefix + what, self.features) for what in ("segment_ids", "positions"))
            columns |= dict.fromkeys(added, ColumnSpec(dtype="int32", shape=columns[name].shape[:1]))
            self._columns.append((name, plan.features.index(name), plan.sequence_lengths[name], pad, added))
        self.columns = columns

    @property
    def block_sizes(self) -> Indices:
        raise LoaderError(
            "packed rows draw records from anywhere, so a block-wise shuffle cannot bound what they read; "
            "pack each shard group into its own split, or use shuffle=True on a local copy"
        )

    def costs(self, epoch: int) -> Indices:
        plan = self.of_epoch(epoch if self.draws_anew else 0)
        squares = (plan.lengths.astype(np.int64) ** 2).sum(axis=1)
        ends = np.concatenate(([0], np.cumsum(squares)))[plan.bin_offsets.astype(np.int64)]
        return np.asarray(np.diff(ends), np.int64)

    def identity(self) -> dict[str, Any]:
        source = self._plan.source
        return {"manifest": source.manifest, "split": source.split, "rows": self.size, "plan": self._plan.digest}

    def will_need(self, blocks: Indices) -> None:
        """Does nothing: blocks of packed rows are unknown."""

    def check_room(self, windows: Sequence[Indices]) -> None:
        """Does nothing: blocks of packed rows are unknown."""

    def widest(self, rows: Indices) -> Shapes:
        names = varying(self.columns)
        records = self._entries(rows).records if names else rows
        return {
            name: (self._plan.sequence_lengths[name], *widest_row(self._split, name, records)[1:]) for name in names
        }

    def gather(self, rows: Indices, shapes: Shapes | None = None) -> Batch:
        return read_consistently([self._split], lambda: self._gather(rows, shapes or {}))

    @property
    def most_segments(self) -> int | None:
        return self._plan.most_segments

    @property
    def segment_multiple(self) -> int:
        return self._plan.segment_multiple

    def plan_of(self, row: int) -> tuple[PackingPlan, int]:
        """The plan of a row, and the row's number in it: plans that are repacked have one for each epoch."""
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
            if len(parts) > 1:  # a mixture, whose passes over this source meet in a batch
                found = _Entries(*(np.concatenate(each) for each in zip(*parts, strict=True)))
                found = found.some(np.argsort(found.row_of_entry, kind="stable"))
        left = entries_left(self._split, found.records)
        return found if left is None else found.some(left)

    def _gather(self, rows: Indices, shapes: Shapes) -> Batch:
        segments, records, row_of_entry, all_starts, all_lengths = self._entries(rows)
        read = columns_of(self._split, [name for name, *_ in self._columns], records)
        ends = np.searchsorted(row_of_entry, np.arange(len(rows)), side="right")
        batch: Batch = {}
        multiple = self.segment_multiple
        for name, column, width, pad, (segment_name, position_name) in self._columns:
            starts, lengths = all_starts[:, column], all_lengths[:, column]
            values = _pieces(read[name], starts, lengths)
            _, *inner = shapes.get(name, (width, *values.shape[1:]))
            if multiple == 1:
                # Entries of a row follow each other without gaps: its tokens are the first `total` places.
                totals = np.bincount(row_of_entry, weights=lengths, minlength=len(rows)).astype(np.int64)
                batch[name] = rows_of(values, totals, width, inner=inner, fill=pad)
                # With what is left of each row as one more run, runs follow each other without gaps over all rows.
                runs = np.insert(lengths, ends, width - totals)
                numbers = np.insert(segments.astype(np.int32), ends, 0)
                begins = (np.cumsum(runs) - runs).astype(np.int32)
                batch[segment_name] = np.repeat(numbers, runs).reshape(len(rows), width)
                positions = np.arange(len(rows) * width, dtype=np.int32)
                positions -= np.repeat(begins, runs)
                batch[position_name] = positions.reshape(len(rows), width)
                for row in np.flatnonzero(totals < width).tolist():
                    batch[position_name][row, totals[row] :] = 0
                continue
            taken = rounded_up(lengths, multiple)
            first_of_row = np.searchsorted(row_of_entry, row_of_entry)  # entries are in the order of rows
            before = np.cumsum(taken) - taken
            filled = np.zeros((len(rows), width), bool)
            filled.reshape(-1)[ranges(row_of_entry * width + before - before[first_of_row], lengths)] = True
            batch[name] = np.full((len(rows), width, *inner), pad, values.dtype)
            put_into(batch[name], filled, values)
            for added, flat in (
                (segment_name, np.repeat(segments.astype(np.int32), lengths)),
                (position_name, ranges(np.zeros(len(lengths), np.int64), lengths).astype(np.int32)),
            ):
                batch[added] = np.zeros((len(rows), width), np.int32)
                batch[added][filled] = flat
        return batch


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
    return plan_of_epoch(
        plan.split,
        limits=plan.sequence_lengths,
        algorithm=plan.algorithm,
        overlong=plan.overlong,
        max_segments=plan.max_segments,
        segment_multiple=plan.segment_multiple,
        seed=plan.seed,
        reshuffle_each_iteration=True,
        epoch=epoch,
    )


def _pieces(column: Column, starts: Indices, lengths: Indices) -> npt.NDArray[Any]:
    """The planned pieces of all entries, concatenated; most often they are whole records."""
    values, whole = column
    assert whole is not None  # plans hold ragged features only
    if np.array_equal(whole, lengths):
        return np.asarray(values)
    if (starts + lengths > whole).any():
        entry = int(np.argmax(starts + lengths > whole))
        raise CorruptIndexError(
            f"the packing plan takes values {int(starts[entry])} to {int(starts[entry] + lengths[entry])} of a record "
            f"that has {int(whole[entry])}. It is damaged: delete it and pack the split again."
        )
    begins = np.cumsum(whole) - whole
    return np.asarray(values[ranges(begins + starts, lengths)])


def cu_seqlens_of(batch: Batch, *, most_segments: int | None = None, multiple: int = 1) -> npt.NDArray[np.int32]:
    """Boundaries of all segments of the flattened batch, padding included: [[1, 1, 2, 0]] → [0, 2, 3, 4].

    If segments take a `multiple` of positions, the padding after each belongs to it: [[1, 0, 2, 2]], 2 → [0, 2, 4].
    With `most_segments` of a row, always `rows · (most_segments + 1) + 1` of them: the end is repeated, as that of
    segments without tokens. Three for the row above: [0, 2, 3, 4, 4].
    """
    names = [name for name in batch if name == "segment_ids" or name.endswith("_segment_ids")]
    if len(names) != 1:
        raise LoaderError(
            f"cu_seqlens needs rows packed from one feature, and these have {len(names)} columns of segment ids"
        )
    segments = batch[names[0]]
    if not segments.size:
        return np.zeros(1, np.int32)
    starts = np.ones(segments.shape, bool)
    np.not_equal(segments[:, 1:], segments[:, :-1], out=starts[:, 1:])
    found = np.append(np.flatnonzero(starts), segments.size).astype(np.int32)
    if multiple > 1:
        found = np.unique(-(-found // multiple) * multiple).astype(np.int32)
    if most_segments is None:
        return found
    bounds = np.full(len(segments) * (most_segments + 1) + 1, segments.size, np.int32)
    bounds[: len(found)] = found
    return bounds
