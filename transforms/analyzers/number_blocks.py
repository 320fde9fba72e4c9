"""Numbers, or vectors of one shape, gathered into float64 blocks of a fixed length.

Sums over blocks do not depend on how records came in batches, and cost NumPy's time, not Python's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from beam_pipes.errors import SpecError

BLOCK_LENGTH = 1024

# What `NumberBlocks` takes, for `Analyzer.accepts`.
NUMBERS: tuple[type, ...] = (int, float, np.number, np.bool_, np.ndarray, list, tuple)

Block = np.ndarray[Any, np.dtype[np.float64]]


class NumberBlocks:
    """`add` gives the blocks that have become full, `rest` the last one; every value has the shape of the first.

    Raises `SpecError` for a value that is no number, or has another shape.
    """

    def __init__(self) -> None:
        self.shape: tuple[int, ...] | None = None
        self._waiting: list[Block] = []
        self._count = 0

    def add(self, values: Sequence[Any]) -> Iterator[Block]:
        """Takes values; yields float64[1024, *shape] as often as there are enough."""
        made = self._array(values)
        self._waiting.append(made)
        self._count += len(made)
        if self._count < BLOCK_LENGTH:
            return
        gathered = np.concatenate(self._waiting)
        stop = len(gathered) - len(gathered) % BLOCK_LENGTH
        self._waiting, self._count = [gathered[stop:]], len(gathered) - stop
        for start in range(0, stop, BLOCK_LENGTH):
            yield gathered[start : start + BLOCK_LENGTH]

    def rest(self) -> Iterator[Block]:
        """Yields what is left, if there is something."""
        if self._count:
            yield np.concatenate(self._waiting)
        self._waiting, self._count = [], 0

    def _array(self, values: Sequence[Any]) -> Block:
        try:
            made = np.asarray(values)
            if made.dtype.kind not in "biuf":
                raise ValueError(f"dtype {made.dtype}")
        except ValueError as error:
            bad = next((value for value in values if not _is_number(value)), None)
            shapes = sorted({np.shape(value) for value in values}) if bad is None else []
            found = f"the shapes {shapes}" if bad is None else f"{type(bad).__name__} {bad!r:.60}"
            raise SpecError(
                f"expected numbers, or arrays of numbers of one shape, got {found}. Give of=..., a pipeline that ends "
                "in such values."
            ) from error
        if self.shape is None:
            self.shape = made.shape[1:]
        if made.shape[1:] != self.shape:
            raise SpecError(
                f"expected values of the shape {list(self.shape)}, as the first one has, got {list(made.shape[1:])}. "
                "Give of=..., a pipeline that ends in values of one shape."
            )
        return made.astype(np.float64)


def _is_number(value: Any) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except ValueError:
        return False
