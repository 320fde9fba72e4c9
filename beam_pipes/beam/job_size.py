"""How large the request of a Beam job is: services limit it, and refuse a job after everything was staged."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence

import apache_beam as beam

from beam_pipes.beam.build_graph import build_graph
from beam_pipes.building.reference import DeclarationHandle
from beam_pipes.building.shard_task import BuildHeader, ShardTask


def job_graph_bytes(handle: DeclarationHandle, header: BuildHeader, tasks: Sequence[ShardTask] = ()) -> int:
    """Bytes of the job graph of a build of `tasks`, as Beam sends it to a service. Runs nothing, leaves nothing."""
    with tempfile.TemporaryDirectory(prefix="beam-pipes-job-") as root:
        pipeline = beam.Pipeline(runner="apache_beam.runners.portability.fn_api_runner.FnApiRunner")
        build_graph(pipeline, handle, dataclasses.replace(header, root=root), tasks)
        return int(pipeline.to_runner_api().ByteSize())
