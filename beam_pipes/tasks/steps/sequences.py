"""Cutting, ending and padding sequences in tensors, arrays, or columns of many examples.

A `TokenColumn` is one feature of many examples: their lengths, and their values if needed. It is cut and extended like
an array, even without values: it then gives the lengths of the results, from which loaders plan rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset, TfTensor, tensorflow
from beam_pipes.loader.batches import ranges
from beam_pipes.tasks.steps.features import Feature, Length, OutputFeatures, SequenceLength, axis_lengths
from beam_pipes.tasks.steps.signatures import with_forms

Value = TypeVar("Value")
Lengths = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class TokenColumn:
    """The sequences of one feature, one after the other: [5, 6], [], [7] → values [5, 6, 7], lengths [2, 0, 1].

    Attributes:
        lengths: (n,) int64, of each example.
        values: (sum of lengths, ...); None if only the lengths are needed, as in planning.
        truncated: entries that were cut off on the way here.
        added: entries that were inserted.
    """

    lengths: Lengths
    values: np.ndarray | None = None
    truncated: int = 0
    added: int = 0

    ndim = 1  # a sequence, as in the examples

    def __getitem__(self, kept: slice | tuple[slice, ...]) -> TokenColumn:
        """The first or last entries of each: of `[5, 6, 7], [8]`, `[:2]` is `[5, 6], [8]`, `[-2:]` is `[6, 7], [8]`.

        Slices of inner axes are ignored, since a column lacks these axes.
        """
        kept = kept[0] if isinstance(kept, tuple) else kept
        if kept.start is not None:
            return self._kept(-kept.start, from_end=True)
        return self if kept.stop is None else self._kept(kept.stop, from_end=False)

    def with_end(self, entry: int) -> TokenColumn:
        """Appends one entry to each: `[5, 6], []` with 1 → `[5, 6, 1], [1]`."""
        lengths = self.lengths + 1
        added = self.added + len(lengths)
        if self.values is None:
            return dataclasses.replace(self, lengths=lengths, added=added)
        values = np.empty(len(self.values) + len(lengths), self.values.dtype)
        is_end = np.zeros(len(values), bool)
        is_end[np.cumsum(lengths) - 1] = True
        values[is_end] = entry
        values[~is_end] = self.values
        return dataclasses.replace(self, lengths=lengths, values=values, added=added)

    def _kept(self, count: int, *, from_end: bool) -> TokenColumn:
        lengths = np.minimum(self.lengths, count)
        cut = int(self.lengths.sum() - lengths.sum())
        if not cut:
            return self
        values = self.values
        if values is not None:
            starts = np.cumsum(self.lengths) - self.lengths
            values = values[ranges(starts + (self.lengths - lengths if from_end else 0), lengths)]
        return dataclasses.replace(self, lengths=lengths, values=values, truncated=self.truncated + cut)


def rank_of(value: Any) -> int | None:
    """The number of axes of a tensor, an array, a column or a text; None where TensorFlow does not know it."""
    if isinstance(value, np.ndarray):  # first, as most are
        return value.ndim
    if isinstance(value, bytes):
        return 0
    shape = getattr(value, "shape", None)
    return np.ndim(value) if shape is None or isinstance(shape, tuple) else shape.rank


def trimmed(value: Any, length: Length) -> Any:
    """The first `length` entries of the first axis, or of each axis for a list of lengths; scalars stay."""
    if length is None or rank_of(value) == 0:
        return value
    return value[tuple(slice(None, axis_length) for axis_length in axis_lengths(length))]


def trim_features(
    example: Mapping[str, Value], sequence_length: SequenceLength | None, output_features: OutputFeatures
) -> dict[str, Value]:
    """`trim_dataset` for one example, or for columns of many."""
    lengths = sequence_length or {}
    return {
        name: trimmed(value, lengths.get(name)) if name in output_features else value for name, value in example.items()
    }


@with_forms(python=trim_features, columns=trim_features)
def trim_dataset(
    dataset: TfDataset, sequence_length: SequenceLength | None, output_features: Mapping[str, Feature]
) -> TfDataset:
    """Cuts every output feature to its length in `sequence_length`.

    `{"targets": [5, 6, 7], "extra": [1, 2, 3]}` with `{"targets": 2}` → `{"targets": [5, 6], "extra": [1, 2, 3]}`.

    A length is a number for the first axis, or a list with one for each axis, None for no limit. Features that are
    not in `output_features`, have no length, or are scalars stay unchanged.
    """
    tf = tensorflow("trim_dataset")
    lengths = {
        name: length
        for name, length in (sequence_length or {}).items()
        if length is not None and name in output_features
    }
    if not lengths:
        return dataset

    def trim(example: Mapping[str, object]) -> dict[str, object]:
        return {name: trimmed(value, lengths.get(name)) for name, value in example.items()}

    return dataset.map(trim, num_parallel_calls=tf.data.AUTOTUNE)


def trim_and_pad_dataset(dataset: TfDataset, feature_lengths: SequenceLength) -> TfDataset:
    """Cuts and pads (with 0, "" or False) features to fixed lengths: `[3, 9]` with length 4 → `[3, 9, 0, 0]`.

    A length is a number for the first axis, or a list with one for each axis, None for no limit. Features without a
    length are unchanged. The static shapes of the result are known, so it can be batched.
    """
    tf = tensorflow("trim_and_pad_dataset")

    def pad(example: Mapping[str, TfTensor]) -> dict[str, TfTensor]:
        return {name: pad_tensor(value, feature_lengths.get(name)) for name, value in example.items()}

    return dataset.map(pad, num_parallel_calls=tf.data.AUTOTUNE)


def pad_tensor(value: TfTensor, length: Length) -> TfTensor:
    """`trimmed`, then padding at the end of each axis up to its length."""
    tf = tensorflow("trim_and_pad_dataset")
    if length is None or value.shape.rank == 0:
        return value
    if isinstance(value, tf.RaggedTensor):
        value = value.to_tensor()
    lengths = axis_lengths(length)
    lengths += [None] * (value.shape.rank - len(lengths))
    static = [
        axis if axis_length is None else axis_length for axis, axis_length in zip(value.shape, lengths, strict=True)
    ]
    value = trimmed(value, lengths)
    actual = tf.shape(value)
    missing = [0 if axis_length is None else axis_length - actual[axis] for axis, axis_length in enumerate(lengths)]
    fill = "" if value.dtype == tf.string else tf.zeros((), value.dtype)
    padded = tf.pad(value, [[0, amount] for amount in missing], constant_values=fill)
    padded.set_shape(static)
    return padded


def tokenize_features(
    example: Mapping[str, Value],
    output_features: OutputFeatures,
    copy_pretokenized: bool,
    encode: Callable[[str, Feature, Value], object],
) -> dict[str, object]:
    """Output features encoded by `encode(name, feature, value)`, others unchanged; the text as `_pretokenized`."""
    result: dict[str, object] = {}
    for name, value in features_of(example, "tokenize").items():
        feature = output_features.get(name)
        if feature is None:
            result.setdefault(name, value)
            continue
        if copy_pretokenized:
            result[f"{name}_pretokenized"] = value
        result[name] = encode(name, feature, value)
    return result


def features_of(example: Mapping[str, Value], step: str) -> Mapping[str, Value]:
    """The example, or the spec of a dataset's examples, if it is a dict of features."""
    if isinstance(example, Mapping):
        return example
    raise TaskError(
        f"{step} takes examples that are dicts of features, got {type(example).__name__}. Lines of text and single "
        'values need a step before it that names them: a python_map which returns {"targets": line}',
        step=step,
    )


def append_eos_to_features(
    features: Mapping[str, Value], output_features: OutputFeatures, sequence_length: SequenceLength | None = None
) -> dict[str, Value]:
    """Appends EOS to every output feature with `add_eos`; one with a length is cut first, so that EOS fits."""
    result = dict(features_of(features, "append_eos"))
    for name, value in features.items():
        feature = output_features.get(name)
        if feature is None or not feature.add_eos:
            continue
        length = (sequence_length or {}).get(name)
        if length is not None:
            value = trimmed(value, _length_before_eos(length, rank_of(value) or 1))
        result[name] = with_end(name, value, eos_of(name, feature))
    return result


def _length_before_eos(length: Length, rank: int) -> list[int | None]:
    """The lengths of the axes that leave room for one EOS on the last: `2` → `[1]`, `2` at rank 2 → `[None, 1]`."""
    lengths = axis_lengths(length) if isinstance(length, Sequence) else [*[None] * (rank - 1), length]
    last = lengths[-1]
    return [*lengths[:-1], None if last is None else max(last - 1, 0)]


def eos_of(name: str, feature: Feature) -> int:
    """EOS id of a feature.

    Raises:
        TaskError: its vocabulary has none.
    """
    eos = feature.vocabulary.eos_id
    if eos is None:
        raise TaskError(
            f"feature '{name}' has add_eos=True, but its vocabulary has no EOS: {feature.vocabulary!r}. Give it one, "
            "or declare the feature with add_eos=False",
            feature=name,
        )
    return int(eos)


def check_is_sequence(name: str, rank: int | None) -> None:
    """Raises `TaskError` for a scalar, to which EOS cannot be appended."""
    if rank == 0:
        raise TaskError(
            f"EOS is appended to a sequence, but feature '{name}' is a scalar; declare it with add_eos=False",
            feature=name,
        )


def with_end(name: str, value: Any, entry: int) -> Any:
    """Appends an entry to the last axis: `[[8], [9]]`, 1 → `[[8, 1], [9, 1]]`."""
    if not isinstance(value, np.ndarray):
        if isinstance(value, TokenColumn):
            return value.with_end(entry)
        if not isinstance(getattr(value, "shape", ()), tuple):  # of TensorFlow
            return _tensor_with_end(value, entry)
    array = np.asarray(value)
    check_is_sequence(name, array.ndim)
    return np.concatenate([array, np.full((*array.shape[:-1], 1), entry, array.dtype)], axis=-1)


def _tensor_with_end(value: TfTensor, entry: int) -> TfTensor:
    tf = tensorflow("append_eos")
    rank = value.shape.rank
    if isinstance(value, tf.RaggedTensor):
        if rank > 2:
            return value.with_values(_tensor_with_end(value.values, entry))
        return tf.concat([value, tf.fill([value.nrows(), 1], tf.cast(entry, value.dtype))], axis=1)
    shape = tf.concat([tf.shape(value)[:-1], [1]], axis=0)
    joined = tf.concat([value, tf.fill(shape, tf.cast(entry, value.dtype))], axis=-1)
    return tf.ensure_shape(joined, [*value.shape[:-1], None])
