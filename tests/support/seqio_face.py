"""The results of SeqIO and `beam_pipes.seqio` for the same declarations: tests run it on ours, `seqio_side` on
theirs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

WORDS = ["the", "dog", "that"]


def told(seqio: Any) -> dict[str, Any]:
    """Question → JSON-able answer of the library that is given as `seqio`."""
    questions: list[Callable[[Any], dict[str, Any]]] = [injected, ends, rates, vocabularies]
    return {name: answer for question in questions for name, answer in question(seqio).items()}


# What is injected into preprocessors.


@dataclasses.dataclass
class Told:
    """A preprocessor that is an object: when called, it reports the values of its fields."""

    sequence_length: Mapping[str, int] | None = None
    output_features: Mapping[str, Any] | None = None
    word: str = "own"

    def __call__(self, dataset):
        text = f"{self.sequence_length} {sorted(self.output_features or ())} {self.word}"
        return dataset.map(lambda example: {**example, "told": text})


class Method:
    """The same, reported by a bound method."""

    def tell(self, dataset, sequence_length=None, output_features=None):
        return tell(dataset, sequence_length, output_features)


def tell(dataset, sequence_length=None, output_features=None, word="own"):
    text = f"{sequence_length} {sorted(output_features or ())} {word}"
    return dataset.map(lambda example: {**example, "told": text})


def tell_behind(word, dataset, sequence_length=None, output_features=None):
    return tell(dataset, sequence_length, output_features, word)


def tell_keywords(dataset, **keywords):
    return dataset.map(lambda example: {**example, "told": str(sorted(keywords))})


def injected(seqio: Any) -> dict[str, Any]:
    own = {"a": 1}
    preprocessors = {
        "function": tell,
        "dataclass": Told(),
        "dataclass with a value": Told(sequence_length=own, word="given"),
        "bound method": Method().tell,
        "partial": functools.partial(tell, word="bound"),
        "partial of an injected name": functools.partial(tell, sequence_length=own),
        "nested partial": functools.partial(functools.partial(tell, output_features=own), word="bound"),
        "partial by position": functools.partial(tell_behind, "bound", sequence_length=own),
        "keywords": tell_keywords,
    }
    answers = {}
    for name, preprocessor in preprocessors.items():
        task = _task(seqio, "told", rows=1, preprocessors=[preprocessor])
        (example,) = task.get_dataset({"targets": 7}, shuffle=False).as_numpy_iterator()
        answers[f"injected into a {name}"] = example["told"].decode()
    bound = seqio.utils.add_kwargs_to_transform(functools.partial(lambda x, y: [x, y], x=1), x=2, y=3)
    answers["add_kwargs_to_transform"] = bound()
    return answers


# Where EOS goes.


def ends(seqio: Any) -> dict[str, Any]:
    class Ending(seqio.UnigramVocabulary):
        @property
        def eos_id(self):
            return 4

    feature = {"t": seqio.Feature(Ending(WORDS, split_on_space=True), rank=2)}
    texts = {
        "text": tf.constant("the dog"),
        "vector": tf.constant(["the dog", "dog"]),
        "vector of one": tf.constant(["the"]),
        "vector with an empty text": tf.constant(["the", ""]),
        "ragged matrix": tf.ragged.constant([["the"], ["dog", "the dog"]]),
    }
    answers = {}
    for name, text in texts.items():
        raw = tf.data.Dataset.from_tensors({"t": text})
        together = seqio.preprocessors.tokenize_and_append_eos(raw, feature, copy_pretokenized=False)
        apart = seqio.preprocessors.tokenize(raw, feature, copy_pretokenized=False)
        apart = seqio.preprocessors.append_eos(apart, feature)
        for how, dataset in (("tokenize_and_append_eos", together), ("append_eos", apart)):
            (example,) = dataset
            answers[f"{how} of a {name}"] = _plain(example["t"])
    ids = {"matrix": tf.constant([[5, 6], [7, 8]]), "ragged cube": tf.ragged.constant([[[5, 6], [7]], [[8]]])}
    for name, value in ids.items():
        raw = tf.data.Dataset.from_tensors({"t": value})
        (example,) = seqio.preprocessors.append_eos(raw, feature)
        answers[f"append_eos of a {name}"] = _plain(example["t"])
        (example,) = seqio.preprocessors.append_eos_after_trim(raw, feature, {"t": 2})
        answers[f"append_eos_after_trim of a {name}"] = _plain(example["t"])
    return answers


# Rates of mixtures that are made of mixtures.


def by_size(task):
    return float(task.num_input_examples("train"))


def rates(seqio: Any) -> dict[str, Any]:
    for name, rows in (("few", 20), ("many", 400)):
        _task(seqio, name, rows=rows)
    seqio.MixtureRegistry.add("by_size", [("few", by_size), ("many", by_size)])
    seqio.MixtureRegistry.add("fixed", [("few", 1), ("many", 3)])
    seqio.MixtureRegistry.add("nested", [("by_size", 2.0), ("few", by_size)])
    answers = {}
    for original in ("by_size", "fixed", "nested"):
        cut = seqio.helpers.mixture_or_task_with_truncated_data(original, f"{original}.cut", split_sizes={"train": 10})
        answers[f"rates of {original}, truncated"] = _share_of_few(cut)
        vocabulary = seqio.helpers.mixture_or_task_with_new_vocab(
            original, f"{original}.voc", new_vocab=seqio.ByteVocabulary(9)
        )
        answers[f"rates of {original}, with a vocabulary"] = _share_of_few(vocabulary)
    return answers


def _share_of_few(mixture: Any) -> float:
    """Tasks of nested mixtures have other names there than here."""
    share = sum(mixture.get_rate(task) for task in mixture.tasks if task.name.endswith("few"))
    return round(share / mixture.total_rate, 9)


# Vocabularies.


def vocabularies(seqio: Any) -> dict[str, Any]:
    answers = {}
    made = {
        "unigrams": seqio.UnigramVocabulary(WORDS),
        "words": seqio.UnigramVocabulary(WORDS, split_on_space=True),
        "bytes": seqio.ByteVocabulary(),
        "bytes with extra ids": seqio.ByteVocabulary(extra_ids=10),
        "ids": seqio.PassThroughVocabulary(10, eos_id=1),
        "codepoints": seqio.vocabularies.FullCodepointVocabulary(),
        "letters": seqio.vocabularies.PartialCodepointVocabulary([97, 98], extra_ids=2),
    }
    ids = ([1, 2], [3], [2, 0], [0, 3, 2], [4, 9], [107, 108], [107, 1, 108], [107, 259, 268, 300], [97, 0xE005, 98])
    for name, vocabulary in made.items():
        answers[f"size of {name}"] = [vocabulary.vocab_size, vocabulary.unk_id, vocabulary.eos_id, vocabulary.pad_id]
        for some in ids:
            if name != "codepoints":
                answers[f"{name}: decode {some}"] = vocabulary.decode(some)
            if name not in ("codepoints", "letters"):  # theirs continues after EOS
                answers[f"{name}: decode_tf {some}"] = _plain(vocabulary.decode_tf(tf.constant(some)))
        for text in ("the", "dog the", "cat", "PAD", "UNK", ""):
            if name != "ids":
                answers[f"{name}: encode {text!r}"] = list(vocabulary.encode(text))
                answers[f"{name}: encode_tf {text!r}"] = _plain(vocabulary.encode_tf(tf.constant(text)))
    return answers


def word_pieces(seqio: Any, vocab_file: str) -> dict[str, Any]:
    """WordPiece: its size, and the decoding of ids of whole words, and of ids of no word."""
    vocabulary = seqio.vocabularies.BertWordPieceVocabulary(vocab_file, start_of_sequence_id=7, end_of_sequence_id=8)
    sizes = [int(vocabulary.vocab_size), int(vocabulary.unk_id), vocabulary.eos_id]
    return {"size": sizes, **{str(ids): vocabulary.decode(ids) for ids in ([5, 6], [5, 8, 6], [5, 9, 6], [5, 10])}}


def _task(seqio: Any, name: str, *, rows: int, preprocessors: Any = ()) -> Any:
    def source(split, shuffle_files=False, seed=None):
        return tf.data.Dataset.from_tensor_slices({"targets": tf.ones((rows, 2), tf.int32)})

    task = seqio.Task(
        name,
        source=seqio.FunctionDataSource(source, splits=["train"], num_input_examples={"train": rows}),
        preprocessors=list(preprocessors),
        output_features={"targets": seqio.Feature(seqio.ByteVocabulary(), add_eos=False)},
    )
    if name != "told":
        seqio.TaskRegistry.add_provider(name, task)
    return task


def _plain(value: Any) -> Any:
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    array = value.numpy()
    return array.decode() if isinstance(array, bytes) else array.tolist()
