"""A small data set of short texts: `train` and `validation`, three examples each. Needs TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow
from beam_pipes.tasks.provider import ShardInfo

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


#: `2d_feature` and `3d_feature` of the examples of a split, in their order; int32 of shapes (None, 3), (None, 2, 3).
FAKE_ND_FEATURES: dict[str, list[dict[str, Any]]] = {
    split: [
        {"2d_feature": [[first, 2, 3]] * (1 + number), "3d_feature": [[[1, 2, 3], [4, 5, first]]]}
        for number in range(len(examples))
    ]
    for first, (split, examples) in enumerate(FAKE_EXAMPLES.items(), start=1)
}

#: `ragged_feature` of the examples of a split: int32 of shape (2, None, 2), rows of several lengths.
FAKE_RAGGED_FEATURES: dict[str, list[dict[str, Any]]] = {
    split: [
        {"ragged_feature": [[[3, first]], [[4, 1], [5, 9]]]},
        {"ragged_feature": [[[6, 2], [9, first]], []]},
        {"ragged_feature": [[[0, 9]], [[8, first]]]},
    ]
    for first, split in enumerate(FAKE_EXAMPLES)
}


def get_fake_dataset(
    split: str,
    shuffle_files: bool = False,
    seed: int | None = None,
    shard_info: ShardInfo | None = None,
    ndfeatures: bool = False,
    ragged_features: bool = False,
) -> Any:
    """The examples of `FAKE_EXAMPLES` as a dataset of `prefix`, `suffix` and `idx`; a function for
    `FunctionDataSource`.

    `ndfeatures` adds `2d_feature` and `3d_feature`, `ragged_features` adds `ragged_feature`, a ragged tensor.
    """
    tf = tensorflow("get_fake_dataset")
    examples = FAKE_EXAMPLES[split]
    columns = {name: [example[name] for example in examples] for name in examples[0]}
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    if ndfeatures:
        shapes = {"2d_feature": (None, 3), "3d_feature": (None, 2, 3)}
        signature = {name: tf.TensorSpec(shape, tf.int32) for name, shape in shapes.items()}
        arrays = tf.data.Dataset.from_generator(lambda: iter(FAKE_ND_FEATURES[split]), output_signature=signature)
        dataset = tf.data.Dataset.zip(dataset, arrays).map(lambda example, more: {**example, **more})
    if ragged_features:
        rows = [example["ragged_feature"] for example in FAKE_RAGGED_FEATURES[split]]
        ragged = tf.data.Dataset.from_tensor_slices(tf.ragged.constant(rows, tf.int32, ragged_rank=2, inner_shape=(2,)))
        dataset = tf.data.Dataset.zip(dataset, ragged).map(lambda example, value: {**example, "ragged_feature": value})
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
