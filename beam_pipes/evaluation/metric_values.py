"""What a metric may return: a number, a text, pictures, sounds, a distribution, or any tensor for TensorBoard."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclasses.dataclass(eq=False)
class MetricValue:
    """Base of the values; two are equal when class and contents are, arrays element by element."""

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        fields = [field.name for field in dataclasses.fields(self)]
        return all(_same(getattr(self, name), getattr(other, name)) for name in fields)

    __hash__ = None  # type: ignore[assignment]  # values hold arrays and may be changed


@dataclasses.dataclass(eq=False)
class Scalar(MetricValue):
    """A number: `Scalar(0.5)`. A bare number that a metric returns is one."""

    value: int | float


@dataclasses.dataclass(eq=False)
class Text(MetricValue):
    """A text, shown as Markdown by TensorBoard."""

    textdata: str | bytes


@dataclasses.dataclass(eq=False)
class Image(MetricValue):
    """Pictures (k, height, width, channels), uint8 or floats in [0, 1]; at most `max_outputs` are logged."""

    image: Array
    max_outputs: int = 3


@dataclasses.dataclass(eq=False)
class Audio(MetricValue):
    """Sounds (k, samples, channels), floats in [-1, 1]; at most `max_outputs` are logged."""

    audiodata: Array
    sample_rate: int = 44100
    max_outputs: int = 3


@dataclasses.dataclass(eq=False)
class Histogram(MetricValue):
    """A distribution, given by its values; `bins` buckets, 30 if None."""

    values: Array
    bins: int | None = None


@dataclasses.dataclass(eq=False)
class Generic(MetricValue):
    """Any tensor, with the `tf.compat.v1.SummaryMetadata` that tells TensorBoard what to do with it."""

    tensor: Array
    metadata: Any


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return bool(left == right)
