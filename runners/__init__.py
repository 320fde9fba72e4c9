"""Who runs the offline side: local, direct, Dataflow, job servers; options, progress, the command line."""

from __future__ import annotations

from runners.build import BuildResult as BuildResult
from runners.build import build as build
from runners.cache_tasks import TaskCache as TaskCache
from runners.cache_tasks import cache_tasks as cache_tasks
from runners.dataflow import DataflowOptions as DataflowOptions
from runners.flink import FlinkOptions as FlinkOptions
from runners.options import BeamOptions as BeamOptions
from runners.options import LocalOptions as LocalOptions
from runners.portable import PortableOptions as PortableOptions
from runners.prism import PrismOptions as PrismOptions
from runners.progress import progress_for as progress_for
from runners.replay import ReplayResult as ReplayResult
from runners.replay import replay_dead as replay_dead
from runners.task_declarations import task_declaration as task_declaration
