"""Runs in the environment of SeqIO itself: reads caches with it, and writes one. `seqio_side.py REQUEST.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import apache_beam as beam
import numpy as np
import seqio
import tensorflow as tf
from absl import flags
from seqio.scripts import cache_tasks_main

BYTES = seqio.ByteVocabulary()


def add_task(name: str, data: str) -> None:
    @seqio.map_over_dataset
    def split_columns(line):
        columns = tf.strings.split(line, "\t")
        return {"inputs": columns[0], "targets": columns[1]}

    @seqio.map_over_dataset
    def with_words(example):
        words = tf.strings.split(example["targets"], " ")
        pairs = tf.reshape(tf.range(6, dtype=tf.float32), [3, 2])
        return {
            **example,
            "letters": tf.strings.bytes_split(words),
            "numbers": tf.ragged.range(tf.strings.length(words)),
            "pairs": tf.RaggedTensor.from_row_lengths(pairs, [2, 0, 1]),
        }

    before = [split_columns, *([with_words] if name.endswith("ragged") else []), seqio.preprocessors.tokenize]
    if name.endswith("with_eos"):
        before.append(seqio.preprocessors.append_eos)
    seqio.TaskRegistry.add(
        name,
        source=seqio.TextLineDataSource({"train": f"{data}/train*.tsv", "validation": f"{data}/valid.tsv"}),
        preprocessors=[*before, seqio.CacheDatasetPlaceholder(), seqio.preprocessors.append_eos],
        output_features={"inputs": seqio.Feature(BYTES, add_eos=False), "targets": seqio.Feature(BYTES)},
    )


def plain(value):
    if isinstance(value, tf.RaggedTensor):
        rows = [[item.decode() if isinstance(item, bytes) else item for item in row] for row in value.to_list()]
        return {"ragged": rows, "dtype": value.dtype.name}
    array = value.numpy()
    if isinstance(array, bytes):
        return array.decode("latin-1")
    return {"values": np.asarray(array).tolist(), "dtype": value.dtype.name}


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    flags.FLAGS(["seqio_side", "--min_shards=2"])
    for name in request["tasks"]:
        add_task(name, request["data"])
    runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"  # others download a server
    with beam.Pipeline(runner=runner) as pipeline:
        cache_tasks_main.run_pipeline(pipeline, request["tasks"][:3], request["write"])
    seqio.add_global_cache_dirs([request["read"]])
    sys.path.insert(0, str(Path(__file__).parent))
    import seqio_face

    answer = {"face": {**seqio_face.told(seqio), **seqio_face.word_pieces(seqio, request["word_pieces"])}}
    for name in request["tasks"]:
        task = seqio.TaskRegistry.get(name)
        answer[name] = {
            split: {
                "examples": [
                    {key: plain(value) for key, value in example.items()}
                    for example in task.get_dataset(None, split=split, use_cached=True, shuffle=False)
                ],
                "stats": task.get_cached_stats(split),
            }
            for split in task.splits
        }
    with open(request["answer"], "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
