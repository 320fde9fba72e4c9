"""A shuffle that is a function of its seed. Needs TensorFlow."""

from __future__ import annotations

from typing import Any

from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow


def stateless_shuffle(value: Any, seed: Any) -> Any:
    """The entries of the first axis in another order, the same for the same seed (two integers)."""
    tf = tensorflow("stateless_shuffle")
    keys = tf.random.stateless_uniform(tf.shape(value)[:1], seed=seed)
    return tf.gather(value, tf.argsort(keys))
