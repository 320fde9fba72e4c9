"""The preprocessors of the library: over a `tf.data.Dataset`, over Python examples, and some over columns of many."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset, TfTensor, tensorflow
from beam_pipes.tasks.steps.dataset_map import map_over_dataset, map_parallelism
from beam_pipes.tasks.steps.examples import Example
from beam_pipes.tasks.steps.features import DatasetConverter, Feature, OutputFeatures, SequenceLength, axis_lengths
from beam_pipes.tasks.steps.sequences import (
    TokenColumn,
    append_eos_to_features,
    check_is_sequence,
    eos_of,
    features_of,
    tokenize_features,
    with_end,
)
from beam_pipes.tasks.steps.signatures import of_any_example, with_forms

Value = TypeVar("Value")

OutputFeaturesType, SequenceLengthType = OutputFeatures, SequenceLength


@of_any_example
@map_over_dataset
def rekey(x: Mapping[str, object], key_map: Mapping[str, str] | None = None) -> Mapping[str, object]:
    """Renames features: `{"en": "hi", "id": 3}` with `{"inputs": "en", "targets": ""}` → `{"inputs": "hi",
    "targets": ""}`.

    Args:
        key_map: new name → old name; features that are not in it are dropped, and an empty old name gives an empty
            string. None or empty leaves the example unchanged.
    """
    if not key_map:
        return x
    return {new: x[old] if old else "" for new, old in key_map.items()}


def _tokenize_python(
    example: Example, output_features: OutputFeatures, copy_pretokenized: bool = True, with_eos: bool = False
) -> dict[str, object]:
    def encode(name: str, feature: Feature, value: object) -> object:
        return _encode(name, feature, value, eos_of(name, feature) if with_eos and feature.add_eos else None)

    return tokenize_features(example, output_features, copy_pretokenized, encode)


def _encode(name: str, feature: Feature, value: object, eos: int | None) -> object:
    """The ids of a text or of a vector of texts; the last one ends in `eos`."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        rows = [np.asarray(feature.vocabulary.encode(text), np.int32) for text in value]
        if rows and eos is not None:
            rows[-1] = with_end(name, rows[-1], eos)
        if len({len(row) for row in rows}) > 1:
            raise TaskError(
                f"feature '{name}' is a vector of texts of different lengths, which is ragged: tokenize it in a "
                "dataset preprocessor, or one text an example",
                feature=name,
            )
        return np.stack(rows) if rows else np.zeros((0, 0), np.int32)
    ids = feature.vocabulary.encode(value)
    encoded = np.asarray(ids, np.int32) if isinstance(ids, list) else ids
    if eos is None:
        return encoded
    if np.ndim(encoded) > 1:
        raise TaskError(
            f"feature '{name}' holds {len(encoded)} sequences, of which the last one ends in EOS, so that they are "
            "ragged: tokenize it in a dataset preprocessor, or append EOS to each with append_eos",
            feature=name,
        )
    return with_end(name, encoded, eos)


@with_forms(python=_tokenize_python)
def tokenize(
    dataset: TfDataset, output_features: OutputFeatures, copy_pretokenized: bool = True, with_eos: bool = False
) -> TfDataset:
    """Encodes every output feature with its vocabulary; the text stays as `<name>_pretokenized`.

    `{"targets": "hi"}` → `{"targets_pretokenized": "hi", "targets": [107, 108]}` with a `ByteVocabulary`.

    A feature that is a vector of strings becomes ragged. Other features are unchanged.

    Args:
        copy_pretokenized: keep the text.
        with_eos: append EOS to features with `add_eos`. In a vector of several texts, which is one sequence, the last
            one gets it: `["a", "b"]` → `[[100], [101, 1]]`. `append_eos` appends one to each.
    """

    features_of(dataset.element_spec, "tokenize")

    def tokenize_one(example: Mapping[str, object]) -> Mapping[str, object]:
        return tokenize_impl(example, output_features, copy_pretokenized, with_eos)

    return dataset.map(tokenize_one, num_parallel_calls=map_parallelism())


def tokenize_impl(
    features: Mapping[str, object],
    output_features: OutputFeatures,
    copy_pretokenized: bool = True,
    with_eos: bool = False,
) -> dict[str, TfTensor]:
    """`tokenize` for one example of tensors."""

    def encode(name: str, feature: Feature, value: TfTensor) -> TfTensor:
        encoded = feature.vocabulary.encode_tf(value)
        return _end_sequences(encoded, eos_of(name, feature)) if with_eos and feature.add_eos else encoded

    return tokenize_features(features, output_features, copy_pretokenized, encode)


@with_forms(python=functools.partial(_tokenize_python, with_eos=True))
def tokenize_and_append_eos(
    dataset: TfDataset, output_features: OutputFeatures, copy_pretokenized: bool = True
) -> TfDataset:
    """`tokenize(..., with_eos=True)`: EOS at the end of every feature with `add_eos`, in one pass."""
    return tokenize(dataset, output_features, copy_pretokenized, with_eos=True)


def _print_example(features: Example, summarize: int = 3) -> Example:
    with np.printoptions(edgeitems=summarize, threshold=2 * summarize):
        print(dict(features))
    return features


@with_forms(python=_print_example)
@map_over_dataset
def print_dataset(features: Mapping[str, object], summarize: int = 3) -> Mapping[str, object]:
    """Prints every example as it passes, the first and last `summarize` entries of each feature. For debugging
    pipelines."""
    tf = tensorflow("print_dataset")
    tf.print(features, summarize=summarize)
    return features


def _append_eos(features: Mapping[str, Value], output_features: OutputFeatures) -> dict[str, Value]:
    return append_eos_to_features(features, output_features)


@with_forms(python=_append_eos, columns=_append_eos)
def append_eos(dataset: TfDataset, output_features: OutputFeatures) -> TfDataset:
    """Appends EOS to the last axis of every output feature with `add_eos`: `[8, 9]` → `[8, 9, 1]`. Nothing is trimmed.

    Trimming afterwards may cut the EOS off; `append_eos_after_trim` keeps it.
    """
    return append_eos_after_trim(dataset, output_features)


@with_forms(python=append_eos_to_features, columns=append_eos_to_features)
def append_eos_after_trim(
    dataset: TfDataset, output_features: OutputFeatures, sequence_length: SequenceLength | None = None
) -> TfDataset:
    """Appends EOS, trimming first so that it fits: `[8, 9]` with length 2 → `[8, 1]`.

    Output features without `add_eos`, or without a length, are not trimmed.
    """

    _check_eos(dataset, output_features)

    def append(example: Mapping[str, TfTensor]) -> dict[str, TfTensor]:
        return append_eos_after_trim_impl(example, output_features, sequence_length)

    return dataset.map(append, num_parallel_calls=map_parallelism())


append_eos_after_trim_impl = append_eos_to_features


def _check_eos(dataset: TfDataset, output_features: OutputFeatures) -> None:
    """Raises here, since AutoGraph would wrap the error if it were raised inside `map`."""
    spec = features_of(dataset.element_spec, "append_eos")
    for name, feature in output_features.items():
        if feature.add_eos and name in spec:
            eos_of(name, feature)
            check_is_sequence(name, spec[name].shape.rank)


def _end_sequences(value: TfTensor, eos: int) -> TfTensor:
    """Appends EOS to the last item of each sequence of encoded texts: `[[5], [6, 7]]` → `[[5], [6, 7, 1]]`.

    A sequence without items has no end, and stays empty.
    """
    tf = tensorflow("tokenize")
    rank = value.shape.rank
    if rank == 1:
        return with_end("", value, eos)
    if not isinstance(value, tf.RaggedTensor):
        value = tf.RaggedTensor.from_tensor(value, ragged_rank=rank - 1)
    if rank > 3:
        return value.with_values(_end_sequences(value.values, eos))
    items = value if rank == 2 else value.values
    splits = tf.stack([tf.zeros((), tf.int64), items.nrows()]) if rank == 2 else value.row_splits
    starts, ends = splits[:-1], splits[1:]
    last = tf.boolean_mask(ends, ends > starts) - 1
    counts = tf.scatter_nd(last[:, None], tf.ones_like(last), items.nrows()[None])
    eos_of_last = tf.RaggedTensor.from_row_lengths(tf.fill(tf.shape(last), tf.cast(eos, items.dtype)), counts)
    ended = tf.concat([items, eos_of_last], axis=1)
    return ended if rank == 2 else value.with_values(ended)


def _truncate_columns(
    columns: Mapping[str, TokenColumn], sequence_length: SequenceLength | None = None
) -> dict[str, TokenColumn]:
    if "inputs" not in columns:  # the columns being read
        return dict(columns)
    function: Callable[..., dict[str, TokenColumn]] = truncate_inputs_left.__wrapped__
    return function(columns, sequence_length)


@with_forms(columns=_truncate_columns)
@of_any_example
@map_over_dataset
def truncate_inputs_left(
    example: Mapping[str, TfTensor], sequence_length: SequenceLength | None
) -> dict[str, TfTensor]:
    """Keeps the *end* of inputs that are too long: `[5, 6, 7]` with `{"inputs": 2}` → `[6, 7]`."""
    length = axis_lengths((sequence_length or {}).get("inputs"))[0]
    if length is None:
        return dict(example)
    return {**example, "inputs": example["inputs"][-length:] if length else example["inputs"][:0]}


def apply_feature_converter(
    dataset: TfDataset, sequence_length: SequenceLength, feature_converter: DatasetConverter
) -> TfDataset:
    """A feature converter as a preprocessor, to cache model features rather than task features."""
    return feature_converter(dataset, sequence_length)


def _preprocess_example(example: Example, inputs_format: str, targets_format: str) -> dict[str, object]:
    def fill(template: str) -> bytes:
        pieces = [
            _as_bytes(example[piece[1:-1]]) if re.fullmatch(r"{\w+}", piece) else piece.encode()
            for piece in re.split(r"({\w+})", template)
        ]
        return b"".join(pieces)

    return {"inputs": fill(inputs_format), "targets": fill(targets_format)}


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@with_forms(python=_preprocess_example)
@map_over_dataset
def preprocess_tensorflow_examples(
    example: Mapping[str, TfTensor], inputs_format: str, targets_format: str
) -> dict[str, TfTensor]:
    """Writes inputs and targets from templates: `"question: {q}"` with `{"q": "why?"}` → `"question: why?"`.

    `{name}` refers to a string feature; numbers are written out.
    """
    tf = tensorflow("preprocess_tensorflow_examples")

    def fill(template: str) -> TfTensor:
        pieces = []
        for piece in re.split(r"({\w+})", template):
            if re.fullmatch(r"{\w+}", piece):
                value = example[piece[1:-1]]
                pieces.append(value if value.dtype == tf.string else tf.strings.as_string(value))
            elif piece:
                pieces.append(tf.constant(piece))
        return tf.strings.join(pieces) if pieces else tf.constant("")

    return {"inputs": fill(inputs_format), "targets": fill(targets_format)}
