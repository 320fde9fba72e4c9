"""Fully cached tasks, few-shot tasks, tasks with sentinels. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "CacheDatasetPlaceholder": "beam_pipes.tasks.steps",
    "FewshotDataSource": "beam_pipes.tasks.experimental",
    "Mixture": "beam_pipes.tasks.mixture",
    "MixtureRegistry": "beam_pipes.tasks.registry",
    "ShardInfo": "beam_pipes.tasks.provider",
    "Task": "beam_pipes.tasks.task",
    "TaskRegistry": "beam_pipes.tasks.registry",
    "add_fully_cached_mixture": "beam_pipes.tasks.experimental",
    "add_fully_cached_task": "beam_pipes.tasks.experimental",
    "add_task_with_sentinels": "beam_pipes.tasks.experimental",
    "disable_registry": "beam_pipes.tasks.experimental",
    "fewshot_preprocessor": "beam_pipes.tasks.experimental",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
