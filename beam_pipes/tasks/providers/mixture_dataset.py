"""How a mixture becomes a `tf.data.Dataset`.

A few tasks are chosen from inside tf.data. Many tasks are read in turns from Python: each is opened when its first turn
comes and takes no extra threads, so that 300 tasks start as fast as one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from beam_pipes.errors import logger
from beam_pipes.extras import TfDataset, tensorflow
from beam_pipes.loader.mixture import chairman_turns, exact_rates
from beam_pipes.tasks.providers.task_dataset import LoadOptions, empty_dataset, load_dataset
from beam_pipes.tasks.providers.task_examples import iterate_examples
from beam_pipes.tasks.steps.examples import NoExamples, OwnExample, dataset_from_examples, examples_from_dataset
from beam_pipes.tasks.steps.seeds import fold
from beam_pipes.tasks.steps.threads import frugal

if TYPE_CHECKING:
    from beam_pipes.tasks.providers.mixture import Mixture
    from beam_pipes.tasks.providers.task import Task


T = TypeVar("T")

#: More tasks than this are read in turns from Python.
MAX_TASKS_IN_GRAPH = 16

_MEASURED_EXAMPLES = 100

_log = logger(__name__)


#: What happens when a task has given all of its examples; see `Mixture`.
Exhaustion = Literal["drop", "stop", "repeat"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixOptions:
    """The arguments of `Mixture.get_dataset` that are about mixing."""

    copy_pretokenized: bool
    compute_stats_empirically: bool
    log_mixing_proportions: bool
    passthrough_features: tuple[str, ...]
    skip_missing_splits: bool
    exhaustion: Exhaustion


def load_mixture(mixture: Mixture, options: LoadOptions, mix: MixOptions) -> TfDataset:
    """`Mixture.get_dataset`."""
    tf = tensorflow("Mixture.get_dataset")
    rated = mixture.rated_tasks(options.split, mix.skip_missing_splits)
    tasks, rates = [task for task, _ in rated], [rate for _, rate in rated]
    if mix.exhaustion == "repeat":
        options = dataclasses.replace(options, num_epochs=None)
    if mix.log_mixing_proportions:
        _log_rates(mixture, tasks, rates)
    if mix.compute_stats_empirically:
        _log_lengths(tasks, options)
    kept = {*mixture.output_features, *mix.passthrough_features}
    if mix.copy_pretokenized:
        kept |= {f"{name}_pretokenized" for name in mixture.output_features}

    load = functools.partial(_load_task, mixture, kept=kept, options=options)
    if len(tasks) == 1:
        return load(tasks[0])
    if mixture.sample_fn is not None:
        seed = None if options.seed is None else fold(options.seed, mixture.name)
        return mixture.sample_fn([load(task) for task in tasks], rates, seed).prefetch(tf.data.AUTOTUNE)
    turns = exact_rates(rates)
    if len(tasks) <= MAX_TASKS_IN_GRAPH or mixture.reads_tasks_itself:
        mixed = tf.data.Dataset.choose_from_datasets(
            [load(task) for task in tasks], _turn_dataset(turns), stop_on_empty_dataset=mix.exhaustion == "stop"
        )
    else:
        mixed = _in_turns(mixture, tasks, options, turns, mix.exhaustion, kept)
    return mixed.prefetch(tf.data.AUTOTUNE)


def _load_task(mixture: Mixture, task: Task, *, kept: Collection[str], options: LoadOptions) -> object:
    return mixture.get_task_dataset(
        task,
        kept,
        sequence_length=options.sequence_length,
        split=options.split,
        use_cached=options.use_cached,
        shuffle=options.shuffle,
        seed=options.seed,
        shard_info=options.shard_info,
        num_epochs=options.num_epochs,
        trim_output_features=options.trim_output_features,
        try_in_mem_cache=options.try_in_mem_cache,
    )


def own_examples(mixture: Mixture, task: Task, kept: Collection[str], options: LoadOptions) -> Iterator[OwnExample]:
    """The examples of a task as a mixture that overrides `get_task_dataset` reads them."""
    return examples_from_dataset(_load_task(mixture, task, kept=kept, options=options))


def _turn_dataset(rates: Sequence[int]) -> TfDataset:
    tf = tensorflow("Mixture.get_dataset")

    def chunks() -> Iterator[np.ndarray]:
        turns = chairman_turns(rates)
        while True:
            yield np.fromiter((next(turns) for _ in range(1024)), np.int64, 1024)

    return tf.data.Dataset.from_generator(chunks, output_signature=tf.TensorSpec([1024], tf.int64)).unbatch()


def _in_turns(
    mixture: Mixture,
    tasks: Sequence[Task],
    options: LoadOptions,
    rates: Sequence[int],
    exhaustion: Exhaustion,
    kept: Collection[str],
) -> object:
    def examples() -> Iterator[dict[str, object]]:
        makers = [functools.partial(iterate_examples, task, options) for task in tasks]
        for example in take_turns(makers, rates, exhaustion):
            yield {name: value for name, value in example.items() if name in kept}

    name, features = f"mixture '{mixture.name}'", tasks[0].output_features
    try:
        return dataset_from_examples(examples, features=features, name=name)
    except NoExamples:
        return empty_dataset(features, name=name)


def take_turns(
    makers: Sequence[Callable[[], Iterable[T]]], rates: Sequence[int], exhaustion: Exhaustion
) -> Iterator[T]:
    """Examples of several iterables in the order of the schedule; each is made when its first turn comes."""
    iterators: dict[int, Iterator[T]] = {}
    finished: set[int] = set()
    active = {index for index, rate in enumerate(rates) if rate}
    turns = chairman_turns(rates)
    while finished != active:
        turn = next(turns)
        if turn in finished:
            continue
        if turn not in iterators:
            iterators[turn] = iter(makers[turn]())
        for example in iterators[turn]:
            yield example
            break
        else:
            if exhaustion == "stop":
                return
            finished.add(turn)
            del iterators[turn]
            # The others continue in their own proportions.
            left = [0 if index in finished else rate for index, rate in enumerate(rates)]
            turns = chairman_turns(left) if any(left) else turns


def _log_rates(mixture: Mixture, tasks: Sequence[Task], rates: Sequence[float]) -> None:
    total = sum(rates)
    for task, rate in zip(tasks, rates, strict=True):
        _log.info("mixture %s: %.4f of the examples are of task %s", mixture.name, rate / total, task.name)


def _log_lengths(tasks: Sequence[Task], options: LoadOptions) -> None:
    options = dataclasses.replace(options, num_epochs=1, shuffle=False, try_in_mem_cache=False)
    for task in tasks:
        with frugal():
            measured = load_dataset(task, options).take(_MEASURED_EXAMPLES)
        examples = list(examples_from_dataset(measured))
        for name in task.output_features:
            lengths = [len(example[name]) for example in examples if name in example and np.ndim(example[name])]
            if lengths:
                _log.info("task %s: %s has %.1f entries on average", task.name, name, float(np.mean(lengths)))
