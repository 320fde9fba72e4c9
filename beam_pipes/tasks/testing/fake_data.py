"""A small data set of short texts: `train` and `validation`, three examples each. Needs TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipes.tasks.provider import ShardInfo
from beam_pipes.tasks.tensorflow_import import tensorflow

FAKE_EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "train": [
        {"prefix": "this is", "suffix": "a test", "idx": 0},
        {"prefix": "that was", "suffix": "another test", "idx": 1},
        {"prefix": "those were", "suffix": "some more tests", "idx": 2},
    ],
    "validation": [
        {"prefix": "first of all", "suffix": "a check", "idx": 0},
        {"prefix": "then", "suffix": "one check more", "idx": 1},
        {"prefix": "and at last", "suffix": "the end", "idx": 2},
    ],
}


def get_fake_dataset(
    split: str, shuffle_files: bool = False, seed: int | None = None, shard_info: ShardInfo | None = None
) -> Any:
    """The examples of `FAKE_EXAMPLES` as a dataset of `prefix`, `suffix` and `idx`; a function for
    `FunctionDataSource`."""
    tf = tensorflow("get_fake_dataset")
    examples = FAKE_EXAMPLES[split]
    columns = {name: [example[name] for example in examples] for name in examples[0]}
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    if shuffle_files:
        dataset = dataset.shuffle(len(examples), seed=seed)
    return dataset if shard_info is None else dataset.shard(shard_info.num_shards, shard_info.index)


def create_default_dataset(
    x: Sequence[Mapping[str, Any]],
    feature_names: Sequence[str] = ("inputs", "targets"),
    output_types: Mapping[str, Any] | None = None,
    output_shapes: Mapping[str, Any] | None = None,
) -> Any:
    """A dataset of the given examples; features are int32 vectors unless types and shapes say otherwise."""
    tf = tensorflow("create_default_dataset")
    types = output_types or dict.fromkeys(feature_names, tf.int32)
    shapes = output_shapes or dict.fromkeys(feature_names, [None])
    signature = {name: tf.TensorSpec(shapes[name], types[name]) for name in types}
    return tf.data.Dataset.from_generator(lambda: iter(x), output_signature=signature)
