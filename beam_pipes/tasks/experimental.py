"""Tasks made from other tasks; this interface may still change. Needs TensorFlow.

| part | gives |
| --- | --- |
| fully cached | tasks and mixtures that are fully cached, for one sequence length |
| sentinels | tasks whose inputs end, and whose targets begin, with sentinels: the form of span corruption |
| few-shot | tasks whose examples each come with some of the train split, as exemplars |

`disable_registry` makes registries unusable, for programs that must not depend on them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from beam_pipes.errors import TaskError, UnknownNameError, logger
from beam_pipes.extras import TfDataset, TfTensor, tensorflow, unbatched
from beam_pipes.publication.terms import Terms
from beam_pipes.tasks.preprocessors import append_eos_after_trim
from beam_pipes.tasks.providers.mixture import Mixture, MixtureRegistry
from beam_pipes.tasks.providers.options import LoadOptions
from beam_pipes.tasks.providers.registry import TaskRegistry
from beam_pipes.tasks.providers.task import SHUFFLE_BUFFER_SIZE, Task
from beam_pipes.tasks.providers.task_dataset import shared_dataset
from beam_pipes.tasks.sources.data_source import DataSource, LibrarySource, declared_as_one
from beam_pipes.tasks.steps.dataset_map import NestedTFDict, map_parallelism
from beam_pipes.tasks.steps.features import Feature, SequenceLength, ShardInfo, axis_lengths
from beam_pipes.tasks.steps.sequences import trim_dataset
from beam_pipes.tasks.steps.signatures import add_kwargs_to_transform
from beam_pipes.tasks.steps.step import CacheDatasetPlaceholder


def fully_cached_name(original_name: str, sequence_length: Mapping[str, int]) -> str:
    """`("base", {"inputs": 512, "targets": 114})` → `base_i512_t114`; one feature alone needs no letter: `base_512`.

    Prefixes are longer if names begin alike; the order is that of the lengths.
    """
    size = 0
    while len({name[:size] for name in sequence_length}) < len(sequence_length):
        size += 1
    return "_".join([original_name, *(f"{name[:size]}{length}" for name, length in sequence_length.items())])


def add_fully_cached_task(task_name: str, sequence_length: Mapping[str, int], disallow_shuffling: bool = False) -> Task:
    """Registers a task like another one, with all of its steps before the cut, for one sequence length.

    This allows caching steps that take `sequence_length`. The task can only be read from its cache, with this length or
    with none. If it is registered already, it is returned.

    Args:
        task_name: the task.
        sequence_length: feature → length.
        disallow_shuffling: the order of the cache is kept.
    """
    task = TaskRegistry.get(task_name)
    name = fully_cached_name(task_name, sequence_length)
    if name in TaskRegistry.names():
        return TaskRegistry.get(name)
    fixed = dict(sequence_length)

    def check_sequence_length(dataset: TfDataset, sequence_length: Mapping[str, int] | None) -> TfDataset:
        if sequence_length is not None and dict(sequence_length) != fixed:
            raise TaskError(
                f"Fully-cached task '{name}' can only be loaded with `sequence_length={fixed}` or `None`. Given "
                f"sequence_length={sequence_length}.",
                task=name,
            )
        return dataset

    steps = [
        add_kwargs_to_transform(step, sequence_length=fixed)
        for step in task.preprocessors
        if not isinstance(step, CacheDatasetPlaceholder)
    ]
    trim = functools.partial(trim_dataset, sequence_length=fixed)
    return TaskRegistry.add(
        name,
        source=task.source,
        preprocessors=[*steps, trim, CacheDatasetPlaceholder(required=True), check_sequence_length],
        output_features=task.output_features,
        postprocess_fn=task.postprocessor,
        metric_fns=task.metric_fns,
        metric_objs=task.metric_objs,
        shuffle_buffer_size=None if disallow_shuffling else task.shuffle_buffer_size,
    )


def add_fully_cached_mixture(
    mixture_name: str, sequence_length: Mapping[str, int], disallow_shuffling: bool = False
) -> Mixture:
    """Registers a mixture of the fully cached tasks of another one, at the same rates.

    A rate that is a function is called with the fully cached task, whose number of examples may differ.
    """

    def cached(entry: Task | Mixture) -> Task | Mixture:
        if isinstance(entry, Task):
            return add_fully_cached_task(entry.name, sequence_length, disallow_shuffling)
        entries = [(cached(inner), rate) for inner, rate in entry.entries]
        return entry.with_entries(fully_cached_name(entry.name, sequence_length), entries)

    mixture = cached(MixtureRegistry.get(mixture_name))
    assert isinstance(mixture, Mixture)
    MixtureRegistry.add_provider(mixture.name, mixture)
    return mixture


# A name keeps its split or its version at the end: `squad_train` → `squad_1_sentinel_train`.
_SUFFIXES = ("_train", "_dev", "_test", "_eval", ".")


def add_task_with_sentinels(task_name: str, num_sentinels: int | None = 1) -> Task:
    """Registers `{task_name}_{n}_sentinel`: sentinels are appended to inputs and put before targets.

    With a vocabulary of 262 ids and two sentinels: inputs `[5, 6]` → `[5, 6, 261, 260]`, targets `[7]` → `[261, 260,
    7]`. A task that ends with `append_eos_after_trim` has them before its EOS, and keeps the last two tokens when it
    cuts. The text of the sentinels is removed from model outputs before the task's postprocessor sees them.

    In the new name `_{n}_sentinel` precedes `_train`, `_dev`, `_test`, `_eval` or the first dot.
    """
    task = TaskRegistry.get(task_name)
    number = num_sentinels or 1
    places = [task_name.find(suffix) for suffix in _SUFFIXES if suffix in task_name]
    place = places[0] if places else len(task_name)

    def add_sentinels(dataset: TfDataset, output_features: Mapping[str, Feature]) -> TfDataset:
        tf = tensorflow("add_task_with_sentinels")

        def add(example: Mapping[str, TfTensor]) -> dict[str, TfTensor]:
            inputs = tf.cast(_sentinels(output_features["inputs"], number), example["inputs"].dtype)
            targets = tf.cast(_sentinels(output_features["targets"], number), example["targets"].dtype)
            return {
                **example,
                "inputs": tf.concat([example["inputs"], inputs], 0),
                "targets": tf.concat([targets, example["targets"]], 0),
            }

        return dataset.map(add, num_parallel_calls=map_parallelism())

    steps = list(task.preprocessors)
    if steps and steps[-1] is append_eos_after_trim:
        steps[-1:] = [add_sentinels, functools.partial(_append_eos_and_keep_last, kept=number)]
    else:
        steps.append(add_sentinels)
    return TaskRegistry.add(
        f"{task_name[:place]}_{number}_sentinel{task_name[place:]}",
        source=task.source,
        preprocessors=steps,
        output_features=task.output_features,
        postprocess_fn=_without_sentinels(task, number),
        metric_fns=task.metric_fns,
        metric_objs=task.metric_objs,
        shuffle_buffer_size=task.shuffle_buffer_size,
    )


def _sentinels(feature: Feature, number: int) -> list[int]:
    last = feature.vocabulary.vocab_size - 1
    return [last - index for index in range(number)]


def _append_eos_and_keep_last(
    dataset: TfDataset,
    output_features: Mapping[str, Feature],
    sequence_length: SequenceLength | None = None,
    *,
    kept: int,
) -> TfDataset:
    """`append_eos_after_trim` that cuts before the last `kept` tokens: one of `[5, 6, 7, 9]`, 4 → `[5, 6, 9, 1]`."""
    tf = tensorflow("add_task_with_sentinels")

    def end(name: str, value: TfTensor) -> TfTensor:
        if name not in output_features or not output_features[name].add_eos:
            return value
        eos = tf.cast([output_features[name].vocabulary.eos_id], value.dtype)
        limit = axis_lengths((sequence_length or {}).get(name))[0]
        if limit is None:
            return tf.concat([value, eos], 0)
        length = tf.minimum(limit - 1, tf.size(value))
        last = tf.minimum(kept, length)
        return tf.concat([value[: length - last], value[tf.size(value) - last :], eos], 0)

    return dataset.map(
        lambda example: {name: end(name, value) for name, value in example.items()},
        num_parallel_calls=map_parallelism(),
    )


def _without_sentinels(task: Task, number: int) -> Callable[..., object]:
    feature = task.output_features["targets"]

    def strip(decoded: object, **kwargs: object) -> object:
        if isinstance(decoded, str):
            for sentinel in _sentinels(feature, number):
                text = str(feature.vocabulary.decode([sentinel]))
                decoded = decoded.replace(text, "") if text else decoded
            decoded = decoded.strip()
        return task.postprocess_fn(decoded, **kwargs)

    return strip


def disable_registry() -> None:
    """From now on `add` and `add_provider` of both registries register nothing, and `get` raises.

    This cannot be undone in this process.

    Raises:
        TaskError: something is registered already.
    """
    filled = [registry.__name__ for registry in (TaskRegistry, MixtureRegistry) if list(registry.names())]
    if filled:
        raise TaskError(
            f"The {', '.join(filled)} is non-empty. Please invoke `disable_registry()` before any Task/Mixtures are "
            "registered."
        )

    def ignore(cls: type, /, *args: object, **kwargs: object) -> None:
        return None

    def refuse(cls: type, name: str) -> NoReturn:
        raise UnknownNameError(f"Disabled {cls.__name__}.get call: {name}", name=name)

    for registry in (TaskRegistry, MixtureRegistry):
        registry.add = classmethod(ignore)  # type: ignore[assignment, method-assign]
        registry.add_provider = classmethod(ignore)  # type: ignore[assignment, method-assign]
        registry.get = classmethod(refuse)  # type: ignore[assignment, method-assign]


_log = logger(__name__)

_FIXED_SEED = 0


class FewshotDataSource(LibrarySource):
    """Examples `{"train": {"inputs": [...], "targets": [...]}, "eval": {...}}`: `num_shots` of the train split,
    and one to answer.

    Args:
        original_source: where examples come from.
        num_shots: exemplars per example; 0 gives `{"eval": ...}` only.
        train_preprocessors: dataset functions for exemplars.
        eval_preprocessors: dataset functions for the examples themselves.
        train_split: the split of exemplars.
        train_feature_keys: features that exemplars keep.
        shuffle_buffer_size: size of the buffer that shuffles exemplars.
        eval_on_fixed_exemplars: all examples of other splits have the same exemplars.
    """

    def __init__(
        self,
        original_source: DataSource,
        num_shots: int,
        train_preprocessors: Iterable[Callable[[TfDataset], TfDataset]] = (),
        eval_preprocessors: Iterable[Callable[[TfDataset], TfDataset]] = (),
        train_split: str = "train",
        train_feature_keys: Iterable[str] = ("inputs", "targets"),
        shuffle_buffer_size: int = SHUFFLE_BUFFER_SIZE,
        eval_on_fixed_exemplars: bool = False,
    ) -> None:
        self._original_source = original_source
        self._num_shots = num_shots
        self._train_preprocessors = tuple(train_preprocessors)
        self._eval_preprocessors = tuple(eval_preprocessors)
        self._train_split = train_split
        self._train_feature_keys = tuple(train_feature_keys)
        self._shuffle_buffer_size = shuffle_buffer_size
        self._eval_on_fixed_exemplars = eval_on_fixed_exemplars
        super().__init__(splits=())

    @property
    def splits(self) -> Sequence[str]:
        return self._original_source.splits

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"FewshotDataSource({self._original_source!r}, num_shots={self._num_shots})"

    def list_shards(self, split: str) -> Sequence[str]:
        return self._original_source.list_shards(split)

    def terms_of(self, split: str, shard: str) -> Terms:
        return declared_as_one(self._original_source, {split, self._train_split} & {*self.splits})

    def num_input_examples(self, split: str) -> int | None:
        return self._original_source.num_input_examples(split)

    def _dataset_of(self, split: str, shuffle: bool, seed: int | None, shard_info: ShardInfo | None) -> TfDataset:
        """Raises `TaskError` if the train split is not one of the source's."""
        tf = tensorflow("FewshotDataSource")
        examples = {"eval": self._prepared(split, self._eval_preprocessors, shuffle, seed, shard_info)}
        if self._num_shots == 0:
            _log.warning("Train examples will not be included in the provided dataset since `num_shots` is 0.")
        else:
            if self._train_split not in self.splits:
                raise TaskError(
                    f"Train split '{self._train_split}' is not one of the original source splits: {self.splits}",
                    split=self._train_split,
                )
            examples["train"] = self._exemplars(split, shuffle, seed)
        return tf.data.Dataset.zip(examples)

    def _prepared(
        self,
        split: str,
        preprocessors: Sequence[Callable[[TfDataset], TfDataset]],
        shuffle: bool,
        seed: int | None,
        shard_info: ShardInfo | None = None,
    ) -> TfDataset:
        options = LoadOptions(split=split, shuffle=shuffle, seed=seed, shard_info=shard_info)
        dataset = shared_dataset(self._original_source, options)
        for preprocess in preprocessors:
            dataset = preprocess(dataset)
        return dataset

    def _exemplars(self, split: str, shuffle: bool, seed: int | None) -> TfDataset:
        # Exemplars are random even if examples are not shuffled, but then always the same.
        seed = seed if shuffle else _FIXED_SEED
        dataset = self._prepared(self._train_split, self._train_preprocessors, shuffle, seed)
        dataset = dataset.map(
            lambda example: {name: example[name] for name in self._train_feature_keys},
            num_parallel_calls=map_parallelism(),
        )
        fixed = self._eval_on_fixed_exemplars and split != self._train_split
        if fixed:
            shots = dataset.shuffle(self._shuffle_buffer_size, seed=seed, reshuffle_each_iteration=False)
            return shots.take(self._num_shots).batch(self._num_shots).repeat()
        # Batched after the repetition: a train split smaller than the number of shots still fills them.
        return dataset.shuffle(self._shuffle_buffer_size, seed=seed).repeat().batch(self._num_shots)


def fewshot_preprocessor(
    ds: TfDataset,
    inputs_prefix: str = "",
    targets_prefix: str = "",
    example_separator: str = "\n\n",
    prompt: str = "",
    reverse: bool = False,
) -> TfDataset:
    """Writes the exemplars and the question of a `FewshotDataSource` as one text, one for each question of a batch.

    With `inputs_prefix="Q: "`, `targets_prefix=" A: "`, one exemplar and the prompt "Answer.":
    `Answer.\\n\\nQ: 1+1? A: 2\\n\\nQ: 2+2? A:`

    Args:
        inputs_prefix: before each input.
        targets_prefix: between an input and its target; its trailing space is removed at the end.
        example_separator: between exemplars.
        prompt: before everything.
        reverse: exemplars in the opposite order.
    """
    tf = tensorflow("fewshot_preprocessor")

    def write(example: NestedTFDict) -> dict[str, TfTensor]:
        question = dict(example["eval"])
        pieces = [prompt + example_separator] if prompt else []
        if "train" in example:
            inputs, targets = example["train"]["inputs"], example["train"]["targets"]
            if reverse:
                inputs, targets = inputs[::-1], targets[::-1]
            shots = tf.strings.join([inputs_prefix, inputs, targets_prefix, targets, example_separator])
            pieces.append(tf.strings.reduce_join(shots))
        text = tf.strings.join([*pieces, inputs_prefix, question["inputs"], targets_prefix.rstrip()])
        return {**question, "inputs": text}

    written = ds.map(write, num_parallel_calls=map_parallelism())
    return unbatched(written) if written.element_spec["inputs"].shape.rank else written
