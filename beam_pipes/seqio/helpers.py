"""Tasks and mixtures made of others. Names of SeqIO; each lives in a room of beam-pipes."""

from __future__ import annotations

from beam_pipes.seqio.reexport import reexport

HOMES = {
    "TruncatedDatasetProvider": "beam_pipes.tasks.derived",
    "mixture_or_task_with_new_vocab": "beam_pipes.tasks.derived",
    "mixture_or_task_with_truncated_data": "beam_pipes.tasks.derived",
    "mixture_with_missing_task_splits_removed": "beam_pipes.tasks.derived",
}

__all__ = sorted(HOMES)
__getattr__, __dir__ = reexport(__name__, HOMES)
