"""A small data set of short texts: `train` and `validation`, three examples each. Needs TensorFlow.

Preprocessors for the fake data. Need TensorFlow.

A vocabulary of a few texts with chosen ids, and tiny ones of SentencePiece and WordPiece.

A data set that stands in for one of TFDS.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_pipes.tasks.in_tensorflow.dataset_map import map_over_dataset
from beam_pipes.tasks.in_tensorflow.runtime import TfDataset, TfTensor, tensorflow
from beam_pipes.tasks.provider import Feature, ShardInfo
from beam_pipes.tasks.vocabularies.bert_word_piece import BertWordPieceVocabulary
from beam_pipes.tasks.vocabularies.sentence_piece import SentencePieceVocabulary
from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary, as_text

if TYPE_CHECKING:
    from google.protobuf.message import Message

#: `sentencepiece/sentencepiece.model` and `bertwordpiece/vocab.txt`, of 26 pieces and of four words.
TEST_DATA_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")

FAKE_EXAMPLES: dict[str, list[dict[str, Any]]] = {
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
FAKE_ND_FEATURES: dict[str, list[dict[str, Any]]] = {
    split: [
        {"2d_feature": [[first, 2, 3]] * (1 + number), "3d_feature": [[[1, 2, 3], [4, 5, first]]]}
        for number in range(len(examples))
    ]
    for first, (split, examples) in enumerate(FAKE_EXAMPLES.items(), start=1)
}

#: `ragged_feature` of the examples of a split: int32 of shape (2, None, 2), rows of several lengths.
FAKE_RAGGED_FEATURES: dict[str, list[dict[str, Any]]] = {
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
    """Encodes the texts of a dict, and nothing else: `MockVocabulary({"hi": [5, 6]}).encode("hi") == [5, 6]`.

    Args:
        encode_dict: text → ids.
        vocab_size: what the vocabulary says of its size; None for one more than the largest id.
    """

    def __init__(self, encode_dict: Mapping[Any, Sequence[int]], vocab_size: int | None = None) -> None:
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
