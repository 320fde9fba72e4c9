"""A cached split for prefix language models: the parts of each record joined, to be packed by a plan."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import known
from beam_pipes.errors import TaskError
from beam_pipes.format.spec import ExampleSpec, FeatureSpec
from beam_pipes.loader.columns import Column, columns_of
from beam_pipes.loader.row_source import MeasuredSplit, one_split
from beam_pipes.transforms.converters.rows import parts_with_ends

Array = np.ndarray


class JoinedSplit:
    """Offers "targets" (the `parts` of a record, joined) and where the parts end, to be packed and read.

    ```
    split = JoinedSplit(Cache.open(path)["train"])
    plan = pack(split, sequence_length=dict.fromkeys(split.features, 1024))
    for batch in Loader(plan, batch_size=32):
        features = PrefixLMFeatureConverter().convert_rows(batch)
    ```

    Planned over the joined length, rows have no more padding than with one feature (0.1 % for ordinary lengths);
    planning each part by its own limit gives more. Nothing is copied or rewritten: parts are joined as rows are read.

    Args:
        split: a split of a cache, its path, or anything read like one.
        parts: features to join, in order.
        passthrough: further features, offered unchanged.

    Raises:
        TaskError: the split lacks a part, or parts are not sequences of the same integer dtype.
    """

    def __init__(
        self,
        split: MeasuredSplit | str | os.PathLike[str],
        parts: Sequence[str] = ("inputs", "targets"),
        *,
        passthrough: Sequence[str] = (),
    ) -> None:
        self._split = split = one_split(split, "JoinedSplit")
        self._parts = tuple(parts)
        dtypes = {}
        for part in self._parts:
            spec = split.spec.get(part)
            if spec is None or spec.shape != (None,) or np.dtype(spec.dtype).kind not in "iu":
                raise TaskError(
                    f"joining needs sequences of integers {', '.join(map(repr, self._parts))}; feature {part!r} of "
                    f"split {split.name!r} is {spec}, and its features are {sorted(split.spec)}",
                    feature=part,
                )
            dtypes[part] = np.dtype(spec.dtype)
        self._dtype = np.result_type(*dtypes.values())
        self._ends = tuple(f"{part}_ends" for part in parts_with_ends(self._parts))
        self.features = ("targets", *self._ends, *passthrough)
        ends = FeatureSpec("int32", shape=(None,))
        self.spec = ExampleSpec(
            {
                "targets": FeatureSpec(self._dtype.name, shape=(None,)),
                **dict.fromkeys(self._ends, ends),
                **{name: split.spec[name] for name in passthrough},
            }
        )
        self.name = split.name
        self.draws_anew = bool(getattr(split, "draws_anew", False))

    def __len__(self) -> int:
        return len(self._split)

    def __repr__(self) -> str:
        return f"JoinedSplit({self._split!r}, parts={self._parts})"

    @property
    def manifest_id(self) -> str:
        """The id of the split's manifest and the parts, so that plans for other parts differ."""
        return f"{self._split.manifest_id}+{'+'.join(self._parts)}"

    @property
    def shard_sizes(self) -> npt.NDArray[np.int64]:
        """Records of each shard."""
        sizes: npt.NDArray[np.int64] = self._split.shard_sizes
        return sizes

    def parts_of(self, feature: str) -> Sequence[str]:
        """The features of the split whose tokens a feature holds: none for the marks of ends."""
        self._check(feature)
        if not self._is_joined(feature):
            return (feature,)
        return self._parts if feature == "targets" else ()

    def lengths(self, feature: str, indices: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """(n,) int64: the joined length of every record, or of those given, the same for all joined features."""
        self._check(feature)
        if not self._is_joined(feature):
            own: npt.NDArray[np.int64] = self._split.lengths(feature, indices)
            return own
        total: npt.NDArray[np.int64] = np.sum(
            [self._split.lengths(part, indices) for part in self._parts], axis=0, dtype=np.int64
        )
        return total

    def gather_values(self, feature: str, indices: Array) -> tuple[Array, npt.NDArray[np.int64]]:
        """The values of a feature for some records, concatenated, and their lengths."""
        values, lengths = self.columns_of([feature], np.asarray(indices, np.int64))[feature]
        assert lengths is not None  # all features of a joined split are ragged, except passthrough features
        return values, lengths

    def columns_of(self, features: Sequence[str], records: npt.NDArray[np.int64]) -> dict[str, Column]:
        """Several features of some records; the parts are read once for all of them."""
        for feature in features:
            self._check(feature)
        passed_on = [name for name in features if not self._is_joined(name)]
        read = columns_of(self._split, [*self._parts, *passed_on], records)
        lengths = np.stack([np.asarray(read[part].lengths, np.int64) for part in self._parts])
        totals: npt.NDArray[np.int64] = lengths.sum(axis=0)
        columns = {}
        for name in features:
            if name in passed_on:
                columns[name] = read[name]
            elif name in self._ends:
                end = lengths[: self._ends.index(name) + 1].sum(axis=0)
                columns[name] = Column(np.repeat(end, totals).astype(np.int32), totals)
            else:
                columns[name] = Column(self._joined([read[part].values for part in self._parts], lengths), totals)
        return columns

    def _joined(self, parts: Sequence[Array], lengths: npt.NDArray[np.int64]) -> Array:
        totals = lengths.sum(axis=0)
        joined = np.empty(int(totals.sum()), self._dtype)
        begins = np.cumsum(totals) - totals
        for values, part_lengths in zip(parts, lengths, strict=True):
            # Value k of the part belongs `begins - (values of the part before)` places further in the joined row.
            moved = begins - (np.cumsum(part_lengths) - part_lengths)
            joined[np.arange(len(values)) + np.repeat(moved, part_lengths)] = values
            begins = begins + part_lengths
        return joined

    def _is_joined(self, feature: str) -> bool:
        return feature == "targets" or feature in self._ends

    def _check(self, feature: str) -> None:
        known(feature, among=self.features, what="feature", where=repr(self), error=TaskError, feature=feature)
