"""Where caches are looked for, and how the files of a task's cache are called."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

_INFO = "info.{split}.json"
_STATS = "stats.{split}.json"
_TFRECORDS = "{split}.tfrecord"

_global_cache_dirs: list[str] = []


def get_global_cache_dirs() -> Sequence[str]:
    """Directories that are searched for cached tasks, in order."""
    return tuple(_global_cache_dirs)


def set_global_cache_dirs(global_cache_dirs: Iterable[str]) -> None:
    """Replaces the searched directories."""
    _global_cache_dirs[:] = [os.fspath(path) for path in global_cache_dirs]


def add_global_cache_dirs(global_cache_dirs: Iterable[str]) -> None:
    """Appends directories to the searched ones; those already there keep their place."""
    for path in global_cache_dirs:
        if os.fspath(path) not in _global_cache_dirs:
            _global_cache_dirs.append(os.fspath(path))


def get_task_dir_from_name(task_name: str) -> str:
    """Directory of a task under a cache directory: `wmt:de-en` → `wmt/de-en`."""
    return os.path.join(*task_name.split(":"))


def get_cached_info_path(data_dir: str, split: str) -> str:
    return os.path.join(data_dir, _INFO.format(split=split))


def get_cached_stats_path(data_dir: str, split: str) -> str:
    return os.path.join(data_dir, _STATS.format(split=split))


def get_cached_tfrecord_prefix(data_dir: str, split: str) -> str:
    return os.path.join(data_dir, _TFRECORDS.format(split=split))
