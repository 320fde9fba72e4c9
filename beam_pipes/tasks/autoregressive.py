"""Targets shifted right: what a decoder sees when it predicts them. Needs TensorFlow."""

from __future__ import annotations

from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.tensorflow_import import tensorflow


def make_autoregressive_inputs(targets: Any, sequence_id: Any = None, output_dtype: Any = None, bos_id: int = 0) -> Any:
    """Shifts along the first axis by one and puts `bos_id` in front: `[3, 9, 1]` → `[0, 3, 9]`.

    In a packed row every sequence begins anew: targets `[3, 9, 1, 4, 1, 0, 0]` with sequence ids `[1, 1, 1, 2,
    2, 0, 0]`
    → `[0, 3, 9, 0, 4, 0, 0]`.

    Args:
        targets: numbers, `[length, ...]`.
        sequence_id: integers, `[length]`, for a packed row.
        output_dtype: dtype of the result; None for that of the targets.
        bos_id: what stands at the beginning of each sequence.

    Raises:
        TaskError: targets are not numbers, sequence ids are not integers, or a packed row is not rank 1.
    """
    tf = tensorflow("make_autoregressive_inputs")
    targets = tf.convert_to_tensor(targets)
    if targets.dtype in (tf.string, tf.bool):
        raise TaskError(f"Only numeric types are supported. Got: {targets.dtype}", dtype=targets.dtype.name)
    dtype = targets.dtype if output_dtype is None else tf.as_dtype(output_dtype)
    if sequence_id is not None:
        sequence_id = tf.convert_to_tensor(sequence_id)
        if not sequence_id.dtype.is_integer:
            raise TaskError(
                f"The sequence_id should be integer-valued tensors for a packed dataset. Got: {sequence_id.dtype}",
                dtype=sequence_id.dtype.name,
            )
        if targets.shape.rank != 1:
            raise TaskError(
                f"Only 1-D sequences are supported with packing. Got a packed {targets.shape.rank}-D sequence.",
                rank=targets.shape.rank,
            )
    begin = tf.fill(tf.shape(targets[:1]), tf.cast(bos_id, targets.dtype))
    shifted = tf.concat([begin, targets[:-1]], axis=0)
    if sequence_id is not None:
        is_first = tf.concat([[True], tf.not_equal(sequence_id[1:], sequence_id[:-1])], axis=0)[: tf.size(targets)]
        shifted = tf.where(is_first, tf.cast(bos_id, targets.dtype), shifted)
    shifted = tf.ensure_shape(shifted, targets.shape)
    return tf.cast(shifted, dtype)
