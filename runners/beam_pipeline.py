"""A Beam pipeline on the runner that options name, in surroundings that suit Beam; its errors come out as ours."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from beam_pipes.building.workers.interpreter import python_path
from beam_pipes.errors import BeamPipesError, BuildError
from beam_pipes.extras import require
from beam_pipes.runners.error_in_words import error_in_words
from beam_pipes.runners.options import BeamOptions

# `DirectRunner` tries to download Prism from the network first, and hangs behind a network that never answers; by
# its own name Beam's in-process runner starts in 0.4 s and opens no port.
IN_PROCESS_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


@contextlib.contextmanager
def beam_pipeline(options: BeamOptions) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """An empty `beam.Pipeline` and the arguments that it was made with; servers that it needs run meanwhile.

    Raises the error of ours inside what Beam raises in the block, or a `BuildError` with Beam's own words.
    """
    beam = require("apache_beam", purpose=f"the runner {options.runner}")
    pipeline_options = require("apache_beam.options.pipeline_options", purpose="the runner").PipelineOptions
    runner = IN_PROCESS_RUNNER if options.runner == "DirectRunner" else options.runner
    with _surroundings(), options.running() as beam_args:
        try:
            yield beam.Pipeline(runner=runner, options=pipeline_options(list(beam_args))), beam_args
        except Exception as error:
            raise _ours(error) from error


def _ours(error: BaseException) -> Exception:
    """The error of ours inside what Beam raised, or a `BuildError` with Beam's own words."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, BeamPipesError):
            return seen
        seen = seen.__cause__ or seen.__context__
    told = error_in_words(str(error))
    if told is not None:
        return told
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
