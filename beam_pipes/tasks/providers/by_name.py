"""Tasks and mixtures by their names, and from a name to model features in one call.

get_mixture_or_task("wmt")                          the mixture of this name, or else the task
get_dataset("wmt", {"targets": 512}, converter)     model features, as a `tf.data.Dataset`
"""

from __future__ import annotations

from beam_pipes.errors import NotANameError, TaskError, UnknownNameError, logger
from beam_pipes.extras import TfDataset, tensorflow
from beam_pipes.tasks.providers.mixture import Mixture, MixtureRegistry
from beam_pipes.tasks.providers.registry import TaskRegistry, registered
from beam_pipes.tasks.providers.task import Task
from beam_pipes.tasks.steps.features import DatasetConverter, SequenceLength, ShardInfo, check_converter

_log = logger(__name__)


def get_mixture_or_task(task_or_mixture_name: str) -> Task | Mixture:
    """The mixture of a name, or else the task.

    Raises:
        UnknownNameError: neither exists; the message lists similar names.
    """
    if task_or_mixture_name in MixtureRegistry.names():
        return MixtureRegistry.get(task_or_mixture_name)
    if task_or_mixture_name in TaskRegistry.names():
        return TaskRegistry.get(task_or_mixture_name)
    if not isinstance(task_or_mixture_name, str):
        raise NotANameError(f"Got: {task_or_mixture_name!r}, where the name of a task or mixture should be")
    known = [*MixtureRegistry.names(), *TaskRegistry.names()]
    raise UnknownNameError(
        f"No Task or Mixture found with name '{task_or_mixture_name}'.{registered(task_or_mixture_name, known)}",
        name=task_or_mixture_name,
    )


def maybe_get_mixture_or_task(task: object) -> Task | Mixture:
    """The object itself, or the task or mixture registered under a name."""
    if isinstance(task, str):
        return get_mixture_or_task(task)
    if isinstance(task, (Task, Mixture)):
        return task
    raise TaskError(f"User passed in a task that was not a string, Task, or Mixture. Got type: {type(task)}")


def get_subtasks(task_or_mixture: Task | Mixture) -> list[Task]:
    """The tasks of a mixture, nested ones included; a task alone is its own."""
    return task_or_mixture.tasks if isinstance(task_or_mixture, Mixture) else [task_or_mixture]


def get_dataset(
    mixture_or_task_name: str | Task | Mixture,
    task_feature_lengths: SequenceLength,
    feature_converter: DatasetConverter,
    dataset_split: str = "train",
    use_cached: bool = False,
    shuffle: bool = False,
    num_epochs: int | None = 1,
    shard_info: ShardInfo | None = None,
    verbose: bool = True,
    seed: int | None = None,
    batch_size: int | None = None,
    trim_output_features: bool = True,
) -> TfDataset:
    """The model features of a task or mixture, as a `tf.data.Dataset`.

    Args:
        mixture_or_task_name: a name, a `Task` or a `Mixture`.
        task_feature_lengths: task feature → longest length.
        feature_converter: makes model features of task features.
        dataset_split: name of the split.
        use_cached: read the cache.
        shuffle: shuffle files and examples.
        num_epochs: passes over the data; None for no end.
        shard_info: this host's share.
        verbose: log an overview.
        seed: same seed, same order and same draws.
        batch_size: examples in a batch; None for no batches. An incomplete last batch is left out.
        trim_output_features: cut task features to their lengths before conversion.

    Raises:
        WrongConverterError: the converter is something else.
    """
    check_converter(feature_converter)
    tf = tensorflow("get_dataset")
    provider = maybe_get_mixture_or_task(mixture_or_task_name)
    dataset = provider.get_dataset(
        sequence_length=task_feature_lengths,
        split=dataset_split,
        use_cached=use_cached,
        shuffle=shuffle,
        seed=seed,
        shard_info=shard_info,
        num_epochs=num_epochs,
        trim_output_features=trim_output_features,
    )
    dataset = feature_converter(dataset, task_feature_lengths)
    if batch_size is not None:
        dataset = dataset.batch(batch_size, drop_remainder=True)
    if verbose:
        _log.info(
            "%s, split %s, cached %s, lengths %s: %s",
            provider.name,
            dataset_split,
            use_cached,
            dict(task_feature_lengths),
            {name: spec.shape for name, spec in dataset.element_spec.items()},
        )
    return dataset.prefetch(tf.data.AUTOTUNE)
