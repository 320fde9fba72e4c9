"""What the library's preprocessors do feature by feature, whatever holds the values: tensors, arrays or columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from beam_pipes.errors import TaskError
from beam_pipes.tasks.features import Feature

Value = TypeVar("Value")
OutputFeatures = Mapping[str, Feature]


def tokenize_features(
    example: Mapping[str, Any],
    output_features: OutputFeatures,
    copy_pretokenized: bool,
    encode: Callable[[str, Feature, Any], Any],
) -> dict[str, Any]:
    """Output features encoded by `encode(name, feature, value)`, others as they are; the text as `_pretokenized`."""
    result: dict[str, Any] = {}
    for name, value in example.items():
        feature = output_features.get(name)
        if feature is None:
            result.setdefault(name, value)
            continue
        if copy_pretokenized:
            result[f"{name}_pretokenized"] = value
        result[name] = encode(name, feature, value)
    return result


def append_eos_to_features(
    example: Mapping[str, Value],
    output_features: OutputFeatures,
    sequence_length: Mapping[str, Any] | None,
    *,
    trim: Callable[[Value, Any], Value],
    append: Callable[[str, Value, int], Value],
) -> dict[str, Value]:
    """EOS behind every output feature with `add_eos`: `append(name, value, eos)`.

    A feature with a length is cut before, by `trim(value, length)`, so that EOS fits.
    """
    result = dict(example)
    for name, value in example.items():
        feature = output_features.get(name)
        if feature is None or not feature.add_eos:
            continue
        length = (sequence_length or {}).get(name)
        if length is not None:
            value = trim(value, length)
        result[name] = append(name, value, eos_of(name, feature))
    return result


def length_before_eos(length: Any, rank: int) -> list[int | None]:
    """The lengths of the axes that leave room for one EOS on the last: `2` → `[1]`, `2` at rank 2 → `[None, 1]`."""
    lengths = list(length) if isinstance(length, (list, tuple)) else [*[None] * (rank - 1), length]
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
    """Raises `TaskError` for a scalar, which no EOS can stand behind."""
    if rank == 0:
        raise TaskError(
            f"EOS is appended to a sequence, but feature '{name}' is a scalar; declare it with add_eos=False",
            feature=name,
        )
