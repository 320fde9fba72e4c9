"""A cached split as a prefix language model reads it: the parts of each record joined, to be packed by a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.spec import ExampleSpec, FeatureSpec
from beam_pipes.errors import TaskError
from transforms.converters.rows import parts_with_ends

Array = npt.NDArray[Any]


class JoinedSplit:
    """Offers "targets" (the `parts` of a record, joined) and where the parts end, to be packed and read.

    ```
    split = JoinedSplit(Cache.open(path)["train"])
    plan = pack(split, sequence_length=dict.fromkeys(split.features, 1024))
    for batch in Loader(plan, batch_size=32):
        features = PrefixLMFeatureConverter().convert_rows(batch)
    ```

    Planned over the joined length, rows have no more padding than those of one feature (0.1 % on ordinary lengths); the
    parts planned each by its own limit have more. Nothing is copied or rewritten: parts are joined as rows are read.

    Raises:
        TaskError: the split lacks a part, or parts are no sequences of the same integers.
    """

    def __init__(self, split: Any, parts: Sequence[str] = ("inputs", "targets")) -> None:
        self._split = split
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
        self.features = ("targets", *(f"{part}_ends" for part in parts_with_ends(self._parts)))
        ends = FeatureSpec("int32", shape=(None,))
        self.spec = ExampleSpec(
            {"targets": FeatureSpec(self._dtype.name, shape=(None,)), **dict.fromkeys(self.features[1:], ends)}
        )
        self.name = split.name

    def __len__(self) -> int:
        return len(self._split)

    def __repr__(self) -> str:
        return f"JoinedSplit({self._split!r}, parts={self._parts})"

    @property
    def manifest_id(self) -> str:
        """The id of the split's manifest with the parts, so that plans of other parts are told apart."""
        return f"{self._split.manifest_id}+{'+'.join(self._parts)}"

    def lengths(self, feature: str) -> npt.NDArray[np.int64]:
        """(n,) int64: the joined length of every record, the same for all features."""
        self._check(feature)
        total: npt.NDArray[np.int64] = np.sum(
            [self._split.lengths(part) for part in self._parts], axis=0, dtype=np.int64
        )
        return total

    def gather_values(self, feature: str, indices: Array) -> tuple[Array, npt.NDArray[np.int64]]:
        """The values of a feature for some records, concatenated, and their lengths."""
        self._check(feature)
        indices = np.asarray(indices, np.int64)
        if feature != "targets":
            lengths = np.stack([self._split.lengths(part)[indices] for part in self._parts])
            last = self.features.index(feature)
            return np.repeat(lengths[:last].sum(axis=0), lengths.sum(axis=0)).astype(np.int32), lengths.sum(axis=0)
        gathered = [self._split.gather_values(part, indices) for part in self._parts]
        lengths = np.stack([np.asarray(part_lengths, np.int64) for _, part_lengths in gathered])
        totals = lengths.sum(axis=0)
        joined = np.empty(int(totals.sum()), self._dtype)
        begins = np.cumsum(totals) - totals
        for (values, _), part_lengths in zip(gathered, lengths, strict=True):
            # Value k of the part belongs `begins - (values of the part before)` places further in the joined row.
            moved = begins - (np.cumsum(part_lengths) - part_lengths)
            joined[np.arange(len(values)) + np.repeat(moved, part_lengths)] = values
            begins = begins + part_lengths
        return joined, totals

    def _check(self, feature: str) -> None:
        if feature not in self.features:
            raise TaskError(f"{self!r} has no feature {feature!r}; it has: {', '.join(self.features)}", feature=feature)
