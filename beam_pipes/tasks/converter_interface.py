"""What tasks need of a feature converter; the converters themselves live in `beam_pipes.transforms.converters`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from beam_pipes.errors import WrongConverterError


class RowConverter(Protocol):
    """A converter as a loader of cached tasks uses it.

    `beam_pipes.transforms.converters.FeatureConverter` describes each name.
    """

    @property
    def pack(self) -> bool: ...

    @property
    def apply_length_check(self) -> bool: ...

    @property
    def adds_segments(self) -> bool: ...

    def for_lengths(self, task_feature_lengths: Mapping[str, Any]) -> RowConverter: ...

    def planned_features(self, output_features: Iterable[str]) -> Sequence[str]: ...

    def planned_split(self, split: Any) -> Any: ...

    def planned_lengths(self, task_feature_lengths: Mapping[str, Any]) -> dict[str, int | None]: ...

    def convert_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]: ...


def check_converter(converter: Any) -> None:
    """Raises `WrongConverterError` for what is no feature converter."""
    if not callable(converter) or not hasattr(converter, "get_model_feature_lengths"):
        raise WrongConverterError(
            f"feature_converter should be an instance of FeatureConverter. Got {converter!r}", found=converter
        )


def row_converter(converter: Any, task_feature_lengths: Mapping[str, Any]) -> RowConverter:
    """The converter that makes model features of rows of these task features.

    Raises `WrongConverterError` for what is no feature converter, or one that only knows tf.data.
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
