"""How a task becomes a `tf.data.Dataset`: source or cache, share, epochs, steps, checks, trimming, shuffling."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from beam_pipes.checks import known
from beam_pipes.errors import TaskError, UnknownNameError, logger
from beam_pipes.extras import TfDataset, tensorflow
from beam_pipes.tasks.providers.options import LoadOptions, is_whole
from beam_pipes.tasks.providers.task_cache import DeclaredTask, cached_source, cached_stats_or_none
from beam_pipes.tasks.steps.dataset_map import is_frugal
from beam_pipes.tasks.steps.examples import NoExamples, dataset_of
from beam_pipes.tasks.steps.features import Feature, SequenceLength, axis_lengths
from beam_pipes.tasks.steps.seeds import fold
from beam_pipes.tasks.steps.sequences import trim_dataset

if TYPE_CHECKING:
    from beam_pipes.tasks.sources.data_source import DataSourceInterface

#: Splits of up to this many raw examples per host are kept in memory.
MAX_IN_MEMORY_EXAMPLES = 1000

_log = logger(__name__)


def checked_lengths(task: DeclaredTask, options: LoadOptions) -> SequenceLength:
    """Output feature → the length it is cut to, or a list with one for each axis; empty if nothing is trimmed."""
    if not options.trim_output_features:
        return {}
    lengths = {
        name: length
        for name, length in (options.sequence_length or {}).items()
        if length is not None and name in task.output_features
    }
    for name, length in lengths.items():
        if not all(axis is None or (is_whole(axis) and axis >= 0) for axis in axis_lengths(length)):
            raise TaskError(
                f"task '{task.name}': the sequence_length of feature '{name}' should be a whole number, 0 or more, or "
                f"a list with one for each axis, got {length!r}",
                task=task.name,
                feature=name,
            )
    return lengths


def load_dataset(task: DeclaredTask, options: LoadOptions) -> TfDataset:
    """`Task.get_dataset`."""
    options.check(task.name)
    tf = tensorflow("Task.get_dataset")
    use_cached = resolve_caching(task, options.use_cached)
    buffer_size, lengths = shuffle_buffer_size(task, options), checked_lengths(task, options)
    source = cached_source(task, options.split) if use_cached else task.source
    check_split(task, source, options.split)
    try:
        dataset = _preprocessed(task, source, options, use_cached)
    except NoExamples:
        dataset = empty_dataset(task.output_features, name=f"task '{task.name}'")
    check_promises(task, dataset)
    if lengths:
        dataset = trim_dataset(dataset, lengths, task.output_features)
    if options.shuffle and buffer_size is not None:
        seed = None if options.seed is None else fold(options.seed, task.name, "shuffle")
        dataset = dataset.shuffle(buffer_size, seed=seed)
    return dataset if is_frugal() else dataset.prefetch(tf.data.AUTOTUNE)


def _preprocessed(task: DeclaredTask, source: DataSourceInterface, options: LoadOptions, use_cached: bool) -> TfDataset:
    dataset = shared_dataset(source, options)
    if options.try_in_mem_cache and _is_small(task, source, options, use_cached):
        dataset = dataset.cache()
    if options.num_epochs != 1:
        dataset = dataset.repeat(options.num_epochs)
    if not use_cached:
        # The same draws as in a cache built with this seed, so that both give the same examples.
        dataset = task.preprocess_precache(dataset, options.seed)
    seed = None if options.seed is None else fold(options.seed, task.name)
    return task.preprocess_postcache(dataset, options.sequence_length, seed, options.shard_info)


def empty_dataset(features: Mapping[str, Feature], *, name: str) -> TfDataset:
    """An empty dataset with the element types declared by the features."""
    return dataset_of(
        lambda: (), {key: (feature.dtype.name, feature.rank) for key, feature in features.items()}, name=name
    )


def shuffle_buffer_size(task: DeclaredTask, options: LoadOptions) -> int | None:
    """Size of the buffer that shuffles examples, None without one; raises if shuffling is requested and the task does
    not allow it."""
    if task.shuffle_buffer_size is None:
        if not options.shuffle or getattr(task.source, "performs_internal_shuffling", False):
            return None
        raise TaskError(
            f"Shuffling is disallowed for Task '{task.name}' since its `shuffle_buffer_size` was set to `None` on "
            "construction.",
            task=task.name,
        )
    return options.shuffle_buffer_size or task.shuffle_buffer_size


def resolve_caching(task: DeclaredTask, use_cached: bool) -> bool:
    """Whether to read the cache; raises if the task does not allow what is requested."""
    if use_cached and not task.supports_caching:
        _log.warning("Task '%s' does not support caching. Switching to on-the-fly preprocessing.", task.name)
        return False
    if use_cached:
        task.assert_cached()
    elif task.requires_caching:
        raise TaskError(f"Task '{task.name}' requires caching, but was called with `use_cached=False`.", task=task.name)
    return use_cached


def check_split(task: DeclaredTask, source: DataSourceInterface, split: str) -> None:
    where = f"task {task.name!r}"
    known(split, among=source.splits, what="split", where=where, error=UnknownNameError, task=task.name, split=split)


def shared_dataset(source: DataSourceInterface, options: LoadOptions) -> TfDataset:
    """The share of one host, every example in exactly one share.

    By file if the number of hosts divides the number of files; else example by example, since with 3 files for 2 hosts
    one host would get twice as much.
    """
    share = options.shard_info
    read = functools.partial(source.get_dataset, split=options.split, seed=options.seed)
    if share is None or share.num_shards == 1:
        return read(shuffle=options.shuffle)
    if source.supports_arbitrary_sharding or len(source.list_shards(options.split)) % share.num_shards == 0:
        return read(shuffle=options.shuffle, shard_info=share)
    # All hosts must see the same order, or examples would be lost and repeated: without a seed, files are not shuffled.
    return read(shuffle=options.shuffle and options.seed is not None).shard(share.num_shards, share.index)


def _is_small(task: DeclaredTask, source: DataSourceInterface, options: LoadOptions, use_cached: bool) -> bool:
    if options.num_epochs == 1:
        return False
    if use_cached:
        count = (cached_stats_or_none(task.name, options.split) or {}).get("examples")
    else:
        count = source.num_input_examples(options.split)
    hosts = options.shard_info.num_shards if options.shard_info else 1
    return count is not None and count <= MAX_IN_MEMORY_EXAMPLES * hosts


def check_promises(task: DeclaredTask, dataset: TfDataset) -> None:
    """Raises `TaskError` unless the elements of a dataset match the output features."""
    spec = dataset.element_spec
    if not isinstance(spec, dict):
        raise TaskError(
            f"Task '{task.name}': after preprocessing an example should be a dict of features, got {spec}. Add a "
            f"preprocessor that makes one",
            task=task.name,
        )
    for name, feature in task.output_features.items():
        if name not in spec:
            if feature.required:
                raise missing_feature(task, name, sorted(spec))
            continue
        check_promise(task, name, spec[name].dtype.name, spec[name].shape.rank)


def check_promise(task: DeclaredTask, name: str, dtype: str, rank: int | None) -> None:
    feature = task.output_features[name]
    if dtype != feature.dtype.name:
        raise TaskError(
            f"Task dataset has incorrect type for feature '{name}' after preprocessing: Got {dtype}, expected "
            f"{feature.dtype.name} (task '{task.name}')",
            task=task.name,
            feature=name,
            expected=feature.dtype.name,
            found=dtype,
        )
    if rank is not None and rank != feature.rank:
        raise TaskError(
            f"Task dataset has incorrect rank for feature '{name}' after preprocessing: Got {rank}, expected "
            f"{feature.rank} (task '{task.name}')",
            task=task.name,
            feature=name,
            expected=feature.rank,
            found=rank,
        )


def missing_feature(task: DeclaredTask, name: str, found: list[str]) -> TaskError:
    return TaskError(
        f"Task dataset is missing expected output feature after preprocessing: {name} (task '{task.name}'; its "
        f"examples have: {', '.join(found)})",
        task=task.name,
        feature=name,
        found=found,
    )
