"""TensorFlow Metadata: schema and statistics of every split as the protos that TensorFlow Data Validation opens."""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from beam_pipes.cache import dtypes
from beam_pipes.cache.publish import schema_text
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.spec import ExampleSpec, FeatureSpec
from beam_pipes.export.tables import examples_of, num_kept
from beam_pipes.extras import require

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0.statistics_pb2 import CommonStatistics, FeatureNameStatistics, Histogram

STATISTICS = "statistics.pb"

# How many numbers of each feature are kept for the median and the quantiles, and how many texts are counted.
_SAMPLE = 100_000
# TFDV's defaults: the number of most frequent texts, of ranks, and of buckets in a histogram.
_TOP_VALUES = 20
_RANKS = 1000
_BUCKETS = 10


def write_tfmd(cache: Cache, directory: str) -> None:
    """Writes `statistics.pb` (a `DatasetFeatureStatisticsList`, a dataset a split) and `schema-SPLIT.pbtxt`.

    Figures are those of TFDV: lengths of texts in bytes, a histogram of equal widths and one of quantiles for numbers.
    Mean and standard deviation are of the finite values (to TFDV they are NaN where one value is infinite). Numbers are
    counted over all records; median and histograms come from an even sample of 100,000 values, exact if there are no
    more, and `unique` is a lower bound beyond 100,000 distinct texts. The schema is that of the features as values,
    whichever way the cache encodes them. Splits without examples have a number of records only.
    """
    proto = require("tensorflow_metadata.proto.v0.statistics_pb2", purpose="export to TensorFlow Metadata")
    made = proto.DatasetFeatureStatisticsList()
    for name in cache.splits:
        split = cache[name]
        dataset = made.datasets.add(name=name, num_examples=num_kept(split))
        if split.kind != "example":
            continue
        collected = {key: _Texts() if feature.is_text else _Numbers() for key, feature in split.spec.items()}
        for example in examples_of(split):
            for key, values in collected.items():
                values.add(example[key])
        for key, values in collected.items():
            values.write(dataset.features.add(), key, split.spec[key], proto)
        with open(os.path.join(directory, f"schema-{name}.pbtxt"), "w", encoding="utf-8") as file:
            file.write(schema_text(ExampleSpec({key: _as_list(value) for key, value in split.spec.items()})))
    with open(os.path.join(directory, STATISTICS), "wb") as file:
        file.write(made.SerializeToString(deterministic=True))


def _as_list(feature: FeatureSpec) -> FeatureSpec:
    """The feature as a list of its values; float64 and uint64, which no list holds exactly, as the nearest type."""
    nearest = {"float64": "float32", "uint64": "int64"}.get(feature.dtype, feature.dtype)
    if nearest != feature.dtype:
        return FeatureSpec(nearest, shape=feature.shape, encoding="list")
    return dataclasses.replace(feature, encoding="list")


class _Values:
    """How many values the records have."""

    def __init__(self) -> None:
        self.records = 0
        self.lengths: Counter[int] = Counter()

    def count(self, values: int) -> None:
        self.records += 1
        self.lengths[values] += 1

    @property
    def values(self) -> int:
        return sum(length * records for length, records in self.lengths.items())

    def write_common(self, common: CommonStatistics, proto: ModuleType) -> None:
        common.num_non_missing = self.records
        if not self.records:
            return
        common.min_num_values, common.max_num_values = min(self.lengths), max(self.lengths)
        common.tot_num_values = self.values
        common.avg_num_values = self.values / self.records
        lengths, records = np.array(sorted(self.lengths.items()), np.int64).T
        _write_quantiles(common.num_values_histogram, lengths.astype(np.float64), np.cumsum(records), 1.0, proto)


class _Numbers(_Values):
    """Moments by the parallel update of T. Chan et al. (1979); a sample whose stride doubles when it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.number = self.finite = self.zeros = self.nans = self.below = self.above = 0
        self.mean = self.squares = 0.0
        self.low, self.high = math.inf, -math.inf
        self.sample: list[float] = []
        self.stride = 1

    def add(self, value: npt.ArrayLike) -> None:
        array = np.asarray(value).reshape(-1).astype(np.float64)
        self.count(len(array))
        finite = array[np.isfinite(array)]
        numbers = finite
        if len(finite) < len(array):
            numbers = array[~np.isnan(array)]
            self.nans += len(array) - len(numbers)
            above = int((numbers == math.inf).sum())
            self.above += above
            self.below += len(numbers) - len(finite) - above
        self._keep(numbers)
        if not len(finite):
            return
        total = self.finite + len(finite)
        mean = float(finite.mean())
        difference = mean - self.mean
        self.squares += float(((finite - mean) ** 2).sum()) + difference**2 * self.finite * len(finite) / total
        self.mean += difference * len(finite) / total
        self.finite = total
        self.zeros += int((finite == 0).sum())
        self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def _keep(self, numbers: np.ndarray) -> None:
        self.sample += numbers[-self.number % self.stride :: self.stride].tolist()
        self.number += len(numbers)
        while len(self.sample) > _SAMPLE:
            self.sample = self.sample[::2]
            self.stride *= 2

    def write(self, made: FeatureNameStatistics, name: str, feature: FeatureSpec, proto: ModuleType) -> None:
        made.path.step.append(name)
        is_float = feature.dtype in dtypes.FLOATS
        made.type = proto.FeatureNameStatistics.FLOAT if is_float else proto.FeatureNameStatistics.INT
        stats = made.num_stats
        self.write_common(stats.common_stats, proto)
        if not self.number and not self.nans:
            return
        standard = stats.histograms.add(num_nan=self.nans, type=proto.Histogram.STANDARD)
        quantiles = stats.histograms.add(num_nan=self.nans, type=proto.Histogram.QUANTILES)
        if not self.number:
            return
        ordered = np.sort(np.array(self.sample, np.float64))
        if self.finite:
            stats.mean, stats.std_dev = self.mean, math.sqrt(self.squares / self.finite)
        stats.num_zeros = self.zeros
        stats.min = -math.inf if self.below else (self.low if self.finite else math.inf)
        stats.max = math.inf if self.above else (self.high if self.finite else -math.inf)
        stats.median = _median(ordered)
        self._write_standard(standard, ordered)
        # The ends are known exactly, though the sample may have missed them.
        ordered[0], ordered[-1] = stats.min, stats.max
        values, counts = np.unique(ordered, return_counts=True)
        _write_quantiles(quantiles, values, np.cumsum(counts), self.number / len(ordered), proto)

    def _write_standard(self, histogram: Histogram, ordered: np.ndarray) -> None:
        """Ranges of one width, each with its upper bound and the first one with its lower one too.

        Infinite values have their own ranges, as in TFDV.
        """
        if self.below:
            histogram.buckets.add(low_value=-math.inf, high_value=-math.inf, sample_count=self.below)
        finite = ordered[np.isfinite(ordered)]
        if self.finite:
            parts = np.linspace(0, 1, (_BUCKETS if self.high > self.low else 1) + 1)
            edges = self.low * (1 - parts) + self.high * parts  # high - low may be more than a float64 holds
            edges[0], edges[-1] = self.low, self.high
            ranges = np.searchsorted(edges[1:-1], finite, side="left")
            counts = np.bincount(ranges, minlength=len(edges) - 1) * (self.finite / max(1, len(finite)))
            for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True):
                histogram.buckets.add(low_value=low, high_value=high, sample_count=count)
        if self.above:
            histogram.buckets.add(low_value=math.inf, high_value=math.inf, sample_count=self.above)


def _median(ordered: np.ndarray) -> float:
    low, high = float(ordered[(len(ordered) - 1) // 2]), float(ordered[len(ordered) // 2])
    return high if math.isinf(low) or math.isinf(high) else low / 2 + high / 2


def _write_quantiles(
    histogram: Histogram, values: np.ndarray, counts: np.ndarray, scale: float, proto: ModuleType
) -> None:
    """Ten ranges that hold the same number of values, as TFDV counts them.

    `values` ascend, and `counts` says how many there are up to each of them. The numbers of ranges that end at the
    same value are all there is up to it, shared out evenly.
    """
    histogram.type = proto.Histogram.QUANTILES
    total = int(counts[-1])
    ranks = np.minimum(np.arange(_BUCKETS + 1) * total // _BUCKETS, total - 1)
    at = np.searchsorted(counts, ranks, side="right")
    ends, sizes = np.unique(at[1:], return_counts=True)
    shares = np.diff(counts[ends], prepend=0) / sizes * scale
    share_of = dict(zip(ends.tolist(), shares.tolist(), strict=True))
    for low, high in zip(at[:-1].tolist(), at[1:].tolist(), strict=True):
        histogram.buckets.add(low_value=float(values[low]), high_value=float(values[high]), sample_count=share_of[high])


class _Texts(_Values):
    """Lengths in bytes (of texts: as UTF-8), and the most frequent texts."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = self.longest = 0
        self.shortest: int | None = None
        self.counts: Counter[str | bytes] = Counter()

    def add(self, value: object) -> None:
        texts = [value] if isinstance(value, (str, bytes)) else np.asarray(value, object).reshape(-1).tolist()
        for text in texts:
            length = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode())
            self.shortest = length if self.shortest is None else min(self.shortest, length)
            self.longest = max(self.longest, length)
            self.num_bytes += length
            if text in self.counts or len(self.counts) < _SAMPLE:
                self.counts[text] += 1
        self.count(len(texts))

    def write(self, made: FeatureNameStatistics, name: str, feature: FeatureSpec, proto: ModuleType) -> None:
        made.path.step.append(name)
        average = self.num_bytes / self.values if self.values else 0.0
        if feature.dtype == dtypes.BYTES:
            made.type = proto.FeatureNameStatistics.BYTES
            self.write_common(made.bytes_stats.common_stats, proto)
            made.bytes_stats.unique = len(self.counts)
            made.bytes_stats.avg_num_bytes = average
            made.bytes_stats.min_num_bytes, made.bytes_stats.max_num_bytes = self.shortest or 0, self.longest
            made.bytes_stats.max_num_bytes_int = self.longest
            return
        made.type = proto.FeatureNameStatistics.STRING
        stats = made.string_stats
        self.write_common(stats.common_stats, proto)
        stats.unique, stats.avg_length = len(self.counts), average
        # Of texts that are equally frequent the greater one comes first, as in TFDV.
        ordered = sorted(self.counts.items(), key=lambda item: (item[1], item[0]), reverse=True)
        for rank, (text, count) in enumerate(ordered[:_RANKS]):
            if rank < _TOP_VALUES:
                stats.top_values.add(value=text, frequency=count)
            stats.rank_histogram.buckets.add(low_rank=rank, high_rank=rank, label=text, sample_count=count)
