"""The expectations of a converter for a feature: its dtype, its rank, and the axis of the sequence.

Converters check incoming and outgoing features, in tf.data and in NumPy, with the same messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

import numpy as np

from beam_pipes.checks import integer
from beam_pipes.errors import TaskError
from beam_pipes.extras import TfDataset, require
from beam_pipes.tasks.vocabularies.vocabulary import DType


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """Describes one task or model feature.

    `FeatureSpec(dtype=np.float32, rank=2)` describes `[[0.5, 0.1], [0.2, 0.9]]`: two steps of two numbers.

    Attributes:
        dtype: a NumPy or TensorFlow dtype or a name; kept as a `DType`, which equals all of them.
        rank: number of axes of one example's value, 1 for a row of tokens.
        sequence_dim: the axis whose size `task_feature_lengths` limits; None (always for rank 0) for no axis.

    Raises:
        TaskError: the dtype is unknown, or rank and sequence_dim do not fit together.
    """

    dtype: DType
    rank: int = 1
    sequence_dim: int | None = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DType(self.dtype))
        integer(self.rank, what="FeatureSpec.rank", least=0, error=TaskError, rank=self.rank)
        if self.rank == 0:
            object.__setattr__(self, "sequence_dim", None)
        elif self.sequence_dim is not None and not 0 <= self.sequence_dim < self.rank:
            raise TaskError(
                f"FeatureSpec.sequence_dim should be in 0..{self.rank - 1} for rank {self.rank}, "
                f"got {self.sequence_dim!r}",
                sequence_dim=self.sequence_dim,
            )


TOKENS = FeatureSpec(dtype=DType("int32"))


def tokens(*names: str) -> dict[str, FeatureSpec]:
    """Features that are rows of tokens."""
    return dict.fromkeys(names, TOKENS)


Length: TypeAlias = int | list[int | None] | tuple[int | None, ...]  # in a list, one for each axis


def check_lengths(
    task_feature_lengths: Mapping[str, Length],
    expected: Mapping[str, FeatureSpec],
    *,
    optional: Collection[str] = (),
    converter: str,
) -> None:
    """Checks that lengths are given for exactly the `expected` sequences, as integers ≥ 0.

    Raises `TaskError` naming what is extra, missing, or not a length.
    """
    extra = sorted(set(task_feature_lengths) - set(expected))
    if extra:
        raise TaskError(
            "The task_feature_lengths contains extra features not specified in the TASK_FEATURES: "
            f"{_names(extra)}. {converter} converts {_names(expected)}.",
            features=extra,
            converter=converter,
        )
    wanted = {name for name, spec in expected.items() if spec.sequence_dim is not None}
    missing = sorted(wanted - set(task_feature_lengths) - set(optional))
    if missing:
        raise TaskError(
            "The task_feature_lengths is missing features specified in the TASK_FEATURES: "
            f"{_names(missing)}. {converter} needs a length for each of {_names(wanted)}.",
            features=missing,
            converter=converter,
        )
    for name, length in task_feature_lengths.items():
        if not _is_length(length):
            raise TaskError(
                f"The task_feature_lengths of {name!r} should be an integer ≥ 0, or a list with one for each axis and "
                f"None for no limit, got {length!r}",
                feature=name,
                converter=converter,
            )


def check_names(
    found: Collection[str], expected: Mapping[str, FeatureSpec], what: str, *, allowed: Collection[str] = ()
) -> None:
    """Checks that `found` are the names of the model's features; those without a sequence may be missing.

    Raises `TaskError` naming what is extra or missing.
    """
    extra = sorted(set(found) - set(expected) - set(allowed))
    if extra:
        raise TaskError(
            f"The {what} contains extra features not specified in the model_feature_names: {_names(extra)}. "
            f"MODEL_FEATURES and PACKING_FEATURE_DTYPES name {_names(expected)}.",
            features=extra,
        )
    missing = sorted({name for name, spec in expected.items() if spec.sequence_dim is not None} - set(found))
    if missing:
        raise TaskError(
            f"The {what} is missing features specified in the model_feature_names: {_names(missing)}. "
            f"It has {_names(found)}.",
            features=missing,
        )


def limits_of(length: Length, spec: FeatureSpec) -> dict[int, int]:
    """The size of each limited axis: 5 with `sequence_dim=1` → `{1: 5}`; [2, None, 3] → `{0: 2, 2: 3}`."""
    if isinstance(length, list | tuple):
        return {axis: size for axis, size in enumerate(length) if size is not None}
    return {} if spec.sequence_dim is None else {spec.sequence_dim: int(length)}


def one_length(name: str, length: Length) -> int:
    """The length of a feature that is packed or joined, which fills one axis; `TaskError` for a list."""
    if isinstance(length, list | tuple):
        raise TaskError(
            f"features are packed and joined along one axis: the length of {name!r} should be an integer, got "
            f"{length!r}. Pass the length of its first axis.",
            feature=name,
        )
    return int(length)


def check_features(
    found: Mapping[str, tuple[object, int | None]], expected: Mapping[str, FeatureSpec], label: str
) -> None:
    """Checks presence, dtype and rank of the `expected` features in `found` (name → dtype and rank).

    Raises `TaskError` naming the first feature that is missing or different, and what was found.
    """
    for name, spec in expected.items():
        if name not in found:
            raise TaskError(
                f"Dataset is missing an expected feature during {label} validation: '{name}'. "
                f"Received {_names(found)}, expected {dict(expected)}.",
                feature=name,
            )
        dtype, rank = found[name]
        if DType(dtype) != spec.dtype:
            raise TaskError(
                f"Dataset has incorrect type for feature '{name}' during {label} validation: "
                f"Got {DType(dtype)}, expected {spec.dtype}",
                feature=name,
                expected=spec.dtype,
            )
        if rank is not None and rank != spec.rank:
            raise TaskError(
                f"Dataset has incorrect rank for feature '{name}' during {label} validation: "
                f"Got {rank}, expected {spec.rank}",
                feature=name,
                expected=spec.rank,
            )


def length_message(name: str, length: int, label: str, *, strict: bool) -> str:
    """The sentence of a failed length check, the same in both paths."""
    relation = "equal to" if strict else "less than or equal to"
    return f"Feature '{name}' has length not {relation} the expected length of {length} during {label} validation"


def check_example(
    example: Mapping[str, np.ndarray],
    expected: Mapping[str, FeatureSpec],
    lengths: Mapping[str, Length],
    label: str,
    *,
    check_length: bool,
) -> None:
    """The NumPy form of `check_dataset`, on one example; raises `TaskError` at once."""
    arrays = {name: np.asarray(value) for name, value in example.items()}
    check_features({name: (array.dtype, array.ndim) for name, array in arrays.items()}, expected, label)
    for name, spec in expected.items():
        if name not in lengths or not check_length:
            continue
        for axis, limit in limits_of(lengths[name], spec).items():
            size = arrays[name].shape[axis]
            if size > limit:
                raise TaskError(
                    f"{length_message(name, limit, label, strict=False)}: it has {size}. Trim it in the task, "
                    "raise the length, or pass apply_length_check=False to cut it here.",
                    feature=name,
                    length=size,
                )


def check_dataset(
    dataset: TfDataset,
    expected: Mapping[str, FeatureSpec],
    lengths: Mapping[str, Length],
    label: str,
    *,
    check_length: bool,
    strict: bool,
) -> TfDataset:
    """Checks a `tf.data.Dataset` against `expected`; faults visible only in examples fail while iterating.

    Presence, dtype and rank are checked immediately. With `check_length`, an example that is too long (`strict`: of
    any other length) raises `tf.errors.InvalidArgumentError` with the sentence of `length_message`.
    """
    tf = require("tensorflow", purpose="checking a tf.data.Dataset")
    element = dataset.element_spec
    if not isinstance(element, Mapping):
        raise TaskError(
            f"expected a dataset of dicts during {label} validation, found elements of {element!r}", label=label
        )
    found = {name: (spec.dtype, spec.shape.rank) for name, spec in element.items() if hasattr(spec, "shape")}
    check_features(found, expected, label)
    checked = {
        (name, axis): limit
        for name, spec in expected.items()
        if name in lengths
        for axis, limit in limits_of(lengths[name], spec).items()
        # An exact length that the graph shows needs no check in every example.
        if not (strict and element[name].shape[axis] == limit)
    }
    if not check_length or not checked:
        return dataset

    def check(example: dict[str, object]) -> dict[str, object]:
        assertions = []
        for (name, axis), limit in checked.items():
            value = example[name]
            if isinstance(value, tf.RaggedTensor):
                size = value.bounding_shape(axis=axis, out_type=tf.int32)
            else:
                size = tf.shape(value)[axis]
            compare = tf.debugging.assert_equal if strict else tf.debugging.assert_less_equal
            assertions.append(compare(size, limit, message=length_message(name, limit, label, strict=strict)))
        with tf.control_dependencies([assertion for assertion in assertions if assertion is not None]):
            return {name: tf.identity(value) for name, value in example.items()}

    return dataset.map(tf.autograph.experimental.do_not_convert(check), num_parallel_calls=tf.data.AUTOTUNE)


def _is_length(length: Length) -> bool:
    sizes = [size for size in length if size is not None] if isinstance(length, list | tuple) else [length]
    return all(isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 0 for size in sizes)


def _names(names: Iterable[str]) -> str:
    return "{" + ", ".join(repr(name) for name in sorted(names)) + "}"
