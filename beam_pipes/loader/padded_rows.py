"""Rows of one record each, padded to a fixed length: what packed rows are, without packing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import LoaderError
from beam_pipes.loader.batches import Batch, fills_of
from beam_pipes.loader.columns import columns_of, put_into, widest_row
from beam_pipes.loader.identity import Identity
from beam_pipes.loader.order import Indices
from beam_pipes.loader.rows import ColumnSpec, GatherOptions, Shapes, checked_name
from beam_pipes.loader.taken_down import read_consistently

_KNOWN = ColumnSpec(dtype="int32", shape=())


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PaddedSplit:
    """Records of a split as rows of fixed length; passed to `Loader` in place of a split.

    Record [5, 6, 7] in a row of 5: tokens [5, 6, 7, 0, 0], tokens_segment_ids [1, 1, 1, 0, 0], tokens_positions
    [0, 1, 2, 0, 0]: the columns that a `PackingPlan` of several features gives, so that what reads those reads these.

    split: the split, or anything read like one.
    sequence_lengths: feature → length of its leading dimension in a row; None leaves it as it is: a fixed shape, or a
        ragged feature padded to the longest row of the global batch. Only these features are read.
    segments: adds the segment ids and positions of ragged features.
    overlong: a record longer than its row is an error ("error"), or cut off ("truncate").
    """

    split: Any
    sequence_lengths: Mapping[str, int | None]
    segments: bool = True
    overlong: str = "error"

    def __post_init__(self) -> None:
        if self.overlong not in ("error", "truncate"):
            raise LoaderError(f"unknown policy overlong={self.overlong!r}; choose one of: error, truncate")
        if not self.sequence_lengths:
            raise LoaderError("sequence_lengths={} names no feature; pass {name: length}, or None for a length")
        for name, length in self.sequence_lengths.items():
            if name not in self.split.spec:
                raise LoaderError(
                    f"split {self.split.name!r} has no feature {name!r}; it has: {', '.join(sorted(self.split.spec))}",
                    feature=name,
                )
            spec = self.split.spec[name]
            if length is not None and spec.shape[:1] not in ((None,), (length,)):
                raise LoaderError(
                    f"the leading dimension of feature {name!r} is fixed by its shape {spec.shape} and cannot be "
                    f"padded to {length}; leave its length out",
                    feature=name,
                )

    def __len__(self) -> int:
        return len(self.split)


class PaddedRows:
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

    def identity(self) -> dict[str, Any]:
        return dataclasses.asdict(Identity.of_split(self._split))

    def will_need(self, blocks: Indices) -> None:
        """Nothing: the split is at hand."""

    def check_room(self, windows: Sequence[Indices]) -> None:
        """Nothing: the split is at hand."""

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
            inside = np.arange(width, dtype=np.int32) < lengths[:, None]
            batch[name] = np.full((len(rows), width, *inner), self.fills[name], values.dtype)
            put_into(batch[name], inside, values)
            if self._padded.segments:
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
