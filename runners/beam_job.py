"""A build, or a round of an analysis, as a job of a Beam runner, in this process or far away.

The pipeline runs on the runner that the options name, in surroundings that suit Beam. A job server reports a failed job
as a text with a worker's traceback in it; the error of ours that it holds is found and raised.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from beam_pipes import errors
from beam_pipes.building.analysis.job import TASKS as ANALYSIS_TASKS
from beam_pipes.building.analysis.job import remove_analysis_tasks
from beam_pipes.building.analysis.plan import AnalysisTask
from beam_pipes.building.analysis.stored import DIRECTORY as ANALYSES
from beam_pipes.building.completion import read_completion
from beam_pipes.building.declaration import DeclarationHandle
from beam_pipes.building.plan import BuildPlan
from beam_pipes.building.reading import ShardFigures
from beam_pipes.building.shard_task import DIRECTORY as TASKS
from beam_pipes.building.shard_task import ShardTask
from beam_pipes.building.workers.process import python_path
from beam_pipes.cache.checked_json import strict_json
from beam_pipes.cache.locks import in_words, this_process
from beam_pipes.cache.storage import storage_for
from beam_pipes.errors import AnalysisError, BeamPipesError, BuildError, visible
from beam_pipes.extras import require
from beam_pipes.runners.options import BeamOptions
from beam_pipes.runners.progress import Counts, Progress

# How often a job that runs elsewhere is looked at: a listing of its completions, and its state.
LOOK_EVERY_SECS = 2.0


def run_beam(
    handle: DeclarationHandle,
    plan: BuildPlan,
    tasks: Sequence[ShardTask],
    *,
    options: BeamOptions,
    counts: Counts,
    progress: Progress,
) -> dict[str, Any]:
    """Runs the build as a Beam pipeline; returns the live metrics of the run, for the build record.

    Progress comes from the completions of source shards, which are the same on every runner. Ctrl-C cancels the job.
    """
    with beam_pipeline(options) as (pipeline, beam_args):
        from beam_pipes.beam import build_graph

        build_graph(pipeline, handle, plan.header, tasks)
        follower = _Follower(plan, counts, progress)
        tell_of_other_jobs(plan.header.directory, work="this snapshot")
        with follower.on_a_thread():  # a runner in this process returns when everything is done
            result = pipeline.run()
        with on_record(plan.header.directory, options, result):
            state = _followed(result, follower, cancel=lambda: options.cancel(result, beam_args))
        query = result.metrics().query()  # while its server is there
    if state is not None and str(state) not in ("DONE", "UPDATED"):
        raise BuildError(f"the Beam job ended as {state}: nothing was published. Run the build again to continue.")
    _forget(plan.header.directory, _LAUNCHES, TASKS)
    counts.set_to(plan.read_account())
    counts.done_shards = counts.num_shards
    progress.update(counts)
    return {"beam_metrics": {metric.key.metric.name: metric.result for metric in query["counters"]}}


# Below the directory of a snapshot, or of analyses: the jobs that were launched for it and that nobody has seen the end
# of.
_LAUNCHES = "launches"


@contextlib.contextmanager
def on_record(directory: str, options: BeamOptions, result: Any) -> Iterator[None]:
    """Keeps a record of a job that runs elsewhere while its launcher follows it; it stays where that one is killed."""
    job = _job_id(result)
    if job is None:
        yield
        return
    directory = f"{directory}/{_LAUNCHES}"
    path = f"{directory}/{hashlib.sha256(job.encode()).hexdigest()[:16]}.json"
    place = {name: value for name in _PLACES if (value := getattr(options, name, None))}
    storage = storage_for(directory)
    storage.makedirs(directory)
    record = {"runner": options.runner, "job": job, **place, "launcher": this_process()}
    storage.replace(path, strict_json(record, sort_keys=True).encode())
    try:
        yield
    finally:
        if _has_ended(result):  # a connection that was lost says nothing of the job
            with contextlib.suppress(BeamPipesError, OSError):
                storage.delete(path)


def _has_ended(result: Any) -> bool:
    """Whether a job is known to have ended, as far as its server answers."""
    states = require("apache_beam.runners.runner", purpose="the state of a job").PipelineState
    try:
        return bool(states.is_terminal(result.state))
    except Exception:  # whatever a client raises that has lost its server
        return False


_PLACES = ("job_endpoint", "flink_master", "project", "region")


def _job_id(result: Any) -> str | None:
    """The id of a job on its server; None where it runs in this process."""
    job = getattr(result, "job_id", None) or getattr(result, "_job_id", None)
    return str(job() if callable(job) else job) if job is not None else None


def tell_of_other_jobs(directory: str, *, work: str) -> None:
    """Says on the terminal which jobs may still do the `work` of a directory, because their launchers were killed."""
    directory = f"{directory}/{_LAUNCHES}"
    storage = storage_for(directory)
    for name in storage.list(directory):
        with contextlib.suppress(BeamPipesError, OSError, ValueError, KeyError, TypeError):
            record = json.loads(storage.read_bytes(f"{directory}/{name}"))
            places = ", ".join(f"{key}={record[key]}" for key in _PLACES if key in record)
            where = f"{record['runner']}{', ' if places else ''}{places}"
            told = (
                f"beam-pipes: job {record['job']} ({where}) was launched for {work} by "
                f"{in_words(record['launcher'])}, and nobody has seen its end: it may still run. Shards that it "
                "finishes are used, and neither job disturbs the other. Cancel it where it runs to spare the "
                "work being done twice."
            )
            print(visible(told), file=sys.stderr)


def _forget(directory: str, *names: str) -> None:
    """All is done: what is left of jobs whose launchers were killed is not needed any more."""
    storage = storage_for(directory)
    for name in names:
        with contextlib.suppress(BeamPipesError, OSError):
            if storage.is_directory(f"{directory}/{name}"):
                storage.delete_tree(f"{directory}/{name}")


class _Follower:
    """Counts the source shards whose completions appear, and shows it."""

    def __init__(self, plan: BuildPlan, counts: Counts, progress: Progress) -> None:
        self._directory = f"{plan.header.directory}/completions"
        self._storage = storage_for(self._directory)
        self._counts = counts
        self._progress = progress
        self._seen: set[str] = set(self._storage.list(self._directory))

    def look(self) -> None:
        """Adds what has appeared since the last look."""
        for name in sorted(set(self._storage.list(self._directory)) - self._seen):
            completion = read_completion(f"{self._directory}/{name}")
            if completion is not None:
                self._seen.add(name)
                self._counts.done_shards += 1
                self._counts.add(ShardFigures.of(completion.account, {}))
        self._progress.update(self._counts)

    @contextlib.contextmanager
    def on_a_thread(self) -> Iterator[None]:
        """Looks from a thread meanwhile; that nothing can be seen is no reason for a job to fail."""
        ended = threading.Event()

        def follow() -> None:
            while not ended.wait(LOOK_EVERY_SECS):
                with contextlib.suppress(BeamPipesError, OSError):
                    self.look()

        thread = threading.Thread(target=follow, name="follow the Beam job", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _followed(result: Any, follower: _Follower, *, cancel: Callable[[], None]) -> Any:
    """Shows progress until the job has ended; how it ended."""
    # A job's own state is no way to see its end: Beam's runners keep it up to date only for one who waits.
    with ThreadPoolExecutor(1, thread_name_prefix="wait for the Beam job") as pool:
        ended: Future[Any] = pool.submit(result.wait_until_finish)
        try:
            while not wait([ended], timeout=LOOK_EVERY_SECS).done:
                follower.look()
        except KeyboardInterrupt:
            _cancel(cancel)
            raise
        return ended.result()


def _cancel(cancel: Callable[[], None]) -> None:
    """Cancels the job; where its server does not take that, one line says so, and the interrupt goes on."""
    try:
        cancel()
    except Exception as error:
        told = visible(str(error).strip()).splitlines() or ["no message"]
        print(
            f"beam-pipes: the job could not be cancelled ({type(error).__name__}: {told[-1]}): it may go on where it "
            "runs. Cancel it there, or let it end: what it writes is what the next build would write.",
            file=sys.stderr,
        )


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
        "Nothing was published. Run the build again to continue from the finished shards.",
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


def run_analysis_on_beam(
    handle: DeclarationHandle, root: str, tasks: Sequence[AnalysisTask], *, options: BeamOptions
) -> None:
    """Stores the accumulators of all tasks; raises the error of ours inside what Beam raised.

    Ctrl-C cancels the job.
    """
    with beam_pipeline(options) as (pipeline, beam_args):
        from beam_pipes.beam.shards import analysis_graph

        launch = secrets.token_hex(8)
        analysis_graph(pipeline, handle, root, tasks, launch=launch)
        directory = f"{root}/{ANALYSES}"
        tell_of_other_jobs(directory, work="an analysis of this cache")
        result: Any = None
        try:
            result = pipeline.run()
            with on_record(directory, options, result):
                try:
                    state = result.wait_until_finish()
                except KeyboardInterrupt:
                    _cancel(lambda: options.cancel(result, beam_args))
                    raise
        finally:
            if _job_id(result) is None or _has_ended(result):  # one that goes on reads its tasks
                remove_analysis_tasks(root, launch)
    if state is not None and str(state) not in ("DONE", "UPDATED"):
        raise AnalysisError(
            f"the Beam job of the analysis ended as {state}: finished accumulators are kept. Run the build "
            "again to continue."
        )
    _forget(directory, _LAUNCHES, ANALYSIS_TASKS)


# The last line of a traceback, as Python writes it. Beam adds the PTransform to the message.
_RAISED = re.compile(r"^(?:[\w]+\.)*beam_pipes\.errors\.(?P<name>\w+): (?P<message>.*)$", re.MULTILINE)
_WHERE = re.compile(r"\s*\[while running '(?P<label>[^']*)'\]")
_END = re.compile(r"\n\s*\n|\nTraceback \(most recent call last\)|\n\s*\[while running|\nDuring handling|\nThe above")


def error_in_words(text: str) -> BeamPipesError | None:
    """The last error of ours that `text` tells of, with its class and its message; None where there is none.

        'bundle failed: Traceback …\\nbeam_pipes.errors.StageError: stage 'Split' failed … [while running 'Split']'
            → StageError("stage 'Split' failed …")

    Attributes (`error.stage`) do not travel in a text: they are None.
    """
    found: BeamPipesError | None = None
    for raised in _RAISED.finditer(text):
        kind = getattr(errors, raised["name"], None)
        if isinstance(kind, type) and issubclass(kind, BeamPipesError):
            rest = text[raised.start("message") :]
            end = _END.search(rest)
            message = _WHERE.sub("", rest if end is None else rest[: end.start()])
            found = kind(message.strip())
    return found
