"""Features: what a task promises about each field of its examples."""

from __future__ import annotations

import dataclasses
from typing import Any

from beam_pipes.errors import TaskError
from beam_pipes.tasks.dtypes import DType
from beam_pipes.tasks.vocabularies.pass_through import PassThroughVocabulary
from beam_pipes.tasks.vocabularies.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Feature:
    """One output field of a task: its vocabulary, EOS, presence, element type and rank.

    `Feature(ByteVocabulary(), dtype=tf.int32)` promises a rank-1 int32 array. The promise is checked after the last
    preprocessor; it transforms nothing by itself.

    Attributes:
        vocabulary: encodes and decodes the field.
        add_eos: `append_eos` ends the field with `vocabulary.eos_id`.
        required: the field must be there after preprocessing; an optional one may be missing.
        dtype: element type, given as a TensorFlow or NumPy dtype or a name; kept as a `DType`, which equals
        all of them.
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


OutputFeatures = dict[str, Feature]


def feature_from(value: Any) -> Feature:
    """The value itself when it is a `Feature`.

    Raises:
        TaskError: it is something else (a vocabulary passed without `Feature(...)` around it is the usual slip).
    """
    if isinstance(value, Feature):
        return value
    hint = "; wrap the vocabulary: Feature(vocabulary)" if isinstance(value, Vocabulary) else ""
    raise TaskError(f"output_features maps names to Feature objects, got {value!r}{hint}", value=value)
