"""Values whose rows have different lengths: in Python, and in a cache.

In Python such a value is a `Ragged`: nested lists that know their dtype. A cache keeps its values one after the other
under its name, and the lengths of its rows in features beside it, as SeqIO's caches do: `_rl:0:words`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipes.extras import TfTensor, tensorflow

RAGGED_PREFIX = "_rl:"


def tfexample_ragged_length_key(key: str, dim: int) -> str:
    """Name of the row lengths of a ragged dimension: `_rl:0:tokens`."""
    return f"{RAGGED_PREFIX}{dim}:{key}"


class Ragged(list[Any]):
    """`[[5], [6, 7]]`, with flat values `[5, 6, 7]` and row lengths `[[1, 2]]`.

    Attributes:
        flat: the values, of shape (values, *inner dimensions).
        row_lengths: the lengths of the rows, for each ragged dimension from the outermost.
    """

    def __init__(self, flat: np.ndarray, row_lengths: Sequence[np.ndarray]) -> None:
        rows = flat.tolist()
        for lengths in reversed(row_lengths):
            ends = np.cumsum(lengths).tolist()
            rows = [rows[end - length : end] for length, end in zip(lengths.tolist(), ends, strict=True)]
        super().__init__(rows)
        self.flat, self.row_lengths = flat, tuple(row_lengths)

    @property
    def dtype(self) -> np.dtype:
        return self.flat.dtype

    @property
    def ndim(self) -> int:
        return self.flat.ndim + len(self.row_lengths)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """None for the dimensions that vary."""
        return (len(self), *[None] * len(self.row_lengths), *self.flat.shape[1:])

    def __getitem__(self, place: Any) -> Any:
        """An item, or for a tuple of slices a `Ragged` that is cut along the first axes."""
        if not isinstance(place, tuple):
            return super().__getitem__(place)
        rows, lengths = _cut(list(self), place), []
        for _ in self.row_lengths:
            lengths.append(np.array([len(row) for row in rows], np.int64))
            rows = [item for row in rows for item in row]
        flat = np.empty((len(rows), *self.flat.shape[1:]), self.dtype)
        if rows:
            flat[...] = rows
        return Ragged(flat, lengths)

    def tensor(self) -> TfTensor:
        """The same as a `tf.RaggedTensor`."""
        return tensorflow("a ragged value").RaggedTensor.from_nested_row_lengths(self.flat, self.row_lengths)


def _cut(rows: list[Any], slices: tuple[slice, ...]) -> list[Any]:
    return [_cut(row, slices[1:]) for row in rows[slices[0]]] if len(slices) > 1 else rows[slices[0]]


def stored(example: Any) -> Any:
    """An example as a cache keeps it: `{"w": [[5], [6, 7]]}` → `{"w": [5, 6, 7], "_rl:0:w": [1, 2]}`. What is no
    mapping stays."""
    if not isinstance(example, Mapping):
        return example
    made = {}
    for name, value in example.items():
        if isinstance(value, Ragged):
            made[name] = value.flat
            for dim, lengths in enumerate(value.row_lengths):
                made[tfexample_ragged_length_key(name, dim)] = np.asarray(lengths, np.int64)
        else:
            made[name] = value
    return made


def num_ragged(name: str, among: Mapping[str, object]) -> int:
    """How many dimensions of a stored feature are ragged."""
    count = 0
    while tfexample_ragged_length_key(name, count) in among:
        count += 1
    return count


def assembled(example: Mapping[str, Any], make: Callable[[Any, Sequence[Any]], object] = Ragged) -> dict[str, Any]:
    """The example of what `stored` gave; tensors with `make=tf.RaggedTensor.from_nested_row_lengths`."""
    whole = {}
    for name, value in example.items():
        if not name.startswith(RAGGED_PREFIX):
            lengths = [example[tfexample_ragged_length_key(name, dim)] for dim in range(num_ragged(name, example))]
            whole[name] = make(value, lengths) if lengths else value
    return whole
