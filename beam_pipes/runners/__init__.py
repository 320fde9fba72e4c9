"""The runners of the offline side: local, direct, Dataflow, job servers; options, progress, the command line.

The names are loaded on first use, so that a command imports no more than it needs.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from beam_pipes.extras import loaded_on_first_use

if TYPE_CHECKING:
    from beam_pipes.runners.build import BuildResult as BuildResult
    from beam_pipes.runners.build import build as build
    from beam_pipes.runners.clusters import KubernetesOptions as KubernetesOptions
    from beam_pipes.runners.clusters import SlurmOptions as SlurmOptions
    from beam_pipes.runners.dataflow import DataflowOptions as DataflowOptions
    from beam_pipes.runners.flink import FlinkOptions as FlinkOptions
    from beam_pipes.runners.jobs import attach as attach
    from beam_pipes.runners.jobs import cancel as cancel
    from beam_pipes.runners.jobs import read_jobs as read_jobs
    from beam_pipes.runners.options import BeamOptions as BeamOptions
    from beam_pipes.runners.options import LocalOptions as LocalOptions
    from beam_pipes.runners.portable import PortableOptions as PortableOptions
    from beam_pipes.runners.progress import progress_for as progress_for
    from beam_pipes.runners.replay import ReplayResult as ReplayResult
    from beam_pipes.runners.replay import replay_dead as replay_dead
    from beam_pipes.runners.servers import PrismOptions as PrismOptions
    from beam_pipes.tasks.caches.cache_tasks import TaskCache as TaskCache
    from beam_pipes.tasks.caches.cache_tasks import cache_tasks as cache_tasks
    from beam_pipes.tasks.caches.cache_tasks import task_declaration as task_declaration

__getattr__, _names = loaded_on_first_use(
    __name__,
    {
        "build": "BuildResult build",
        "beam_pipes.tasks.caches.cache_tasks": "TaskCache cache_tasks task_declaration",
        "clusters": "KubernetesOptions SlurmOptions",
        "dataflow": "DataflowOptions",
        "flink": "FlinkOptions",
        "jobs": "attach cancel read_jobs",
        "options": "BeamOptions LocalOptions",
        "portable": "PortableOptions",
        "progress": "progress_for",
        "replay": "ReplayResult replay_dead",
        "servers": "PrismOptions",
    },
)
__all__ = _names()


class _Runners(ModuleType):
    """`build` and `cache_tasks` are the functions, even when the modules of these names are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in __all__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Runners
