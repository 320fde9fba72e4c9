"""Tasks and mixtures derived from others: with another vocabulary, with less data, without tasks that lack a split.

Each is a copy of a task or mixture with one change in every task.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset
from beam_pipes.publication.terms import Terms
from beam_pipes.tasks.providers.by_name import maybe_get_mixture_or_task
from beam_pipes.tasks.providers.mixture import Mixture, MixtureRegistry
from beam_pipes.tasks.providers.registry import TaskRegistry
from beam_pipes.tasks.providers.task import Task
from beam_pipes.tasks.sources.data_source import DataSourceInterface, LibrarySource, declared_as_one
from beam_pipes.tasks.steps.features import Feature, ShardInfo
from beam_pipes.tasks.steps.signatures import parameters
from beam_pipes.tasks.steps.step import CacheDatasetPlaceholder
from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary


def mixture_with_missing_task_splits_removed(
    mixture_name: str, split: str, new_mixture_name: str, *, add_to_seqio_registry: bool = True
) -> Mixture:
    """A mixture of those entries of another one that have the split, at the same rates; rate functions are kept.

    A nested mixture stays, under its name, if one of its tasks has the split. Its other tasks are left out whenever
    the new mixture is read (`skip_missing_splits`), and the rest keep their rates.

    Raises:
        TaskError: no entry has the split.
    """
    original = MixtureRegistry.get(mixture_name)
    kept = [(entry, rate) for entry, rate in original.entries if split in entry.splits]
    if not kept:
        raise TaskError(f"no task of mixture '{mixture_name}' has a '{split}' split", mixture=mixture_name, split=split)
    mixture = original.with_entries(new_mixture_name, kept, skip_missing_splits=True)
    if add_to_seqio_registry:
        MixtureRegistry.add_provider(new_mixture_name, mixture)
    return mixture


def mixture_or_task_with_new_vocab(
    mixture_or_task: object,
    new_mixture_or_task_name: str,
    *,
    new_vocab: Vocabulary | None = None,
    new_output_features: Mapping[str, Feature] | None = None,
    add_to_seqio_registry: bool = True,
    add_cache_placeholder: bool = False,
    validate_features: bool = True,
) -> Task | Mixture:
    """A task or mixture like another one, with another vocabulary for all features, or with other features.

    Args:
        mixture_or_task: a name or an object.
        new_mixture_or_task_name: the new name; tasks of a mixture become `{new name}.{task}`, mixtures inside it `{new
            name}.{mixture}`, and their tasks `{new name}.{mixture}.{task}`. Rates that are functions are called with
            the new tasks.
        new_vocab: the vocabulary of every feature.
        new_output_features: the new features, instead of a vocabulary.
        add_to_seqio_registry: register the results.
        add_cache_placeholder: if there is no `CacheDatasetPlaceholder`, put one as late as possible: before the first
            step that takes `sequence_length`, or after the last step.
        validate_features: new features must have the names, dtypes and ranks of the old ones.

    Raises:
        TaskError: both vocabulary and features are given, or neither, or the features do not fit.
    """
    if (new_vocab is None) == (new_output_features is None):
        raise TaskError("exactly one of `new_vocab` and `new_output_features` must be specified.")

    def change(task: Task, name: str) -> Task:
        if new_vocab is not None:
            features: Mapping[str, Feature] = {
                key: dataclasses.replace(feature, vocabulary=new_vocab) for key, feature in task.output_features.items()
            }
        else:
            features = dict(new_output_features or {})
            if validate_features:
                _check(task.output_features, features)
        steps = list(task.preprocessors)
        if add_cache_placeholder and not task.supports_caching:
            asking = (place for place, step in enumerate(steps) if "sequence_length" in parameters(step))
            steps.insert(next(asking, len(steps)), CacheDatasetPlaceholder())
        return task.replace(name=name, output_features=features, preprocessors=steps)

    return rebuilt(mixture_or_task, new_mixture_or_task_name, change, register=add_to_seqio_registry)


def _check(old: Mapping[str, Feature], new: Mapping[str, Feature]) -> None:
    if set(new) != set(old):
        raise TaskError(
            f"new_output_features: {dict(new)} doesn't match original output_features: {dict(old)} "
            f"(new: {sorted(set(new) - set(old))}, missing: {sorted(set(old) - set(new))})"
        )
    for name, feature in new.items():
        if (feature.rank, feature.dtype) != (old[name].rank, old[name].dtype):
            raise TaskError(
                f"new_output_features: {dict(new)} incompatible with original output_features: {dict(old)} "
                f"(dtype or rank of '{name}')",
                feature=name,
            )


def rebuilt(
    mixture_or_task: object, new_name: str, change: Callable[[Task, str], Task], *, register: bool
) -> Task | Mixture:
    """`change(task, name)` of the task, or of every entry of the mixture as `{new_name}.{entry}`.

    A mixture keeps its declared rates; a rate that is a function is called with the new task. A nested
    mixture is copied as `{new_name}.{mixture}`, with its tasks as `{new_name}.{mixture}.{task}`.
    """
    original = maybe_get_mixture_or_task(mixture_or_task)
    tasks: dict[str, Task] = {}
    mixtures: dict[str, Mixture] = {}

    def remake(entry: Task | Mixture, name: str) -> Task | Mixture:
        if isinstance(entry, Task):
            if name not in tasks:
                tasks[name] = change(entry, name)
                if register:
                    TaskRegistry.add_provider(name, tasks[name])
            return tasks[name]
        if name not in mixtures:
            entries = [(remake(inner, f"{name}.{inner.name}"), rate) for inner, rate in entry.entries]
            mixtures[name] = entry.with_entries(name, entries)
            if register:
                MixtureRegistry.add_provider(name, mixtures[name])
        return mixtures[name]

    return remake(original, new_name)


class TruncatedDatasetProvider(LibrarySource):
    """The first examples of a source, split by split. Read as one shard.

    Args:
        child: the source.
        split_sizes: split → number of examples; other splits are unchanged.
        shuffle_buffer_size: size of the buffer that shuffles the examples that are left.
    """

    def __init__(
        self, child: DataSourceInterface, split_sizes: Mapping[str, int], shuffle_buffer_size: int | None = None
    ) -> None:
        self.child = child
        self.split_sizes = dict(split_sizes)
        self.shuffle_buffer_size = shuffle_buffer_size
        super().__init__(splits=(), caching_permitted=child.caching_permitted)

    @property
    def splits(self) -> Sequence[str]:
        return self.child.splits

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"TruncatedDatasetProvider({self.child!r}, {self.split_sizes})"

    def list_shards(self, split: str) -> Sequence[str]:
        return [split]

    def _dataset_of(self, split: str, shuffle: bool, seed: int | None, shard_info: ShardInfo | None) -> TfDataset:
        if shard_info is not None and shard_info.num_shards > 1:
            raise TaskError("`TruncatedDatasetProvider` does not support low-level sharding.")
        if split not in self.split_sizes:
            return self.child.get_dataset(split=split, shuffle=shuffle, seed=seed)
        # The same first examples, whatever the seed.
        dataset = self.child.get_dataset(split=split, shuffle=False).take(self.split_sizes[split]).cache()
        return dataset.shuffle(self.shuffle_buffer_size, seed=seed) if shuffle and self.shuffle_buffer_size else dataset

    def terms_of(self, split: str, shard: str) -> Terms:
        return declared_as_one(self.child, [split])

    def num_input_examples(self, split: str) -> int | None:
        count = self.child.num_input_examples(split)
        if split not in self.split_sizes:
            return count
        return self.split_sizes[split] if count is None else min(count, self.split_sizes[split])


def mixture_or_task_with_truncated_data(
    mixture_or_task: object,
    new_mixture_or_task_name: str,
    *,
    split_sizes: Mapping[str, int],
    add_to_seqio_registry: bool = True,
) -> Task | Mixture:
    """A task or mixture like another one, with only the first examples of each task.

    Args:
        mixture_or_task: a name or an object.
        new_mixture_or_task_name: the new name; tasks of a mixture become `{new name}.{task}`, mixtures inside it `{new
            name}.{mixture}`, and their tasks `{new name}.{mixture}.{task}`. Rates that are functions are called with
            the new tasks.
        split_sizes: split → examples of each task.
        add_to_seqio_registry: register the results.
    """

    def change(task: Task, name: str) -> Task:
        source = TruncatedDatasetProvider(task.source, split_sizes, task.shuffle_buffer_size)
        return task.replace(name=name, source=source)

    return rebuilt(mixture_or_task, new_mixture_or_task_name, change, register=add_to_seqio_registry)
