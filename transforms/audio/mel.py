"""The mel scale and its filter bank, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from beam_pipes.errors import DatasetError

Array = np.ndarray[Any, np.dtype[np.float64]]

# Slaney's scale (Auditory Toolbox, 1998): linear to 1000 Hz at 200/3 Hz a mel, then 27 mels for a factor of 6.4.
LINEAR_HZ_PER_MEL = 200.0 / 3.0
BREAK_HZ = 1000.0
BREAK_MEL = BREAK_HZ / LINEAR_HZ_PER_MEL
LOG_STEP = np.log(6.4) / 27.0

SCALES = ("htk", "slaney")


def hz_to_mel(frequency: ArrayLike, *, scale: str = "slaney") -> Array:
    """Returns mels of Hz: `hz_to_mel(1000)` is 15.0, or 999.99 with `scale="htk"`, 2595 log10(1 + f/700)."""
    _check_scale(scale)
    hz = np.asarray(frequency, dtype=np.float64)
    if scale == "htk":
        return np.asarray(2595.0 * np.log10(1.0 + hz / 700.0))
    above = BREAK_MEL + np.log(np.maximum(hz, BREAK_HZ) / BREAK_HZ) / LOG_STEP
    return np.where(hz < BREAK_HZ, hz / LINEAR_HZ_PER_MEL, above)


def mel_to_hz(mel: ArrayLike, *, scale: str = "slaney") -> Array:
    """Returns Hz of mels, the inverse of `hz_to_mel`."""
    _check_scale(scale)
    mels = np.asarray(mel, dtype=np.float64)
    if scale == "htk":
        return np.asarray(700.0 * (10.0 ** (mels / 2595.0) - 1.0))
    above = BREAK_HZ * np.exp(LOG_STEP * (np.maximum(mels, BREAK_MEL) - BREAK_MEL))
    return np.where(mels < BREAK_MEL, mels * LINEAR_HZ_PER_MEL, above)


def mel_filters(
    *,
    sample_rate: int,
    n_fft: int,
    n_mels: int = 80,
    f_min: float = 0.0,
    f_max: float | None = None,
    scale: str = "slaney",
    normalize: bool = True,
) -> Array:
    """Returns triangular filters, float64 of shape `(n_mels, 1 + n_fft // 2)`: `filters @ spectrum` is a mel spectrum.

    Filter i rises from corner i to corner i+1 and falls to corner i+2, where the `n_mels + 2` corners are equally
    spaced in mels from `f_min` to `f_max` Hz (half the sample rate by default). With `normalize` each has unit area
    in Hz (`2 / (corner[i+2] - corner[i])` at its peak); without, a peak of 1. Raises `DatasetError` for a range that
    is empty or beyond half the sample rate, and for filters so narrow that they hold no bin of the spectrum.
    """
    top = sample_rate / 2 if f_max is None else f_max
    if not 0 <= f_min < top <= sample_rate / 2:
        raise DatasetError(
            f"mel_filters needs 0 <= f_min < f_max <= {sample_rate / 2} Hz, half the sample rate; "
            f"got f_min={f_min}, f_max={top}"
        )
    bins = np.arange(1 + n_fft // 2) * (sample_rate / n_fft)
    bounds = hz_to_mel([f_min, top], scale=scale)
    corners = mel_to_hz(np.linspace(bounds[0], bounds[1], n_mels + 2), scale=scale)
    left, peak, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (bins - left) / (peak - left), (right - bins) / (right - peak)
    filters = np.maximum(0.0, np.minimum(rising, falling))
    empty = np.flatnonzero(~filters.any(axis=1))
    if len(empty):
        raise DatasetError(
            f"mel_filters: {len(empty)} of {n_mels} filters hold no bin of n_fft={n_fft} at {sample_rate} Hz, the "
            f"first is {empty[0]}; use fewer n_mels or a larger n_fft"
        )
    return np.asarray(filters * (2.0 / (right - left)) if normalize else filters)


def _check_scale(scale: str) -> None:
    if scale not in SCALES:
        raise DatasetError(f"mel scale should be one of: {', '.join(SCALES)}; got {scale!r}")
