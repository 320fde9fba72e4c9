"""The cost of a typed pipeline inside a Beam pipeline, and the gain from batches: `lower` against stock transforms.
The cost of `WriteToCache` on small records, against `WriteToTFRecord` of the same Examples.

    python -m benchmarks.lower --json lower.json

Two pipelines, each written as stock Beam (`FlatMap`, `Filter`, `Map`; for the model `BatchElements`) and as typed
stages, over the same elements on Beam's in-process runner:

    words    lines → words → those that are long → their counts of letters; three cheap stages of one element each
    model    vectors → a product with a matrix → its largest column; a stage that does many elements in one call, with
             NumPy's products on one thread

    sink     dicts of a number and a text of 100 letters → TFRecord files of `tf.train.Example`s, or a cache

`lower` runs per element (`batch_records=1`) and in batches (its default). Seconds are the process's CPU time, in turns;
reading the elements and adding up the results are part of all runs. Every run is checked by the sum of its results.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipes.beam import WriteToCache, lower
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from beam_pipes.typed import DAGPipeline, Input, Output, stage
from benchmarks import harness

WORDS = "the quick brown fox jumps over the lazy dog and runs away from it".split()
MIN_LETTERS = 4
WIDTH, CLASSES = 256, 1024
# One thread for products: idle ones spin, and their time would count.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
MATRIX = np.random.default_rng(0).standard_normal((WIDTH, CLASSES), dtype=np.float32)


def line_of(number: int) -> str:
    return " ".join(WORDS[(number + step) % len(WORDS)] for step in range(8))


def vector_of(number: int) -> np.ndarray[Any, Any]:
    return np.roll(MATRIX[:, number % CLASSES], number)


@stage
def split(line: str) -> Iterator[str]:
    yield from line.split()


@stage
def long(word: str) -> Iterator[str]:
    if len(word) >= MIN_LETTERS:
        yield word


@stage
def letters(word: str) -> dict[str, object]:
    return {"word": word, "letters": len(word)}


class Classify(beam.DoFn):  # type: ignore[misc]
    """The stock way: one product for a batch of `BatchElements`."""

    def process(self, vectors: list[np.ndarray[Any, Any]]) -> Iterator[dict[str, int]]:
        for best in (np.stack(vectors) @ MATRIX).argmax(axis=1).tolist():
            yield {"letters": best}


def typed_words() -> DAGPipeline:
    return DAGPipeline({split: Input(str), long: split, letters: long, Output("train"): letters}, "Words")


@stage(batched=True)
def classify(vectors: list[np.ndarray[Any, Any]]) -> list[dict[str, object]]:
    return [{"letters": best} for best in (np.stack(vectors) @ MATRIX).argmax(axis=1).tolist()]


def stock_words(lines: Any) -> Any:
    return (
        lines
        | "split" >> beam.FlatMap(str.split)
        | "long" >> beam.Filter(lambda word: len(word) >= MIN_LETTERS)
        | "letters" >> beam.Map(lambda word: {"word": word, "letters": len(word)})
    )


def model_per_element(vectors: Any) -> Any:
    return vectors | "classify" >> beam.Map(lambda vector: {"letters": int((vector @ MATRIX).argmax())})


def model_in_batches(vectors: Any) -> Any:
    return vectors | beam.BatchElements(min_batch_size=256, max_batch_size=256) | "classify" >> beam.ParDo(Classify())


def words_by_lower(batch_records: int) -> Callable[[Any], Any]:
    return lambda lines: (lines | lower(typed_words(), batch_records=batch_records))["train"]


def model_by_lower(batch_records: int) -> Callable[[Any], Any]:
    return lambda vectors: vectors | lower(classify, batch_records=batch_records)


def row_of(number: int) -> dict[str, object]:
    return {"id": number, "text": "x" * 100}


def write_tfrecords(elements: int, to: str) -> None:
    import tensorflow as tf

    def serialized(row: dict[str, Any]) -> bytes:
        number = tf.train.Feature(int64_list=tf.train.Int64List(value=[row["id"]]))
        text = tf.train.Feature(bytes_list=tf.train.BytesList(value=[row["text"].encode()]))
        example = tf.train.Example(features=tf.train.Features(feature={"id": number, "text": text}))
        return bytes(example.SerializeToString())

    with beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([])) as pipeline:
        rows = pipeline | beam.Create(range(elements), reshuffle=False) | "Make" >> beam.Map(row_of)
        _ = rows | beam.Map(serialized) | beam.io.WriteToTFRecord(to)


def write_cache(elements: int, to: str) -> None:
    features = {"id": FeatureSpec("int64"), "text": FeatureSpec("str")}
    with beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([])) as pipeline:
        rows = pipeline | beam.Create(range(elements), reshuffle=False) | "Make" >> beam.Map(row_of)
        _ = rows | WriteToCache(to, features=features, key="id")
    assert len(Cache.open(to)["train"]) == elements


def measured_sink(*, elements: int, repeats: int) -> dict[str, Any]:
    def runs(write: Callable[[int, str], None]) -> Callable[[], None]:
        def once() -> None:
            with tempfile.TemporaryDirectory() as directory:
                write(elements, f"{directory}/written")

        return once

    sinks = {"tfrecords": runs(write_tfrecords), "cache": runs(write_cache)}
    secs = harness.paired_seconds(sinks, repeats=repeats, clock=time.process_time)
    ratios = {"cache_to_tfrecords": harness.ratio(secs, "cache", "tfrecords")}
    return {"elements": elements, "ratios": ratios, "cpu_secs": secs}


class Count(beam.DoFn):  # type: ignore[misc]
    def process(self, total: int) -> None:
        Metrics.counter("benchmark", "letters").inc(total)


def run(make: Callable[[int], Any], transform: Callable[[Any], Any], elements: int) -> int:
    """The sum of `letters` over the results."""
    pipeline = beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([]))
    made = pipeline | beam.Create(range(elements), reshuffle=False) | "Make" >> beam.Map(make)
    total = transform(made) | beam.Map(lambda row: row["letters"]) | beam.CombineGlobally(sum)
    _ = total | "Count" >> beam.ParDo(Count())
    result = pipeline.run()
    result.wait_until_finish()
    [counter] = result.metrics().query(MetricsFilter().with_name("letters"))["counters"]
    return int(counter.result)


def measured(
    make: Callable[[int], Any], transforms: dict[str, Callable[[Any], Any]], *, elements: int, repeats: int
) -> dict[str, Any]:
    found: dict[str, int] = {}

    def runs(name: str) -> Callable[[], None]:
        return lambda: found.update({name: run(make, transforms[name], elements)})

    secs = harness.paired_seconds({name: runs(name) for name in transforms}, repeats=repeats, clock=time.process_time)
    if len(set(found.values())) != 1:
        sys.exit(f"the pipelines do not give the same: {found}")
    ratios = {
        "stock_to_batches": harness.ratio(secs, "stock", "lower_in_batches"),
        "elements_to_batches": harness.ratio(secs, "lower_per_element", "lower_in_batches"),
    }
    if "stock_in_batches" in secs:
        ratios["stock_batches_to_batches"] = harness.ratio(secs, "stock_in_batches", "lower_in_batches")
    return {"elements": elements, "sum": found["stock"], "ratios": ratios, "cpu_secs": secs}


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--elements", type=int, default=30_000, help="lines, and vectors [30000]")
    arguments = parser.parse_args()
    if not ONE_THREAD.keys() <= os.environ.keys():  # they are read when NumPy is imported
        os.execve(
            sys.executable, [sys.executable, "-m", "benchmarks.lower", *sys.argv[1:]], {**os.environ, **ONE_THREAD}
        )
    words = {
        "stock": stock_words,
        "lower_per_element": words_by_lower(1),
        "lower_in_batches": words_by_lower(256),
    }
    model = {
        "stock": model_per_element,
        "stock_in_batches": model_in_batches,
        "lower_per_element": model_by_lower(1),
        "lower_in_batches": model_by_lower(256),
    }
    sizes = {"elements": arguments.elements, "repeats": arguments.repeats}
    results = {
        "words": measured(line_of, words, **sizes),
        "model": measured(vector_of, model, **sizes),
        "sink": measured_sink(elements=4 * arguments.elements, repeats=arguments.repeats),
    }
    harness.report(results, arguments.json)


if __name__ == "__main__":
    main()
