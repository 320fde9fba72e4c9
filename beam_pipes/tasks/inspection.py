"""What becomes of the first examples of a task, step by step."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from beam_pipes.errors import UnknownNameError
from beam_pipes.tasks.caches.task_cache import part_name
from beam_pipes.tasks.in_python.examples import normalised
from beam_pipes.tasks.provider import SequenceLength
from beam_pipes.tasks.python_forms import trim_features
from beam_pipes.tasks.seeds import fold, map_seed_manager
from beam_pipes.tasks.steps import Step, run_over_examples

if TYPE_CHECKING:
    from beam_pipes.tasks.task import Task

RAW, CUT, TRIMMED = "raw", "cached", "trimmed"


@dataclasses.dataclass(frozen=True)
class TracedStage:
    """The examples behind one step. `error` says why there are none: the steps behind it are not run."""

    title: str
    examples: Sequence[Any]
    error: str | None = None


def trace_task(
    task: Task,
    split: str = "train",
    *,
    num_examples: int = 3,
    sequence_length: SequenceLength | None = None,
    seed: int = 0,
) -> list[TracedStage]:
    """Runs the first raw examples of a split through each step of a task, one step after the other.

    `[raw: 3 examples, step 0: split_sentences: 7, step 1: tokenize: 7, cached: 7, step 0: append_eos: 7]`. A step sees
    all of these examples and no others, so one that joins or packs examples makes less of them than it would of a whole
    split. Draws before the cut are those of a build with the same seed.

    Args:
        task: the task.
        split: name of the split.
        num_examples: how many raw examples to follow.
        sequence_length: feature → longest length, injected into the steps behind the cut; features are cut to it.
        seed: seed of random steps.

    Raises:
        UnknownNameError: the task has no such split.
    """
    if split not in task.splits:
        raise UnknownNameError(f"task '{task.name}' has no split '{split}'; it has: {', '.join(task.splits)}")
    shards = (example for shard in task.source.list_shards(split) for example in task.source.read_shard(split, shard))
    examples: list[Any] = list(itertools.islice(shards, num_examples))
    stages = [TracedStage(RAW, list(examples))]

    def follow(title: str, step: Callable[[], Iterable[Any]]) -> bool:
        try:
            examples[:] = list(step())
        except Exception as error:
            stages.append(TracedStage(title, [], f"{type(error).__name__}: {error}"))
            return False
        stages.append(TracedStage(title, list(examples)))
        return True

    def one(step: Step, length: SequenceLength | None) -> Callable[[], Iterable[Any]]:
        return lambda: run_over_examples([step], list(examples), task.step_context(length))

    for number, step in enumerate(task.offline_steps()):
        with map_seed_manager(seed, keyed_by="content", steps_begun=number):
            if not follow(part_name(number, step), one(step, None)):
                return stages
    if task.supports_caching:
        stages.append(TracedStage(CUT, list(examples)))
    first = len(task.offline_steps())
    for number, step in enumerate(task.online_steps()):
        with map_seed_manager(fold(seed, task.name), steps_begun=number):
            if not follow(part_name(first + number, step), one(step, sequence_length)):
                return stages
    if sequence_length:
        features = task.output_features
        follow(TRIMMED, lambda: [trim_features(normalised(e, features), sequence_length, features) for e in examples])
    return stages
