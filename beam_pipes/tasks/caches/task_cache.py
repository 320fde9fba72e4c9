"""The cache of a task: where it is, what it counts, and the source that reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import CacheNotFoundError, TaskError
from beam_pipes.tasks.caches.cache_dirs import get_cached_stats_path, get_global_cache_dirs, get_task_dir_from_name
from beam_pipes.tasks.in_tensorflow.file_patterns import exists, read_bytes

if TYPE_CHECKING:
    from beam_pipes.tasks.task import Task

COMPLETED = "COMPLETED"
MANIFEST = "manifest.json"


def find_cache_dir(task_name: str) -> str | None:
    """The first global cache directory that has a finished cache of the task."""
    for directory in get_global_cache_dirs():
        path = os.path.join(directory, get_task_dir_from_name(task_name))
        if exists(os.path.join(path, MANIFEST)) or exists(os.path.join(path, COMPLETED)):
            return path
    return None


def require_cache_dir(task_name: str) -> str:
    """`find_cache_dir`, or `CacheNotFoundError`."""
    path = find_cache_dir(task_name)
    if path is None:
        searched = ", ".join(get_global_cache_dirs()) or "none; add one with add_global_cache_dirs([...])"
        raise CacheNotFoundError(
            f"'{task_name}' does not exist in any of the task cache directories (searched: {searched})", task=task_name
        )
    return path


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
    from beam_pipes.tasks.caches.cache_statistics import split_statistics

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

    Where the cache says it, its index is left alone: a mixture asks hundreds of caches.
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


def cached_source(task: Task, split: str) -> Any:
    """The source that reads a split of a task's cache: one that beam-pipes built, or one in the layout of
    `info.{split}.json`."""
    directory = require_cache_dir(task.name)
    if exists(os.path.join(directory, MANIFEST)):
        from beam_pipes.tasks.caches.fingerprints import check_fingerprints
        from beam_pipes.tasks.sources.built_cache_source import BuiltCacheSource

        source = BuiltCacheSource(directory, split)
        check_fingerprints(task, source.fingerprints, directory)
        return source
    from beam_pipes.tasks.sources.cached_source import CachedDataSource

    placeholder = task.placeholder
    buffer_size = placeholder.file_shuffle_buffer_size if placeholder else None
    return CachedDataSource(directory, split, file_shuffle_buffer_size=buffer_size)
