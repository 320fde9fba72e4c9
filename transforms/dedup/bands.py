"""Locality-sensitive hashing: signatures cut into bands; texts that share a whole band are compared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def band_digests(signatures: Array, *, bands: int, rows: int) -> Array:
    """One word for every band of `rows` numbers, and first one for the whole signature: (texts, 1 + bands) uint64.

    Two texts get the same word where they share the band; by accident with a probability of 2^-64, which costs a
    comparison and finds nothing.
    """
    parts = signatures.reshape(len(signatures), bands, rows).astype(np.uint64)
    words = np.full((len(signatures), bands), 0x9E3779B97F4A7C15, np.uint64)
    for row in range(rows):
        words = (words ^ parts[:, :, row]) * np.uint64(0xBF58476D1CE4E5B9)
        words ^= words >> np.uint64(29)
    words = (words ^ (words >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    whole = np.full(len(signatures), 1, np.uint64)
    for band in range(bands):
        whole = (whole ^ words[:, band]) * np.uint64(0xBF58476D1CE4E5B9)
        whole ^= whole >> np.uint64(32)
    return np.concatenate([whole[:, None], words], axis=1)


def compared_probability(similarity: float, *, bands: int, rows: int) -> float:
    """The probability that two texts of a Jaccard similarity share a band, and so are compared: 1 − (1 − s^r)^b.

    For 16 bands of 8 rows:

    | s | 0.5 | 0.6 | 0.7 | 0.75 | 0.8 | 0.85 | 0.9 | 0.95 |
    | --- | --- | --- | --- | --- | --- | --- | --- | --- |
    | compared | 0.061 | 0.237 | 0.613 | 0.815 | 0.947 | 0.994 | 1.000 | 1.000 |

    Source: J. Leskovec, A. Rajaraman, J. Ullman, "Mining of Massive Datasets", section 3.4.
    """
    return float(1 - (1 - similarity**rows) ** bands)


def found_probability(similarity: float, *, threshold: float, bands: int, rows: int) -> float:
    """The probability that two texts share a band *and* that their estimated similarity reaches the threshold.

    Each of the b·r numbers agrees with probability s, independently. For 16 bands of 8 rows and a threshold of 0.8:

    | s | 0.6 | 0.7 | 0.75 | 0.8 | 0.85 | 0.9 | 0.95 | 1 |
    | --- | --- | --- | --- | --- | --- | --- | --- | --- |
    | found | 0.000 | 0.005 | 0.089 | 0.496 | 0.934 | 1.000 | 1.000 | 1 |
    """
    agreeing = np.array([math.comb(rows, n) * similarity**n * (1 - similarity) ** (rows - n) for n in range(rows + 1)])
    not_whole = agreeing.copy()
    not_whole[rows] = 0.0
    total, without = np.ones(1), np.ones(1)
    for _ in range(bands):
        total, without = np.convolve(total, agreeing), np.convolve(without, not_whole)
    return float((total - without)[least_agreeing(threshold, bands * rows) :].sum())


def least_agreeing(threshold: float, count: int) -> int:
    """How many of `count` numbers have to agree at the least for an estimate that reaches `threshold`."""
    return math.ceil(threshold * count - 1e-9)
