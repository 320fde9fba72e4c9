"""Fakes for tests of tasks; all need TensorFlow.

A data set of short texts with `train` and `validation`, three examples each, and one that stands in for a data set of
TFDS; preprocessors for it; a vocabulary of a few texts with chosen ids, and tiny ones of SentencePiece and WordPiece.

Test cases with a few tasks and mixtures over these data, in each kind of source.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from beam_pipes.extras import TfDataset, TfTensor, tensorflow
from beam_pipes.tasks.steps.dataset_map import map_over_dataset
from beam_pipes.tasks.steps.examples import Example, OwnExample
from beam_pipes.tasks.steps.features import Feature, ShardInfo
from beam_pipes.tasks.vocabularies.bert_word_piece import BertWordPieceVocabulary
from beam_pipes.tasks.vocabularies.sentence_piece import SentencePieceVocabulary
from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary, as_text

if TYPE_CHECKING:
    from google.protobuf.message import Message
import tempfile
import unittest
from collections.abc import Iterable
from typing import ClassVar

from beam_pipes.errors import TaskError
from beam_pipes.tasks import preprocessors
from beam_pipes.tasks.providers.mixture import MixtureRegistry
from beam_pipes.tasks.providers.registry import TaskRegistry
from beam_pipes.tasks.providers.task import Task
from beam_pipes.tasks.sources.data_source import DataSourceInterface
from beam_pipes.tasks.sources.files import TextLineDataSource, TFExampleDataSource
from beam_pipes.tasks.sources.function_source import FunctionDataSource
from beam_pipes.tasks.sources.places import get_global_cache_dirs, set_global_cache_dirs
from beam_pipes.tasks.steps.dataset_map import dict_to_tfexample
from beam_pipes.tasks.steps.step import CacheDatasetPlaceholder
from beam_pipes.tasks.testing.assertions import as_lists
from beam_pipes.tasks.vocabularies.characters import ByteVocabulary

#: `sentencepiece/sentencepiece.model` and `bertwordpiece/vocab.txt`, of 26 pieces and of four words.
TEST_DATA_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")

FAKE_EXAMPLES: dict[str, list[OwnExample]] = {
    "train": [
        {"prefix": "this is", "suffix": "a test", "idx": 0},
        {"prefix": "that was", "suffix": "another test", "idx": 1},
        {"prefix": "those were", "suffix": "some more tests", "idx": 2},
    ],
    "validation": [
        {"prefix": "first of all", "suffix": "a check", "idx": 0},
        {"prefix": "then", "suffix": "one check more", "idx": 1},
        {"prefix": "and at last", "suffix": "the end", "idx": 2},
    ],
}


#: `2d_feature` and `3d_feature` of the examples of a split, in order; int32 of shapes (None, 3), (None, 2, 3).
FAKE_ND_FEATURES: dict[str, list[OwnExample]] = {
    split: [
        {"2d_feature": [[first, 2, 3]] * (1 + number), "3d_feature": [[[1, 2, 3], [4, 5, first]]]}
        for number in range(len(examples))
    ]
    for first, (split, examples) in enumerate(FAKE_EXAMPLES.items(), start=1)
}

#: `ragged_feature` of the examples of a split: int32 of shape (2, None, 2), rows of several lengths.
FAKE_RAGGED_FEATURES: dict[str, list[OwnExample]] = {
    split: [
        {"ragged_feature": [[[3, first]], [[4, 1], [5, 9]]]},
        {"ragged_feature": [[[6, 2], [9, first]], []]},
        {"ragged_feature": [[[0, 9]], [[8, first]]]},
    ]
    for first, split in enumerate(FAKE_EXAMPLES)
}


def get_fake_dataset(
    split: str,
    shuffle_files: bool = False,
    seed: int | None = None,
    shard_info: ShardInfo | None = None,
    ndfeatures: bool = False,
    ragged_features: bool = False,
) -> TfDataset:
    """The examples of `FAKE_EXAMPLES` as a dataset of `prefix`, `suffix` and `idx`; a function for
    `FunctionDataSource`.

    `ndfeatures` adds `2d_feature` and `3d_feature`, `ragged_features` adds `ragged_feature`, a ragged tensor.
    """
    tf = tensorflow("get_fake_dataset")
    examples = FAKE_EXAMPLES[split]
    columns = {name: [example[name] for example in examples] for name in examples[0]}
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    if ndfeatures:
        shapes = {"2d_feature": (None, 3), "3d_feature": (None, 2, 3)}
        signature = {name: tf.TensorSpec(shape, tf.int32) for name, shape in shapes.items()}
        arrays = tf.data.Dataset.from_generator(lambda: iter(FAKE_ND_FEATURES[split]), output_signature=signature)
        dataset = tf.data.Dataset.zip(dataset, arrays).map(lambda example, more: {**example, **more})
    if ragged_features:
        rows = [example["ragged_feature"] for example in FAKE_RAGGED_FEATURES[split]]
        ragged = tf.data.Dataset.from_tensor_slices(tf.ragged.constant(rows, tf.int32, ragged_rank=2, inner_shape=(2,)))
        dataset = tf.data.Dataset.zip(dataset, ragged).map(lambda example, value: {**example, "ragged_feature": value})
    if shuffle_files:
        dataset = dataset.shuffle(len(examples), seed=seed)
    return dataset if shard_info is None else dataset.shard(shard_info.num_shards, shard_info.index)


def create_default_dataset(
    x: Sequence[Mapping[str, object]],
    feature_names: Sequence[str] = ("inputs", "targets"),
    output_types: Mapping[str, object] | None = None,
    output_shapes: Mapping[str, object] | None = None,
) -> TfDataset:
    """A dataset of the given examples; features are int32 vectors unless types and shapes say otherwise."""
    tf = tensorflow("create_default_dataset")
    types = output_types or dict.fromkeys(feature_names, tf.int32)
    shapes = output_shapes or dict.fromkeys(feature_names, [None])
    signature = {name: tf.TensorSpec(shapes[name], types[name]) for name in types}
    return tf.data.Dataset.from_generator(lambda: iter(x), output_signature=signature)


@map_over_dataset
def test_text_preprocessor(example: Mapping[str, TfTensor]) -> dict[str, TfTensor]:
    """`prefix` and `suffix` → `inputs`, `"complete: " + prefix`, and `targets`, the suffix; the rest stays."""
    tf = tensorflow("test_text_preprocessor")
    rest = {name: value for name, value in example.items() if name not in ("prefix", "suffix")}
    return {**rest, "inputs": tf.strings.join(["complete: ", example["prefix"]]), "targets": example["suffix"]}


def split_tsv_preprocessor(dataset: TfDataset, field_names: Sequence[str] = ("prefix", "suffix")) -> TfDataset:
    """Lines with tabs → one feature for each field."""
    tf = tensorflow("split_tsv_preprocessor")

    def parse(line: object) -> dict[str, object]:
        fields = tf.io.decode_csv(line, [""] * len(field_names), field_delim="\t", use_quote_delim=False)
        return dict(zip(field_names, fields, strict=True))

    return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def test_token_preprocessor(
    dataset: TfDataset, output_features: Mapping[str, Feature], sequence_length: Mapping[str, int] | None
) -> TfDataset:
    """Changes every token of `inputs` above 15 to 50."""
    return token_preprocessor_no_sequence_length(dataset, output_features)


def token_preprocessor_no_sequence_length(dataset: TfDataset, output_features: Mapping[str, Feature]) -> TfDataset:
    """Changes every token of `inputs` above 15 to 50, without asking for the sequence length."""
    tf = tensorflow("token_preprocessor_no_sequence_length")

    @map_over_dataset
    def change(example: Mapping[str, TfTensor]) -> dict[str, TfTensor]:
        inputs = example["inputs"]
        return {**example, "inputs": tf.where(inputs > 15, tf.constant(50, inputs.dtype), inputs)}

    return change(dataset)


@map_over_dataset(num_seeds=1)  # type: ignore[untyped-decorator]
def random_token_preprocessor(
    example: Mapping[str, TfTensor], seed: TfTensor, sequence_length: Mapping[str, int]
) -> dict[str, TfTensor]:
    """Rolls the tokens of each feature of `sequence_length` by a number drawn for the example."""
    tf = tensorflow("random_token_preprocessor")

    def rolled(tokens: object) -> object:
        shift = tf.random.stateless_uniform((), seed, 0, tf.maximum(tf.size(tokens), 1), tf.int32)
        return tf.roll(tokens, shift, axis=0)

    return {name: rolled(value) if name in sequence_length else value for name, value in example.items()}


for _function in (test_text_preprocessor, test_token_preprocessor):
    _function.__dict__["__test__"] = False  # not for pytest to collect


class MockVocabulary(Vocabulary):
    """Encodes only the texts of a dict: `MockVocabulary({"hi": [5, 6]}).encode("hi") == [5, 6]`.

    Args:
        encode_dict: text → ids.
        vocab_size: the reported size; None for one more than the largest id.
    """

    def __init__(
        self, encode_dict: Mapping[str, Sequence[int]] | Mapping[bytes, Sequence[int]], vocab_size: int | None = None
    ) -> None:
        self._ids_of = {as_text(text): list(ids) for text, ids in encode_dict.items()}
        largest = max((i for ids in self._ids_of.values() for i in ids), default=1)
        self._size = largest + 1 if vocab_size is None else vocab_size
        super().__init__()

    @property
    def eos_id(self) -> int:
        return 1

    @property
    def unk_id(self) -> int | None:
        return None

    @property
    def _base_vocab_size(self) -> int:
        return self._size

    def _encode(self, s: object) -> list[int]:
        return self._ids_of[as_text(s)]

    def _decode(self, ids: Sequence[int]) -> str:
        kept = [i for i in ids if i != self.eos_id]
        for text, known in self._ids_of.items():
            if list(ids) == known or kept == known:
                return text
        raise KeyError(f"no text of the mock vocabulary has the ids {list(ids)}")

    def config(self) -> dict[str, object]:
        return {"encode_dict": self._ids_of, "vocab_size": self._size}


def sentencepiece_vocab(
    extra_ids: int = 0,
    normalizer_spec_overrides: Message | None = None,
    reverse_extra_ids: bool = True,
    use_fast_tokenizer: bool = False,
) -> SentencePieceVocabulary:
    """The SentencePiece vocabulary of the tests of SeqIO: 26 pieces (PAD 0, EOS 1, UNK 2), letters and "▁test"."""
    return SentencePieceVocabulary(
        os.path.join(TEST_DATA_DIR, "sentencepiece", "sentencepiece.model"),
        extra_ids=extra_ids,
        normalizer_spec_overrides=normalizer_spec_overrides,
        reverse_extra_ids=reverse_extra_ids,
        use_fast_tokenizer=use_fast_tokenizer,
    )


def bertwordpiece_vocab(start_of_sequence_id: int = 101) -> BertWordPieceVocabulary:
    """A WordPiece vocabulary of four words (104 a, 105 is, 106 this, 107 test) after the special tokens of BERT."""
    path = os.path.join(TEST_DATA_DIR, "bertwordpiece", "vocab.txt")
    return BertWordPieceVocabulary(path, start_of_sequence_id=start_of_sequence_id)


#: Stand-ins for a `LazyTfdsLoader` and for the `info` of its data set, whose attributes a test gives.
FakeLazyTfds = collections.namedtuple(
    "FakeLazyTfds", "name tfds_splits resolved_tfds_name data_dir load load_shard info files size"
)
FakeTfdsInfo = collections.namedtuple(
    "FakeTfdsInfo", "splits features description version homepage file_format config_name"
)


DEFAULT_PREPROCESSORS = (
    test_text_preprocessor,
    preprocessors.tokenize,
    CacheDatasetPlaceholder(),
    preprocessors.append_eos_after_trim,
)


DEFAULT_SEQUENCE_LENGTH = {"inputs": 13, "targets": 13}


def clear_tasks() -> None:
    """Forgets all tasks."""
    TaskRegistry.reset()


def clear_mixtures() -> None:
    """Forgets all mixtures."""
    MixtureRegistry.reset()


class FakeTaskTest(unittest.TestCase):
    """Registers, for the time of each test: `function_task`, `text_line_task`, `tf_example_task`, `uncached_task`.

    All hold `FAKE_EXAMPLES` and the same features. `self.test_data_dir` and `self.get_tempdir()` are temporary
    directories.
    """

    DEFAULT_PREPROCESSORS = DEFAULT_PREPROCESSORS
    DEFAULT_OUTPUT_FEATURES: ClassVar[Mapping[str, Feature]] = {
        "inputs": Feature(ByteVocabulary(extra_ids=3), add_eos=False, required=False),
        "targets": Feature(ByteVocabulary(extra_ids=3)),
    }

    def setUp(self) -> None:
        super().setUp()
        self._saved = (dict(TaskRegistry._REGISTRY), dict(MixtureRegistry._REGISTRY), get_global_cache_dirs())
        self._directory = tempfile.TemporaryDirectory()
        self.test_data_dir = self._directory.name
        clear_tasks()
        clear_mixtures()
        set_global_cache_dirs([os.path.join(self.test_data_dir, "cache")])
        counts = {split: len(examples) for split, examples in FAKE_EXAMPLES.items()}
        self.function_source = FunctionDataSource(get_fake_dataset, list(counts), num_input_examples=counts)
        self.text_line_source = TextLineDataSource(self._write_lines(), num_input_examples=counts)
        self.tf_example_source = TFExampleDataSource(
            self._write_records(), _record_features(), num_input_examples=counts
        )
        self.add_task("function_task", self.function_source)
        self.add_task("text_line_task", self.text_line_source, (split_tsv_preprocessor, *DEFAULT_PREPROCESSORS))
        self.add_task("tf_example_task", self.tf_example_source)
        without_cut = [step for step in DEFAULT_PREPROCESSORS if not isinstance(step, CacheDatasetPlaceholder)]
        self.add_task("uncached_task", self.function_source, without_cut)

    def tearDown(self) -> None:
        tasks, mixtures, directories = self._saved
        clear_tasks()
        clear_mixtures()
        TaskRegistry._REGISTRY.update(tasks)
        MixtureRegistry._REGISTRY.update(mixtures)
        set_global_cache_dirs(directories)
        self._directory.cleanup()
        super().tearDown()

    def get_tempdir(self) -> str:
        """A new directory inside `self.test_data_dir`."""
        return tempfile.mkdtemp(dir=self.test_data_dir)

    def add_task(
        self,
        name: str,
        source: DataSourceInterface,
        preprocessors: Sequence[object] = DEFAULT_PREPROCESSORS,
        output_features: Mapping[str, Feature] | None = None,
        **kwargs: object,
    ) -> Task:
        """Registers a task with the default steps and features."""
        add: Callable[..., Task] = TaskRegistry.add
        return add(
            name,
            source=source,
            preprocessors=preprocessors,
            output_features=output_features or self.DEFAULT_OUTPUT_FEATURES,
            **kwargs,
        )

    def _write_lines(self) -> dict[str, str]:
        patterns = {}
        for split, examples in FAKE_EXAMPLES.items():
            patterns[split] = os.path.join(self.test_data_dir, f"{split}.tsv*")
            for index, part in enumerate((examples[:2], examples[2:])):
                with open(os.path.join(self.test_data_dir, f"{split}.tsv-{index}"), "w", encoding="utf-8") as file:
                    file.writelines(f"{example['prefix']}\t{example['suffix']}\n" for example in part)
        return patterns

    def _write_records(self) -> dict[str, str]:
        tf = tensorflow("FakeTaskTest")
        patterns = {}
        for split, examples in FAKE_EXAMPLES.items():
            patterns[split] = os.path.join(self.test_data_dir, f"{split}.tfrecord*")
            for index, part in enumerate((examples[:2], examples[2:])):
                path = os.path.join(self.test_data_dir, f"{split}.tfrecord-{index}")
                with tf.io.TFRecordWriter(path) as writer:
                    for example in part:
                        writer.write(dict_to_tfexample(example).SerializeToString())
        return patterns

    def verify_task_matches_fake_datasets(
        self,
        task_name: str = "",
        use_cached: bool = False,
        token_preprocessed: bool = False,
        ndfeatures: bool = False,
        ragged_features: bool = False,
        splits: Sequence[str] = ("train", "validation"),
        sequence_length: Mapping[str, int] | None = DEFAULT_SEQUENCE_LENGTH,
        num_shards: int | None = None,
        task: Task | None = None,
    ) -> None:
        """Raises `AssertionError` unless all shares of a task together give the fake examples after the default steps.

        With `token_preprocessed`, `test_token_preprocessor` must be among the steps. `ndfeatures` and
        `ragged_features` ask for it too, and for the features that `get_fake_dataset` adds with them.
        """
        if ndfeatures and ragged_features:
            raise TaskError("At most one of ndfeatures and ragged_features can be True at once.")
        added = FAKE_ND_FEATURES if ndfeatures else FAKE_RAGGED_FEATURES if ragged_features else None
        changed = token_preprocessed or added is not None
        task = task or TaskRegistry.get(task_name)
        for split in splits:
            shares: list[ShardInfo | None] = [None]
            if num_shards is not None:
                shares = [ShardInfo(index, num_shards) for index in range(num_shards)]
            found = []
            for share in shares:
                dataset = task.get_dataset(
                    sequence_length, split, use_cached=use_cached, shuffle=False, shard_info=share
                )
                found += as_lists(dataset)
            wanted = [self._expected(example, sequence_length or {}, changed) for example in FAKE_EXAMPLES[split]]
            if added is not None:
                wanted = [{**example, **more} for example, more in zip(wanted, added[split], strict=True)]
            names = sorted(wanted[0])
            self.assertEqual(_in_order(wanted, names), _in_order(found, names))

    def _expected(self, example: Example, lengths: Mapping[str, int], changed: bool) -> dict[str, object]:
        vocabulary = ByteVocabulary()
        inputs = vocabulary.encode("complete: " + example["prefix"])[: lengths.get("inputs")]
        length = lengths.get("targets")
        targets = vocabulary.encode(example["suffix"])[: None if length is None else length - 1]
        return {
            "inputs": [50 if changed and token > 15 else token for token in inputs],
            "targets": [*targets, vocabulary.eos_id],
        }


def _record_features() -> dict[str, object]:
    tf = tensorflow("FakeTaskTest")
    return {
        "prefix": tf.io.FixedLenFeature([], tf.string),
        "suffix": tf.io.FixedLenFeature([], tf.string),
        "idx": tf.io.FixedLenFeature([], tf.int64),
    }


def _in_order(examples: Iterable[Mapping[str, object]], names: Sequence[str]) -> list[str]:
    return sorted(repr([(name, example.get(name)) for name in names]) for example in examples)


class FakeMixtureTest(FakeTaskTest):
    """Also registers the mixtures `uncached_mixture` and `cached_mixture`."""

    def setUp(self) -> None:
        super().setUp()
        MixtureRegistry.add("uncached_mixture", [("uncached_task", 1.0)])
        MixtureRegistry.add("cached_mixture", [("function_task", 1.0), ("text_line_task", 2.0)])
