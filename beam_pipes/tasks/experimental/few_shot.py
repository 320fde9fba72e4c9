"""Few-shot tasks: each example comes with some of the train split, as exemplars. Needs TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from beam_pipes.errors import TaskError, logger
from beam_pipes.tasks.in_tensorflow.runtime import map_parallelism, tensorflow
from beam_pipes.tasks.in_tensorflow.task_dataset import LoadOptions, shared_dataset
from beam_pipes.tasks.provider import ShardInfo
from beam_pipes.tasks.sources.data_source import DataSource, LibrarySource
from beam_pipes.tasks.task import SHUFFLE_BUFFER_SIZE

_log = logger(__name__)

_FIXED_SEED = 0


class FewshotDataSource(LibrarySource):
    """Examples `{"train": {"inputs": [...], "targets": [...]}, "eval": {...}}`: `num_shots` of the train split,
    and one to answer.

    Args:
        original_source: where examples come from.
        num_shots: exemplars an example; 0 gives `{"eval": ...}` only.
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
        train_preprocessors: Iterable[Callable[[Any], Any]] = (),
        eval_preprocessors: Iterable[Callable[[Any], Any]] = (),
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

    def num_input_examples(self, split: str) -> int | None:
        return self._original_source.num_input_examples(split)

    def _dataset_of(self, split: str, shuffle: bool, seed: int | None, shard_info: ShardInfo | None) -> Any:
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
        preprocessors: Sequence[Callable[[Any], Any]],
        shuffle: bool,
        seed: int | None,
        shard_info: ShardInfo | None = None,
    ) -> Any:
        options = LoadOptions(name=repr(self), split=split, shuffle=shuffle, seed=seed, shard_info=shard_info)
        dataset = shared_dataset(self._original_source, options)
        for preprocess in preprocessors:
            dataset = preprocess(dataset)
        return dataset

    def _exemplars(self, split: str, shuffle: bool, seed: int | None) -> Any:
        # Exemplars are drawn at random even when examples are not shuffled: then always the same ones.
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
        # Batched behind the repetition: a train split smaller than the number of shots still fills them.
        return dataset.shuffle(self._shuffle_buffer_size, seed=seed).repeat().batch(self._num_shots)


def fewshot_preprocessor(
    ds: Any,
    inputs_prefix: str = "",
    targets_prefix: str = "",
    example_separator: str = "\n\n",
    prompt: str = "",
    reverse: bool = False,
) -> Any:
    """Writes the exemplars and the question of a `FewshotDataSource` as one text; of a batch of questions one each.

    With `inputs_prefix="Q: "`, `targets_prefix=" A: "`, one exemplar and the prompt "Answer.":
    `Answer.\\n\\nQ: 1+1? A: 2\\n\\nQ: 2+2? A:`

    Args:
        inputs_prefix: before each input.
        targets_prefix: between an input and its target; its trailing space is left off at the end.
        example_separator: between exemplars.
        prompt: before everything.
        reverse: exemplars in the opposite order.
    """
    tf = tensorflow("fewshot_preprocessor")

    def write(example: Mapping[str, Any]) -> dict[str, Any]:
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
    return written.unbatch() if written.element_spec["inputs"].shape.rank else written
