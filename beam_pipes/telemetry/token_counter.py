"""Counting the tokens of batches: those that carry something, not padding.

Arrays may lie on a device: their count is asked for at once and fetched later, so that counting never makes a training
loop wait for the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import LoaderError

_LENGTHS = "/lengths"
_SEGMENT_IDS = "segment_ids"
# So many counts may be on their way; by then the oldest are long done.
_PENDING = 256


class TokenCounter:
    """Sums the tokens of batches.

    Without `names`: all values of ragged features that come as values and lengths, and all places of packed rows with a
    segment id. With `names`: of these features alone; in padded rows whatever is not `pad_value` is a token.

        {'tokens': [[5, 6, 0]], 'segment_ids': [[1, 1, 0]]}  →  2
    """

    def __init__(self, names: Sequence[str] | None, pad_value: Any = 0) -> None:
        if isinstance(names, str):
            names = (names,)
        self._names = None if names is None else tuple(names)
        self._pad_value = pad_value
        self._pending: list[Any] = []
        self._total: int | None = None

    def add(self, batch: Any) -> None:
        """Counts one batch."""
        if not isinstance(batch, Mapping):
            return
        if self._names is None:
            for name, array in batch.items():
                if name.endswith(_LENGTHS) and name.removesuffix(_LENGTHS) in batch:
                    self._count(batch[name.removesuffix(_LENGTHS)].shape[0])
                elif name == _SEGMENT_IDS or name.endswith(f"_{_SEGMENT_IDS}"):
                    self._count(_different(array, 0))
            return
        for name in self._names:
            self._count(self._tokens_of(batch, name))

    def total(self) -> int | None:
        """All tokens so far; None where no batch had anything to count."""
        pending, self._pending = self._pending, []
        if pending:
            self._total = (self._total or 0) + sum(int(count) for count in pending)
        return self._total

    def _count(self, count: Any) -> None:
        if isinstance(count, int):
            self._total = (self._total or 0) + count
            return
        self._pending.append(count)
        if len(self._pending) > _PENDING:
            self._total = (self._total or 0) + sum(int(count) for count in self._pending[:_PENDING])
            del self._pending[:_PENDING]

    def _tokens_of(self, batch: Mapping[str, Any], name: str) -> Any:
        if name not in batch:
            raise LoaderError(
                f"telemetry should count the tokens of {name!r}, and batches have: {', '.join(map(str, batch))}.",
                feature=name,
            )
        if name + _LENGTHS in batch:
            return int(batch[name].shape[0])
        for segments in (f"{name}_{_SEGMENT_IDS}", _SEGMENT_IDS):
            if segments in batch:
                return _different(batch[segments], 0)
        pad_value = self._pad_value.get(name, 0) if isinstance(self._pad_value, Mapping) else self._pad_value
        return _different(batch[name], pad_value)


def _different(array: Any, value: Any) -> Any:
    """How many elements are not `value`: an int for memory of the host, an array for that of a device."""
    if isinstance(array, np.ndarray):
        return int(np.count_nonzero(array if value == 0 else array != value))
    different = array != value
    if hasattr(different, "sum"):  # JAX and torch
        return different.sum()
    return int(np.count_nonzero(np.asarray(different)))  # TensorFlow, whose eager tensors lie on the host
