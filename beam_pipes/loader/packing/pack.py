"""`pack`: from the lengths of a split's records to a packing plan.

    pack ──checked arguments──► plan_of_epoch ──lengths──► an algorithm of `fits` ──row of each entry──► PackingPlan

Plans that are repacked in each epoch return to `plan_of_epoch` with the number of the epoch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from beam_pipes.checks import choice, integer, known
from beam_pipes.errors import LoaderError
from beam_pipes.format.dtypes import FLOATS, INTEGERS, Array
from beam_pipes.loader.order import KeyedPermutation, check_integer
from beam_pipes.loader.packing.fits import (
    best_fit,
    concat_then_split,
    first_fit,
    next_fit,
    stable_order,
    vector_fit,
)
from beam_pipes.loader.packing.plan import FeatureTotals, PackingPlan, PackOptions
from beam_pipes.loader.row_source import Identity, MeasuredSplit, one_split
from beam_pipes.loader.windows import Windows

Int64 = npt.NDArray[np.int64]

ALGORITHMS: dict[str, Callable[[Int64, int], Int64]] = {
    "best_fit": best_fit,
    "first_fit": first_fit,
    "next_fit": next_fit,
}
CONCAT = "concat_then_split"
# Stream of the permutations of a seed; loaders take 0, 1, … for their sources.
_STREAM = 1 << 32
OVERLONG = ("truncate", "split", "drop", "error")


def pack(
    split: MeasuredSplit | Windows | str | os.PathLike[str],
    *,
    sequence_length: int | Mapping[str, int],
    feature: str | None = None,
    algorithm: str = "best_fit",
    overlong: str | None = None,
    max_segments: int | None = None,
    segment_multiple: int = 1,
    bos_id: int | Mapping[str, int] | None = None,
    bos_stored: bool = False,
    seed: int | None = None,
    reshuffle_each_iteration: bool = False,
) -> PackingPlan:
    """Plans rows of `sequence_length` tokens out of the records of `split` (or its path). Reads lengths, no data.

    Lengths 6, 4, 3, 3, 2, 2 and `sequence_length=10` → two rows: records (0, 1) and records (2, 3, 4, 5), no padding.

    Of `Windows(split, …)`, each window is a segment: what it has of its sequence, so that those at the ends are shorter
    (`ends="drop"` leaves these out). Its totals count the tokens of all windows. Not with `by`, "concat_then_split" or
    `reshuffle_each_iteration`, and no window may be longer than a row.

    Args:
      sequence_length: positions in a row; or, for rows of several features (an encoder's inputs and a decoder's
        targets), a limit for each: `{"inputs": 512, "targets": 114}`. A record's features share its row and segment.
      feature: which feature to pack; optional if the split has only one ragged feature.
      algorithm: "best_fit" (decreasing; least padding, the default), "first_fit" (stored order), "next_fit"
        (rows are runs of neighbours; most padding), or "concat_then_split" (records one after the other, cut wherever
        a row ends; only the last row has padding). Several features: "best_fit", or "concat_then_split" if every
        record has one length in all of them, such as tokens and the weights of their loss.
      overlong: records longer than a row are cut off ("truncate", the default without `bos_id`), cut into pieces that
        are separate segments ("split", the default with `bos_id`; several features need equal lengths), dropped
        ("drop"), or refused ("error"). All of it is counted in the plan. Rows of "concat_then_split" cut every record,
        so it accepts only "split".
      max_segments: the largest number of segments in a row, for attention kernels that are compiled for one. Unlimited
        by default. Not with "concat_then_split".
      segment_multiple: each segment takes a multiple of this many positions; those after its tokens are padding with
        segment id 0. For attention whose documents are divided over devices: `Loader(…, sequence_order="segments")`
        over a context of n needs a multiple of 2·n. It divides the sequence lengths. Not with "concat_then_split".
      bos_id: every segment, and so every row, begins with this token, which is added when rows are read and takes a
        position. Of several features of equal lengths, such as tokens and weights of the loss, {"tokens": 1}; the
        others have 0 there. Not with "concat_then_split".
      bos_stored: whether records begin with `bos_id` in the cache (`beam-pipes tokens --bos`). It is then added only to
        the later pieces of split records. A record that does not begin as stated here fails when it is read.
      seed: packs the records in the random order of this seed, so that different ones share a row; 0 ≤ seed < 2^64. By
        default in stored order.
      reshuffle_each_iteration: repacks in each epoch of a loader, from `seed` (0 if there is none) and the number of
        the epoch, as `tf.data.Dataset.shuffle` reshuffles. The number of rows stays the same, and so does the state.
        With "concat_then_split", and with "best_fit", where records change places with records of the same length.

    Records without any token are omitted and counted as `empty_records`. The same split and arguments always give
    the same plan. Raises `LoaderError` for unknown names and limits below 1.
    """
    windows: Windows | None = None
    if isinstance(split, Windows):
        windows, split = split, split.source
    records_of = one_split(split, "pack")
    limits = _limits(records_of, sequence_length, feature)
    choice(algorithm, of=sorted((*ALGORITHMS, CONCAT)), what="algorithm", error=LoaderError)
    if windows is not None:
        given = {
            f"algorithm={CONCAT!r}": algorithm == CONCAT,
            f"overlong={overlong!r}": overlong not in (None, "error"),
            "reshuffle_each_iteration=True": reshuffle_each_iteration,
        }
        _refuse(given, "windows are packed whole, once for all epochs, and take", "give seed=… for other neighbours")
        overlong = "error"
    if overlong is None:
        overlong = "split" if algorithm == CONCAT or bos_id is not None else "truncate"
    choice(overlong, of=OVERLONG, what="overlong", error=LoaderError)
    if max_segments is not None:
        max_segments = check_integer("max_segments", max_segments, 1)
    segment_multiple = check_integer("segment_multiple", segment_multiple, 1)
    for name, limit in limits.items():
        if limit % segment_multiple:
            raise LoaderError(
                f"segment_multiple={segment_multiple} should divide the sequence length of {name!r}, got {limit}",
                feature=name,
            )
    if seed is not None:
        seed = check_integer("seed", seed, 0, 2**64 - 1)
    if reshuffle_each_iteration:
        if algorithm not in ("best_fit", CONCAT):
            raise LoaderError(
                "reshuffle_each_iteration=True needs an algorithm whose number of rows does not depend on the order of "
                f"the records: best_fit or {CONCAT}, got {algorithm!r}"
            )
        seed = 0 if seed is None else seed
    bos_ids = _bos_ids(records_of, limits, bos_id, bos_stored)
    if algorithm == CONCAT:
        given = {
            f"overlong={overlong!r}": overlong != "split",
            f"max_segments={max_segments}": max_segments is not None,
            f"segment_multiple={segment_multiple}": segment_multiple != 1,
            f"bos_id={bos_id!r}": bos_id is not None,
        }
        whole = f"pack whole records with one of: {', '.join(sorted(ALGORITHMS))}"
        _refuse(given, f"algorithm={CONCAT!r} cuts records wherever a row ends, and takes", whole)
    if len(limits) > 1 and algorithm not in ("best_fit", CONCAT):
        raise LoaderError(
            f"rows of several features ({', '.join(limits)}) are packed with algorithm='best_fit', got {algorithm!r}"
        )
    if windows is not None:
        _check_windows(windows, limits, bos_ids)
    if len(limits) > 1 and (overlong == "split" or bos_ids is not None):
        _check_aligned(records_of, limits, "overlong='split'" if overlong == "split" else "bos_id")
    options = PackOptions(
        algorithm=algorithm,
        overlong=overlong,
        max_segments=max_segments,
        segment_multiple=segment_multiple,
        bos_ids=bos_ids,
        bos_stored=bos_stored,
        seed=seed,
        reshuffle_each_iteration=reshuffle_each_iteration,
    )
    return plan_of_epoch(records_of, limits, options, windows=windows)


def _refuse(given: Mapping[str, bool], why: str, remedy: str) -> None:
    for option, is_given in given.items():
        if is_given:
            raise LoaderError(f"{why} no {option}. Leave it out, or {remedy}")


def _check_windows(windows: Windows, limits: Mapping[str, int], bos_ids: Mapping[str, int] | None) -> None:
    """Raises `LoaderError` for windows that a row may not have room for, or that cannot begin with BOS together."""
    packed = [feature for feature in windows.features if feature.name in limits]
    for feature in packed:
        positions = len(feature.offsets) + (bos_ids is not None)
        if positions > limits[feature.name]:
            raise LoaderError(
                f"windows of {len(feature.offsets)} steps of {feature.name!r} take up to {positions} positions, and a "
                f"row has {limits[feature.name]}. Give longer rows or shorter windows.",
                feature=feature.name,
            )
    if bos_ids is not None and len({(feature.offsets.tobytes(), feature.rate) for feature in packed}) > 1:
        raise LoaderError(f"bos_id cuts {', '.join(limits)} at the same places: give them the same offsets and rates.")


def _limits(split: MeasuredSplit, sequence_length: int | Mapping[str, int], feature: str | None) -> dict[str, int]:
    ragged = sorted(name for name, spec in split.spec.items() if spec.shape and spec.shape[0] is None)
    if isinstance(sequence_length, Mapping):
        if feature is not None:
            raise LoaderError("pass either feature=… with one sequence_length, or a mapping sequence_length={…}")
        limits = dict(sequence_length)
    elif feature is not None:
        limits = {feature: sequence_length}
    elif len(ragged) == 1:
        limits = {ragged[0]: sequence_length}
    else:
        if not ragged:
            raise LoaderError(
                f"there is nothing to pack in split {split.name!r}: packing needs a feature of shape (None, …), "
                "whose leading length varies, and it has "
                f"{', '.join(f'{name} {spec.dtype} {spec.shape}' for name, spec in sorted(split.spec.items()))}. "
                "Loader(split) reads rows of a fixed shape as they are."
            )
        raise LoaderError(f"which feature should be packed? Pass feature=…, one of: {', '.join(ragged)}")
    if not limits:
        raise LoaderError("sequence_length={} names no feature; pass {name: limit}")
    for name, limit in limits.items():
        if name not in ragged:
            raise LoaderError(
                f"feature {name!r} cannot be packed: packing needs values of varying leading length, "
                f"which here are: {', '.join(ragged) or 'none'}",
                feature=name,
            )
        integer(limit, what=f"sequence_length of {name!r}", least=1, error=LoaderError, feature=name)
    return {name: int(limit) for name, limit in limits.items()}


def _bos_ids(
    split: MeasuredSplit, limits: Mapping[str, int], bos_id: int | Mapping[str, int] | None, bos_stored: bool
) -> dict[str, int] | None:
    """What begins every segment, for each feature."""
    if bos_id is None:
        if bos_stored:
            raise LoaderError("bos_stored=True says that records begin with bos_id, and there is none. Pass bos_id=…")
        return None
    if not isinstance(bos_id, Mapping):
        if len(limits) > 1:
            raise LoaderError(
                f"bos_id={bos_id} is for one feature, and these rows have {', '.join(limits)}. Name the one of tokens: "
                f"bos_id={{{next(iter(limits))!r}: {bos_id}}}"
            )
        bos_id = dict.fromkeys(limits, bos_id)
    for name in bos_id:
        known(name, among=[*limits], what="feature", where="packed rows", error=LoaderError, feature=name)
    found = {name: bos_id.get(name, 0) for name in limits}
    for name, value in found.items():
        spec = split.spec[name]
        if spec.shape != (None,) or spec.dtype not in (*INTEGERS, *FLOATS):
            raise LoaderError(
                f"bos_id needs features of numbers of shape (None,), and {name!r} is {spec}", feature=name
            )
        if limits[name] < 2:
            raise LoaderError(f"bos_id needs rows of 2 positions or more, got {limits[name]}", feature=name)
        if spec.dtype in INTEGERS:
            ends = np.iinfo(spec.dtype)
            integer(value, what=f"bos_id of {name!r}", least=int(ends.min), most=int(ends.max), error=LoaderError)
    return {name: int(value) for name, value in found.items()}


def _check_aligned(split: MeasuredSplit, limits: Mapping[str, int], option: str) -> None:
    """Raises `LoaderError` unless every record has one length in all features, and so have the rows."""
    first, *others = limits
    lengths = np.asarray(split.lengths(first))
    for name in others:
        differs = np.asarray(split.lengths(name)) != lengths
        if differs.any() or limits[name] != limits[first]:
            record = int(np.argmax(differs))
            found = f"record {record} has {int(lengths[record])} and {int(split.lengths(name)[record])}"
            raise LoaderError(
                f"{option} cuts several features at the same places, so {first!r} and {name!r} should have equal "
                f"lengths, and {found if differs.any() else 'their sequence lengths differ'}. Leave it out.",
                feature=name,
            )


def plan_of_epoch(
    split: MeasuredSplit,
    limits: Mapping[str, int],
    options: PackOptions,
    epoch: int = 0,
    *,
    windows: Windows | None = None,
) -> PackingPlan:
    """The plan of checked arguments, as `pack` takes them, for one epoch; only a reshuffled one depends on it."""
    algorithm, overlong, seed = options.algorithm, options.overlong, options.seed
    capacities = np.array(list(limits.values()), np.int64)
    if windows is None:
        whole = np.stack([np.asarray(split.lengths(name), np.int64) for name in limits], axis=1)
    else:
        record_of, start_of, whole = _of_windows(windows, limits)
    first_added = int(options.bos_ids is not None and not options.bos_stored)
    too_long = (whole + first_added > capacities).any(axis=1)
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
        records = kept[items]
        starts, lengths = (np.repeat(each[:, None], len(limits), axis=1) for each in (starts, lengths))
    else:
        if overlong == "split":
            first, later = capacities[0] - first_added, capacities[0] - (options.bos_ids is not None)
            records, starts, lengths = _pieces(kept, whole[kept, 0], int(first), int(later))
            starts, lengths = (np.repeat(each, len(limits), axis=1) for each in (starts, lengths))
        else:
            records, lengths = kept, np.minimum(whole[kept], capacities - first_added)
            starts = np.zeros_like(lengths)
            if windows is not None:
                records, starts = record_of[kept], start_of[kept]
        bins = _bins(options.taken(starts, lengths), capacities, algorithm, options.max_segments)
    num_bins = int(bins.max()) + 1 if len(bins) else 0
    order = slice(None) if algorithm == CONCAT else stable_order(bins, num_bins)  # rows one after the other
    taken = options.taken(starts, lengths)
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
            added_tokens=int(options.added(starts).sum()),
        )
    return PackingPlan(
        source=Identity.of_split(split),
        totals=totals,
        empty_records=int(empty.sum()),
        dropped_records=int((dropped & ~empty).sum()),
        lower_bound=num_bins
        if algorithm == CONCAT
        else max(lower_bound(taken[:, i], int(limit)) for i, limit in enumerate(capacities)),
        bin_offsets=_narrow(offsets),
        records=_narrow(records[order]),
        starts=_narrow(starts[order]),
        lengths=_narrow(lengths[order]),
        split=split,
        **options.options,
    )


def _bins(lengths: Int64, capacities: Int64, algorithm: str, max_segments: int | None) -> Int64:
    """The row of each entry, for `lengths` (entries, features)."""
    if algorithm == "first_fit":
        return first_fit(lengths[:, 0], int(capacities[0]), max_segments)
    if algorithm == "next_fit":
        return next_fit(lengths[:, 0], int(capacities[0]), max_segments)
    if len(set(capacities.tolist())) == 1 and (lengths == lengths[:, :1]).all():
        # One feature, or several that always have equal lengths: joined parts with their marks, aligned features.
        bins = best_fit(lengths[:, 0], int(capacities[0]))
    else:
        bins = vector_fit(lengths, tuple(capacities.tolist()))
    if max_segments is None or int(np.bincount(bins).max(initial=0)) <= max_segments:
        return bins
    # Each segment also takes one of the segment places of the row.
    ones = np.ones((len(lengths), 1), np.int64)
    return vector_fit(np.concatenate([lengths, ones], axis=1), (*capacities.tolist(), max_segments))


def _pieces(records: Int64, lengths: Int64, first: int, later: int) -> tuple[Int64, Int64, Int64]:
    """Records cut after `first` tokens, and then every `later` ones.

    Lengths [25] by 10 and 10 → starts [0, 10, 20], lengths [10, 10, 5]; by 10 and 9 → [0, 10, 19] and [10, 9, 6].
    """
    counts = 1 + -(-np.maximum(lengths - first, 0) // later)
    pieces = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.where(pieces > 0, first + (pieces - 1) * later, 0)
    piece_lengths = np.minimum(np.repeat(lengths, counts) - starts, np.where(pieces > 0, later, first))
    return np.repeat(records, counts), starts[:, None], piece_lengths[:, None]


def _of_windows(windows: Windows, names: Iterable[str]) -> tuple[Int64, Int64, Int64]:
    """The record of each window, and of each feature its first entry and how many it has: (windows, features).

    Those outside of the sequence are left out. Raises `LoaderError` where windows are not runs of entries of a record.
    """
    runs = {each.name: each for each in windows.features if each.is_consecutive and not windows.keys}
    sequences, anchors = windows.index.locate(np.arange(len(windows)))
    starts, ends = [], []
    for name in names:
        if name not in runs:
            raise LoaderError(
                f"pack cuts each window out of one record, and {name!r} has no windows of consecutive steps in "
                f"{windows!r}. Store each sequence as one record, without by=…, and give past=… and future=…, or "
                f"offsets={{{name!r}: range(-1, 16)}}.",
                feature=name,
            )
        begins = runs[name]._replace(offsets=runs[name].offsets[:1]).samples(anchors)[:, 0]
        whole = np.asarray(windows.source.lengths(name), np.int64)[sequences]
        starts.append(np.clip(begins, 0, whole))
        ends.append(np.clip(begins + len(runs[name].offsets), 0, whole))
    first = np.stack(starts, axis=1)
    return sequences, first, np.stack(ends, axis=1) - first


def _narrow(array: Array) -> Array:
    """The array in the narrowest unsigned dtype that holds it exactly."""
    largest = int(array.max()) if array.size else 0
    return array.astype(np.min_scalar_type(largest))


def lower_bound(lengths: npt.NDArray[np.int64], capacity: int) -> int:
    """A lower bound on the number of bins in any packing of these lengths.

    `lower_bound([6, 6, 6], 10)` → `3`, where the sum alone would say 2.

    Martello and Toth's L2 ("Lower bounds and reduction procedures for the bin packing problem", Discrete Applied
    Mathematics 28, 1990): for every threshold t ≤ capacity / 2, items above capacity - t need a bin each, items above
    capacity / 2 too, and the smaller ones (≥ t) that do not fit beside the latter need further bins.
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
