"""TensorFlow Metadata: schema and statistics of every split as the protos that TensorFlow Data Validation opens."""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from typing import Any

import numpy as np

from beam_pipes.cache import dtypes
from beam_pipes.cache.reader import Cache
from beam_pipes.cache.schema import schema_text
from beam_pipes.cache.spec import ExampleSpec, FeatureSpec
from beam_pipes.export.kept_rows import examples_of, num_kept
from beam_pipes.extras import require

STATISTICS = "statistics.pb"

# Of each feature so many numbers are kept for the median and the quantiles, and so many texts are counted.
_SAMPLE = 100_000
_TOP_VALUES = 20
_QUANTILES = 10


def write_tfmd(cache: Cache, directory: str) -> None:
    """Writes `statistics.pb` (a `DatasetFeatureStatisticsList`, a dataset a split) and `schema-SPLIT.pbtxt`.

    Numbers are counted over all records; the median and the quantiles come from an even sample of 100,000 values, and
    `unique` is a lower bound beyond 100,000 distinct texts. The schema is that of the features as values, whichever way
    the cache encodes them. Splits without examples have a number of records only.
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
        self.records = self.values = self.most = 0
        self.fewest: int | None = None

    def count(self, values: int) -> None:
        self.records += 1
        self.values += values
        self.most = max(self.most, values)
        self.fewest = values if self.fewest is None else min(self.fewest, values)

    def write_common(self, common: Any) -> None:
        common.num_non_missing = self.records
        common.min_num_values, common.max_num_values = self.fewest or 0, self.most
        common.tot_num_values = self.values
        common.avg_num_values = self.values / self.records if self.records else 0.0


class _Numbers(_Values):
    """Moments by the parallel update of T. Chan et al. (1979); a sample whose stride doubles when it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.number = self.zeros = self.nans = 0
        self.mean = self.squares = 0.0
        self.low, self.high = math.inf, -math.inf
        self.sample: list[float] = []
        self.stride = 1

    def add(self, value: Any) -> None:
        array = np.asarray(value).reshape(-1).astype(np.float64)
        self.count(len(array))
        finite = array[~np.isnan(array)]
        self.nans += len(array) - len(finite)
        if not len(finite):
            return
        skipped = -self.number % self.stride
        self.sample += finite[skipped :: self.stride].tolist()
        while len(self.sample) > _SAMPLE:
            self.sample = self.sample[::2]
            self.stride *= 2
        total = self.number + len(finite)
        mean = float(finite.mean())
        difference = mean - self.mean
        self.squares += float(((finite - mean) ** 2).sum()) + difference**2 * self.number * len(finite) / total
        self.mean += difference * len(finite) / total
        self.number = total
        self.zeros += int((finite == 0).sum())
        self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def write(self, made: Any, name: str, feature: FeatureSpec, proto: Any) -> None:
        made.path.step.append(name)
        is_float = feature.dtype in dtypes.FLOATS
        made.type = proto.FeatureNameStatistics.FLOAT if is_float else proto.FeatureNameStatistics.INT
        stats = made.num_stats
        self.write_common(stats.common_stats)
        if not self.number:
            return
        stats.mean, stats.std_dev = self.mean, math.sqrt(self.squares / self.number)
        stats.num_zeros, stats.min, stats.max = self.zeros, self.low, self.high
        stats.median = float(np.median(self.sample))
        histogram = stats.histograms.add(num_nan=self.nans, type=proto.Histogram.QUANTILES)
        edges = np.quantile(self.sample, np.linspace(0, 1, _QUANTILES + 1)).tolist()
        edges[0], edges[-1] = self.low, self.high
        for low, high in zip(edges, edges[1:], strict=False):
            histogram.buckets.add(low_value=low, high_value=high, sample_count=self.number / _QUANTILES)


class _Texts(_Values):
    """Lengths, and the most frequent texts."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = self.shortest = self.longest = 0
        self.counts: Counter[Any] = Counter()

    def add(self, value: Any) -> None:
        texts = [value] if isinstance(value, (str, bytes)) else np.asarray(value, object).reshape(-1).tolist()
        for text in texts:
            length = len(text)
            self.shortest = length if not self.characters and not self.counts else min(self.shortest, length)
            self.longest = max(self.longest, length)
            self.characters += length
            if text in self.counts or len(self.counts) < _SAMPLE:
                self.counts[text] += 1
        self.count(len(texts))

    def write(self, made: Any, name: str, feature: FeatureSpec, proto: Any) -> None:
        made.path.step.append(name)
        average = self.characters / self.values if self.values else 0.0
        if feature.dtype == dtypes.BYTES:
            made.type = proto.FeatureNameStatistics.BYTES
            self.write_common(made.bytes_stats.common_stats)
            made.bytes_stats.unique = len(self.counts)
            made.bytes_stats.avg_num_bytes = average
            made.bytes_stats.min_num_bytes, made.bytes_stats.max_num_bytes = self.shortest, self.longest
            return
        made.type = proto.FeatureNameStatistics.STRING
        stats = made.string_stats
        self.write_common(stats.common_stats)
        stats.unique, stats.avg_length = len(self.counts), average
        for text, count in sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:_TOP_VALUES]:
            stats.top_values.add(value=text, frequency=count)
            rank = len(stats.rank_histogram.buckets)
            stats.rank_histogram.buckets.add(low_rank=rank, high_rank=rank, label=text, sample_count=count)
