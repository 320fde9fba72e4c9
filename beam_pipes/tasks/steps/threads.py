"""How many threads a dataset takes of its own: `with frugal(): ...` makes datasets that take none."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from beam_pipes.extras import TfDataset, tensorflow

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
    """The dataset, read with two threads instead of five: no tuning, no prefetching that nobody asked for."""
    tf = tensorflow("reading a dataset")
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)
