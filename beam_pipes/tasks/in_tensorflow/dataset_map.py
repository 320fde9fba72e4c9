"""TensorFlow, imported where it is needed.

Files by name or glob, local or on any file system that TensorFlow knows.

How many examples a dataset maps at a time: all cores for one task, one for each of many.

A shuffle that is a function of its seed. Needs TensorFlow.

Functions of one example, made functions of a dataset. Needs TensorFlow when the dataset is there.

Examples of tensors as `tf.train.Example`, and back. Needs TensorFlow.

What a list of values does not tell is kept in features of its own: `_sh:<name>` the shape, `_rl:<dim>:<name>` the row
lengths of a ragged dimension, `_sp:<dim>:<name>` the indices of a sparse one.

The step that applies what was learned of a task's `preprocessing_fn` to its cached examples.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import glob
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from beam_pipes.cache.exact import NotExactError, cast_exactly
from beam_pipes.cache.reader import Cache
from beam_pipes.errors import TaskError
from beam_pipes.extras import require
from beam_pipes.tasks.seeds import StepSeed, current_seed_manager
from beam_pipes.tasks.signatures import function_name


def tensorflow(purpose: str) -> Any:
    """The `tensorflow` module, or `MissingExtraError` naming `purpose`.

    Inside a traced function it must already be loaded: looked up, not imported, since AutoGraph cannot read
    the import machinery.
    """
    loaded = sys.modules.get("tensorflow")
    return require("tensorflow", purpose=purpose) if loaded is None else loaded


def is_remote(path: str) -> bool:
    return "://" in path


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file; a path with a scheme (`gs://`) is read through TensorFlow's file systems."""
    path = os.fspath(path)
    if not is_remote(path):
        with open(path, "rb") as file:
            return file.read()
    with _gfile("reading " + path).GFile(path, "rb") as file:
        content: bytes = file.read()
    return content


def exists(path: str | os.PathLike[str]) -> bool:
    path = os.fspath(path)
    return bool(_gfile("looking for " + path).exists(path)) if is_remote(path) else os.path.exists(path)


def list_files(file_patterns: str | Iterable[str]) -> list[str]:
    """Files that match one pattern, a list of patterns, or a comma-separated string of them; sorted within each one.

    `["b*", "a.txt"]` → files of `b*`, sorted, then `a.txt`; a file that several patterns match is listed once. A plain
    name that does not exist is not listed.
    """
    patterns = file_patterns.split(",") if isinstance(file_patterns, str) else list(file_patterns)
    found: dict[str, None] = {}
    for pattern in patterns:
        found.update(dict.fromkeys(_matches(os.fspath(pattern))))
    return list(found)


def _matches(pattern: str) -> list[str]:
    if is_remote(pattern):
        return sorted(_gfile("listing " + pattern).glob(pattern))
    if os.path.exists(pattern):  # before globbing: a name may hold glob characters
        return [pattern]
    return sorted(glob.glob(pattern))


def _gfile(purpose: str) -> Any:
    return require("tensorflow", purpose=purpose).io.gfile


_AUTOTUNE = -1  # tf.data.AUTOTUNE, without importing TensorFlow

_frugal: contextvars.ContextVar[bool] = contextvars.ContextVar("frugal", default=False)


def map_parallelism() -> int | None:
    """`num_parallel_calls` for `Dataset.map`: tf.data's choice; None (no threads of its own) among many tasks."""
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


def with_few_threads(dataset: Any) -> Any:
    """The dataset, read with two threads instead of five: no tuning, no prefetching that nobody asked for."""
    tf = tensorflow("reading a dataset")
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


def stateless_shuffle(value: Any, seed: Any) -> Any:
    """The entries of the first axis in another order, the same for the same seed (two integers)."""
    tf = tensorflow("stateless_shuffle")
    keys = tf.random.stateless_uniform(tf.shape(value)[:1], seed=seed)
    return tf.gather(value, tf.argsort(keys))


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


# What the asset in the cache is called.
TRANSFORM_FN = "transform_fn"

# Examples that the function is given at once: a call costs a millisecond, an example in it microseconds.
_EXAMPLES_AT_ONCE = 256


def apply_learned(dataset: Any, *, task: str) -> Any:
    """Cached examples → what the transform function in the task's cache makes of them, in the same order.

    Raises `CacheNotFoundError` where the task is not cached: there is nothing that was learned.
    """
    from beam_pipes.tasks.caches.task_cache import require_cache_dir
    from beam_pipes.tft import TransformFunction

    tf = require("tensorflow", purpose="the preprocessing_fn of a task")
    transform = TransformFunction.of(Cache.open(require_cache_dir(task)), TRANSFORM_FN)
    taken = set(transform.raw_features.names)

    def transformed(batch: dict[str, Any]) -> dict[str, Any]:
        made = transform({name: value for name, value in batch.items() if name in taken})
        return {
            name: tf.RaggedTensor.from_sparse(value) if isinstance(value, tf.SparseTensor) else value
            for name, value in made.items()
        }

    return dataset.ragged_batch(_EXAMPLES_AT_ONCE).map(transformed).unbatch()
