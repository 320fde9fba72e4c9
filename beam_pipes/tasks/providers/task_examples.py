"""How a task becomes Python examples, without TensorFlow if possible.

`iterate_examples` is `Task.examples`: source or cache, share, epochs, steps, checks, trimming, shuffling. `run_offline`
and `stream_shard` stop at the cut: they give the examples that a build caches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.tasks.providers.options import LoadOptions
from beam_pipes.tasks.providers.task_cache import DeclaredTask, cached_source
from beam_pipes.tasks.providers.task_dataset import (
    check_promise,
    check_split,
    checked_lengths,
    missing_feature,
    resolve_caching,
    shared_dataset,
    shuffle_buffer_size,
)
from beam_pipes.tasks.sources.cached import BuiltCacheSource
from beam_pipes.tasks.steps.dataset_map import frugal, with_few_threads
from beam_pipes.tasks.steps.examples import (
    ExampleValue,
    OwnExample,
    RawExample,
    dtype_name,
    examples_from_dataset,
    normalised,
    rank_of,
)
from beam_pipes.tasks.steps.features import SequenceLength
from beam_pipes.tasks.steps.seeds import fold, map_seed_manager
from beam_pipes.tasks.steps.sequences import trimmed
from beam_pipes.tasks.steps.step import (
    Step,
    StepContext,
    dataset_steps,
    run_over_dataset,
    run_over_examples,
)

T = TypeVar("T")

if TYPE_CHECKING:
    from beam_pipes.tasks.sources.data_source import DataSourceInterface

_FIRST_BUFFER = 16


def iterate_examples(task: DeclaredTask, options: LoadOptions) -> Iterator[OwnExample]:
    """`Task.examples`: the examples of `load_dataset`, with every step in its Python form if it has one."""
    options.check(task.name)
    use_cached = resolve_caching(task, options.use_cached)
    buffer_size, lengths = shuffle_buffer_size(task, options), checked_lengths(task, options)
    source = cached_source(task, options.split) if use_cached else task.source
    check_split(task, source, options.split)
    stream = _Stream(source, options)
    if not use_cached:
        with map_seed_manager(options.seed, keyed_by="content"):
            stream.apply(task.offline_steps(), task.step_context())
    task_seed = None if options.seed is None else fold(options.seed, task.name)
    with map_seed_manager(task_seed, shard_info=options.shard_info):
        stream.apply(task.online_steps(), task.step_context(options.sequence_length))
    examples = _checked(task, stream.examples(), lengths)
    if not options.shuffle or buffer_size is None:
        return examples
    generator = np.random.default_rng(None if task_seed is None else fold(task_seed, "shuffle"))
    return shuffled(examples, buffer_size, generator)


class _Stream:
    """A stream of examples: in tf.data until the first Python form, in Python from then on."""

    def __init__(self, source: DataSourceInterface, options: LoadOptions) -> None:
        self._dataset: object = None
        self._examples: Iterable[object] = ()
        if getattr(source, "reads_without_tensorflow", False):
            self._examples = _read_natively(source, options)
            return
        with frugal():
            dataset = shared_dataset(source, options)
            self._dataset = dataset if options.num_epochs == 1 else dataset.repeat(options.num_epochs)

    def apply(self, steps: Sequence[Step], context: StepContext) -> None:
        remaining = list(steps)
        if self._dataset is not None:
            leading = dataset_steps(remaining)
            with frugal():
                self._dataset = run_over_dataset(leading, self._dataset, context)
            remaining = remaining[len(leading) :]
        if remaining:
            self._examples = run_over_examples(remaining, self.examples(), context)
            self._dataset = None

    def examples(self) -> Iterable[object]:
        return self._examples if self._dataset is None else examples_from_dataset(with_few_threads(self._dataset))


def _read_natively(source: DataSourceInterface, options: LoadOptions) -> Iterator[object]:
    generator = np.random.default_rng(options.seed)
    for number in itertools.count() if options.num_epochs is None else range(options.num_epochs):
        empty = True
        for example in _read_epoch(source, options, number, generator):
            empty = False
            yield example
        if empty:  # every epoch will be empty: an endless loop would search forever
            return


def _read_epoch(
    source: DataSourceInterface, options: LoadOptions, number: int, generator: np.random.Generator
) -> Iterable[object]:
    split, share = options.split, options.shard_info
    if isinstance(source, BuiltCacheSource):  # shares by record, whatever the shards
        indices = source.indices(shuffle=options.shuffle, seed=options.seed, epoch=number, shard_info=share)
        return source.examples_at(indices)
    shards = list(source.list_shards(split))
    by_shard = share is None or len(shards) % share.num_shards == 0
    if share is not None and by_shard:
        shards = shards[share.index :: share.num_shards]
    # Hosts that share every file must see the same order: without a seed it is left unchanged.
    if options.shuffle and (by_shard or options.seed is not None):
        shards = [shards[index] for index in generator.permutation(len(shards))]
    epoch = (example for shard in shards for example in source.read_shard(split, shard))
    return epoch if share is None or by_shard else itertools.islice(epoch, share.index, None, share.num_shards)


def shuffled(examples: Iterable[T], buffer_size: int, generator: np.random.Generator) -> Iterator[T]:
    """Examples drawn at random from a buffer.

    The buffer grows by one per example given, from a few to its full size: filling it first would delay a mixture's
    first example until a thousand of each task were read.
    """
    iterator = iter(examples)
    buffer = list(itertools.islice(iterator, min(buffer_size, _FIRST_BUFFER)))
    for example in iterator:
        index = int(generator.integers(len(buffer)))
        chosen, buffer[index] = buffer[index], example
        if len(buffer) < buffer_size:
            buffer.extend(itertools.islice(iterator, 1))
        yield chosen
    for index in generator.permutation(len(buffer)):
        yield buffer[index]


def _checked(task: DeclaredTask, stream: Iterable[RawExample], lengths: SequenceLength) -> Iterator[OwnExample]:
    features = task.output_features
    for raw in stream:
        example: OwnExample = normalised(raw, features)
        for name, feature in features.items():
            if name in example:
                check_promise(task, name, dtype_name(example[name]), rank_of(example[name]))
            elif feature.required:
                raise missing_feature(task, name, sorted(example))
        for name, length in lengths.items():
            if name in example:
                example[name] = trimmed(example[name], length)
        yield example


def run_offline(task: DeclaredTask, examples: Iterable[object], *, seed: int) -> Iterator[dict[str, ExampleValue]]:
    """Raw examples → cached examples, lazily and in order.

    Python steps run natively; dataset functions run in tf.data over the stream. Draws depend on the seed, the step and
    the content of the example, not on the sharding of the source. `examples` is read once.

    Raises:
        TaskError: a step fails, or its result is not a mapping of features.
    """
    with map_seed_manager(seed, keyed_by="content"):
        stream = run_over_examples(task.offline_steps(), examples, task.step_context())
    return (as_mapping(task, example) for example in stream)


def stream_shard(
    task: DeclaredTask, split: str, shard: str, *, seed: int, num_steps: int | None = None
) -> Iterator[object]:
    """The examples of one shard of the source, after the first `num_steps` offline steps (None: all of them).

    If source and first steps are both tf.data, nothing passes through Python between them.
    """
    steps = list(task.offline_steps()[:num_steps])
    native = getattr(task.source, "reads_without_tensorflow", False)
    shard_dataset = getattr(task.source, "shard_dataset", None)
    leading = [] if native or shard_dataset is None else dataset_steps(steps)
    with map_seed_manager(seed, keyed_by="content"):
        if leading and shard_dataset is not None:
            dataset = run_over_dataset(leading, shard_dataset(split, shard), task.step_context())
            examples: Iterable[object] = examples_from_dataset(dataset)
        else:
            examples = task.source.read_shard(split, shard)
        return run_over_examples(steps[len(leading) :], examples, task.step_context())


def as_mapping(task: DeclaredTask, example: object) -> dict[str, ExampleValue]:
    """An example in the form that is cached, normalised. Raises `TaskError` if it is not a mapping of features."""
    if type(example) is not dict and not isinstance(example, Mapping):
        raise TaskError(
            f"task '{task.name}': what is cached should be a dict of features, got {type(example).__name__}. Make one "
            f"in a step before the CacheDatasetPlaceholder",
            task=task.name,
        )
    return normalised(example, task.output_features)
