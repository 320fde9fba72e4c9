"""Packed rows of sequences that another library reads: packing by an index alone, for Megatron's files.

    train_tokens_document.bin, .idx  ──IndexedDataset──►  sequences  ─┐
                                                  rows-8192.plan  ────┴─PackedSequences──►  tokens, labels, loss_mask, …

An export for Megatron has the records of a split as sequences, in its order, so a plan of the split fits. One export
serves any number of plans: row lengths, seeds, with BOS or without.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from beam_pipes.errors import LoaderError
from beam_pipes.format.dtypes import Array
from beam_pipes.format.spec import FeatureSpec
from beam_pipes.loader.columns import Column
from beam_pipes.loader.order import Indices
from beam_pipes.loader.packed_rows import PackedRows, cu_seqlens_of
from beam_pipes.loader.packing.plan import PackingPlan
from beam_pipes.loader.rows import GatherOptions


class Sequences(Protocol):
    """Arrays of shape (length,) by their number, such as Megatron's `IndexedDataset`.

    Without `sequence_lengths`, which that has, all arrays are read once for their lengths.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Array: ...


class PackedSequences:
    """The rows of a packing plan as a map-style dataset with the keys of Megatron's `GPTDataset`.

    `PackedSequences(IndexedDataset("out/train_tokens_document"), "rows-8.plan")[0]`, of a row of [5, 6, 7] and [8, 9] →

        tokens        [5, 6, 7, 8, 9, 0, 0, 0]   int64, padded with `pad_id`
        labels        [6, 7, 0, 9, 0, 0, 0, 0]   int64, the next token of the same segment
        loss_mask     [1, 1, 0, 1, 0, 0, 0, 0]   float32, 0 where there is no such token
        position_ids  [0, 1, 2, 0, 1, 0, 0, 0]   int64, from 0 in each segment
        cu_seqlens    [0, 3, 5, 8]               int32, the segments' boundaries and that of the padding
        max_seqlen    3                          int32, the longest of them

    `cu_seqlens` has one length in all rows of a plan, `plan.most_segments + 2`, by repeating the last boundary.

    Args:
        sequences: the exported tokens. The plan's first feature is the tokens.
        plan: a plan of the split that was exported, or its file.
        loss_weights: the exported weights of the loss, the plan's second feature; the weight of a token is that of
            predicting it.
        pad_id: the token that fills rows.

    Raises `LoaderError` if there are more or fewer sequences or tokens than the plan was made for.
    """

    def __init__(
        self,
        sequences: Sequences,
        plan: PackingPlan | str | os.PathLike[str],
        *,
        loss_weights: Sequences | None = None,
        pad_id: int = 0,
    ) -> None:
        self.plan = plan if isinstance(plan, PackingPlan) else PackingPlan.load(plan)
        given = [sequences] if loss_weights is None else [sequences, loss_weights]
        if len(given) != len(self.plan.features):
            raise LoaderError(
                f"the plan is of {', '.join(self.plan.features)}: tokens, and perhaps weights of the loss, and "
                f"{len(given)} of them {'is' if len(given) == 1 else 'are'} given. Pass loss_weights=… for two."
            )
        self._split = _Split(self.plan, dict(zip(self.plan.features, given, strict=True)))
        self._pad_id, self._most_segments = pad_id, self.plan.most_segments
        #: Selects the packing of an epoch, if the plan repacks in each.
        self.epoch = 0

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_rows"}

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, index: int) -> dict[str, Array]:
        row = range(len(self))[index]  # raises IndexError
        if self._rows.draws_anew:
            row += self.epoch * len(self)
        batch = {name: column[0] for name, column in self._rows.gather(np.array([row])).items()}
        name, *others = self.plan.features
        prefix = f"{name}_" if others else ""
        tokens, segments = batch[name].astype(np.int64), batch[f"{prefix}segment_ids"]
        has_next = np.append((segments[1:] == segments[:-1]) & (segments[1:] > 0), False)
        loss_mask = has_next.astype(np.float32)
        for weights in others:
            loss_mask *= np.append(batch[weights][1:], 0).astype(np.float32)
        bounds = cu_seqlens_of({"segment_ids": segments[None]}, most_segments=self._most_segments)
        return {
            "tokens": tokens,
            "labels": np.where(has_next, np.append(tokens[1:], self._pad_id), self._pad_id),
            "loss_mask": loss_mask,
            "position_ids": batch[f"{prefix}positions"].astype(np.int64),
            "cu_seqlens": bounds,
            "max_seqlen": np.diff(bounds).max(initial=0),
        }

    @functools.cached_property
    def _rows(self) -> PackedRows:
        options = GatherOptions(pad_value={self.plan.features[0]: self._pad_id})
        return PackedRows(self.plan.bind(self._split), options)


class _Split:
    """Sequences in place of the split that a plan was made for."""

    def __init__(self, plan: PackingPlan, sequences: Mapping[str, Sequences]) -> None:
        self.name, self.manifest_id = plan.source.split, plan.source.manifest
        self._sequences = sequences
        self.spec: dict[str, FeatureSpec] = {}
        for name, each in sequences.items():
            found, total = len(each), int(self.lengths(name).sum())
            if (found, total) != (plan.source.rows, plan.totals[name].tokens_in):
                raise LoaderError(
                    f"the plan was made for {plan.source.rows:,} records with {plan.totals[name].tokens_in:,} values "
                    f"of {name!r}, and there are {found:,} sequences with {total:,}. Export the snapshot that was "
                    "packed. If records of it were taken down, which an export leaves out, build it again first.",
                    feature=name,
                )
            self.spec[name] = FeatureSpec(each[0].dtype.name if found else "int32", shape=(None,))

    def __len__(self) -> int:
        return len(next(iter(self._sequences.values())))

    @property
    def shard_sizes(self) -> Indices:
        return np.array([len(self)])

    def lengths(self, feature: str, indices: Array | None = None) -> Array:
        sequences = self._sequences[feature]
        known = getattr(sequences, "sequence_lengths", None)
        lengths = np.asarray([len(sequences[i]) for i in range(len(sequences))] if known is None else known, np.int64)
        return lengths if indices is None else lengths[indices]

    def columns_of(self, features: Sequence[str], records: Indices) -> dict[str, Column]:
        columns = {}
        for name in features:
            read = [np.asarray(self._sequences[name][number]) for number in records.tolist()]
            values = np.concatenate([np.empty(0, self.spec[name].numpy_dtype), *read])
            columns[name] = Column(values, np.array([len(each) for each in read], np.int64))
        return columns
