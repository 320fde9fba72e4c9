"""Tasks and mixtures made of others: with another vocabulary, with less data, without what lacks a split."""

from __future__ import annotations

from beam_pipes.tasks.missing_splits import (
    mixture_with_missing_task_splits_removed as mixture_with_missing_task_splits_removed,
)
from beam_pipes.tasks.new_vocabulary import mixture_or_task_with_new_vocab as mixture_or_task_with_new_vocab
from beam_pipes.tasks.truncated_data import TruncatedDatasetProvider as TruncatedDatasetProvider
from beam_pipes.tasks.truncated_data import (
    mixture_or_task_with_truncated_data as mixture_or_task_with_truncated_data,
)
