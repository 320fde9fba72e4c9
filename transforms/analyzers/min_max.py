"""The smallest and the largest value."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.analysis import Accumulator, Analyzer
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.errors import SpecError
from beam_pipes.transforms.analyzers.number_blocks import NUMBERS, Block, NumberBlocks


@dataclasses.dataclass(frozen=True, eq=False)
class Bounds:
    """`low` and `high` of `count` values, float64[*shape]; NaN where there was nothing but NaN, or no value at all."""

    count: int
    low: Block
    high: Block

    @classmethod
    def of(cls, values: Block) -> Bounds:
        """The bounds of float64[n, *shape]."""
        return cls(len(values), np.asarray(np.fmin.reduce(values, axis=0)), np.asarray(np.fmax.reduce(values, axis=0)))

    def merged(self, other: Bounds) -> Bounds:
        """The bounds of both. Raises `SpecError` where their shapes differ."""
        if not self.count or not other.count:
            return other if not self.count else self
        if self.low.shape != other.low.shape:
            raise SpecError(
                f"expected bounds of the shape {list(self.low.shape)}, got {list(other.low.shape)}: source shards have "
                "values of other shapes. Give of=..., a pipeline that ends in values of one shape."
            )
        return Bounds(self.count + other.count, np.fmin(self.low, other.low), np.fmax(self.high, other.high))

    def to_bytes(self) -> bytes:
        """JSON; floats in the shortest digits that give them back."""
        value = {
            "count": self.count,
            "high": self.high.ravel().tolist(),
            "low": self.low.ravel().tolist(),
            "shape": list(self.low.shape),
        }
        return (strict_json(value, separators=(",", ":")) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Bounds:
        """The inverse of `to_bytes`."""
        value = json.loads(data)
        low, high = (np.array(value[name], np.float64).reshape(value["shape"]) for name in ("low", "high"))
        return cls(value["count"], low, high)


_NOTHING = Bounds(0, np.array(np.nan), np.array(np.nan))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MinMax(Analyzer):
    """The smallest and the largest number, or those of each element of arrays of one shape: gives `Bounds`.

    A NaN counts and bounds nothing. Integers are taken as float64, exact up to 2^53.
    """

    accepts = NUMBERS

    def accumulator(self) -> Accumulator:
        return _Bounded()

    def merge(self, accumulators: Sequence[str], target: str) -> None:
        total = _NOTHING
        for path in accumulators:
            total = total.merged(Bounds.from_bytes(Path(path).read_bytes()))
        Path(target).write_bytes(total.to_bytes())

    def read(self, path: str) -> Bounds:
        return Bounds.from_bytes(Path(path).read_bytes())


class _Bounded(Accumulator):
    def __init__(self) -> None:
        self._bounds = _NOTHING
        self._blocks = NumberBlocks()

    def add(self, values: Sequence[Any], record_ids: Sequence[str]) -> None:
        for block in self._blocks.add(values):
            self._bounds = self._bounds.merged(Bounds.of(block))

    def save(self, path: str) -> None:
        for block in self._blocks.rest():
            self._bounds = self._bounds.merged(Bounds.of(block))
        Path(path).write_bytes(self._bounds.to_bytes())
