"""Tasks made of tasks whose shape may still change: fully cached ones, few-shot ones, ones with sentinels."""

from __future__ import annotations

from beam_pipes.tasks.experimental.few_shot import FewshotDataSource as FewshotDataSource
from beam_pipes.tasks.experimental.few_shot import fewshot_preprocessor as fewshot_preprocessor
from beam_pipes.tasks.experimental.fully_cached import add_fully_cached_mixture as add_fully_cached_mixture
from beam_pipes.tasks.experimental.fully_cached import add_fully_cached_task as add_fully_cached_task
from beam_pipes.tasks.experimental.fully_cached import add_task_with_sentinels as add_task_with_sentinels
from beam_pipes.tasks.experimental.fully_cached import disable_registry as disable_registry
