"""How many examples a dataset maps at a time: all cores for one task, one for each of many."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from beam_pipes.tasks.in_tensorflow.tensorflow_import import tensorflow

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
