"""Rates of the tasks of a mixture, by their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from beam_pipes.errors import TaskError, logger
from beam_pipes.tasks.providers.task_cache import cached_num_examples, cached_stats_or_none

if TYPE_CHECKING:
    from beam_pipes.tasks.providers.task import Task


_log = logger(__name__)


def mixing_rate_num_examples(
    task: Task,
    maximum: int | None = None,
    scale: float = 1.0,
    temperature: float = 1.0,
    fallback_to_num_input_examples: bool = True,
    split: str = "train",
) -> float:
    """The number of examples of a task as its rate: `min(examples · scale, maximum) ^ (1 / temperature)`.

    Use it as a default rate: `default_rate=mixing_rate_num_examples`, or bound, `functools.partial(...,
    maximum=10_000)`.

    Args:
        task: the task.
        maximum: cap of the scaled number, so that large tasks do not drown small ones.
        scale: factor, applied before the cap.
        temperature: 1 is proportional; larger values approach equal shares.
        fallback_to_num_input_examples: without a cache, count raw examples instead of preprocessed ones.
        split: the split that is counted.

    Raises:
        TaskError: the number is not known.
    """
    count = cached_num_examples(task.name, split)
    if count is None and fallback_to_num_input_examples:
        _log.warning(
            "Task '%s' not cached so using number of input examples instead of preprocessed examples to compute rate.",
            task.name,
        )
        count = task.num_input_examples(split)
    if count is None:
        raise TaskError(
            f"the number of examples of task '{task.name}' in split '{split}' is not known, so it gives no rate: build "
            "its cache, give its source num_input_examples, or give the task a rate",
            task=task.name,
        )
    rate = float(count) * scale
    if maximum:
        rate = min(rate, maximum)
    return rate if temperature == 1.0 else rate ** (1.0 / temperature)


def mixing_rate_num_characters(task: Task, temperature: float = 1.0, char_count_name: str = "text_chars") -> float:
    """The number of characters of a task's cached text as its rate.

    Args:
        task: the task; its cache must have the statistic.
        temperature: 1 is proportional; larger is nearer to equal shares.
        char_count_name: name of the statistic.

    Raises:
        TaskError: the cache does not have it.
    """
    count = (cached_stats_or_none(task.name, "train") or {}).get(char_count_name)
    if count is None:
        raise TaskError(
            "`mixing_rate_num_characters` requires that each task has is cached with the character count stats. "
            f"Task '{task.name}' has no '{char_count_name}'.",
            task=task.name,
        )
    return float(count) if temperature == 1.0 else float(count) ** (1.0 / temperature)


def unimax_rates(sizes: Mapping[str, float], budget: float, max_epochs: float = 1.0) -> dict[str, float]:
    """Rates as equal as possible, with no task read more than `max_epochs` times (UniMax, Chung et al., 2023).

    Tasks take equal shares of the budget, smallest first; a task that is too small for its share is used up, and the
    others share the rest: `unimax_rates({"a": 10, "b": 100, "c": 1000}, budget=300, max_epochs=2)` →
    `{"a": 20, "b": 140, "c": 140}`.

    Args:
        sizes: task → examples (or characters, or tokens).
        budget: the total to read in training, in the same unit.
        max_epochs: how often a task may be read.

    Returns:
        Task → how much of it to read; usable as `tasks=list(rates.items())`.

    Raises:
        TaskError: a size, the budget or the epochs are not positive.
    """
    if not sizes or min(*sizes.values(), budget, max_epochs) <= 0:
        raise TaskError(f"UniMax needs positive sizes, budget and epochs, got {dict(sizes)}, {budget}, {max_epochs}")
    rates: dict[str, float] = {}
    left = budget
    for number, name in enumerate(sorted(sizes, key=lambda name: sizes[name])):
        rates[name] = min(left / (len(sizes) - number), sizes[name] * max_epochs)
        left -= rates[name]
    return {name: rates[name] for name in sizes}
