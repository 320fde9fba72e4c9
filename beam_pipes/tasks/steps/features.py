"""Declarations about examples: features, and the parts shared by all providers of datasets.

`Feature` is what a task guarantees about one field of its examples. `ShardInfo`, `SourceInfo` and `DatasetProviderBase`
are shared by tasks, mixtures and sources. `RowConverter` is the interface that loading needs of a feature converter;
the converters themselves are in `beam_pipes.transforms.converters`.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from beam_pipes.errors import TaskError, WrongConverterError
from beam_pipes.extras import TfDataset
from beam_pipes.tasks.vocabularies.vocabulary import DType, PassThroughVocabulary, Vocabulary

if TYPE_CHECKING:
    from beam_pipes.loader.row_source import MeasuredSplit


@dataclasses.dataclass(frozen=True)
class Feature:
    """One output field of a task: its vocabulary, EOS, presence, element type and rank.

    `Feature(ByteVocabulary(), dtype=tf.int32)` promises a rank-1 int32 array. The promise is checked after the last
    preprocessor; it transforms nothing on its own.

    Attributes:
        vocabulary: encodes and decodes the field.
        add_eos: `append_eos` ends the field with `vocabulary.eos_id`.
        required: the field must be there after preprocessing; an optional one may be missing.
        dtype: element type, given as a TensorFlow or NumPy dtype or a name; kept as a `DType`, which equals all of
            them.
        rank: number of dimensions; 0 is a scalar.

    Raises:
        TaskError: dtype or rank is not valid.
    """

    vocabulary: Vocabulary
    add_eos: bool = True
    required: bool = True
    dtype: DType = DType("int32")
    rank: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DType(self.dtype))
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 0:
            raise TaskError(f"a feature's rank is a number of dimensions, 0 or more, got {self.rank!r}", rank=self.rank)

    def __hash__(self) -> int:
        return hash((self.add_eos, self.required, str(self.dtype), self.rank))


def _no_vocabulary() -> Vocabulary:
    return PassThroughVocabulary(size=0)


@dataclasses.dataclass(frozen=True)
class ContinuousFeature(Feature):
    """A feature of numbers rather than tokens (audio frames, embeddings): no vocabulary and no EOS by default."""

    vocabulary: Vocabulary = dataclasses.field(default_factory=_no_vocabulary)
    add_eos: bool = False

    __hash__ = Feature.__hash__


@dataclasses.dataclass(frozen=True)
class PassThroughFeature(Feature):
    """A field that is carried along and checked (dtype, rank), never tokenized, and never given an EOS."""

    vocabulary: Vocabulary = dataclasses.field(default_factory=_no_vocabulary)
    add_eos: bool = False

    __hash__ = Feature.__hash__


OutputFeatures = Mapping[str, Feature]


def feature_from(value: object) -> Feature:
    """The value itself when it is a `Feature`.

    Raises:
        TaskError: it is something else (a vocabulary passed without `Feature(...)` around it is the usual slip).
    """
    if isinstance(value, Feature):
        return value
    hint = "; wrap the vocabulary: Feature(vocabulary)" if isinstance(value, Vocabulary) else ""
    raise TaskError(f"output_features maps names to Feature objects, got {value!r}{hint}", value=value)


class DatasetConverter(Protocol):
    """The interface of a converter for datasets of model features."""

    def __call__(self, ds: TfDataset, task_feature_lengths: SequenceLength, /) -> TfDataset: ...


class RowConverter(Protocol):
    """The interface of a converter for loaders of cached tasks.

    `beam_pipes.transforms.converters.FeatureConverter` describes each name.
    """

    @property
    def pack(self) -> bool: ...

    @property
    def apply_length_check(self) -> bool: ...

    @property
    def adds_segments(self) -> bool: ...

    def for_lengths(self, task_feature_lengths: SequenceLength) -> RowConverter: ...

    def planned_features(self, output_features: Iterable[str]) -> Sequence[str]: ...

    def planned_split(self, split: MeasuredSplit) -> MeasuredSplit: ...

    def planned_lengths(self, task_feature_lengths: SequenceLength) -> dict[str, int | None]: ...

    def convert_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]: ...


def check_converter(converter: object) -> None:
    """Raises `WrongConverterError` for anything but a feature converter."""
    if isinstance(converter, type) or not callable(converter) or not hasattr(converter, "get_model_feature_lengths"):
        instead = f"{converter!r}: write {converter.__name__}()" if isinstance(converter, type) else repr(converter)
        raise WrongConverterError(
            f"feature_converter should be an instance of FeatureConverter. Got {instead}", found=converter
        )


def row_converter(converter: object, task_feature_lengths: Mapping[str, object]) -> RowConverter:
    """The converter that makes model features of rows of these task features.

    Raises `WrongConverterError` for anything but a feature converter, and for one that only knows tf.data.
    """
    check_converter(converter)
    if not hasattr(converter, "for_lengths"):
        raise WrongConverterError(
            "a loader needs a feature converter that converts rows, a "
            "beam_pipes.transforms.converters.FeatureConverter; got "
            f"{converter!r}, which takes a tf.data.Dataset: pass it to get_dataset(..., use_cached=True)",
            found=converter,
        )
    return cast("RowConverter", converter.for_lengths(task_feature_lengths))


#: The maximum length of a feature: a number for its first axis, or a list with one for each axis; None for no limit.
Length = int | Sequence[int | None] | None
SequenceLength = Mapping[str, Length]


def axis_lengths(length: Length) -> list[int | None]:
    """A length as a list with one entry for each axis: `2` → `[2]`, `None` → `[None]`, `[4, None]` → `[4, None]`."""
    return list(length) if isinstance(length, Sequence) else [length]


_VALID_NAME = re.compile(r"^[\w\d\.\:_#]+$")


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """The share of one host: its `index` among `num_shards`.

    Raises:
        TaskError: the index is not below the number of shards.
    """

    index: int
    num_shards: int

    def __post_init__(self) -> None:
        if self.num_shards < 1 or not 0 <= self.index < self.num_shards:
            raise TaskError(
                f"a shard index lies between 0 and num_shards - 1, got ShardInfo(index={self.index}, "
                f"num_shards={self.num_shards})",
                index=self.index,
                num_shards=self.num_shards,
            )


@dataclasses.dataclass(frozen=True)
class SourceInfo:
    """Where something was declared: a file and a line."""

    file_path: str | None = None
    line_number: int | None = None

    @classmethod
    def for_class(cls, klass: type) -> SourceInfo:
        """The place of a class; empty if the interpreter does not know it."""
        try:
            return cls(inspect.getsourcefile(klass), inspect.getsourcelines(klass)[1])
        except (OSError, TypeError):
            return cls()

    def has_meaningful_info(self) -> bool:
        """Whether the file is known."""
        return bool(self.file_path)


class DatasetProviderBase(abc.ABC):
    """Anything that gives a `tf.data.Dataset` of examples for a split."""

    @property
    @abc.abstractmethod
    def output_features(self) -> Mapping[str, Feature]:
        """The features of every example."""

    @property
    @abc.abstractmethod
    def splits(self) -> Sequence[str]:
        """Names of the splits."""

    @abc.abstractmethod
    def get_dataset(
        self,
        sequence_length: SequenceLength | None = None,
        split: str = "train",
        use_cached: bool = False,
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: ShardInfo | None = None,
        num_epochs: int | None = 1,
    ) -> TfDataset:
        """The examples of a split as a `tf.data.Dataset`."""

    @abc.abstractmethod
    def num_input_examples(self, split: str) -> int | None:
        """Number of raw examples of a split; None if it is not known."""


def checked_name(name: object, what: str) -> str:
    """The name of a task or mixture, which names its directories too; raises `TaskError` for one that cannot."""
    if not isinstance(name, str):
        raise TaskError(f"{what} name should be a str, got {name!r}", **{what.lower(): name})
    if not _VALID_NAME.fullmatch(name):
        raise TaskError(
            f"{what} name '{name}' contains invalid characters. Must match regex: {_VALID_NAME.pattern}",
            **{what.lower(): name},
        )
    return name
