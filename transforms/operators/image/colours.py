"""Colours as linear maps: brightness and contrast, hue and saturation."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# RGB to luma and two chroma axes, with the constants that DALI has (NTSC, three digits), and back.
RGB_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
YIQ_TO_RGB = np.linalg.inv(RGB_TO_YIQ)


def middle_of(dtype: np.dtype[Any]) -> float:
    """The middle of a dtype's range: 128 for uint8, 16384 for int16, 0.5 for floats."""
    return (float(np.iinfo(dtype).max) + 1) / 2 if dtype.kind in "iu" else 0.5


def colour_matrices(xp: Any, hue: Any, saturation: Any, value: Any) -> Any:
    """(n,) degrees, factors and factors → (n, 3, 3) float: maps of RGB.

    Hue turns the chroma axes, saturation stretches them, value all three.
    """
    turn = hue * (np.pi / 180)
    cosine, sine = xp.cos(turn) * saturation, xp.sin(turn) * saturation
    # A matrix is linear in (1, cosine, sine): three constant ones, weighted by sample.
    parts = []
    for row in range(3):
        for column in range(3):
            luma = float(YIQ_TO_RGB[row, 0] * RGB_TO_YIQ[0, column])
            even = float(YIQ_TO_RGB[row, 1] * RGB_TO_YIQ[1, column] + YIQ_TO_RGB[row, 2] * RGB_TO_YIQ[2, column])
            odd = float(YIQ_TO_RGB[row, 1] * RGB_TO_YIQ[2, column] - YIQ_TO_RGB[row, 2] * RGB_TO_YIQ[1, column])
            parts.append((luma + even * cosine + odd * sine) * value)
    return xp.reshape(xp.stack(parts, axis=1), (-1, 3, 3))
