"""How few bins any packing could need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def lower_bound(lengths: npt.NDArray[np.int64], capacity: int) -> int:
    """A number of bins that no packing of these lengths can go below.

    `lower_bound([6, 6, 6], 10)` → `3`, where the sum alone would say 2.

    Martello and Toth's L2 ("Lower bounds and reduction procedures for the bin packing problem", Discrete Applied
    Mathematics 28, 1990): for every threshold t ≤ capacity / 2, items above capacity - t need a bin each, items above
    capacity / 2 too, and what of the smaller ones (≥ t) does not fit beside the latter needs further bins.
    Computed for all t at once from the histogram of lengths.
    """
    if not len(lengths):
        return 0
    counts = np.bincount(lengths, minlength=capacity + 1).astype(np.int64)
    sums = counts * np.arange(capacity + 1)
    count_below = np.concatenate(([0], np.cumsum(counts)))  # items shorter than index
    sum_below = np.concatenate(([0], np.cumsum(sums)))
    half = capacity // 2
    thresholds = np.arange(0, half + 1)
    upper = capacity - thresholds
    huge = count_below[-1] - count_below[upper + 1]
    large = count_below[upper + 1] - count_below[half + 1]
    large_sum = sum_below[upper + 1] - sum_below[half + 1]
    small_sum = sum_below[half + 1] - sum_below[thresholds]
    overflow = small_sum - (large * capacity - large_sum)
    bounds = huge + large + np.maximum(0, -(-overflow // capacity))
    return int(bounds.max())
