"""How a mixture becomes a `tf.data.Dataset`.

A few tasks are chosen from inside tf.data. Many tasks are read in turns from Python: each is opened when its first turn
comes and takes no extra threads, so that 300 tasks start as fast as one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from beam_pipes.errors import logger
from beam_pipes.extras import TfDataset, tensorflow
from beam_pipes.loader.mixture import chairman_turns, exact_rates
from beam_pipes.tasks.providers.options import Exhaustion, LoadOptions, MixtureOptions
from beam_pipes.tasks.providers.task_dataset import empty_dataset, load_dataset
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


def load_mixture(mixture: Mixture, options: MixtureOptions) -> TfDataset:
    """`Mixture.get_dataset`; the options are settled."""
    tf = tensorflow("Mixture.get_dataset")
    rated = mixture.rated_tasks(options.split, bool(options.skip_missing_splits))
    tasks, rates = [task for task, _ in rated], [rate for _, rate in rated]
    of_tasks = options.of_tasks
    if options.log_mixing_proportions:
        _log_rates(mixture, tasks, rates)
    if options.compute_stats_empirically:
        _log_lengths(tasks, of_tasks)
    kept = {*mixture.output_features, *(options.passthrough_features or ())}
    if options.copy_pretokenized:
        kept |= {f"{name}_pretokenized" for name in mixture.output_features}

    load = functools.partial(_load_task, mixture, kept=kept, options=of_tasks)
    if len(tasks) == 1:
        return load(tasks[0])
    if mixture.sample_fn is not None:
        seed = None if options.seed is None else fold(options.seed, mixture.name)
        return mixture.sample_fn([load(task) for task in tasks], rates, seed).prefetch(tf.data.AUTOTUNE)
    if len(tasks) <= MAX_TASKS_IN_GRAPH or mixture.reads_tasks_itself:
        mixed = tf.data.Dataset.choose_from_datasets(
            [load(task) for task in tasks],
            _turn_dataset(exact_rates(rates)),
            stop_on_empty_dataset=options.exhaustion == "stop",
        )
    else:
        name, features = f"mixture '{mixture.name}'", mixture.output_features
        try:
            mixed = dataset_from_examples(lambda: mixed_examples(mixture, options, kept), features=features, name=name)
        except NoExamples:
            mixed = empty_dataset(features, name=name)
    return mixed.prefetch(tf.data.AUTOTUNE)


def mixed_examples(mixture: Mixture, options: MixtureOptions, kept: Collection[str]) -> Iterator[OwnExample]:
    """The examples of all tasks in turns, with the features `kept`; each task is opened when its first turn comes."""
    rated = mixture.rated_tasks(options.split, bool(options.skip_missing_splits))
    of_tasks = options.of_tasks

    def examples(task: Task) -> Iterator[OwnExample]:
        if mixture.reads_tasks_itself:
            return examples_from_dataset(_load_task(mixture, task, kept=kept, options=of_tasks))
        return iterate_examples(task, of_tasks)

    makers = [functools.partial(examples, task) for task, _ in rated]
    mixed = take_turns(makers, exact_rates([rate for _, rate in rated]), options.exhaustion or "drop")
    return ({name: value for name, value in example.items() if name in kept} for example in mixed)


def _load_task(mixture: Mixture, task: Task, *, kept: Collection[str], options: LoadOptions) -> object:
    reading = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    del reading["shuffle_buffer_size"]  # which is the task's own
    return mixture.get_task_dataset(task, kept, **reading)


def _turn_dataset(rates: Sequence[int]) -> TfDataset:
    tf = tensorflow("Mixture.get_dataset")

    def chunks() -> Iterator[np.ndarray]:
        turns = chairman_turns(rates)
        while True:
            yield np.fromiter((next(turns) for _ in range(1024)), np.int64, 1024)

    return tf.data.Dataset.from_generator(chunks, output_signature=tf.TensorSpec([1024], tf.int64)).unbatch()


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
