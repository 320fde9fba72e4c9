"""Magnitudes to the range that a model learns on, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class LogMagnitude:
    """The natural logarithm of magnitudes, floored at `min`: 1.0 → 0.0, silence → log(1e-5) = -11.51.

    `inverse(transform(x))` is `max(x, min)`. The floor's default is that of Tacotron 2 and WaveFlow.
    """

    min: float = 1e-5

    def __post_init__(self) -> None:
        if not self.min > 0:
            raise DatasetError(f"LogMagnitude needs a min above 0, the logarithm's domain; got {self.min}")

    def transform(self, magnitude: Array) -> Array:
        """Returns log magnitudes in the input's float dtype, float64 for integers."""
        array = np.asarray(magnitude)
        if array.dtype.kind != "f":
            array = array.astype(np.float64)
        return np.asarray(np.log(np.maximum(array, array.dtype.type(self.min))))

    def inverse(self, normalized: Array) -> Array:
        """Returns magnitudes of log magnitudes."""
        return np.asarray(np.exp(normalized))


@dataclasses.dataclass(frozen=True)
class UnitMagnitude:
    """Decibels in [0, 1]: `(20 log10(max(x, min)) - 20 + 100) / 100`, clipped; 10.0 → 1.0, 1e-4 and less → 0.0.

    `inverse(transform(x))` is x between 1e-4 and 10. `min` is the floor before the logarithm.
    """

    min: float = 1e-5

    def __post_init__(self) -> None:
        if not self.min > 0:
            raise DatasetError(f"UnitMagnitude needs a min above 0, the logarithm's domain; got {self.min}")

    def transform(self, magnitude: Array) -> Array:
        """Returns decibels scaled to [0, 1]."""
        decibels = 20.0 * np.log10(np.maximum(magnitude, self.min)) - 20.0
        return np.clip((decibels + 100.0) / 100.0, 0.0, 1.0)

    def inverse(self, normalized: Array) -> Array:
        """Returns magnitudes of scaled decibels."""
        return np.asarray(10.0 ** ((np.clip(normalized, 0.0, 1.0) * 100.0 - 100.0 + 20.0) / 20.0))
