"""Fully cached tasks, few-shot tasks, tasks with sentinels. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "FewshotDataSource": "beam_pipes.tasks.experimental",
    "add_fully_cached_mixture": "beam_pipes.tasks.experimental",
    "add_fully_cached_task": "beam_pipes.tasks.experimental",
    "add_task_with_sentinels": "beam_pipes.tasks.experimental",
    "disable_registry": "beam_pipes.tasks.experimental",
    "fewshot_preprocessor": "beam_pipes.tasks.experimental",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
