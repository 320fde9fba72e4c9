"""`pack`: from a split to a packing plan, with arguments that are checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_pipes.errors import LoaderError
from beam_pipes.loader.order import check_integer
from beam_pipes.loader.packing.arrange import ALGORITHMS, CONCAT, plan_of_epoch
from beam_pipes.loader.packing.plan import PackingPlan
from beam_pipes.loader.row_source import SplitLike, opened

OVERLONG = ("truncate", "split", "drop", "error")


def pack(
    split: SplitLike | str | os.PathLike[str],
    *,
    sequence_length: int | Mapping[str, int],
    feature: str | None = None,
    algorithm: str = "best_fit",
    overlong: str | None = None,
    max_segments: int | None = None,
    segment_multiple: int = 1,
    seed: int | None = None,
    reshuffle_each_iteration: bool = False,
) -> PackingPlan:
    """Plans rows of `sequence_length` tokens out of the records of `split` (or its path). Reads lengths, no data.

    Lengths 6, 4, 3, 3, 2, 2 and `sequence_length=10` → two rows: records (0, 1) and records (2, 3, 4, 5), no padding.

    Args:
      sequence_length: places in a row; or, for rows of several features (an encoder's inputs and a decoder's
        targets), a limit for each: `{"inputs": 512, "targets": 114}`. A record's features share its row and segment.
      feature: which feature to pack; may be left out where the split has one ragged feature only.
      algorithm: "best_fit" (decreasing; least padding, the default), "first_fit" (stored order), "next_fit"
        (rows are runs of neighbours; most padding), or "concat_then_split" (records one after the other, cut wherever
        a row ends; only the last row has padding). Several features: "best_fit" only.
      overlong: records longer than a row are cut off ("truncate", the default), cut into pieces that are segments of
        their own ("split", one feature only), left out ("drop"), or refused ("error"). All of it is counted in the
        plan. Rows of "concat_then_split" cut every record, so it takes no other value than "split".
      max_segments: the largest number of segments in a row, for attention kernels that are compiled for one. Unlimited
        by default. Not with "concat_then_split".
      segment_multiple: each segment takes a multiple of so many places, those behind its tokens being padding with
        segment id 0. For attention whose documents are divided over devices: `Loader(…, sequence_order="segments")`
        over a context of n needs a multiple of 2·n. It divides the sequence lengths. Not with "concat_then_split".
      seed: packs the records in the random order of this seed, so that others share a row; 0 ≤ seed < 2^64. By default
        in stored order.
      reshuffle_each_iteration: packs anew in each epoch of a loader, from `seed` (0 if there is none) and the number of
        the epoch, as `tf.data.Dataset.shuffle` shuffles anew. The number of rows stays the same, and so does the state.
        With "concat_then_split", and with "best_fit", where records change places with records of the same length.

    Records without any token are left out and counted as `empty_records`. The same split and arguments always give
    the same plan. Raises `LoaderError` for unknown names and limits below 1.
    """
    records_of: Any = opened(split)
    limits = _limits(records_of, sequence_length, feature)
    if algorithm not in (*ALGORITHMS, CONCAT):
        known = ", ".join(sorted((*ALGORITHMS, CONCAT)))
        raise LoaderError(f"unknown packing algorithm {algorithm!r}; choose one of: {known}")
    if overlong is None:
        overlong = "split" if algorithm == CONCAT else "truncate"
    if overlong not in OVERLONG:
        raise LoaderError(f"unknown policy overlong={overlong!r}; choose one of: {', '.join(OVERLONG)}")
    if max_segments is not None:
        check_integer("max_segments", max_segments, 1)
    check_integer("segment_multiple", segment_multiple, 1)
    for name, limit in limits.items():
        if limit % segment_multiple:
            raise LoaderError(
                f"segment_multiple={segment_multiple} should divide the sequence length of {name!r}, got {limit}",
                feature=name,
            )
    if seed is not None:
        check_integer("seed", seed, 0, 2**64 - 1)
    if reshuffle_each_iteration:
        if algorithm not in ("best_fit", CONCAT):
            raise LoaderError(
                "reshuffle_each_iteration=True needs an algorithm whose number of rows does not depend on the order of "
                f"the records: best_fit or {CONCAT}, got {algorithm!r}"
            )
        seed = 0 if seed is None else seed
    if algorithm == CONCAT and (overlong != "split" or max_segments is not None or segment_multiple != 1):
        counted = f"max_segments={max_segments}" if max_segments is not None else f"segment_multiple={segment_multiple}"
        given = f"overlong={overlong!r}" if overlong != "split" else counted
        raise LoaderError(
            f"algorithm={CONCAT!r} cuts records wherever a row ends, and takes no {given}. Leave it out, or pack whole "
            f"records with one of: {', '.join(sorted(ALGORITHMS))}"
        )
    if len(limits) > 1 and (algorithm != "best_fit" or overlong == "split"):
        raise LoaderError(
            f"rows of several features ({', '.join(limits)}) are packed with algorithm='best_fit' and without "
            f"overlong='split', got algorithm={algorithm!r}, overlong={overlong!r}"
        )
    return plan_of_epoch(
        records_of,
        limits=limits,
        algorithm=algorithm,
        overlong=overlong,
        max_segments=max_segments,
        segment_multiple=int(segment_multiple),
        seed=seed,
        reshuffle_each_iteration=reshuffle_each_iteration,
    )


def _limits(split: Any, sequence_length: int | Mapping[str, int], feature: str | None) -> dict[str, int]:
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
        raise LoaderError(f"which feature should be packed? Pass feature=…, one of: {', '.join(ragged) or 'none'}")
    if not limits:
        raise LoaderError("sequence_length={} names no feature; pass {name: limit}")
    for name, limit in limits.items():
        if name not in ragged:
            raise LoaderError(
                f"feature {name!r} cannot be packed: packing needs values of varying leading length, "
                f"which here are: {', '.join(ragged) or 'none'}",
                feature=name,
            )
        if isinstance(limit, bool) or not isinstance(limit, (int, np.integer)) or limit < 1:
            raise LoaderError(f"sequence_length of {name!r} should be a positive integer, got {limit!r}", feature=name)
    return {name: int(limit) for name, limit in limits.items()}
