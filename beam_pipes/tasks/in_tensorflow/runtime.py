"""TensorFlow where it is needed and only there: the module, its file systems, and how many threads a dataset takes.

Vocabularies, sources and steps call it; it knows none of them.

    tensorflow("reading text lines")   the module, or an error that names the purpose and the extra to install
    read_bytes("gs://bucket/x")        a remote file through TensorFlow's file systems; a local one without TensorFlow
    with frugal(): ...                 datasets made inside take no threads of their own
"""

from __future__ import annotations

import contextlib
import contextvars
import glob
import os
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType

from beam_pipes.extras import TfDataset as TfDataset
from beam_pipes.extras import TfTensor as TfTensor
from beam_pipes.extras import require


def tensorflow(purpose: str) -> ModuleType:
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


def _gfile(purpose: str) -> ModuleType:
    gfile: ModuleType = require("tensorflow", purpose=purpose).io.gfile
    return gfile


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
