"""Drift of every feature and statistic between two snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.reader import Cache
from beam_pipes.engine.histogram import Histogram
from beam_pipes.engine.statistic import from_json
from beam_pipes.report.drift import KS, PSI, Drift, kolmogorov_smirnov, population_stability_index
from beam_pipes.report.record_lengths import features_with_lengths, record_lengths

# Of each split so many records are looked at, out of so many shards, and so many numbers of each record, at most.
SAMPLED_RECORDS = 1000
_SAMPLED_SHARDS = 8
_VALUES_OF_A_RECORD = 64


def drifts(before: Cache, after: Cache) -> list[Drift]:
    """Every quantity that both snapshots have: histograms (PSI), lengths (KS, by the index), numbers (KS, sampled)."""
    found = list(_histograms(before, after))
    for split in after.splits:
        if split not in before.manifest.splits:
            continue
        names = [name for name in features_with_lengths(after, split) if name in features_with_lengths(before, split)]
        old, new = record_lengths(before, split, names), record_lengths(after, split, names)
        for name in names:
            found += _compared(split, name, "length", old[name].values, new[name].values)
        first, second = sampled_numbers(before, split), sampled_numbers(after, split)
        for name in sorted(first.keys() & second.keys()):
            found += _compared(split, name, "value", first[name], second[name])
    return found


def sampled_numbers(cache: Cache, split: str, *, records: int = SAMPLED_RECORDS) -> dict[str, npt.NDArray[Any]]:
    """Feature → its numbers in records that are spread over a split, the first 64 of each record."""
    manifest, opened = cache.manifest.splits[split], cache[split]
    if manifest.kind != "example" or not len(opened):
        return {}
    rows = _spread_rows(np.asarray(manifest.records, np.int64), records)
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for row in rows.tolist():
        example = opened[row]
        for name, value in example.items():
            array = np.asarray(value)
            if array.dtype.kind in "iufb":
                parts.setdefault(name, []).append(array.reshape(-1)[:_VALUES_OF_A_RECORD].astype(np.float64))
    joined = {name: np.concatenate(values) for name, values in parts.items()}
    return {name: values[~np.isnan(values)] for name, values in joined.items()}


def _spread_rows(sizes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Rows of up to 8 shards that are spread evenly over the split, and evenly within them: few files are opened."""
    starts, filled = np.cumsum(sizes) - sizes, np.flatnonzero(sizes)
    chosen = filled[np.linspace(0, len(filled) - 1, min(_SAMPLED_SHARDS, len(filled)), dtype=np.int64)]
    each = -(-count // len(chosen))
    rows = [starts[at] + np.linspace(0, sizes[at] - 1, min(each, int(sizes[at])), dtype=np.int64) for at in chosen]
    return np.concatenate(rows)


def _compared(
    split: str, name: str, quantity: str, before: npt.NDArray[Any], after: npt.NDArray[Any]
) -> Iterator[Drift]:
    if not len(before) or not len(after):
        return
    distance, noise = kolmogorov_smirnov(before, after)
    yield Drift(
        split=split,
        name=name,
        quantity=quantity,
        measure=KS,
        distance=distance,
        noise=noise,
        counts=(len(before), len(after)),
        medians=(float(np.median(before)), float(np.median(after))),
    )


def _histograms(before: Cache, after: Cache) -> Iterator[Drift]:
    old = histograms(before.manifest.statistics)
    for name, new in histograms(after.manifest.statistics).items():
        known = old.get(name)
        if known is None or known.buckets != new.buckets or not known.total or not new.total:
            continue
        counts = [*known.counters, known.nan_count], [*new.counters, new.nan_count]
        distance, noise = population_stability_index(*counts)
        yield Drift(
            split=None,
            name=name,
            quantity="histogram",
            measure=PSI,
            distance=distance,
            noise=noise,
            counts=(known.total, new.total),
        )


def histograms(stored: Sequence[Mapping[str, Any]]) -> dict[str, Histogram]:
    """The histograms among stored statistics, by name."""
    made = (from_json(state) for state in stored)
    return {statistic.name: statistic for statistic in made if isinstance(statistic, Histogram)}
