"""Padding waste of every sampler on six distributions of lengths: the share of fed elements that are not data.

    python -m benchmarks.samplers --json samplers.json

Nothing here depends on the machine but `secs/…`, the time to make one epoch's order.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from beam_pipes.map_style import (
    BatchSampler,
    PartialyRandomizedSimilarTimeLengthSampler,
    RandomSampler,
    SequentialSampler,
    SimilarLengthBatchSampler,
    padding_waste,
)
from benchmarks import harness

Lengths = np.ndarray[Any, np.dtype[np.int64]]


def distributions(size: int, seed: int = 0) -> dict[str, Lengths]:
    """Six kinds of lengths, `size` of each, at least 1."""
    random = np.random.default_rng(seed)
    drawn = {
        "uniform_200_900": random.integers(200, 901, size),
        "normal_500_100": random.normal(500, 100, size),
        "lognormal_text": random.lognormal(5.5, 1.0, size).clip(max=20_000),
        "exponential_mean_200": random.exponential(200, size),
        "two_peaks_50_800": np.where(
            random.random(size) < 0.5, random.normal(50, 10, size), random.normal(800, 50, size)
        ),
        "pareto_heavy_tail": (20 * (1 + random.pareto(1.2, size))).clip(max=20_000),
    }
    return {name: np.maximum(1, np.round(lengths)).astype(np.int64) for name, lengths in drawn.items()}


def samplers(lengths: Lengths, batch_size: int) -> dict[str, Iterable[list[int]]]:
    """The ways to make batches that are compared."""
    similar = PartialyRandomizedSimilarTimeLengthSampler(lengths, batch_size)
    # The budget is that of an average random batch, and at least one example of the longest.
    budget = max(int(lengths.max()), int(lengths.mean() * batch_size))
    return {
        "sequential": BatchSampler(SequentialSampler(len(lengths)), batch_size),
        "random": BatchSampler(RandomSampler(len(lengths)), batch_size),
        "similar_length": BatchSampler(similar, batch_size),
        "bucketed": SimilarLengthBatchSampler(lengths, batch_size),
        "bucketed_pool_10": SimilarLengthBatchSampler(lengths, batch_size, pool_batches=10),
        "bucketed_max_elements": SimilarLengthBatchSampler(lengths, 8 * batch_size, max_elements=budget),
    }


def main() -> None:
    """Prints and writes `waste/<distribution>/<sampler>` and the time of the slowest epoch of each sampler."""
    parser = harness.parser(__doc__)
    parser.add_argument("--examples", type=int, default=100_000, help="lengths of each distribution [100000]")
    parser.add_argument("--batch-size", type=int, default=32, help="examples a batch [32]")
    options = parser.parse_args()
    results: dict[str, Any] = {"examples": options.examples, "batch_size": options.batch_size}
    secs: dict[str, list[float]] = {}
    for kind, lengths in distributions(options.examples).items():
        for name, batches in samplers(lengths, options.batch_size).items():
            timed = []
            for _ in range(options.repeats):
                started = time.perf_counter()
                order = list(batches)
                timed.append(time.perf_counter() - started)
            results[f"waste/{kind}/{name}"] = round(padding_waste(order, lengths), 5)
            secs.setdefault(name, []).append(statistics.median(timed))
    results |= {f"secs/{name}": round(max(values), 4) for name, values in secs.items()}
    harness.report(results, options.json)


if __name__ == "__main__":
    main()
