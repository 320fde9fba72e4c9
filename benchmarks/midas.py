"""A Python generator into tf.data: `Dataset.from_generator` sample by sample, and `DataLoader`, which hands over runs.

    python -m benchmarks.midas --json midas.json

fixed      the samples {"x": i, "y": i * 3}, then `.batch(256)`
lists      {"x": a list of 1 to 5 ints, "y": i * 3}, then `.padded_batch(256)`
arrays     {"image": uint8 (32, 32, 3), "label": i}, then `.batch(256)`
unbatched  the samples of `fixed` one by one: here TensorFlow's own iteration in Python is most of the time

Each `*_to_per_sample` is samples per second of ours over those of from_generator: the median over runs in turns.
"""

from __future__ import annotations

import functools
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import parser, report, seconds_of

BATCH = 256
Samples = Callable[[int], Iterator[dict[str, Any]]]
Batched = Callable[[Any], Any]
Run = Callable[[int], None]


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = _options().parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    results: dict[str, Any] = {}
    for name, (samples, batched) in _workloads().items():
        count = min(options.samples, 20_000) if name in ("unbatched", "arrays") else options.samples
        runs = _ours(samples, batched), _per_sample(samples, batched)
        pairs = _rates(runs, (count, max(BATCH, count // 20)), options.repeats)
        results[name] = {
            "samples_per_sec": round(statistics.median(rate for rate, _ in pairs)),
            "per_sample_samples_per_sec": round(statistics.median(rate for _, rate in pairs)),
        }
        results[f"{name}_to_per_sample"] = round(statistics.median(ours / theirs for ours, theirs in pairs), 2)
    report(results, options.json)
    return results


def _rates(runs: Sequence[Run], counts: Sequence[int], repeats: int) -> list[list[float]]:
    """Samples per second of both, in turns; one-time building and tracing does not count."""
    for run in runs:
        run(BATCH)
    return [
        [count / seconds_of(functools.partial(run, count)) for run, count in zip(runs, counts, strict=True)]
        for _ in range(repeats)
    ]


def _options() -> Any:
    made = parser(__doc__)
    made.add_argument("--samples", type=int, default=200_000, help="samples of a run of ours [200,000]")
    return made


def _fixed(count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield {"x": i, "y": i * 3}


def _lists(count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield {"x": [i] * (1 + i % 5), "y": i * 3}


def _arrays(count: int) -> Iterator[dict[str, Any]]:
    image = np.zeros((32, 32, 3), np.uint8)
    for i in range(count):
        yield {"image": image, "label": i}


def _workloads() -> dict[str, tuple[Samples, Batched]]:
    return {
        "fixed": (_fixed, lambda loader: loader.batch(BATCH)),
        "lists": (_lists, lambda loader: loader.padded_batch(BATCH)),
        "arrays": (_arrays, lambda loader: loader.batch(BATCH)),
        "unbatched": (_fixed, lambda loader: loader),
    }


def _ours(samples: Samples, batched: Batched) -> Run:
    from beam_pipes.on_device import DataLoader

    wanted = [0]
    loader = batched(DataLoader(lambda: samples(wanted[0] or 5)))

    def run(count: int) -> None:
        wanted[0] = count
        _consume(loader, count)

    return run


def _per_sample(samples: Samples, batched: Batched) -> Run:
    import tensorflow as tf

    from beam_pipes.on_device import DataLoader

    signature = DataLoader(lambda: samples(5)).output_signature
    wanted = [0]
    dataset = batched(tf.data.Dataset.from_generator(lambda: samples(wanted[0]), output_signature=signature))

    def run(count: int) -> None:
        wanted[0] = count
        _consume(dataset, count)

    return run


def _consume(elements: Any, count: int) -> None:
    seen = 0
    for element in elements:
        first = next(iter(element.values()))
        seen += int(first.shape[0]) if first.shape.rank else 1
    if seen < count:
        raise RuntimeError(f"{seen} of {count} samples came out")


if __name__ == "__main__":
    main()
