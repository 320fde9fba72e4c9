"""Random draws that are a function of (seed, epoch), the same under every NumPy version.

Only the raw 64-bit stream of PCG64 and the hash of SeedSequence are used, as NumPy promises to keep those two; the
methods of `numpy.random.Generator` may change between versions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Indices = np.ndarray[Any, np.dtype[np.int64]]


class KeyedRandom:
    """A stream of draws for one seed, epoch and purpose; two purposes (`salt`) never share a stream."""

    def __init__(self, seed: int, epoch: int, salt: str) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, epoch, *salt.encode()]))

    def permutation(self, size: int) -> Indices:
        """Returns the numbers 0..size-1 in random order: a stable sort of 64-bit keys."""
        return np.argsort(self._raw(size), kind="stable").astype(np.int64, copy=False)

    def uniform(self, size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Returns float64 values in [0, 1) with 53 random bits each."""
        values: np.ndarray[Any, np.dtype[np.float64]] = (self._raw(size) >> np.uint64(11)) * 2.0**-53
        return values

    def integers(self, size: int, stop: int) -> Indices:
        """Returns int64 values in [0, stop), each drawn independently."""
        draws: Indices = (self.uniform(size) * stop).astype(np.int64)
        return draws.clip(max=stop - 1)

    def _raw(self, size: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return np.asarray(self._bits.random_raw(size), dtype=np.uint64)
