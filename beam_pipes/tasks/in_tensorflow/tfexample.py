"""Examples of tensors as `tf.train.Example`, and back. Needs TensorFlow.

What a list of values does not tell is kept in features of its own: `_sh:<name>` the shape, `_rl:<dim>:<name>` the row
lengths of a ragged dimension, `_sp:<dim>:<name>` the indices of a sparse one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_pipes.cache.exact import NotExactError, cast_exactly
from beam_pipes.errors import TaskError
from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow

SHAPE_PREFIX = "_sh:"
RAGGED_PREFIX = "_rl:"
SPARSE_PREFIX = "_sp:"


def tfexample_ragged_length_key(key: str, dim: int) -> str:
    """Name of the row lengths of a ragged dimension: `_rl:0:tokens`."""
    return f"{RAGGED_PREFIX}{dim}:{key}"


def tfexample_sparse_indices_key(key: str, dim: int) -> str:
    """Name of the indices of a sparse dimension: `_sp:0:tokens`."""
    return f"{SPARSE_PREFIX}{dim}:{key}"


def dict_to_tfexample(dct: Mapping[str, Any], store_shapes: bool = False) -> Any:
    """A `tf.train.Example` of eager tensors, ragged and sparse ones included.

    `{"a": [1, 2], "s": "x"}` → `a: int64_list [1, 2], s: bytes_list ["x"]`.

    Args:
        dct: name → tensor. Integers and booleans are kept as int64, floats as float32, strings as bytes.
        store_shapes: keep the shapes of dense tensors of rank 2 and more, and of sparse ones.

    Raises:
        TaskError: a tensor is of another type, an integer is beyond int64, or a float beyond float32.
    """
    tf = tensorflow("dict_to_tfexample")
    features: dict[str, Any] = {}
    for name, value in dct.items():
        if isinstance(value, tf.RaggedTensor):
            features[name] = _feature(tf, value.flat_values)
            for dim, lengths in enumerate(value.nested_row_lengths()):
                features[tfexample_ragged_length_key(name, dim)] = _feature(tf, lengths)
            if store_shapes and value.flat_values.shape.rank > 1:
                features[SHAPE_PREFIX + name] = _feature(tf, tf.shape(value.flat_values))
        elif isinstance(value, tf.SparseTensor):
            features[name] = _feature(tf, value.values)
            for dim in range(value.shape.rank):
                features[tfexample_sparse_indices_key(name, dim)] = _feature(tf, value.indices[:, dim])
            if store_shapes:
                features[SHAPE_PREFIX + name] = _feature(tf, value.dense_shape)
        else:
            tensor = tf.convert_to_tensor(value)
            features[name] = _feature(tf, tensor)
            if store_shapes and tensor.shape.rank > 1:
                features[SHAPE_PREFIX + name] = _feature(tf, tf.shape(tensor))
    return tf.train.Example(features=tf.train.Features(feature=features))


def _feature(tf: Any, tensor: Any) -> Any:
    if tensor.dtype == tf.string:
        texts = tf.reshape(tensor, [-1]).numpy().tolist()
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    flat = tensor.numpy().reshape(-1)
    if tensor.dtype.is_floating:
        return tf.train.Feature(float_list=tf.train.FloatList(value=_cast(flat, "float32")))
    if tensor.dtype.is_integer or tensor.dtype == tf.bool:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=_cast(flat, "int64")))
    raise TaskError(f"Unsupported type {tensor.dtype}", dtype=tensor.dtype.name)


def _cast(flat: Any, dtype: str) -> list[Any]:
    try:
        return cast_exactly(flat, np.dtype(dtype), rounds=True).tolist()  # type: ignore[no-any-return]
    except NotExactError as error:
        raise TaskError(
            f"a tf.train.Example keeps numbers as {dtype}, which does not hold {error}. Convert it, or keep it as "
            "text.",
            found=error.found,
        ) from None


def tfexample_to_dict(example: Any) -> dict[str, Any]:
    """Name → eager tensor of a `tf.train.Example` that `dict_to_tfexample` made: int64, float32 or string.

    Dense tensors without a stored shape come back as vectors.

    Raises:
        TaskError: row lengths, indices or a shape are missing.
    """
    tf = tensorflow("tfexample_to_dict")
    features = {name: _values(tf, feature) for name, feature in example.features.feature.items()}
    side = (SHAPE_PREFIX, RAGGED_PREFIX, SPARSE_PREFIX)
    result = {}
    for name, values in features.items():
        if name.startswith(side):
            continue
        ragged = _numbered(features, RAGGED_PREFIX, name, "ragged length")
        sparse = _numbered(features, SPARSE_PREFIX, name, "sparse indices")
        shape = features.get(SHAPE_PREFIX + name)
        if sparse:
            if shape is None:
                raise TaskError(f"Couldn't find dense shape for sparse tensor {name}", feature=name)
            result[name] = tf.SparseTensor(tf.stack(sparse, axis=1), values, shape)
        elif ragged:
            flat = values if shape is None else tf.reshape(values, shape)
            result[name] = tf.RaggedTensor.from_nested_row_lengths(flat, ragged)
        else:
            result[name] = values if shape is None else tf.reshape(values, shape)
    return result


def _numbered(features: Mapping[str, Any], prefix: str, name: str, what: str) -> list[Any]:
    dims = [
        int(number)
        for number, _, owner in (key[len(prefix) :].partition(":") for key in features if key.startswith(prefix))
        if owner == name
    ]
    for dim in range(max(dims, default=-1) + 1):
        if dim not in dims:
            raise TaskError(f"Couldn't find {dim}-th {what} for {name}", feature=name)
    return [features[f"{prefix}{dim}:{name}"] for dim in sorted(dims)]


def _values(tf: Any, feature: Any) -> Any:
    kind = feature.WhichOneof("kind")
    if kind == "int64_list":
        return tf.constant(feature.int64_list.value, tf.int64)
    if kind == "float_list":
        return tf.constant(feature.float_list.value, tf.float32)
    return tf.constant(list(feature.bytes_list.value), tf.string)
