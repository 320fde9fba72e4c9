"""Where caches of tasks are searched for, and the names of their files.

add_global_cache_dirs(["/data/caches"])
find_cache_dir("wmt:de-en")                    → "/data/caches/wmt/de-en", if a finished cache is there
get_cached_info_path(directory, "train")       → "/data/caches/wmt/de-en/info.train.json"
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from beam_pipes.errors import TaskNotCachedError
from beam_pipes.tasks.vocabularies.files import exists

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
    """`find_cache_dir`, or `TaskNotCachedError`."""
    path = find_cache_dir(task_name)
    if path is None:
        searched = ", ".join(get_global_cache_dirs()) or "none; add one with add_global_cache_dirs([...])"
        raise TaskNotCachedError(
            f"'{task_name}' does not exist in any of the task cache directories. Searched: {searched}", task=task_name
        )
    return path


_INFO = "info.{split}.json"


_STATS = "stats.{split}.json"


_TFRECORDS = "{split}.tfrecord"


_global_cache_dirs: list[str] = []


def get_global_cache_dirs() -> Sequence[str]:
    """Directories that are searched for cached tasks, in order."""
    return tuple(_global_cache_dirs)


def set_global_cache_dirs(global_cache_dirs: Iterable[str]) -> None:
    """Replaces the searched directories."""
    _global_cache_dirs[:] = [os.path.expanduser(path) for path in global_cache_dirs]


def add_global_cache_dirs(global_cache_dirs: Iterable[str]) -> None:
    """Appends directories to the searched ones; those already there keep their place."""
    for path in map(os.path.expanduser, global_cache_dirs):
        if path not in _global_cache_dirs:
            _global_cache_dirs.append(path)


def get_task_dir_from_name(task_name: str) -> str:
    """Directory of a task under a cache directory: `wmt:de-en` → `wmt/de-en`."""
    return os.path.join(*task_name.split(":"))


def get_cached_info_path(data_dir: str, split: str) -> str:
    return os.path.join(data_dir, _INFO.format(split=split))


def get_cached_stats_path(data_dir: str, split: str) -> str:
    return os.path.join(data_dir, _STATS.format(split=split))


def get_cached_tfrecord_prefix(data_dir: str, split: str) -> str:
    return os.path.join(data_dir, _TFRECORDS.format(split=split))
