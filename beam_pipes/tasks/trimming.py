"""Sequences cut to a length, and padded to it. Needs TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_pipes.tasks import column_forms, python_forms
from beam_pipes.tasks.column_forms import with_column_form
from beam_pipes.tasks.features import Feature
from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow
from beam_pipes.tasks.python_step import with_python_form


@with_column_form(column_forms.trim_features)
@with_python_form(python_forms.trim_features)
def trim_dataset(
    dataset: Any, sequence_length: Mapping[str, Any] | None, output_features: Mapping[str, Feature]
) -> Any:
    """Cuts every output feature to its length in `sequence_length`.

    `{"targets": [5, 6, 7], "extra": [1, 2, 3]}` with `{"targets": 2}` → `{"targets": [5, 6], "extra": [1, 2, 3]}`.

    A length is a number for the first axis, or a list of one an axis with None for "as it is". Features that
    are not in
    `output_features`, have no length, or are scalars stay as they are.
    """
    tf = tensorflow("trim_dataset")
    lengths = {
        name: length
        for name, length in (sequence_length or {}).items()
        if length is not None and name in output_features
    }
    if not lengths:
        return dataset

    def trim(example: Mapping[str, Any]) -> dict[str, Any]:
        return {name: trim_tensor(value, lengths.get(name)) for name, value in example.items()}

    return dataset.map(trim, num_parallel_calls=tf.data.AUTOTUNE)


def trim_and_pad_dataset(dataset: Any, feature_lengths: Mapping[str, Any]) -> Any:
    """Cuts and pads (with 0, "" or False) features to fixed lengths: `[3, 9]` with length 4 → `[3, 9, 0, 0]`.

    A length is a number for the first axis, or a list of one an axis with None for "as it is". Features
    without a length
    stay as they are. The static shapes of the result are known, so it can be batched.
    """
    tf = tensorflow("trim_and_pad_dataset")

    def pad(example: Mapping[str, Any]) -> dict[str, Any]:
        return {name: pad_tensor(value, feature_lengths.get(name)) for name, value in example.items()}

    return dataset.map(pad, num_parallel_calls=tf.data.AUTOTUNE)


def trim_tensor(value: Any, length: Any) -> Any:
    """The first `length` entries of the first axis, or of each axis for a list of lengths."""
    rank = value.shape.rank
    if length is None or rank == 0:
        return value
    lengths = list(length) if isinstance(length, (list, tuple)) else [length]
    return value[tuple(slice(None, axis_length) for axis_length in lengths)]


def pad_tensor(value: Any, length: Any) -> Any:
    """`trim_tensor`, then padding behind each axis up to its length."""
    tf = tensorflow("trim_and_pad_dataset")
    if length is None or value.shape.rank == 0:
        return value
    if isinstance(value, tf.RaggedTensor):
        value = value.to_tensor()
    lengths = list(length) if isinstance(length, (list, tuple)) else [length]
    lengths += [None] * (value.shape.rank - len(lengths))
    static = [
        axis if axis_length is None else axis_length for axis, axis_length in zip(value.shape, lengths, strict=True)
    ]
    value = trim_tensor(value, lengths)
    actual = tf.shape(value)
    missing = [0 if axis_length is None else axis_length - actual[axis] for axis, axis_length in enumerate(lengths)]
    fill = "" if value.dtype == tf.string else tf.zeros((), value.dtype)
    padded = tf.pad(value, [[0, amount] for amount in missing], constant_values=fill)
    padded.set_shape(static)
    return padded
