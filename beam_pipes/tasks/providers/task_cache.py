"""The cache of a task: its statistics, the source that reads it, and its fingerprints.

A build stores the digests of `fingerprint_digests`; `cached_source` compares them before it reads, so that a cache is
reused only when neither the features nor the steps before the cut have changed. `apply_learned` is the step that
applies what a `preprocessing_fn` learned from the cache.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from beam_pipes.errors import StaleCacheError, TaskError
from beam_pipes.extras import TfDataset, TfTensor, require, unbatched
from beam_pipes.identity.fingerprint import fingerprint
from beam_pipes.tasks.sources.places import MANIFEST, find_cache_dir, get_cached_stats_path, require_cache_dir
from beam_pipes.tasks.steps.features import Feature, SequenceLength, ShardInfo
from beam_pipes.tasks.steps.signatures import PythonMap
from beam_pipes.tasks.steps.step import CacheDatasetPlaceholder, Step, StepContext
from beam_pipes.tasks.vocabularies.files import exists, read_bytes

if TYPE_CHECKING:
    from beam_pipes.tasks.sources.data_source import DataSource, DataSourceInterface


class DeclaredTask(Protocol):
    """The members of a task needed for reading and caching; `beam_pipes.tasks.Task` describes each."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> DataSourceInterface: ...

    @property
    def output_features(self) -> Mapping[str, Feature]: ...

    @property
    def shuffle_buffer_size(self) -> int | None: ...

    @property
    def placeholder(self) -> CacheDatasetPlaceholder | None: ...

    @property
    def supports_caching(self) -> bool: ...

    @property
    def requires_caching(self) -> bool: ...

    def assert_cached(self) -> None: ...

    def offline_steps(self) -> Sequence[Step]: ...

    def online_steps(self) -> Sequence[Step]: ...

    def step_context(self, sequence_length: SequenceLength | None = None) -> StepContext: ...

    def preprocess_precache(self, dataset: TfDataset, seed: int | None = None) -> TfDataset: ...

    def preprocess_postcache(
        self,
        dataset: TfDataset,
        sequence_length: SequenceLength | None,
        seed: int | None = None,
        shard_info: ShardInfo | None = None,
    ) -> TfDataset: ...


def cached_stats(task_name: str, split: str) -> Mapping[str, int | float]:
    """The statistics of a split of a task's cache.

    Raises:
        CacheNotFoundError: there is no cache.
        TaskError: it has no such split.
    """
    stats = _stats(require_cache_dir(task_name), split)
    if stats is None:
        raise TaskError(f"Stats do not exist for '{task_name}' split: {split}", task=task_name, split=split)
    return stats


def _stats(directory: str, split: str) -> Mapping[str, int | float] | None:
    path = get_cached_stats_path(directory, split)
    if exists(path):
        stats: dict[str, int | float] = json.loads(read_bytes(path))
        return stats
    if not exists(os.path.join(directory, MANIFEST)):
        return None
    from beam_pipes.cache import Cache
    from beam_pipes.tasks.sources.sidecars import split_statistics

    cache = Cache.open(directory)
    if split not in cache.splits:
        return None
    return split_statistics(cache[split], statistics=cache.manifest.statistics)


def cached_stats_or_none(task_name: str, split: str) -> Mapping[str, int | float] | None:
    """`cached_stats`; None without a cache or without the split."""
    directory = find_cache_dir(task_name)
    return None if directory is None else _stats(directory, split)


def cached_num_examples(task_name: str, split: str) -> int | None:
    """The number of examples of a split of a task's cache; None without a cache or without the split.

    If the cache states it, its index is not read: a mixture asks hundreds of caches.
    """
    directory = find_cache_dir(task_name)
    if directory is None:
        return None
    if exists(os.path.join(directory, MANIFEST)):
        from beam_pipes.cache import Cache

        cache = Cache.open(directory)
        return len(cache[split]) if split in cache.splits else None
    count = (_stats(directory, split) or {}).get("examples")
    return None if count is None else int(count)


def cached_source(task: DeclaredTask, split: str) -> DataSource:
    """The source that reads a split of a task's cache: one that beam-pipes built, or one in the layout of
    `info.{split}.json`."""
    directory = require_cache_dir(task.name)
    if exists(os.path.join(directory, MANIFEST)):
        from beam_pipes.tasks.sources.cached import BuiltCacheSource

        source = BuiltCacheSource(directory, split)
        check_fingerprints(task, source.fingerprints, directory)
        return source
    from beam_pipes.tasks.sources.cached import CachedDataSource

    placeholder = task.placeholder
    buffer_size = placeholder.file_shuffle_buffer_size if placeholder else None
    return CachedDataSource(directory, split, file_shuffle_buffer_size=buffer_size)


_PREFIX = "task/"


def task_fingerprints(task: DeclaredTask) -> dict[str, str]:
    """Part of a task → digest of what it depends on: `features`, and `step 0: tokenize`, ... for each offline step.

    Covers names, bound arguments, the code of functions and everything they refer to, and the content of vocabularies,
    but no paths, times, line numbers or comments. The build fingerprints the source data separately, shard by shard.
    """
    steps = enumerate(task.offline_steps())
    return {"features": features_digest(task), **{part_name(n, step): step_digest(step) for n, step in steps}}


def features_digest(task: DeclaredTask) -> str:
    """Digest of the output features with their vocabularies."""
    features = {
        name: {
            "vocabulary": feature.vocabulary.fingerprint(),
            "add_eos": feature.add_eos,
            "required": feature.required,
            "dtype": feature.dtype.name,
            "rank": feature.rank,
        }
        for name, feature in task.output_features.items()
    }
    return hashlib.sha256(json.dumps(features, sort_keys=True).encode()).hexdigest()


def part_name(number: int, step: Step) -> str:
    """The name of an offline step in messages, accounts and fingerprints: `step 0: tokenize`."""
    return f"step {number}: {step.name}"


def step_digest(step: Step) -> str:
    """The digest of what one step depends on. Computed once per step: code does not change within a process."""
    if step.digest is None:
        step.digest = fingerprint(plain_preprocessor(step.preprocessor)).digest
    return step.digest


def plain_preprocessor(preprocessor: object) -> object:
    """The user's function or pipeline itself with its bound arguments, unwrapped from `python_map`."""
    if isinstance(preprocessor, PythonMap):
        return preprocessor.fn
    if isinstance(preprocessor, functools.partial):
        function = plain_preprocessor(preprocessor.func)
        assert callable(function)
        return functools.partial(function, *preprocessor.args, **preprocessor.keywords)
    return preprocessor


def fingerprint_digests(task: DeclaredTask) -> dict[str, str]:
    """`task_fingerprints`, named `task/<part>`: what a build stores in the manifest."""
    return {_PREFIX + part: digest for part, digest in task_fingerprints(task).items()}


def check_fingerprints(task: DeclaredTask, stored: Mapping[str, str], where: str) -> None:
    """Raises `StaleCacheError` if a cache was built for another version of the task; caches without digests pass."""
    before = {name: digest for name, digest in stored.items() if name.startswith(_PREFIX)}
    now = fingerprint_digests(task)
    if not before or before == now:
        return
    changed = sorted(name[len(_PREFIX) :] for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    raise StaleCacheError(
        f"the cache {where} was built for another version of task '{task.name}'; what changed: {', '.join(changed)}. "
        f"Build it again, or undo the change",
        task=task.name,
        changed=changed,
    )


# The name of the asset in the cache.
TRANSFORM_FN = "transform_fn"


# Examples per call of the function: a call costs a millisecond, each example microseconds.
_EXAMPLES_AT_ONCE = 256


def apply_learned(dataset: TfDataset, *, task: str) -> TfDataset:
    """Cached examples → the results of the transform function in the task's cache, in the same order.

    Raises `CacheNotFoundError` if the task is not cached, since nothing was learned then.
    """
    from beam_pipes.cache import Cache
    from beam_pipes.tft import TransformFunction

    tf = require("tensorflow", purpose="the preprocessing_fn of a task")
    transform = TransformFunction.of(Cache.open(require_cache_dir(task)), TRANSFORM_FN)
    taken = set(transform.raw_features.names)

    def transformed(batch: dict[str, TfTensor]) -> dict[str, TfTensor]:
        made = transform({name: value for name, value in batch.items() if name in taken})
        return {
            name: tf.RaggedTensor.from_sparse(value) if isinstance(value, tf.SparseTensor) else value
            for name, value in made.items()
        }

    return unbatched(dataset.ragged_batch(_EXAMPLES_AT_ONCE).map(transformed))
