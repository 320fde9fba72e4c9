"""Functions of one example turned into functions of a `tf.data.Dataset`, and tensors as `tf.train.Example`.

`map_over_dataset` decorates a preprocessor; its seeds come from the active seed manager, so that noise in it is a
function of the task's seed. Datasets made inside of `with frugal(): ...` take no threads of their own.

`dict_to_tfexample` and `tfexample_to_dict`: facts that a list of values cannot express are kept in separate features,
`_sh:<name>` the shape, `_rl:<dim>:<name>` the row lengths of a ragged dimension, `_sp:<dim>:<name>` sparse indices.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset, TfTensor, tensorflow
from beam_pipes.format.exact import NotExactError, cast_exactly
from beam_pipes.tasks.steps.ragged import RAGGED_PREFIX, Ragged
from beam_pipes.tasks.steps.ragged import tfexample_ragged_length_key as tfexample_ragged_length_key
from beam_pipes.tasks.steps.seeds import StepSeed, current_seed_manager
from beam_pipes.tasks.steps.signatures import function_name

if TYPE_CHECKING:
    from tensorflow import train as tf_train

_AUTOTUNE = -1  # tf.data.AUTOTUNE, without importing TensorFlow


_frugal: contextvars.ContextVar[bool] = contextvars.ContextVar("frugal", default=False)


def map_parallelism() -> int | None:
    """`num_parallel_calls` for `Dataset.map`: tf.data's choice; None (no extra threads) among many tasks."""
    return None if _frugal.get() else _AUTOTUNE


def is_frugal() -> bool:
    return _frugal.get()


@contextlib.contextmanager
def frugal() -> Iterator[None]:
    """Datasets built inside take no threads of their own: 300 tasks with 7 threads each would be 2,100."""
    token = _frugal.set(True)
    try:
        yield
    finally:
        _frugal.reset(token)


def with_few_threads(dataset: TfDataset) -> TfDataset:
    """The dataset, read with two threads instead of five: without autotuning and implicit prefetching."""
    tf = tensorflow("reading a dataset")
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


#: Examples of tensors, flat and nested. For annotations.
TFDict = Mapping[str, TfTensor]
NestedTFDict = dict[str, Any]


def stateless_shuffle(value: object, seed: TfTensor) -> TfTensor:
    """The entries of the first axis in another order, the same for the same seed (two integers)."""
    tf = tensorflow("stateless_shuffle")
    keys = tf.random.stateless_uniform(tf.shape(value)[:1], seed=seed)
    return tf.gather(value, tf.argsort(keys))


def map_over_dataset(
    fn: Callable[..., object] | None = None, *, num_seeds: int | None = None, num_parallel_calls: int | None = None
) -> TfDataset:
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
        num_seeds: number of stateless seeds to pass, as `seed` for one and `seeds`, a tuple, for several:
            `first, second = seeds`. Each is a tuple of two int64 scalars, which TensorFlow takes as a tensor. They come
            from the active seed manager.
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
    def mapped(dataset: TfDataset, *args: object, **kwargs: object) -> TfDataset:
        calls = map_parallelism() if num_parallel_calls is None else num_parallel_calls
        if num_seeds is None:
            return dataset.map(lambda example: function(example, *args, **kwargs), num_parallel_calls=calls)
        step = current_seed_manager().next_step(name=function_name(function))
        name = "seed" if num_seeds == 1 else "seeds"

        def with_seeds(position: object, example: object) -> object:
            unstack = tensorflow("map_over_dataset").unstack
            seeds = tuple(tuple(unstack(one)) for one in unstack(example_seeds(step, example, position, num_seeds)))
            return function(example, *args, **kwargs, **{name: seeds[0] if num_seeds == 1 else seeds})

        return dataset.enumerate().map(with_seeds, num_parallel_calls=calls)

    mapped.__dict__["takes_seeds"] = num_seeds is not None
    return mapped


def example_seeds(step: StepSeed, example: object, position: object, num_seeds: int) -> TfTensor:
    """Stateless seeds of one example: int64 `[num_seeds, 2]`, of values that int32 holds."""
    tf = tensorflow("map_over_dataset")
    key = _content_key(tf, example) if step.keyed_by == "content" else step.position_key(position)
    key = tf.stack([tf.constant(step.seed, tf.int64), tf.cast(key, tf.int64)])
    seeds = tf.random.stateless_uniform([num_seeds, 2], key, minval=None, maxval=None, dtype=tf.int32)
    return tf.cast(seeds, tf.int64)


def _content_key(tf: ModuleType, example: object) -> TfTensor:
    flat = tf.nest.flatten(example, expand_composites=True)
    parts = [tf.io.serialize_tensor(value) for value in flat]
    lengths = [tf.strings.as_string(tf.strings.length(part)) for part in parts]
    return tf.strings.to_hash_bucket_fast(tf.strings.join([*lengths, *parts], separator=","), 1 << 62)


SHAPE_PREFIX = "_sh:"
SPARSE_PREFIX = "_sp:"


def tfexample_sparse_indices_key(key: str, dim: int) -> str:
    """Name of the indices of a sparse dimension: `_sp:0:tokens`."""
    return f"{SPARSE_PREFIX}{dim}:{key}"


def dict_to_tfexample(dct: Mapping[str, object], store_shapes: bool = False) -> tf_train.Example:
    """A `tf.train.Example` of eager tensors, ragged and sparse ones included.

    `{"a": [1, 2], "s": "x"}` → `a: int64_list [1, 2], s: bytes_list ["x"]`.

    Args:
        dct: name → tensor. Integers and booleans are kept as int64, floats as float32, strings as bytes.
        store_shapes: keep the shapes of dense tensors of rank 2 and more, and of sparse ones.

    Raises:
        TaskError: a tensor is of another type, an integer is beyond int64, or a float beyond float32.
    """
    tf = tensorflow("dict_to_tfexample")
    features: dict[str, tf_train.Feature] = {}
    for name, given in dct.items():
        value = given.tensor() if isinstance(given, Ragged) else given
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


def _feature(tf: ModuleType, tensor: TfTensor) -> tf_train.Feature:
    if tensor.dtype == tf.string:
        texts = tf.reshape(tensor, [-1]).numpy().tolist()
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    flat = tensor.numpy().reshape(-1)
    if tensor.dtype.is_floating:
        return tf.train.Feature(float_list=tf.train.FloatList(value=_cast(flat, "float32")))
    if tensor.dtype.is_integer or tensor.dtype == tf.bool:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=_cast(flat, "int64")))
    raise TaskError(f"Unsupported type {tensor.dtype}", dtype=tensor.dtype.name)


def _cast(flat: TfTensor, dtype: str) -> list[int | float]:
    try:
        return cast_exactly(flat, np.dtype(dtype), rounds=True).tolist()  # type: ignore[no-any-return]
    except NotExactError as error:
        raise TaskError(
            f"a tf.train.Example keeps numbers as {dtype}, which does not hold {error}. Convert it, or keep it as "
            "text.",
            found=error.found,
        ) from None


def tfexample_to_dict(example: tf_train.Example) -> dict[str, TfTensor]:
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


def _numbered(features: Mapping[str, object], prefix: str, name: str, what: str) -> list[object]:
    dims = [
        int(number)
        for number, _, owner in (key[len(prefix) :].partition(":") for key in features if key.startswith(prefix))
        if owner == name
    ]
    for dim in range(max(dims, default=-1) + 1):
        if dim not in dims:
            raise TaskError(f"Couldn't find {dim}-th {what} for {name}", feature=name)
    return [features[f"{prefix}{dim}:{name}"] for dim in sorted(dims)]


def _values(tf: ModuleType, feature: tf_train.Feature) -> TfTensor:
    kind = feature.WhichOneof("kind")
    if kind == "int64_list":
        return tf.constant(feature.int64_list.value, tf.int64)
    if kind == "float_list":
        return tf.constant(feature.float_list.value, tf.float32)
    return tf.constant(list(feature.bytes_list.value), tf.string)
