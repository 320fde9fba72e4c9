"""Cutting a dataset in parts: `split` by place, `random_split` by a seeded draw."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.map_style.datasets.base import MapStyle, check_dataset
from beam_pipes.map_style.datasets.slice_dataset import SliceDataset
from beam_pipes.map_style.datasets.subset_dataset import SubsetDataset

Size = int | float


def split(dataset: MapStyle, first_size: Size) -> tuple[SliceDataset, SliceDataset]:
    """Returns the first `first_size` examples and the rest, in order.

    An int counts examples; a float in [0, 1] is a fraction, rounded to the nearest count:

        split("abcde", 2)   → "ab", "cde"
        split("abcde", 0.4) → "ab", "cde"

    Raises `DatasetError` for more examples than there are or a fraction outside [0, 1].
    """
    check_dataset(dataset, "split")
    total = len(dataset)
    first = _count(first_size, total, "split")
    return SliceDataset(dataset, 0, first), SliceDataset(dataset, first, total)


def random_split(dataset: MapStyle, sizes: Size | Sequence[Size], *, seed: int = 0) -> tuple[SubsetDataset, ...]:
    """Deals the examples at random into parts that are disjoint and hold everything.

    One size gives two parts, as `split` does. Several sizes give as many parts, and have to be counts that sum to
    `len(dataset)` or fractions that sum to 1 (rounded by largest remainder). The same seed gives the same parts.

        train, valid, test = random_split(dataset, [0.8, 0.1, 0.1], seed=7)
    """
    check_dataset(dataset, "random_split")
    total = len(dataset)
    if isinstance(sizes, Sequence):
        counts = _counts(sizes, total)
    else:
        first = _count(sizes, total, "random_split")
        counts = [first, total - first]
    order = np.random.default_rng([seed, total]).permutation(total)
    parts = np.split(order, np.cumsum(counts)[:-1])
    return tuple(SubsetDataset(dataset, part) for part in parts)


def _count(size: Size, total: int, owner: str) -> int:
    if isinstance(size, bool) or not isinstance(size, (int, float, np.integer, np.floating)):
        raise DatasetError(f"{owner} needs a size that is a count or a fraction, got {type(size).__name__}: {size!r}")
    if isinstance(size, (float, np.floating)):
        if not 0.0 <= size <= 1.0:
            raise DatasetError(f"{owner} needs a fraction between 0 and 1 or an int count, got {size!r}")
        return round(float(size) * total)
    if not 0 <= size <= total:
        raise DatasetError(f"{owner} needs a count between 0 and {total}, the dataset's length; got {size}")
    return int(size)


def _counts(sizes: Sequence[Size], total: int) -> list[int]:
    if not sizes:
        raise DatasetError("random_split needs at least one size, got an empty sequence")
    if all(isinstance(size, (float, np.floating)) for size in sizes):
        for size in sizes:
            _count(size, total, "random_split")
        if not math.isclose(sum(sizes), 1.0, rel_tol=1e-9):
            raise DatasetError(f"random_split needs fractions that sum to 1, got {list(sizes)}: sum {sum(sizes)}")
        exact = [size * total for size in sizes]
        counts = [math.floor(value) for value in exact]
        by_remainder = sorted(range(len(sizes)), key=lambda part: counts[part] - exact[part])
        for part in by_remainder[: total - sum(counts)]:
            counts[part] += 1
        return counts
    if any(isinstance(size, (float, np.floating)) for size in sizes):
        raise DatasetError(f"random_split needs sizes that are all counts or all fractions, got {list(sizes)}")
    counts = [_count(size, total, "random_split") for size in sizes]
    if sum(counts) != total:
        raise DatasetError(
            f"random_split needs counts that sum to {total}, the dataset's length; got {counts}: sum {sum(counts)}"
        )
    return counts
