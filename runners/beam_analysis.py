"""A round of an analysis as a job of a Beam runner."""

from __future__ import annotations

from collections.abc import Sequence

from beam_pipes.building.analysis.analysis_task import AnalysisTask
from beam_pipes.building.reference import DeclarationHandle
from beam_pipes.errors import AnalysisError
from beam_pipes.runners.beam_pipeline import beam_pipeline
from beam_pipes.runners.options import BeamOptions


def run_analysis_on_beam(
    handle: DeclarationHandle, root: str, tasks: Sequence[AnalysisTask], *, options: BeamOptions
) -> None:
    """Stores the accumulators of all tasks; raises the error of ours inside what Beam raised.

    Ctrl-C cancels the job.
    """
    with beam_pipeline(options) as (pipeline, beam_args):
        from beam_pipes.beam.analyse_shards import analysis_graph

        analysis_graph(pipeline, handle, root, tasks)
        result = pipeline.run()
        try:
            state = result.wait_until_finish()
        except KeyboardInterrupt:
            options.cancel(result, beam_args)
            raise
    if state is not None and str(state) not in ("DONE", "UPDATED"):
        raise AnalysisError(
            f"the Beam job of the analysis ended as {state}: accumulators that are finished are kept. Run the build "
            "again to go on from there."
        )
