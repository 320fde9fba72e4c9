"""Functions of one example, made functions of a dataset. Needs TensorFlow when the dataset is there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.in_tensorflow.concurrency import map_parallelism
from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow
from beam_pipes.tasks.seeds import StepSeed, current_seed_manager
from beam_pipes.tasks.signatures import function_name


def map_over_dataset(
    fn: Callable[..., Any] | None = None, *, num_seeds: int | None = None, num_parallel_calls: int | None = None
) -> Any:
    """Decorates a function of one example so that it takes a whole `tf.data.Dataset`, in parallel.

    ```
    @map_over_dataset
    def lower(example):
        return {"inputs": tf.strings.lower(example["inputs"])}

    @map_over_dataset(num_seeds=1)
    def noise(example, seed):
        return {"inputs": example["inputs"] + tf.random.stateless_normal((), seed)}
    ```

    Further arguments of the function are given after the dataset, or bound, or injected by the task (`output_features`,
    `sequence_length`).

    Args:
        fn: the function.
        num_seeds: number of stateless seeds (int32 `[2]`) to pass, as `seed` for one and `seeds`, `[num_seeds, 2]`, for
            several. They come from the active seed manager.
        num_parallel_calls: examples mapped at a time; None lets tf.data choose.

    Raises:
        TaskError: `num_seeds` is not a positive number.
    """
    if num_seeds is not None and num_seeds < 1:
        raise TaskError(f"num_seeds is the number of seeds a function asks for, 1 or more, got {num_seeds}")
    if fn is None:
        return functools.partial(map_over_dataset, num_seeds=num_seeds, num_parallel_calls=num_parallel_calls)
    function = fn

    @functools.wraps(function)
    def mapped(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        calls = map_parallelism() if num_parallel_calls is None else num_parallel_calls
        if num_seeds is None:
            return dataset.map(lambda example: function(example, *args, **kwargs), num_parallel_calls=calls)
        step = current_seed_manager().next_step(name=function_name(function))
        name = "seed" if num_seeds == 1 else "seeds"

        def with_seeds(position: Any, example: Any) -> Any:
            seeds = example_seeds(step, example, position, num_seeds)
            return function(example, *args, **kwargs, **{name: seeds[0] if num_seeds == 1 else seeds})

        return dataset.enumerate().map(with_seeds, num_parallel_calls=calls)

    mapped.__dict__["takes_seeds"] = num_seeds is not None
    return mapped


def example_seeds(step: StepSeed, example: Any, position: Any, num_seeds: int) -> Any:
    """Stateless seeds of one example: int32 `[num_seeds, 2]`."""
    tf = tensorflow("map_over_dataset")
    key = _content_key(tf, example) if step.keyed_by == "content" else step.position_key(position)
    key = tf.stack([tf.constant(step.seed, tf.int64), tf.cast(key, tf.int64)])
    return tf.random.stateless_uniform([num_seeds, 2], key, minval=None, maxval=None, dtype=tf.int32)


def _content_key(tf: Any, example: Any) -> Any:
    flat = tf.nest.flatten(example, expand_composites=True)
    parts = [tf.io.serialize_tensor(value) for value in flat]
    lengths = [tf.strings.as_string(tf.strings.length(part)) for part in parts]
    return tf.strings.to_hash_bucket_fast(tf.strings.join([*lengths, *parts], separator=","), 1 << 62)
