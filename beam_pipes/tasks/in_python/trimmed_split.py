"""A split behind the steps that work on columns: EOS, truncation, trimming to the lengths of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.spec import ExampleSpec, FeatureSpec
from beam_pipes.loader.columns import Column, columns_of
from beam_pipes.tasks.token_column import TokenColumn

Int64 = npt.NDArray[np.int64]
ColumnStep = Callable[[Mapping[str, TokenColumn]], Mapping[str, TokenColumn]]


class TrimmedSplit:
    """What column steps make of a split: read like a split. Nothing is copied or rewritten before it is read.

    Args:
        split: a split of a cache, or anything read like one.
        steps: applied in order to the features that have a leading dimension.
        features: names of the features that are read.
        identity: what the steps depend on, in a few characters.
    """

    def __init__(self, split: Any, steps: Sequence[ColumnStep], features: Sequence[str], *, identity: str) -> None:
        self._split = split
        self._steps = tuple(steps)
        self.name = split.name
        self.manifest_id = f"{split.manifest_id}+{identity}"
        self.draws_anew = bool(getattr(split, "draws_anew", False))
        specs: dict[str, FeatureSpec] = {}
        for name in features:
            spec = split.spec[name]
            # A fixed sequence may be cut, or get an EOS: from here on its length varies.
            specs[name] = _with_shape(spec, (None, *spec.shape[1:])) if spec.shape else spec
        self.spec = ExampleSpec(specs)

    def __len__(self) -> int:
        return len(self._split)

    def __repr__(self) -> str:
        return f"TrimmedSplit({self._split!r})"

    @property
    def shard_sizes(self) -> Int64:
        """Records of each shard."""
        sizes: Int64 = self._split.shard_sizes
        return sizes

    def counted(self, feature: str) -> TokenColumn:
        """A feature of all records, without its values: its lengths, and what was cut off and put in."""
        column = TokenColumn(np.asarray(self._split.lengths(feature), np.int64))
        return self._stepped({feature: column})[feature]

    def lengths(self, feature: str, indices: Int64 | None = None) -> Int64:
        """(n,) int64: the leading dimension of a feature of every record, or of those given."""
        if indices is None:
            return self.counted(feature).lengths
        column = TokenColumn(np.asarray(self._split.lengths(feature, indices), np.int64))
        return self._stepped({feature: column})[feature].lengths

    def gather_values(self, feature: str, indices: npt.ArrayLike) -> tuple[npt.NDArray[Any], Int64]:
        """The values of a feature for some records, concatenated, and their lengths."""
        values, lengths = self.columns_of([feature], np.asarray(indices, np.int64))[feature]
        assert lengths is not None
        return values, lengths

    def columns_of(self, features: Sequence[str], records: Int64) -> dict[str, Column]:
        """Features of some records."""
        read = columns_of(self._split, features, records)
        columns = {name: _token_column(column) for name, column in read.items() if self.spec[name].shape}
        stepped = self._stepped(columns)
        made = {}
        for name in features:
            if name in stepped:
                values = stepped[name].values
                assert values is not None
                made[name] = Column(values, stepped[name].lengths)
            else:
                made[name] = read[name]
        return made

    def _stepped(self, columns: Mapping[str, TokenColumn]) -> Mapping[str, TokenColumn]:
        for step in self._steps:
            columns = step(columns)
        return columns


def _token_column(column: Column) -> TokenColumn:
    values, lengths = column
    if lengths is None:  # a fixed sequence
        lengths = np.full(len(values), values.shape[1], np.int64)
        values = values.reshape(-1, *values.shape[2:])
    return TokenColumn(np.asarray(lengths, np.int64), values)


def _with_shape(spec: FeatureSpec, shape: tuple[int | None, ...]) -> FeatureSpec:
    return FeatureSpec(spec.dtype, shape=shape)
