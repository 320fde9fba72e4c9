"""Columns of many examples: the library's preprocessors on them, and cutting and padding for tf.data.

A `TokenColumn` is one feature of many examples: their lengths, and their values if needed. A column form transforms
each feature depending on this feature alone, and works without values too: then it gives the lengths of the results,
by which loaders plan rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from beam_pipes.extras import TfDataset, TfTensor, tensorflow
from beam_pipes.loader.batches import ranges
from beam_pipes.tasks.steps import python_forms
from beam_pipes.tasks.steps.features import Feature, Length, SequenceLength, axis_lengths
from beam_pipes.tasks.steps.python_forms import F, append_eos_to_features, with_python_form

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

    def first(self, count: int) -> TokenColumn:
        """The first `count` entries of each: `[5, 6, 7], [8]` with 2 → `[5, 6], [8]`."""
        return self._kept(count, from_end=False)

    def last(self, count: int) -> TokenColumn:
        """The last `count` entries of each: `[5, 6, 7], [8]` with 2 → `[6, 7], [8]`."""
        return self._kept(count, from_end=True)

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


OutputFeatures = Mapping[str, Feature]
Columns = Mapping[str, TokenColumn]


def append_eos(columns: Columns, output_features: OutputFeatures) -> dict[str, TokenColumn]:
    return append_eos_after_trim(columns, output_features, None)


def append_eos_after_trim(
    columns: Columns, output_features: OutputFeatures, sequence_length: SequenceLength | None = None
) -> dict[str, TokenColumn]:
    return append_eos_to_features(
        columns,
        output_features,
        sequence_length,
        trim=lambda column, length: _first(column, python_forms.length_before_eos(length, 1)),
        append=lambda name, column, eos: column.with_end(eos),
    )


def truncate_inputs_left(columns: Columns, sequence_length: SequenceLength | None = None) -> dict[str, TokenColumn]:
    length = axis_lengths((sequence_length or {}).get("inputs"))[0]
    if length is None or "inputs" not in columns:
        return dict(columns)
    return {**columns, "inputs": columns["inputs"].last(length)}


def trim_features(
    columns: Columns, sequence_length: SequenceLength | None, output_features: OutputFeatures
) -> dict[str, TokenColumn]:
    lengths = sequence_length or {}
    return {
        name: _first(column, axis_lengths(lengths.get(name))) if name in output_features else column
        for name, column in columns.items()
    }


def _first(column: TokenColumn, lengths: Sequence[int | None]) -> TokenColumn:
    return column if lengths[0] is None else column.first(lengths[0])


def with_column_form(form: Callable[..., object]) -> Callable[[F], F]:
    """Gives a preprocessor an equivalent form over columns."""

    def decorate(preprocessor: F) -> F:
        preprocessor.__dict__["column_form"] = form
        return preprocessor

    return decorate


@with_column_form(trim_features)
@with_python_form(python_forms.trim_features)
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
        return {name: trim_tensor(value, lengths.get(name)) for name, value in example.items()}

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


def trim_tensor(value: TfTensor, length: Length) -> TfTensor:
    """The first `length` entries of the first axis, or of each axis for a list of lengths."""
    rank = value.shape.rank
    if length is None or rank == 0:
        return value
    return value[tuple(slice(None, axis_length) for axis_length in axis_lengths(length))]


def pad_tensor(value: TfTensor, length: Length) -> TfTensor:
    """`trim_tensor`, then padding at the end of each axis up to its length."""
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
    value = trim_tensor(value, lengths)
    actual = tf.shape(value)
    missing = [0 if axis_length is None else axis_length - actual[axis] for axis, axis_length in enumerate(lengths)]
    fill = "" if value.dtype == tf.string else tf.zeros((), value.dtype)
    padded = tf.pad(value, [[0, amount] for amount in missing], constant_values=fill)
    padded.set_shape(static)
    return padded
