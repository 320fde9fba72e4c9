"""Who runs the offline side: local, direct, Dataflow, job servers; options, progress, the command line."""

from __future__ import annotations

from beam_pipes.runners.build import BuildResult as BuildResult
from beam_pipes.runners.build import build as build
from beam_pipes.runners.cache_tasks import TaskCache as TaskCache
from beam_pipes.runners.cache_tasks import cache_tasks as cache_tasks
from beam_pipes.runners.cache_tasks import task_declaration as task_declaration
from beam_pipes.runners.dataflow import DataflowOptions as DataflowOptions
from beam_pipes.runners.flink import FlinkOptions as FlinkOptions
from beam_pipes.runners.options import BeamOptions as BeamOptions
from beam_pipes.runners.options import LocalOptions as LocalOptions
from beam_pipes.runners.portable import PortableOptions as PortableOptions
from beam_pipes.runners.progress import progress_for as progress_for
from beam_pipes.runners.replay import ReplayResult as ReplayResult
from beam_pipes.runners.replay import replay_dead as replay_dead
from beam_pipes.runners.servers import PrismOptions as PrismOptions
