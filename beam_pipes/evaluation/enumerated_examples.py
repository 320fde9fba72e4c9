"""A dataset of converted examples with their indices, in plain NumPy: what model functions get without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import EvaluationError

Example = Mapping[str, Any]


class EnumeratedExamples:
    """Pairs `(index, example)` that can be read again, batched and sharded like an enumerated `tf.data.Dataset`.

    `list(EnumeratedExamples([{"x": a}, {"x": b}]))` → `[(0, {"x": a}), (1, {"x": b})]`; `.batch(2)` yields
    `([0, 1], {"x": np.stack([a, b])})`; `.shard(num_shards=2, index=1)` holds `(1, {"x": b})`.
    """

    def __init__(self, examples: Sequence[Example], indices: Sequence[int] | None = None) -> None:
        self._examples = examples
        self._indices = range(len(examples)) if indices is None else indices

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[tuple[int, Example]]:
        return ((index, self._examples[index]) for index in self._indices)

    def as_numpy_iterator(self) -> Iterator[tuple[int, Example]]:
        """The same pairs; the name that `tf.data.Dataset` has for it."""
        return iter(self)

    def shard(self, num_shards: int, index: int) -> EnumeratedExamples:
        """Every `num_shards`-th pair, beginning with number `index`: the share of one host."""
        if not 0 <= index < num_shards:
            raise EvaluationError(f"a shard index should lie in 0..{num_shards - 1}, got {index}")
        return EnumeratedExamples(self._examples, self._indices[index::num_shards])

    def batch(self, batch_size: int) -> Iterator[tuple[npt.NDArray[np.int64], dict[str, Any]]]:
        """Arrays of up to `batch_size` indices and examples, features stacked; the last batch may be smaller."""
        if batch_size < 1:
            raise EvaluationError(f"batch_size should be at least 1, got {batch_size}")
        for start in range(0, len(self), batch_size):
            indices = np.asarray(self._indices[start : start + batch_size], np.int64)
            examples = [self._examples[index] for index in indices]
            yield indices, {name: np.stack([example[name] for example in examples]) for name in examples[0]}

    @property
    def feature_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name → shape of the features that have axes."""
        if not self._examples:
            return {}
        return {name: np.shape(value) for name, value in self._examples[0].items() if np.ndim(value) > 0}
