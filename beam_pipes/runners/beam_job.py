"""A build, or a round of an analysis, as a job of a Beam runner, in this process or elsewhere.

The pipeline runs on the runner that the options name, in an environment that suits Beam. A job server reports a failed
job as text with a worker's traceback in it; our own error is found in it and raised.

Before a job is submitted, the jobs on record are checked: if one still does exactly this work, the build waits for it
instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from beam_pipes.building.analysis.job import TASKS as ANALYSIS_TASKS
from beam_pipes.building.analysis.job import analysis_tasks
from beam_pipes.building.analysis.plan import AnalysisTask
from beam_pipes.building.analysis.stored import DIRECTORY as ANALYSES
from beam_pipes.building.leftovers import remove_temporaries
from beam_pipes.building.plan import BuildPlan
from beam_pipes.building.progress import every
from beam_pipes.building.reading import SOURCE
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_task import DIRECTORY as TASKS
from beam_pipes.building.shard_task import BuildHeader
from beam_pipes.cache.reader import Cache
from beam_pipes.engine.account import Account
from beam_pipes.errors import (
    AnalysisError,
    BeamPipesError,
    BuildError,
    DeclarationError,
    JobLostError,
    StageError,
    visible,
)
from beam_pipes.extras import require
from beam_pipes.identity.source_code import python_path
from beam_pipes.runners.jobs import (
    AGAIN,
    LOOK_EVERY_SECS,
    Follower,
    HandedOver,
    LaunchRecord,
    all_records,
    error_in_words,
    error_of,
    follow,
    forget,
    last_words,
    lost,
    records_in,
    step_of,
    unlike,
)
from beam_pipes.runners.options import BeamOptions, Built, JobState, Order, without_secrets
from beam_pipes.runners.progress import Counts, Progress
from beam_pipes.storage.locks import in_words, this_process

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.runners.runner import PipelineResult


@dataclasses.dataclass(frozen=True)
class BeamRunner:
    """Builds as a Beam pipeline. If a live job builds this very snapshot, waits for it instead."""

    options: BeamOptions

    def analyse(
        self, handle: DeclarationHandle, root: str, tasks: Sequence[AnalysisTask], *, counts: Counts, progress: Progress
    ) -> None:
        """Stores the accumulators of all tasks by a job of their own; waits for a live job with the same analyzers.

        Raises our own error found inside what Beam raised. Ctrl-C cancels the job.
        """
        if self.options.template is not None:
            raise DeclarationError(
                f"{self.options.NAME}: a template holds one job, and the analyzers of {handle.get().name!r} need one "
                "before it. Build once without template_location, or with another runner; existing results are reused."
            )
        directory = f"{root}/{ANALYSES}"
        launches: list[str] = []

        def add(pipeline: object) -> None:
            from beam_pipes.beam.shards import analysis_graph

            launches.append(secrets.token_hex(8))
            analysis_graph(pipeline, handle, root, tasks, launch=launches[-1])

        draft = draft_of_analysis(handle, root, tasks, self.options)
        try:
            attempted(self.options, draft, lambda: _run(self.options, draft, add, lambda: None))
        finally:
            if not records_in(directory):  # a job that goes on reads its tasks
                for each in launches:
                    analysis_tasks(root, each).remove()
        forget(directory, ANALYSIS_TASKS)

    def hand_over(self, handle: DeclarationHandle, plan: BuildPlan, *, keep: int | None) -> HandedOver | None:
        """The build as a template or a detached job, where the options ask for one; else None."""
        if self.options.template is not None:
            write_template(handle, plan, options=self.options)
            return HandedOver(template=self.options.template)
        if self.options.detach:
            return HandedOver(job=launch(handle, plan, options=self.options, keep=keep))
        return None

    def run(self, order: Order) -> Built:
        """Runs the build as a job, which publishes by itself; the live metrics of the run are the figures.

        Up to `options.attempts` jobs are submitted if they are lost. Progress comes from the completions of source
        shards, which are the same on every runner. Ctrl-C cancels the job.
        """
        handle, plan, counts = order.handle, order.plan, order.counts
        header = plan.header
        look = Follower(header.directory, counts, order.progress).look
        tell_of_other_builds(header, self.options.NAME)

        prepared = [order.tasks]  # for the first attempt; a later one looks again

        def add(pipeline: object) -> None:
            from beam_pipes.beam import build_graph

            build_graph(pipeline, handle, header, prepared.pop() if prepared else plan.tasks_left())

        draft = draft_of_build(handle, plan, self.options, keep=order.keep)
        return published(order, attempted(self.options, draft, lambda: _run(self.options, draft, add, look), look))


def published(order: Order, figures: dict[str, object]) -> Built:
    """What the job of an order has published, after removing what its workers left."""
    header, counts = order.plan.header, order.counts
    forget(header.directory, TASKS)
    remove_temporaries(header.storage, header.root)  # of workers that were lost
    manifest = Cache.open(header.root).manifest
    counts.set_to(Account.from_json(manifest.accounting))
    counts.done_shards = counts.num_shards
    order.progress.update(counts)
    return Built(manifest=manifest, figures=figures)


def launch(handle: DeclarationHandle, plan: BuildPlan, *, options: BeamOptions, keep: int | None) -> LaunchRecord:
    """Submits the build and returns once its job runs; returns the record of the job, or of the one already running."""
    tell_of_other_builds(plan.header, options.NAME)
    draft = draft_of_build(handle, plan, options, keep=keep)
    if (living := living_job(draft)) is not None:
        return living
    with beam_pipeline(options.named(draft.name, draft.snapshot)) as (pipeline, beam_args):
        from beam_pipes.beam import build_graph

        build_graph(pipeline, handle, plan.header, plan.tasks_left())
        record = _put_on_record(draft, submitted(pipeline), beam_args)
        assert record is not None  # the options refuse a job that runs in this process
        deadline = time.monotonic() + _START_SECS
        while (state := record.state()).name == "starting" and time.monotonic() < deadline:
            time.sleep(0.2)
        if state.ended and state.name != "done":
            record.remove()
            raise error_of(record, state)
    return record


def write_template(handle: DeclarationHandle, plan: BuildPlan, *, options: BeamOptions) -> None:
    """Writes the job of the build to `options.template`; whoever launches it builds and publishes the plan."""
    with beam_pipeline(options.named(plan.header.name, plan.snapshot)) as (pipeline, _):
        from beam_pipes.beam import build_graph

        build_graph(pipeline, handle, plan.header, plan.tasks_left())
        submitted(pipeline)


# How long its launcher waits for a job to begin.
_START_SECS = 120.0


def draft_of_analysis(
    handle: DeclarationHandle, root: str, tasks: Sequence[AnalysisTask], options: BeamOptions
) -> LaunchRecord:
    """The record of a job for a round of an analysis, without the facts known only at submission."""
    return LaunchRecord(
        directory=f"{root}/{ANALYSES}",
        runner=options.NAME,
        launcher=this_process(),
        needs_launcher=options.needs_this_process() is not None,
        fingerprints={name: place.rpartition("/")[0] for task in tasks for name, place in task.places.items()},
        num_shards=len(tasks),
        started_at=time.time(),
        declaration=handle.reference,
        name=handle.get().name,
    )


def draft_of_build(
    handle: DeclarationHandle, plan: BuildPlan, options: BeamOptions, *, keep: int | None
) -> LaunchRecord:
    """The record of a build's job, without the facts known only at submission."""
    from beam_pipes.building.shard_output import WRITE

    return LaunchRecord(
        directory=plan.header.directory,
        runner=options.NAME,
        launcher=this_process(),
        needs_launcher=options.needs_this_process() is not None,
        fingerprints=dict(plan.header.fingerprints),
        num_shards=plan.header.num_shards,
        stages=(SOURCE, *plan.declaration.words, WRITE),
        started_at=time.time(),
        declaration=handle.reference,
        keep=keep,
        name=plan.header.name,
    )


def submitted(pipeline: beam.Pipeline) -> PipelineResult:
    """Runs the pipeline. Once it returns, there was a job, which can be lost; before, it can only be refused."""
    result = pipeline.run()
    pipeline.has_had_a_job = True
    return result


def _put_on_record(draft: LaunchRecord, result: object, beam_args: Sequence[str]) -> LaunchRecord | None:
    """Keeps a record of a job that runs elsewhere; None for one that ran in this process."""
    job = getattr(result, "job_id", None) or getattr(result, "_job_id", None)
    if job is None:
        return None
    name = str(job() if callable(job) else job)
    record = dataclasses.replace(draft, job=name, beam_args=tuple(without_secrets(beam_args)), started_at=time.time())
    record.write()
    return record


def attempted(
    options: BeamOptions,
    draft: LaunchRecord,
    run: Callable[[], dict[str, object]],
    look: Callable[[], None] = lambda: None,
) -> dict[str, object]:
    """What `run` returns, which submits a job; or waits for the job that already does this work.

    If a job is lost, submits another one while attempts remain.
    """
    submitted = 0
    while True:
        try:
            living = living_job(draft)
            if living is not None:
                return _attached(living, look)
            submitted += 1
            return run()
        except JobLostError as error:
            attempt = max(submitted, 1)
            if any(record.state().lives for record in records_in(draft.directory)):
                _say(f"{_what_happened(error)}, but its job still runs: waiting for it.")
                continue  # only a server that reported it was lost
            if attempt >= options.attempts:
                raise
            _say(f"{_what_happened(error)}. That was attempt {attempt} of {options.attempts}; starting the next one.")
            _pause(options, attempt)


def _what_happened(error: BeamPipesError) -> str:
    return error.message.partition(". Nothing was")[0]


# Between attempts: whatever a supervisor restarts (a pool, a task manager, a server) needs time to come back.
_PAUSE_SECS = 2.0
_LONGEST_PAUSE_SECS = 60.0
_SERVER_SECS = 300.0


def _pause(options: BeamOptions, attempt: int) -> None:
    """Waits before the next attempt, until the server for it answers."""
    time.sleep(min(_PAUSE_SECS * 2 ** (attempt - 1), _LONGEST_PAUSE_SECS))
    deadline = time.monotonic() + _SERVER_SECS
    while True:
        try:
            return options.require_server()
        except BuildError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECS)


def _run(
    options: BeamOptions, draft: LaunchRecord, add: Callable[[object], None], look: Callable[[], None]
) -> dict[str, object]:
    """Submits the pipeline that `add` makes, waits for its end, and returns its metrics."""
    record: LaunchRecord | None = None
    end: JobState | None = None
    try:
        with beam_pipeline(options.named(draft.name, draft.snapshot)) as (pipeline, beam_args):
            add(pipeline)
            with _on_a_thread(look):  # a runner in this process returns only at the end
                result = submitted(pipeline)
            record = _put_on_record(draft, result, beam_args)
            try:
                state = _followed(result, look, cancel=_cancelling(record, result))
                done = is_done(state)
                counters = result.metrics().query()["counters"] if done else []
            finally:
                if record is not None:  # while its server is reachable; silence says nothing about the job
                    end = record.state()
                    if end.ended:
                        record.remove()
    except JobLostError:
        if record is not None and end is not None and end.name == "cancelled":
            raise error_of(record, end) from None
        raise
    if not done and draft.snapshot is None:
        raise AnalysisError(
            f"the Beam job of the analysis ended as {state}: finished accumulators are kept. Run the build again to "
            "continue."
        )
    if not done:
        raise BuildError(f"the Beam job ended as {state}: nothing was published. {AGAIN}")
    return {"beam_metrics": {metric.key.metric.name: metric.result for metric in counters}}


def _attached(record: LaunchRecord, look: Callable[[], None]) -> dict[str, object]:
    """Waits for a job that another process launched; returns what is known about it instead of its metrics."""
    _say(f"{record} already does this work, launched by {in_words(record.launcher)}: waiting for it.")
    try:
        state = follow(record, look)
    except KeyboardInterrupt:
        cancelled(_cancelling(record, None))
        raise
    if state.ended:
        record.remove()
    if state.name != "done":
        raise error_of(record, state)
    return {"job": record.job, "launcher": dict(record.launcher)}


def living_job(draft: LaunchRecord) -> LaunchRecord | None:
    """The job on record that does the work of `draft` on its runner; removes records of ended jobs.

    Prints a line about other jobs that may still write to the same directory.
    """
    found = None
    for record in records_in(draft.directory):
        state = record.state()
        if state.ended:
            record.remove()
            continue
        differs = ["runner"] if record.runner != draft.runner else unlike(record, draft.fingerprints)
        if state.lives and found is None and not differs:
            found = record
            continue
        why = f"its {' and '.join(differs)} differs" if differs else f"{state.words}: it may still run"
        _say(
            f"{record} was launched for {record.work} by {in_words(record.launcher)}, and its end was not recorded "
            f"({why}). Shards that it finishes are reused, and the jobs do not disturb each other. `beam-pipes cancel "
            f"{record.root}` ends it, so that the work is not done twice."
        )
    return found


def tell_of_other_builds(header: BuildHeader, runner: str) -> None:
    """Prints why this build does not wait for jobs on record for the same cache."""
    for record in all_records(header.root):
        is_same = record.snapshot == header.snapshot
        if record.snapshot is None or is_same and record.runner == runner or record.state().ended:
            continue
        differs = [f"runner ({record.runner})"] if is_same else unlike(record, header.fingerprints)
        _say(
            f"{record} builds {record.work}, and this build does not wait for it: another {', '.join(differs)}. "
            f"`beam-pipes attach {header.root}` waits for it, `beam-pipes cancel {header.root}` ends it."
        )


def _say(words: str) -> None:
    print(visible(f"beam-pipes: {words}"), file=sys.stderr, flush=True)


def _cancelling(record: LaunchRecord | None, result: PipelineResult) -> Callable[[], None]:
    remote = None if record is None else record.remote()
    return result.cancel if remote is None else remote.cancel


def _on_a_thread(look: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
    """Polls from a thread during the block; a failure to poll does not fail the job."""

    def follow_job() -> None:
        with contextlib.suppress(BeamPipesError, OSError):
            look()

    return every(LOOK_EVERY_SECS, follow_job, name="beam-job")


def wait_for_end(result: PipelineResult) -> object:
    """Waits for a job without a record; returns how it ended. Ctrl-C cancels it."""
    return _followed(result, lambda: None, cancel=result.cancel)


def is_done(state: object) -> bool:
    """Whether a job that ended so has done all of its work; None for a runner that reports no state."""
    return state is None or str(state) in ("DONE", "UPDATED")


def _followed(result: PipelineResult, look: Callable[[], None], *, cancel: Callable[[], None]) -> object:
    """Shows progress until the job has ended; returns how it ended."""
    # A job's own state does not show its end: Beam's runners update it only for a caller that waits.
    with ThreadPoolExecutor(1, thread_name_prefix="wait for the Beam job") as pool:
        ended: Future[object] = pool.submit(result.wait_until_finish)
        try:
            while not wait([ended], timeout=LOOK_EVERY_SECS).done:
                look()
        except KeyboardInterrupt:
            cancelled(cancel)
            raise
        return ended.result()


def cancelled(cancel: Callable[[], None]) -> None:
    """Cancels the job; if its server refuses, one line says so, and the interrupt continues."""
    try:
        cancel()
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no message"]
        _say(
            f"the job could not be cancelled ({type(error).__name__}: {lines[-1]}): it may still run. Cancel it where "
            "it runs, or let it end: it writes what the next build would write."
        )


# `DirectRunner` tries to download Prism from the network first, and hangs behind a network that never answers; by
# its own name Beam's in-process runner starts in 0.4 s and opens no port.
IN_PROCESS_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


@contextlib.contextmanager
def beam_pipeline(options: BeamOptions) -> Iterator[tuple[beam.Pipeline, tuple[str, ...]]]:
    """An empty `beam.Pipeline` and its arguments; the servers that it needs run during the block.

    Raises our own error found inside what Beam raises in the block, or a `BuildError` with Beam's own words.
    """
    beam = require("apache_beam", purpose=f"the runner {options.runner}")
    pipeline_options = require("apache_beam.options.pipeline_options", purpose="the runner").PipelineOptions
    runner = IN_PROCESS_RUNNER if options.runner == "DirectRunner" else options.runner
    with _surroundings(), options.running() as beam_args:
        pipeline = None
        try:
            pipeline = beam.Pipeline(runner=runner, options=pipeline_options(list(beam_args)))
            yield pipeline, beam_args
        except Exception as error:
            refused = not getattr(pipeline, "has_had_a_job", False)
            raise _ours(error, in_process=runner == IN_PROCESS_RUNNER, refused=refused) from error


def _ours(error: BaseException, *, in_process: bool, refused: bool) -> Exception:
    """Our own error inside what Beam raised, or a `BuildError` with Beam's own words.

    An error that a step raised in this process, or in its workers, would be raised again: nothing was lost. Nor was a
    job that never existed, because it was `refused`, or could not be sent.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, BeamPipesError):
            return seen
        seen = seen.__cause__ or seen.__context__
    ours = error_in_words(str(error))
    if ours is not None:
        return ours
    words = last_words(str(error)) or "no message"
    step = step_of(words) if in_process else None
    if step is not None:
        where, what = step
        if "Traceback (most recent call last)" not in str(error):  # else all of it comes from another process, as text
            what = f"{type(error).__name__}: {what.rstrip('.') or 'no message'}"
        return StageError(
            f"the step {where!r} of the pipeline failed: {what.rstrip('.')}. Nothing was published. Correct the step, "
            "or what it is given, and run the build again.",
            stage=where,
        )
    what = f"{type(error).__name__}: {words.rstrip('.')}"
    if refused and not _may_pass(error):
        return BuildError(
            f"the Beam job was not accepted: {what}. Nothing was published, and the same request would be refused "
            "again. Correct what the message names (options, permissions, packages), and run the build again."
        )
    return lost(f"the Beam job failed: {what}")


# Answers after which the same request may succeed: HTTP's and gRPC's.
_BUSY = frozenset({408, 425, 429, *range(500, 600)})
_BUSY_CODES = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "INTERNAL", "UNKNOWN"})


def _may_pass(error: BaseException) -> bool:
    """Whether an error of a submission comes from the network, or from a server that may accept it later."""
    seen: BaseException | None = error
    while seen is not None:
        code = getattr(seen, "status_code", None) or getattr(seen, "code", None)  # apitools; google.api_core and gRPC
        code = code() if callable(code) else code
        if code is not None:
            return code in _BUSY or getattr(code, "name", None) in _BUSY_CODES
        if (
            isinstance(seen, (OSError, RuntimeError))
            or "Transport" in type(seen).__name__
            or "httplib2" in type(seen).__module__
        ):
            return True
        seen = seen.__cause__
    return False


@contextlib.contextmanager
def _surroundings() -> Iterator[None]:
    """The process state that Beam reads: `sys.argv`, not meant for it, and PYTHONPATH, which its workers need."""
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
