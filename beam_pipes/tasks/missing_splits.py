"""The same mixture without the tasks that lack a split."""

from __future__ import annotations

from beam_pipes.errors import TaskError
from beam_pipes.tasks.mixture import Mixture, Rate
from beam_pipes.tasks.registry import MixtureRegistry
from beam_pipes.tasks.task import Task


def mixture_with_missing_task_splits_removed(
    mixture_name: str, split: str, new_mixture_name: str, *, add_to_seqio_registry: bool = True
) -> Mixture:
    """A mixture of those tasks of another one that have the split, at the same rates: functions stay functions.

    Raises:
        TaskError: none has it.
    """
    original = MixtureRegistry.get(mixture_name)

    # The number of examples of a task may change with its cache: what asks for it, asks whenever rates are needed.
    def rate(task: Task) -> Rate:
        return original.get_rate if original.has_rate_functions else original.get_rate(task)

    kept = [(task, rate(task)) for task in original.tasks if split in task.splits]
    if not kept:
        raise TaskError(f"no task of mixture '{mixture_name}' has a '{split}' split", mixture=mixture_name, split=split)
    mixture = Mixture(new_mixture_name, kept, sample_fn=original.sample_fn, exhaustion=original.exhaustion)
    if add_to_seqio_registry:
        MixtureRegistry.add_provider(new_mixture_name, mixture)
    return mixture
