"""A build, or a round of an analysis, as a job of workers that a scheduler starts."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from beam_pipes.building.analysis.job import TASKS as ANALYSIS_TASKS
from beam_pipes.building.plan import BuildPlan
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.building.shard_task import BuildHeader
from beam_pipes.errors import DeclarationError
from beam_pipes.runners.beam_job import (
    attempted,
    cancelled,
    draft_of_analysis,
    draft_of_build,
    living_job,
    published,
    tell_of_other_builds,
)
from beam_pipes.runners.claims import WorkOrder
from beam_pipes.runners.clusters import ClusterOptions
from beam_pipes.runners.jobs import Follower, HandedOver, LaunchRecord, error_of, follow, forget
from beam_pipes.runners.options import Built, Order, job_name_of, without_secrets
from beam_pipes.storage.local import storage_for

if TYPE_CHECKING:
    from beam_pipes.building.analysis.plan import AnalysisTask
    from beam_pipes.runners.progress import Counts, Progress


@dataclasses.dataclass(frozen=True)
class ClusterRunner:
    """Builds by workers that a scheduler starts. If a live job builds this very snapshot, waits for it instead."""

    options: ClusterOptions

    def analyse(
        self, handle: DeclarationHandle, root: str, tasks: Sequence[AnalysisTask], *, counts: Counts, progress: Progress
    ) -> None:
        """Stores the accumulators of all tasks by a job of their own; waits for a live job with the same analyzers."""
        if self.options.script is not None:
            raise DeclarationError(
                f"{self.options.NAME}: a script holds one job, and the analyzers of {handle.get().name!r} need one "
                "before it. Build once without script, or with another runner; existing results are reused."
            )
        draft = draft_of_analysis(handle, root, tasks, self.options)
        attempted(self.options, draft, lambda: _waited_for(self._launched(draft, handle, root, tasks, None)))
        forget(draft.directory, ANALYSIS_TASKS)

    def hand_over(self, handle: DeclarationHandle, plan: BuildPlan, *, keep: int | None) -> HandedOver | None:
        """The build as a script or a detached job, where the options ask for one; else None."""
        options, header = self.options, plan.header
        if options.script is not None:
            order = WorkOrder.write(
                handle, header.root, plan.tasks_left(), header=header, lease_secs=options.lease_secs, is_followed=False
            )
            name = job_name_of(header.name, header.snapshot)
            path = options.script
            storage_for(path).replace(os.path.abspath(path), options.job_text(order, name).encode())
            return HandedOver(template=path)
        if not options.detach:
            return None
        tell_of_other_builds(header, options.NAME)
        draft = draft_of_build(handle, plan, options, keep=keep)
        living = living_job(draft)
        return HandedOver(job=living or self._launched(draft, handle, header.root, plan.tasks_left(), header))

    def run(self, order: Order) -> Built:
        """Runs the build as a job, whose workers publish; up to `options.attempts` jobs if workers are lost."""
        header = order.plan.header
        look = Follower(header.directory, order.counts, order.progress).look
        tell_of_other_builds(header, self.options.NAME)
        draft = draft_of_build(order.handle, order.plan, self.options, keep=order.keep)
        prepared = [order.tasks]  # for the first attempt; a later one looks again

        def run() -> dict[str, object]:
            tasks = prepared.pop() if prepared else order.plan.tasks_left()
            return _waited_for(self._launched(draft, order.handle, header.root, tasks, header), look)

        return published(order, attempted(self.options, draft, run, look))

    def _launched(
        self,
        draft: LaunchRecord,
        handle: DeclarationHandle,
        root: str,
        tasks: Sequence[Any],
        header: BuildHeader | None,
    ) -> LaunchRecord:
        order = WorkOrder.write(handle, root, tasks, header=header, lease_secs=self.options.lease_secs)
        job = self.options.submit(order, job_name_of(draft.name, draft.snapshot))
        num_steps = len(tasks) + (header is not None)
        args = (f"--order={order}", f"--num_steps={num_steps}", *without_secrets(self.options.beam_args))
        record = dataclasses.replace(draft, job=job, beam_args=args, started_at=time.time())
        record.write()
        return record


def _waited_for(record: LaunchRecord, look: Callable[[], None] = lambda: None) -> dict[str, object]:
    """Waits for a job that was just launched; Ctrl-C cancels it. Raises its error if it does not end well."""
    try:
        state = follow(record, look)
    except KeyboardInterrupt:
        remote = record.remote()
        assert remote is not None
        cancelled(remote.cancel)
        record.remove()
        raise
    if state.ended:
        record.remove()
    if state.name != "done":
        raise error_of(record, state)
    return {"job": record.job}
