"""A build as a job of a Beam runner, in this process or far away."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from beam_pipes.building.completion import read_completion
from beam_pipes.building.plan import BuildPlan
from beam_pipes.building.reference import DeclarationHandle
from beam_pipes.building.shard_figures import ShardFigures
from beam_pipes.building.shard_task import ShardTask
from beam_pipes.cache.storage import storage_for
from beam_pipes.errors import BeamPipesError, BuildError
from beam_pipes.runners.beam_pipeline import beam_pipeline
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
        with follower.on_a_thread():  # a runner in this process returns when everything is done
            result = pipeline.run()
        state = _followed(result, follower, cancel=lambda: options.cancel(result, beam_args))
        query = result.metrics().query()  # while its server is there
    if state is not None and str(state) not in ("DONE", "UPDATED"):
        raise BuildError(
            f"the Beam job ended as {state}: nothing was published. Run the build again to go on from there."
        )
    counts.set_to(plan.read_account())
    counts.done_shards = counts.num_shards
    progress.update(counts)
    return {"beam_metrics": {metric.key.metric.name: metric.result for metric in query["counters"]}}


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
        told = str(error).strip().splitlines() or ["no message"]
        print(
            f"beam-pipes: the job could not be cancelled ({type(error).__name__}: {told[-1]}): it may go on where it "
            "runs. Cancel it there, or let it end: what it writes is what the next build would write.",
            file=sys.stderr,
        )
