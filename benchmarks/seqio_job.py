"""The reference's own cache job, and its reading of packed batches. Run by `benchmarks.tasks` with the interpreter of
an environment that has `seqio`: `seqio_job.py cache CORPUS TO` or `seqio_job.py read CORPUS CACHE SECS`.
"""

from __future__ import annotations

import json
import sys
import time

TASK = "text_to_text"
ROW_LENGTH = 1024


def add_task(corpus: str) -> None:
    import seqio
    import tensorflow as tf

    @seqio.map_over_dataset
    def split_columns(line):  # type: ignore[no-untyped-def]
        columns = tf.strings.split(line, "\t")
        return {"inputs": columns[0], "targets": columns[1]}

    vocabulary = seqio.SentencePieceVocabulary(f"{corpus}/vocabulary.model")
    seqio.TaskRegistry.add(
        TASK,
        source=seqio.TextLineDataSource({"train": f"{corpus}/*.tsv"}),
        preprocessors=[
            split_columns,
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features={
            "inputs": seqio.Feature(vocabulary, add_eos=False),
            "targets": seqio.Feature(vocabulary),
        },
    )


def cache(corpus: str, to: str) -> dict[str, float]:
    """Caches the task with the reference's pipeline, in one process, as without a cluster."""
    import apache_beam as beam
    import seqio
    from absl import flags
    from seqio.scripts import cache_tasks_main

    flags.FLAGS(["seqio_job", "--min_shards=8"])
    add_task(corpus)
    started = time.perf_counter()
    runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"  # others download a server
    with beam.Pipeline(runner=runner) as pipeline:
        cache_tasks_main.run_pipeline(pipeline, [TASK], to)
    secs = time.perf_counter() - started
    seqio.add_global_cache_dirs([to])
    stats = seqio.TaskRegistry.get(TASK).get_cached_stats("train")
    return {"secs": secs, "examples": stats["examples"], "targets_tokens": stats["targets_tokens"]}


def read(corpus: str, cached: str, secs: float) -> dict[str, float]:
    """Packed language-model rows for this many seconds after the first."""
    import seqio

    add_task(corpus)
    seqio.add_global_cache_dirs([cached])
    dataset = seqio.get_dataset(
        TASK,
        {"targets": ROW_LENGTH},
        dataset_split="train",
        feature_converter=seqio.LMFeatureConverter(pack=True),
        use_cached=True,
        shuffle=True,
        num_epochs=None,
        seed=1,
    )
    rows = tokens = 0
    started = None
    for row in dataset.batch(32).as_numpy_iterator():
        if started is None:
            started = time.perf_counter()
            continue
        rows += len(row["decoder_target_tokens"])
        tokens += int(row["decoder_loss_weights"].sum())
        if time.perf_counter() - started > secs:
            break
    assert started is not None
    return {"secs": time.perf_counter() - started, "rows": rows, "tokens": tokens}


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    result = cache(*arguments) if mode == "cache" else read(arguments[0], arguments[1], float(arguments[2]))
    print(json.dumps(result))
