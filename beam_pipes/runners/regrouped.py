"""The one job of a declaration with PTransforms, on the chosen runner; it computes all records each time.

Nothing can be resumed, so most options of other builds are refused with an explanation. The runner `local` is Beam's
in-process runner with as many worker processes as there are workers; it holds shuffled data in the memory of this
process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from beam_pipes.building.declaration import Declaration
from beam_pipes.building.references import registered_by_value
from beam_pipes.errors import BuildError, DeclarationError, JobLostError, logger
from beam_pipes.extras import require
from beam_pipes.runners.options import BeamOptions, LocalOptions

if TYPE_CHECKING:
    from beam_pipes.building.plan import SavedPlan


class _Steps:
    """Steps on their way to workers."""

    def require_portable(self) -> None:
        """Does nothing: Beam sends the steps, and reports those that it cannot send."""


def check_regrouped(declaration: Declaration, root: str, *, options: LocalOptions | BeamOptions) -> BeamOptions:
    """The options of the Beam runner for the job. Raises `DeclarationError` if it cannot run it, `BuildError` if its
    server is missing.
    """
    on_beam = options if isinstance(options, BeamOptions) else _EmbeddedOptions(workers=options.num_workers)
    if (runner := on_beam.without_beam) is not None:
        raise DeclarationError(
            f"declaration {declaration.name!r} has PTransforms among its stages, which Beam has to run: {runner} "
            "starts workers without Beam. Choose --runner local, flink, dataflow or portable."
        )
    on_beam.check(root, declaration.source, _Steps())
    on_beam.require_server()
    return on_beam


# Where Beam logs a failed record, with its traceback several times; and what its worker processes log.
_OF_FAILURES = "apache_beam.runners.common"
_OF_PROCESSES = "apache_beam.runners.portability.local_job_service"


def _is_of_users(record: logging.LogRecord) -> bool:
    """Whether a worker process logs this for a user's code, and not for Beam itself."""
    return "apache_beam/runners/" not in record.getMessage().rpartition("log_location:")[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _EmbeddedOptions(BeamOptions):
    """Beam's in-process runner for `LocalOptions`; it raises the error of a failed record, and logs nothing of it."""

    workers: int = 1

    NAME: ClassVar[str] = "local"

    def pipeline_args(self) -> tuple[str, ...]:
        if self.workers == 1:
            return ()
        return (f"--direct_num_workers={self.workers}", "--direct_running_mode=multi_processing")

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[str, ...]]:
        of_failures, of_processes = logger(_OF_FAILURES), logger(_OF_PROCESSES)
        level = of_failures.level
        of_failures.setLevel(logging.CRITICAL)
        of_processes.addFilter(_is_of_users)
        try:
            yield self.pipeline_args()
        finally:
            of_failures.setLevel(level)
            of_processes.removeFilter(_is_of_users)


def refuse_of_builds(
    declaration: Declaration,
    options: LocalOptions | BeamOptions,
    *,
    overwrite: bool,
    saved_plan: SavedPlan | None,
) -> None:
    """Raises `DeclarationError` for options of other builds that this one does not support."""
    why = f"declaration {declaration.name!r} has PTransforms among its stages"
    if overwrite:
        raise DeclarationError(f"{why}, so every build computes all records again: leave overwrite out.")
    if saved_plan is not None:
        raise DeclarationError(
            f"{why}: its shards are known only when its job has run, so a saved plan cannot be checked. Leave "
            "saved_plan out."
        )
    if not isinstance(options, BeamOptions):
        return
    if options.template is not None:
        raise DeclarationError(
            f"{why}: its job is not written as a template. Leave template_location out, or write the pipeline that "
            "docs/beam.md shows, with Beam's own template_location."
        )
    if options.detach or options.attempts > 1:
        raise DeclarationError(
            f"{why}: which snapshot its job writes is known when it has run, so no record of the job is kept. Leave "
            "detach and attempts out, and run the build again if the job is lost: the same records give the same bytes."
        )


# Replaces a snapshot's id in the name of a job; the id is known only after the run.
_JOB = "pipeline"


def run_regrouped(declaration: Declaration, root: str, options: BeamOptions) -> None:
    from beam_pipes.runners.beam_job import beam_pipeline, is_done, submitted, wait_for_end
    from beam_pipes.runners.jobs import forget

    try:
        with beam_pipeline(options.named(declaration.name, _JOB)) as (pipeline, _), _code_by_value():
            from beam_pipes.beam.regrouped import SOURCE_TASKS, build_regrouped_graph

            try:
                build_regrouped_graph(pipeline, declaration, root)
                state = wait_for_end(submitted(pipeline))
            finally:
                forget(root, SOURCE_TASKS)
    except JobLostError as error:
        what = error.message.partition(". Nothing was")[0]
        raise JobLostError(f"{what}. Nothing was published. Run the build again; it computes all records.") from error
    if not is_done(state):
        raise BuildError(
            f"the Beam job ended as {state}: nothing was published. Run the build again; it computes all records."
        )


@contextlib.contextmanager
def _code_by_value() -> Iterator[None]:
    """Beam's copy of cloudpickle, and cloudpickle itself, send by value what workers cannot import."""
    require("apache_beam", purpose="a declaration with PTransforms")
    import cloudpickle
    from apache_beam.internal.cloudpickle import cloudpickle as of_beam

    with contextlib.ExitStack() as stack:
        for pickler in (cloudpickle, of_beam):
            stack.enter_context(registered_by_value(pickler))
        yield
