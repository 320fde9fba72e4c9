"""From the lengths of a split's records to the arrays of a plan, and how few rows any plan of whole records needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import LoaderError
from beam_pipes.loader.order import KeyedPermutation
from beam_pipes.loader.packing.fits import (
    best_fit,
    concat_then_split,
    first_fit,
    next_fit,
    stable_order,
    vector_fit,
)
from beam_pipes.loader.packing.plan import FeatureTotals, PackingPlan, rounded_up
from beam_pipes.loader.state import Identity

Int64 = npt.NDArray[np.int64]

ALGORITHMS: dict[str, Callable[[Int64, int], Int64]] = {
    "best_fit": best_fit,
    "first_fit": first_fit,
    "next_fit": next_fit,
}
CONCAT = "concat_then_split"
# Of the permutations of a seed; loaders take 0, 1, … for their sources.
_STREAM = 1 << 32


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


def plan_of_epoch(
    split: Any,
    *,
    limits: Mapping[str, int],
    algorithm: str,
    overlong: str,
    max_segments: int | None,
    segment_multiple: int,
    seed: int | None,
    reshuffle_each_iteration: bool,
    epoch: int = 0,
) -> PackingPlan:
    """The plan of checked arguments, as `pack` takes them, for one epoch; only a reshuffled one depends on it."""
    capacities = np.array(list(limits.values()), np.int64)
    whole = np.stack([np.asarray(split.lengths(name), np.int64) for name in limits], axis=1)
    too_long = (whole > capacities).any(axis=1)
    if overlong == "error" and too_long.any():
        record = int(np.flatnonzero(too_long)[0])
        raise LoaderError(
            f"record {record} has lengths {dict(zip(limits, whole[record].tolist(), strict=True))}, more than a row "
            f"takes ({limits}); {int(too_long.sum())} records are too long. "
            "Pass overlong='truncate', 'split' or 'drop'.",
            record=record,
        )
    empty = ~(whole > 0).any(axis=1)
    dropped = too_long if overlong == "drop" else np.zeros(len(whole), bool)
    kept = np.flatnonzero(~empty & ~dropped)
    if seed is not None:
        kept = kept[KeyedPermutation(len(kept), seed=seed, epoch=epoch, stream=_STREAM).records(np.arange(len(kept)))]
    if algorithm == CONCAT:
        items, starts, lengths, bins = concat_then_split(whole[kept, 0], int(capacities[0]))
        records, starts, lengths = kept[items], starts[:, None], lengths[:, None]
    else:
        if overlong == "split":
            records, starts, lengths = _pieces(kept, whole[kept, 0], int(capacities[0]))
        else:
            records, lengths = kept, np.minimum(whole[kept], capacities)
            starts = np.zeros_like(lengths)
        bins = _bins(rounded_up(lengths, segment_multiple), capacities, algorithm, max_segments)
    num_bins = int(bins.max()) + 1 if len(bins) else 0
    order = slice(None) if algorithm == CONCAT else stable_order(bins, num_bins)  # rows one after the other
    taken = rounded_up(lengths, segment_multiple)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(bins, minlength=num_bins)))) if num_bins else np.zeros(1)
    totals = {}
    for index, (name, limit) in enumerate(limits.items()):
        tokens_in, tokens_out = int(whole[:, index].sum()), int(lengths[:, index].sum())
        left_out = int(whole[dropped, index].sum())
        totals[name] = FeatureTotals(
            sequence_length=limit,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            truncated_tokens=tokens_in - tokens_out - left_out,
            dropped_tokens=left_out,
        )
    return PackingPlan(
        source=Identity.of_split(split),
        algorithm=algorithm,
        overlong=overlong,
        totals=totals,
        empty_records=int(empty.sum()),
        dropped_records=int((dropped & ~empty).sum()),
        lower_bound=num_bins
        if algorithm == CONCAT
        else max(lower_bound(taken[:, i], int(limit)) for i, limit in enumerate(capacities)),
        max_segments=max_segments,
        segment_multiple=segment_multiple,
        seed=seed,
        reshuffle_each_iteration=reshuffle_each_iteration,
        bin_offsets=_narrow(offsets),
        records=_narrow(records[order]),
        starts=_narrow(starts[order]),
        lengths=_narrow(lengths[order]),
        split=split,
    )


def _bins(lengths: Int64, capacities: Int64, algorithm: str, max_segments: int | None) -> Int64:
    """The row of each entry, of `lengths` (entries, features)."""
    if algorithm == "first_fit":
        return first_fit(lengths[:, 0], int(capacities[0]), max_segments)
    if algorithm == "next_fit":
        return next_fit(lengths[:, 0], int(capacities[0]), max_segments)
    if len(set(capacities.tolist())) == 1 and (lengths == lengths[:, :1]).all():
        # One feature, or several that are always of one length: joined parts with their marks, aligned features.
        bins = best_fit(lengths[:, 0], int(capacities[0]))
    else:
        bins = vector_fit(lengths, tuple(capacities.tolist()))
    if max_segments is None or int(np.bincount(bins).max(initial=0)) <= max_segments:
        return bins
    # Each segment also takes one of the row's places for segments.
    ones = np.ones((len(lengths), 1), np.int64)
    return vector_fit(np.concatenate([lengths, ones], axis=1), (*capacities.tolist(), max_segments))


def _pieces(records: Int64, lengths: Int64, capacity: int) -> tuple[Int64, Int64, Int64]:
    """Records cut every `capacity` tokens: lengths [25] by 10 → starts [0, 10, 20], lengths [10, 10, 5]."""
    counts = -(-lengths // capacity)
    firsts = np.cumsum(counts) - counts
    starts = (np.arange(int(counts.sum())) - np.repeat(firsts, counts)) * capacity
    piece_lengths = np.minimum(np.repeat(lengths, counts) - starts, capacity)
    return np.repeat(records, counts), starts[:, None], piece_lengths[:, None]


def _narrow(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array in the narrowest unsigned dtype that holds it exactly."""
    largest = int(array.max()) if array.size else 0
    return array.astype(np.min_scalar_type(largest))
