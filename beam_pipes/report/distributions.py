"""Distributions: the lengths of a split's records, and the distance between two distributions of one quantity.

Lengths come from the index; for a very large split, from some of its shards. It also computes the waste in rows of a
few lengths, packed and unpacked. Drift is one number, with a name and a source, for every feature and statistic between
two snapshots.
"""

from __future__ import annotations

import dataclasses
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipes.cache.reader import Cache
from beam_pipes.engine.statistics import Histogram, from_json
from beam_pipes.format.index import decode_index, index_path
from beam_pipes.loader.packing import ALGORITHMS
from beam_pipes.storage.local import storage_for

# Indices of this many records are read in about 50 ms from a local disk.
MAX_RECORDS = 1_000_000
# Maximum number of requests to an object store.
MAX_SHARDS = 64


class Lengths(NamedTuple):
    """`values`: (n,) int64, one per record. `of`: the records in the split, more than n if some are left out."""

    values: npt.NDArray[np.int64]
    of: int


def features_with_lengths(cache: Cache, split: str) -> list[str]:
    """The features of a split whose lengths the index holds: ragged ones and texts."""
    return sorted(cache.manifest.splits[split].lengths)


def record_lengths(
    cache: Cache, split: str, features: list[str], *, max_records: int = MAX_RECORDS, max_shards: int = MAX_SHARDS
) -> dict[str, Lengths]:
    """Feature → lengths: the leading dimension in every record, bytes of a text.

    Beyond `max_records` records or `max_shards` shards, from shards spread evenly over the split.
    """
    manifest = cache.manifest.splits[split]
    filled = [shard for shard, records in enumerate(manifest.records) if records]
    total = manifest.num_records
    if not filled or not features:
        return {name: Lengths(np.zeros(0, np.int64), total) for name in features}
    fitting = max(1, int(len(filled) * min(1.0, max_records / total)))
    chosen = [filled[i] for i in np.linspace(0, len(filled) - 1, min(fitting, max_shards), dtype=np.int64)]
    storage = storage_for(cache.directory)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in features}
    for shard in chosen:
        path = index_path(os.path.join(cache.directory, manifest.file_name(cache.manifest.name, split, shard)))
        columns = decode_index(storage.read_bytes(path), path=path)
        for name in features:
            parts[name].append(columns[f"length/{name}"])
    return {name: Lengths(np.concatenate(found).astype(np.int64), total) for name, found in parts.items()}


class Waste(NamedTuple):
    """Rows of `sequence_length` places. `packed` and `padded` are the shares of positions without a token: with rows
    packed by best-fit, and with one record per row. `cut` is the share of tokens beyond the end of a row, which packed
    rows of longer records that are split do not lose."""

    sequence_length: int
    packed_rows: int
    packed: float
    padded: float
    cut: float


def packing_waste(
    lengths: npt.NDArray[np.int64],
    *,
    sequence_lengths: list[int] | None = None,
    also: int | None = None,
    split_longer: bool = False,
) -> list[Waste]:
    """The waste at each sequence length; by default powers of two from the median to the longest record, five at most,
    and the one that is wanted `also`.

    `split_longer`: packed rows hold all pieces of longer records (`pack(…, overlong="split")`), instead of the first.
    Lengths 6, 4, 3, 3, 2, 2 at 10 → packed 0.0 in 2 rows, padded 0.667, cut 0.0.
    """
    filled = lengths[lengths > 0]
    if not len(filled):
        return []
    wanted = sequence_lengths if sequence_lengths is not None else _powers(filled)
    made = []
    for length in sorted({*wanted, *([] if also is None else [also])}):
        kept = np.minimum(filled, length)
        tokens = int(kept.sum())
        whole = int((filled // length).sum()) if split_longer else 0
        pieces = filled % length if split_longer else kept
        rows = whole + int(ALGORITHMS["best_fit"](pieces[pieces > 0], length).max(initial=-1)) + 1
        packed = int(filled.sum()) if split_longer else tokens
        made.append(
            Waste(
                sequence_length=length,
                packed_rows=rows,
                packed=1 - packed / (rows * length),
                padded=1 - tokens / (len(kept) * length),
                cut=1 - tokens / int(filled.sum()),
            )
        )
    return made


def _powers(lengths: npt.NDArray[np.int64]) -> list[int]:
    low = max(3, math.ceil(math.log2(max(1.0, float(np.median(lengths))))))
    high = max(low, math.ceil(math.log2(float(lengths.max()))))
    return sorted({2 ** int(round(power)) for power in np.linspace(low, high, min(5, high - low + 1))})


PSI = "PSI"
KS = "KS"

# Bounds from which a change is worth a look, and from which it is large. PSI: N. Siddiqi, "Credit Risk Scorecards",
# Wiley 2006. KS has no such convention; a distance of 0.1 is a tenth of the records on the other side of some value.
SOME = {PSI: 0.1, KS: 0.1}
LARGE = {PSI: 0.25, KS: 0.25}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drift:
    """The drift of one quantity between two snapshots.

    Args:
        split: the split, or None for a statistic of the build, which belongs to no split.
        name: the feature or statistic; `x[..., 3]`: one place on the last axis of a feature, which moved most.
        quantity: "length" (leading dimension; bytes of a text), from a sample "value" (numbers, NaN too), "byte",
            "character" and "text" (which text it is, such as the name of a class), or "histogram".
        measure: "PSI" or "KS".
        distance: its value, 0 for equal distributions.
        noise: the distance that two samples of one distribution exceed in 5 % of cases.
        counts: how many values each side has.
        medians: of each side; None for a histogram, and for texts.
    """

    split: str | None
    name: str
    quantity: str
    measure: str
    distance: float
    noise: float
    counts: tuple[int, int]
    medians: tuple[float, float] | None = None

    @property
    def verdict(self) -> str:
        """ "none", "some" or "large"; a distance within the noise is "none"."""
        if self.distance < max(SOME[self.measure], self.noise):
            return "none"
        return "some" if self.distance < LARGE[self.measure] else "large"

    def to_json(self) -> dict[str, object]:
        return {**dataclasses.asdict(self), "verdict": self.verdict}


def population_stability_index(before: Sequence[int], after: Sequence[int]) -> tuple[float, float]:
    """The PSI of two histograms over the same ranges, and its noise.

        population_stability_index([50, 50], [50, 50])  →  (0.0, 0.077)
        population_stability_index([90, 10], [50, 50])  →  (0.854, 0.077)

    PSI = Σ (p − q) · ln(p / q) over the ranges (Siddiqi 2006; the symmetrised Kullback-Leibler divergence). Half a
    count is added to each range, so that empty ones do not make it infinite. Under equal distributions PSI divided by
    1/n + 1/m is about χ² with one degree of freedom less than there are ranges (B. Yurdakul, "Statistical Properties
    of Population Stability Index", 2018), whose 95 % quantile gives the noise.

    Raises `ValueError` if the histograms have different numbers of ranges, or one counts nothing.
    """
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if first.shape != second.shape or not first.sum() or not second.sum():
        raise ValueError(f"two non-empty histograms over the same ranges, got {before!r} and {after!r}")
    used = (first + second) > 0
    p, q = first[used] + 0.5, second[used] + 0.5
    p, q = p / p.sum(), q / q.sum()
    noise = chi_squared_95(max(int(used.sum()) - 1, 0)) * (1 / first.sum() + 1 / second.sum())
    return float(((p - q) * np.log(p / q)).sum()), float(noise)


def chi_squared_95(degrees: int) -> float:
    """The 95 % quantile of χ², within 1 % (E. B. Wilson, M. M. Hilferty, PNAS 17, 1931): 1 → 3.75, 10 → 18.29."""
    if degrees == 0:
        return 0.0
    return degrees * (1 - 2 / (9 * degrees) + 1.6448536 * math.sqrt(2 / (9 * degrees))) ** 3


def kolmogorov_smirnov(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """The two-sample Kolmogorov-Smirnov distance, and its noise.

        kolmogorov_smirnov(np.array([1, 2, 3, 4]), np.array([3, 4, 5, 6]))  →  (0.5, 0.96)

    The greatest distance between the two empirical distribution functions; equal values count at once. The noise is
    the critical value at 5 %: 1.358 · √((n + m) / (n · m)) (N. Smirnov, Annals of Mathematical Statistics 19, 1948).

    Raises `ValueError` if one side is empty.
    """
    if not len(before) or not len(after):
        raise ValueError(f"two non-empty samples, got {len(before)} and {len(after)} values")
    first, second = np.sort(before), np.sort(after)
    both = np.concatenate([first, second])
    below_first = np.searchsorted(first, both, side="right") / len(first)
    below_second = np.searchsorted(second, both, side="right") / len(second)
    noise = 1.358 * math.sqrt((len(first) + len(second)) / (len(first) * len(second)))
    return float(np.abs(below_first - below_second).max()), noise


# Maximum number of records sampled per split, of shards they come from, and of numbers per record.
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
            found += _compared(split, name, "length", *(_Sample.of([(each[name].values, 1)]) for each in (old, new)))
        first, second = _sampled(before, split, SAMPLED_RECORDS), _sampled(after, split, SAMPLED_RECORDS)
        for name, quantity in sorted(first.keys() & second.keys()):
            found += _compared(split, name, quantity, first[name, quantity], second[name, quantity])
    return found


def sampled_numbers(cache: Cache, split: str, *, records: int = SAMPLED_RECORDS) -> dict[str, np.ndarray]:
    """Feature → its numbers in records that are spread over a split, 64 of each record, spread over it."""
    found = {
        name: one.values for (name, quantity), one in _sampled(cache, split, records).items() if quantity == "value"
    }
    return {name: values[~np.isnan(values)] for name, values in found.items()}


class _Sample(NamedTuple):
    """Numbers of some records, and the channel of each: its place on the last axis; 0 where that differs in length."""

    values: np.ndarray
    channels: np.ndarray

    @classmethod
    def of(cls, parts: Sequence[tuple[np.ndarray, int]]) -> _Sample:
        """Of the numbers of each record, in the order of its channels, and how many channels it has."""
        alike = len({channels for _, channels in parts}) == 1
        places = [np.arange(len(values)) % (channels if alike else 1) for values, channels in parts]
        return cls(np.concatenate([values for values, _ in parts]).astype(np.float64), np.concatenate(places))


def _sampled(cache: Cache, split: str, records: int) -> dict[tuple[str, str], _Sample]:
    """(feature, quantity) → numbers of records that are spread over a split. Up to 64 channels are told apart; of a
    text there are its characters and a digest, which tells classes apart.
    """
    manifest, opened = cache.manifest.splits[split], cache[split]
    if manifest.kind != "example" or not len(opened):
        return {}
    rows = spread_rows(np.asarray(manifest.records, np.int64), records)
    parts: dict[tuple[str, str], list[tuple[np.ndarray, int]]] = {}
    for row in rows.tolist():
        for name, value in opened[row].items():
            if isinstance(value, bytes):
                parts.setdefault((name, "byte"), []).append((_spread(np.frombuffer(value, np.uint8), row), 1))
            elif isinstance(value, str):
                encoded = value.encode("utf-32-le", "surrogatepass")
                characters = _spread(np.frombuffer(encoded, np.uint32), row)
                parts.setdefault((name, "character"), []).append((characters, 1))
                parts.setdefault((name, "text"), []).append((np.array([zlib.crc32(encoded)]), 1))
            elif (array := np.asarray(value)).dtype.kind in "iufb":
                channels = array.shape[-1] if array.ndim and 2 <= array.shape[-1] <= _VALUES_OF_A_RECORD else 1
                values = _spread(array.reshape(-1), row, channels)
                parts.setdefault((name, "value"), []).append((values, channels))
    return {name: _Sample.of(each) for name, each in parts.items()}


def _spread(values: np.ndarray, row: int, channels: int = 1) -> np.ndarray:
    """At most 64 of the values: one from each of 64 equal parts, at a place drawn by the row, so that no corner, column
    or channel of an array represents all of it. Of several channels, as many of each, in turn.
    """
    if len(values) <= _VALUES_OF_A_RECORD:
        return values
    count = _VALUES_OF_A_RECORD // channels
    drawn = np.random.default_rng(row).random(count * channels)
    size = len(values) // channels
    places = ((np.arange(count * channels) // channels + drawn) * (size / count)).astype(np.int64)
    return values.reshape(size, channels)[places, np.arange(count * channels) % channels]


def spread_rows(sizes: npt.NDArray[np.int64], count: int, *, shards: int = _SAMPLED_SHARDS) -> npt.NDArray[np.int64]:
    """Rows of up to 8 shards that are spread evenly over the split, and evenly within them: few files are opened."""
    starts, filled = np.cumsum(sizes) - sizes, np.flatnonzero(sizes)
    chosen = filled[np.linspace(0, len(filled) - 1, min(shards, len(filled)), dtype=np.int64)]
    each = -(-count // len(chosen))
    rows = [starts[at] + np.linspace(0, sizes[at] - 1, min(each, int(sizes[at])), dtype=np.int64) for at in chosen]
    return np.concatenate(rows)


def _compared(split: str, name: str, quantity: str, before: _Sample, after: _Sample) -> Iterator[Drift]:
    """The drift of all channels together, or of the one that moved most, if that is more than chance among so many."""
    if not len(before.values) or not len(after.values):
        return
    channels = [[before.values, after.values]]
    if before.channels.max() == after.channels.max() > 0:
        every = range(before.channels.max() + 1)
        channels += [[side.values[side.channels == at] for side in (before, after)] for at in every]
    drifts = []
    for number, sides in enumerate(channels):
        # NaN is a value as others are: the least.
        distance, noise = kolmogorov_smirnov(*(np.where(np.isnan(side), -np.inf, side) for side in sides))
        if number:  # Bonferroni: the critical value at 5 % divided by the number of channels
            noise *= math.sqrt(1 + math.log(len(channels) - 1) / math.log(2 / 0.05))
        medians = [float(np.median(known)) if len(known := side[~np.isnan(side)]) else math.nan for side in sides]
        drifts.append(
            Drift(
                split=split,
                name=f"{name}[..., {number - 1}]" if number else name,
                quantity=quantity,
                measure=KS,
                distance=distance,
                noise=noise,
                counts=(len(sides[0]), len(sides[1])),
                medians=None if quantity == "text" else (medians[0], medians[1]),
            )
        )
    worst = max(drifts, key=lambda drift: drift.distance)
    yield drifts[0] if worst.verdict in ("none", drifts[0].verdict) else worst


def _histograms(before: Cache, after: Cache) -> Iterator[Drift]:
    old = histograms(before.manifest.statistics)
    for name, new in histograms(after.manifest.statistics).items():
        known = old.get(name)
        if known is None or known.buckets != new.buckets or not known.total or not new.total:
            continue
        counts = [*known.counters.values(), known.nan_count], [*new.counters.values(), new.nan_count]
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


def histograms(stored: Sequence[Mapping[str, object]]) -> dict[str, Histogram]:
    """The histograms among stored statistics, by name."""
    made = (from_json(state) for state in stored)
    return {statistic.name: statistic for statistic in made if isinstance(statistic, Histogram)}
