"""The mixture: tasks (and mixtures) with rates, under a name.

In a `tf.data.Dataset`, tf.data itself interleaves a few tasks. Many tasks are interleaved from Python: each is opened
at its first turn and takes no extra threads, so that 300 tasks start as fast as one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from beam_pipes.checks import takes
from beam_pipes.errors import TaskError, UnknownNameError, logger
from beam_pipes.extras import TfDataset, tensorflow
from beam_pipes.loader.mixture import chairman_turns, exact_rates
from beam_pipes.tasks.providers.options import Exhaustion, LoadOptions, MixtureOptions, checked_exhaustion
from beam_pipes.tasks.providers.registry import DatasetProviderRegistry, TaskRegistry, caller, registered
from beam_pipes.tasks.providers.task import Task
from beam_pipes.tasks.providers.task_dataset import empty_dataset, load_dataset
from beam_pipes.tasks.providers.task_examples import iterate_examples
from beam_pipes.tasks.steps.dataset_map import frugal
from beam_pipes.tasks.steps.examples import NoExamples, OwnExample, dataset_from_examples, examples_from_dataset
from beam_pipes.tasks.steps.features import (
    DatasetProviderBase,
    Feature,
    SequenceLength,
    ShardInfo,
    SourceInfo,
    checked_name,
)
from beam_pipes.tasks.steps.seeds import fold

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Unpack

    from beam_pipes.tasks.providers.options import Reading

T = TypeVar("T")

#: More tasks than this are read in turns from Python.
MAX_TASKS_IN_GRAPH = 16

_MEASURED_EXAMPLES = 100

_log = logger(__name__)

Rate: TypeAlias = "float | Callable[[Task], float]"
# For annotations in programs: a rate, an entry of a mixture, and a function that mixes datasets.
MixtureRate = int | float | Callable[["Task"], float]
SubtaskOrName: TypeAlias = "Task | Mixture | str"
SampleFn = Callable[[Sequence[TfDataset], Sequence[float], int | None], TfDataset]


class Mixture(DatasetProviderBase):
    """Examples of several tasks in proportion to their rates, exactly so in every prefix rather than on average.

    `Mixture("all", [("task1", 1), ("task2", 7)])` gives one example of task1 for seven of task2. Rates need not add up
    to 1. A nested mixture counts as one entry, whose rate is divided by its own proportions. A task that is named
    several times, or also in nested mixtures, has the sum of its rates.

    Args:
        name: as a task's.
        tasks: names or objects, or pairs of one and its rate: a number, or a function of the task.
        default_rate: rate of entries without one.
        sample_fn: mixes the datasets instead: called with datasets, rates and a seed, as
            `tf.data.Dataset.sample_from_datasets`.
        source_info: where the mixture was declared.
        exhaustion: what happens when a task has given all of its examples (with `num_epochs`): "drop" continues with
            the others, so that 400 and 20 examples make 420; "stop" ends the mixture, which keeps the proportions to
            the end; "repeat" starts the task again, without end.
        skip_missing_splits: leave out tasks that lack the split being read; by default that is an error.

    Raises:
        TaskError: a rate is missing, tasks do not fit together, or there are none.
        UnknownNameError: a name is not registered.
    """

    def __init__(
        self,
        name: str,
        tasks: Sequence[object],
        default_rate: Rate | None = None,
        sample_fn: Callable[..., TfDataset] | None = None,
        source_info: SourceInfo | None = None,
        exhaustion: Exhaustion = "drop",
        skip_missing_splits: bool = False,
    ) -> None:
        self._name = checked_name(name, "Mixture")
        self._sample_fn = sample_fn
        self._source_info = source_info
        self._exhaustion = checked_exhaustion(exhaustion, name)
        self._skip_missing_splits = skip_missing_splits
        self._entries: list[tuple[Task | Mixture, Rate]] = []
        if isinstance(tasks, (str, Task, Mixture)) or not isinstance(tasks, Iterable):
            raise TaskError(
                f"tasks of mixture '{name}' should be a list, got {tasks!r}: put it in brackets", mixture=name
            )
        for entry in tasks:
            if isinstance(entry, (tuple, list)) and len(entry) != 2:
                raise TaskError(
                    f"an entry of mixture '{name}' is a task or a pair of a task and its rate, got {entry!r}",
                    mixture=name,
                )
            task, rate = entry if isinstance(entry, (tuple, list)) else (entry, default_rate)
            if rate is None:
                raise TaskError(
                    f"need a rate for each task: '{getattr(task, 'name', task)}' of mixture '{name}' has none, and "
                    "there is no default_rate",
                    mixture=name,
                )
            self._entries.append((_resolve(task, name), rate))
            if not callable(rate):
                self._rate_of(*self._entries[-1])
        if not self.tasks:
            raise TaskError(f"Mixture, {name}, does not contain any Tasks.", mixture=name)
        self._check_compatible_features()

    @property
    def name(self) -> str:
        return self._name

    @property
    def source_info(self) -> SourceInfo | None:
        return self._source_info

    @property
    def exhaustion(self) -> Exhaustion:
        return self._exhaustion

    @property
    def sample_fn(self) -> Callable[..., TfDataset] | None:
        return self._sample_fn

    def __repr__(self) -> str:
        return f"Mixture(name={self.name}, tasks={[task.name for task in self.tasks]})"

    # Rates.

    @property
    def entries(self) -> Sequence[tuple[Task | Mixture, Rate]]:
        """The tasks and mixtures of the declaration, each with its rate: a number, or a function of the task."""
        return tuple(self._entries)

    @property
    def has_rate_functions(self) -> bool:
        """Whether some rate, here or in a nested mixture, is a function of the task."""
        inside = (entry.has_rate_functions for entry, _ in self._entries if isinstance(entry, Mixture))
        return any(callable(rate) for _, rate in self._entries) or any(inside)

    def with_entries(
        self, name: str, entries: Sequence[tuple[Task | Mixture, Rate]], *, skip_missing_splits: bool | None = None
    ) -> Mixture:
        """A mixture with another name and other entries that mixes in the same way."""
        return Mixture(
            name,
            entries,
            sample_fn=self._sample_fn,
            source_info=self._source_info,
            exhaustion=self._exhaustion,
            skip_missing_splits=self._skip_missing_splits if skip_missing_splits is None else skip_missing_splits,
        )

    @property
    def tasks(self) -> list[Task]:
        """All tasks, including those of nested mixtures, each once, sorted by name."""
        found: dict[str, Task] = {}
        for entry, _ in self._entries:
            for task in entry.tasks if isinstance(entry, Mixture) else [entry]:
                found[task.name] = task
        return [found[name] for name in sorted(found)]

    @property
    def _task_to_rate(self) -> Mapping[str, Rate]:
        """The name of SeqIO, for programs that use it."""
        return self.rate_per_task_name

    @property
    def rate_per_task_name(self) -> Mapping[str, Rate]:
        """Rate of each entry by its name, as declared; an entry that is named twice has the sum."""
        rates: dict[str, Rate] = {}
        for entry, rate in self._entries:
            known = rates.get(entry.name)
            rates[entry.name] = rate if known is None or callable(known) or callable(rate) else known + rate
        return rates

    @property
    def total_rate(self) -> float:
        """Sum of the rates of the entries."""
        total = 0.0
        for entry, rate in self._entries:
            if isinstance(entry, Mixture) and callable(rate):  # a mixture has a total rate, not a task's
                of_mixture: Callable[..., float] = rate
                total += float(of_mixture(entry))
            else:
                total += self._rate_of(entry, rate)
        return total

    def get_rate(self, task: Task) -> float:
        """Total rate of a task: its own, plus its part in nested mixtures.

        With `mix1` of `task1` at 1 and `task2` at 7, and `mix3` of `mix1` and `task1` at 1 each: `task1` has
        1/8 + 1 in `mix3`.
        """
        total = 0.0
        for entry, rate in self._entries:
            if isinstance(entry, Mixture):
                if any(task.name == inner.name for inner in entry.tasks):
                    total += self._rate_of(entry, rate) * entry.get_rate(task) / entry.total_rate
            elif entry.name == task.name:
                total += self._rate_of(entry, rate)
        return total

    def rates(self) -> dict[str, float]:
        """`get_rate` of every task, by name. Each rate that is a function is called once."""
        total: dict[str, float] = {}
        for entry, rate in self._entries:
            number = self._rate_of(entry, rate)
            parts = entry.rates() if isinstance(entry, Mixture) else {entry.name: 1.0}
            whole = sum(parts.values())
            for name, part in parts.items():
                total[name] = total.get(name, 0.0) + (number * part / whole if whole else 0.0)
        return total

    def _rate_of(self, entry: Task | Mixture, rate: Rate) -> float:
        if isinstance(entry, Mixture) and callable(rate):
            raise TaskError(f"'rate' for sub-mixture {entry.name!r} must be a number.", mixture=self.name)
        given = rate(entry) if callable(rate) else rate  # type: ignore[arg-type]
        try:
            number = float(given)
        except (TypeError, ValueError):
            number = float("nan")
        if not 0 <= number < float("inf"):
            raise TaskError(
                f"rate of '{entry.name}' in mixture '{self.name}' should be a number, 0 or more, got {given!r}",
                mixture=self.name,
                rate=given,
            )
        return number

    # Features and splits.

    @property
    def splits(self) -> Sequence[str]:
        """Splits that at least one task has, sorted."""
        return tuple(sorted({split for task in self.tasks for split in task.splits}))

    @property
    def output_features(self) -> Mapping[str, Feature]:
        return self.tasks[0].output_features

    def num_input_examples(self, split: str) -> int | None:
        """Raw examples of all tasks that have the split; None if one is unknown."""
        counts = [task.num_input_examples(split) for task in self.tasks if split in task.splits]
        return None if any(count is None for count in counts) else sum(count or 0 for count in counts)

    def _check_compatible_features(self) -> None:
        first = self.tasks[0]
        if any(task.output_features.keys() != first.output_features.keys() for task in self.tasks):
            listing = "\n".join(f"{task.name}: {tuple(task.output_features)}" for task in self.tasks)
            raise TaskError(
                f"Mixture, '{self.name}' contains Tasks with different output features:\n {listing}", mixture=self.name
            )
        for task in self.tasks[1:]:
            for name, feature in first.output_features.items():
                other = task.output_features[name]
                for what in ("vocabulary", "dtype", "rank"):
                    if getattr(other, what) != getattr(feature, what):
                        raise TaskError(
                            f"Features across tasks in a mixture must use the same {what}.  Got {getattr(other, what)} "
                            f"for feature '{name}' in task '{task.name}', expected {getattr(feature, what)}.",
                            mixture=self.name,
                            task=task.name,
                            feature=name,
                        )

    # Examples.

    def rated_tasks(self, split: str, skip_missing: bool = False) -> list[tuple[Task, float]]:
        """The tasks with a positive rate and their rates; all of them have the split.

        Raises:
            UnknownNameError: one of them lacks it, unless `skip_missing`; or all lack it.
        """
        rates = self.rates()
        asked = [task for task in self.tasks if rates[task.name] > 0]
        having = [task for task in asked if split in task.splits]
        if not having:
            raise UnknownNameError(
                f"No datasets have a '{split}' split: the tasks of mixture '{self.name}' have {', '.join(self.splits)}",
                split=split,
            )
        if len(having) < len(asked) and not skip_missing:
            missing = [task.name for task in asked if split not in task.splits]
            raise UnknownNameError(
                f"tasks of mixture '{self.name}' have no '{split}' split: {', '.join(missing)}. Give them one, take "
                "them out (mixture_with_missing_task_splits_removed), or pass skip_missing_splits=True",
                split=split,
                tasks=missing,
            )
        return [(task, rates[task.name]) for task in having]

    @takes(MixtureOptions)
    def get_dataset(self, options: MixtureOptions) -> TfDataset:
        """Examples of all tasks with the split, mixed, as a `tf.data.Dataset`.

        Examples hold only the output features and the requested additional ones. The arguments are the fields of
        `MixtureOptions`; those that are not listed are as for `Task.get_dataset`.

        Args:
            num_epochs: passes over each task; None for no end.
            copy_pretokenized: keep `<feature>_pretokenized`.
            compute_stats_empirically: log mean lengths of the first examples of each task.
            log_mixing_proportions: log the rates.
            passthrough_features: names of further features to keep.
            skip_missing_splits: leave out tasks that do not have the split; None for the mixture's own setting.
            exhaustion: another policy than the mixture's.

        Raises:
            UnknownNameError: a task does not have the split.
        """
        return load_mixture(self, self._settled(options))

    def _settled(self, options: MixtureOptions) -> MixtureOptions:
        """The options, with the mixture's own settings as defaults."""
        options.of_tasks.check(self.name)
        skip = self._skip_missing_splits if options.skip_missing_splits is None else options.skip_missing_splits
        policy = checked_exhaustion(options.exhaustion or self._exhaustion, self.name)
        return dataclasses.replace(options, skip_missing_splits=skip, exhaustion=policy)

    def get_task_dataset(
        self,
        task: Task,
        output_feature_keys: Collection[str],
        sequence_length: SequenceLength | None = None,
        split: str = "train",
        use_cached: bool = False,
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: ShardInfo | None = None,
        num_epochs: int | None = None,
        trim_output_features: bool = True,
        try_in_mem_cache: bool = True,
    ) -> TfDataset:
        """Examples of one task, with the features `output_feature_keys`, as a `tf.data.Dataset`.

        A subclass may override it, to change what `get_dataset` and `examples` mix.
        """
        dataset = task.get_dataset(
            sequence_length=sequence_length,
            split=split,
            use_cached=use_cached,
            shuffle=shuffle,
            seed=seed,
            shard_info=shard_info,
            num_epochs=num_epochs,
            trim_output_features=trim_output_features,
            try_in_mem_cache=try_in_mem_cache,
        )
        if set(dataset.element_spec) <= set(output_feature_keys):
            return dataset
        return dataset.map(lambda example: {name: v for name, v in example.items() if name in output_feature_keys})

    @property
    def reads_tasks_itself(self) -> bool:
        """A subclass overrides `get_task_dataset`."""
        return type(self).get_task_dataset is not Mixture.get_task_dataset

    def examples(
        self,
        sequence_length: SequenceLength | None = None,
        split: str = "train",
        use_cached: bool = False,
        shuffle: bool = False,
        *,
        skip_missing_splits: bool | None = None,
        exhaustion: Exhaustion | None = None,
        **reading: Unpack[Reading],
    ) -> Iterator[OwnExample]:
        """The mixture as Python examples, each task in the order of its source; uses TensorFlow only if needed."""
        mixing = MixtureOptions(
            sequence_length,
            split,
            use_cached,
            shuffle,
            skip_missing_splits=skip_missing_splits,
            exhaustion=exhaustion,
            **reading,
        )
        return mixed_examples(self, self._settled(mixing), self.output_features)


def _resolve(task: object, mixture: str) -> Task | Mixture:
    if isinstance(task, (Task, Mixture)):
        return task
    if not isinstance(task, str):
        raise TaskError(f"a task of mixture '{mixture}' is a name, a Task or a Mixture, got {task!r}", mixture=mixture)
    if task in TaskRegistry.names():
        return TaskRegistry.get(task)
    if task in MixtureRegistry.names():
        return MixtureRegistry.get(task)
    known = [*TaskRegistry.names(), *MixtureRegistry.names()]
    raise UnknownNameError(
        f"Provider name not registered: {task} (in mixture '{mixture}').{registered(task, known)}", name=task
    )


def load_mixture(mixture: Mixture, options: MixtureOptions) -> TfDataset:
    """`Mixture.get_dataset` with resolved options."""
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
    del reading["shuffle_buffer_size"]  # each task uses its own
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


class MixtureRegistry(DatasetProviderRegistry[Mixture]):
    """Mixtures by name."""

    _REGISTRY: ClassVar[dict[str, object]] = {}
    _PROVIDER_TYPE: ClassVar[type] = Mixture

    @classmethod
    def add(  # type: ignore[override]
        cls,
        name: str,
        tasks: Sequence[object],
        default_rate: Rate | None = None,
        mixture_cls: type[Mixture] = Mixture,
        source_info: SourceInfo | None = None,
        **kwargs: object,
    ) -> Mixture:
        """Makes a `Mixture` (or `mixture_cls`) of the arguments and registers it. Returns the mixture."""
        make: Callable[..., Mixture] = mixture_cls
        mixture = make(name, tasks=tasks, default_rate=default_rate, source_info=source_info or caller(), **kwargs)
        cls.add_provider(name, mixture)
        return mixture
