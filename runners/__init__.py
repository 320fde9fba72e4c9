"""Who runs the offline side: local, direct (and Flink, Dataflow); options, progress, the command line."""

from __future__ import annotations

from runners.build import BuildResult as BuildResult
from runners.build import build as build
from runners.options import BeamOptions as BeamOptions
from runners.options import LocalOptions as LocalOptions
