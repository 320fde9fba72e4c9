"""Tasks for builds in several processes; importing this module registers them. Their data lies in `TASKS_DATA`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import beam_pipes.seqio as seqio
from beam_pipes import tasks

DATA = Path(os.environ.get("TASKS_DATA", "."))
BYTES = tasks.ByteVocabulary()


@tasks.python_map
def split_columns(line):
    inputs, targets = line.decode().split("\t")
    return {"inputs": inputs, "targets": targets}


@tasks.python_map
def more_features(example):
    """One feature of each kind that the other layout knows."""
    size = len(example["targets"]) % 3
    return {
        **example,
        "score": np.float32(size / 2),
        "weights": np.arange(size, dtype=np.float32),
        "ids": np.arange(size, dtype=np.int64) << 40,
        "flags": np.array([True, False][:size], bool),
        "matrix": np.arange(2 * size, dtype=np.int32).reshape(2, size),
        "text": example["targets"],
    }


@seqio.map_over_dataset
def with_words(example):
    """Texts and numbers whose rows have different lengths, and rows of pairs."""
    import tensorflow as tf

    words = tf.strings.split(example["targets"], " ")
    pairs = tf.reshape(tf.range(6, dtype=tf.float32), [3, 2])
    return {
        **example,
        "letters": tf.strings.bytes_split(words),
        "numbers": tf.ragged.range(tf.strings.length(words)),
        "pairs": tf.RaggedTensor.from_row_lengths(pairs, [2, 0, 1]),
    }


def add(name: str, preprocessors) -> None:
    tasks.TaskRegistry.remove(name)
    tasks.TaskRegistry.add(
        name,
        source=tasks.TextLineDataSource({"train": str(DATA / "train*.tsv"), "validation": str(DATA / "valid.tsv")}),
        preprocessors=[*preprocessors, tasks.CacheDatasetPlaceholder(), tasks.preprocessors.append_eos],
        output_features={"inputs": tasks.Feature(BYTES, add_eos=False), "targets": tasks.Feature(BYTES)},
    )


add("plain:pairs", [split_columns, tasks.preprocessors.tokenize])
add("plain:with_eos", [split_columns, tasks.preprocessors.tokenize, tasks.preprocessors.append_eos])
add("plain:ragged", [split_columns, with_words, tasks.preprocessors.tokenize])
add("plain:everything", [split_columns, more_features, tasks.preprocessors.tokenize])
tasks.TaskRegistry.remove("plain:uncached")
tasks.TaskRegistry.add(
    "plain:uncached",
    source=tasks.TextLineDataSource({"train": str(DATA / "train*.tsv")}),
    preprocessors=[split_columns],
    output_features={},
)
