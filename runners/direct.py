"""Beam runners in this process: `direct` is Beam's own local runner, named explicitly."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from beam_pipes.errors import BeamPipesError, BuildError
from beam_pipes.extras import require
from beam_pipes.offline.plan import BuildPlan
from beam_pipes.offline.reference import DeclarationHandle
from beam_pipes.offline.shard_task import ShardTask
from runners.options import BeamOptions
from runners.progress import Counts, Progress
from runners.worker_process import python_path

# `DirectRunner` tries to download Prism from the network first, and hangs behind a network that never answers; by
# its own name Beam's in-process runner starts in 0.4 s and opens no port.
IN_PROCESS_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


def run_beam(
    handle: DeclarationHandle,
    plan: BuildPlan,
    tasks: Sequence[ShardTask],
    *,
    options: BeamOptions,
    counts: Counts,
    progress: Progress,
) -> dict[str, Any]:
    """Runs the build as a Beam pipeline; returns the live metrics of the run, for the build record."""
    beam = require("apache_beam", purpose=f"the runner {options.runner}")
    pipeline_options = require("apache_beam.options.pipeline_options", purpose="the runner").PipelineOptions
    from beam_pipes.on_beam import build_graph

    runner = IN_PROCESS_RUNNER if options.runner == "DirectRunner" else options.runner
    with _surroundings():
        pipeline = beam.Pipeline(runner=runner, options=pipeline_options(list(options.beam_args)))
        build_graph(pipeline, handle, plan.header, tasks)
        try:
            result = pipeline.run()
            state = result.wait_until_finish()
        except Exception as error:
            raise _ours(error) from error
    if state is not None and str(state) not in ("DONE", "UPDATED"):
        raise BuildError(
            f"the Beam job ended as {state}: nothing was published. Run the build again to go on from there."
        )
    account = plan.read_account()
    counts.records, counts.dropped, counts.dead = account.read, account.dropped, account.dead
    counts.done_shards = counts.num_shards
    progress.update(counts)
    query = result.metrics().query()
    return {"beam_metrics": {metric.key.metric.name: metric.result for metric in query["counters"]}}


def _ours(error: BaseException) -> Exception:
    """The error of ours inside what Beam raised, or a `BuildError` with Beam's own words."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, BeamPipesError):
            return seen
        seen = seen.__cause__ or seen.__context__
    words = str(error).strip().splitlines() or ["no message"]
    return BuildError(
        f"the Beam job failed: {type(error).__name__}: {words[-1]}. "
        "Nothing was published. Run the build again to go on from the shards that are finished.",
    )


@contextlib.contextmanager
def _surroundings() -> Iterator[None]:
    """What Beam reads of its process: `sys.argv`, which is not meant for it, and PYTHONPATH, which its workers need."""
    arguments, path = sys.argv, os.environ.get("PYTHONPATH")
    sys.argv = arguments[:1]
    os.environ["PYTHONPATH"] = python_path()
    try:
        yield
    finally:
        sys.argv = arguments
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path
