"""Changing the sample rate, in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError

Samples = np.ndarray[Any, np.dtype[np.float64]]

# Zero crossings of the sinc on each side, and the Kaiser window's shape: 80 dB of stop-band attenuation.
ZERO_CROSSINGS = 32
KAISER_BETA = 8.0
# The band kept, as a share of the lower Nyquist frequency; the rest is the filter's slope.
ROLLOFF = 0.95


def resample(wave: np.ndarray[Any, Any], from_rate: int, to_rate: int) -> Samples:
    """Returns `wave` at `to_rate` Hz: `ceil(len * to_rate / from_rate)` samples in float64.

    Band-limited interpolation with a Kaiser-windowed sinc (Smith and Gossett, "A flexible sampling-rate conversion
    method", 1984), in its polyphase form: with rates in lowest terms L/M there are L sets of filter taps. A constant
    stays that constant away from the ends; frequencies above 0.95 of the new Nyquist frequency are removed.
    """
    for name, rate in (("from_rate", from_rate), ("to_rate", to_rate)):
        if isinstance(rate, bool) or not isinstance(rate, (int, np.integer)) or rate < 1:
            raise DatasetError(f"resample needs {name} to be a whole number of Hz of at least 1, got {rate!r}")
    divisor = math.gcd(from_rate, to_rate)
    up, down = to_rate // divisor, from_rate // divisor
    samples: Samples = np.asarray(wave, dtype=np.float64)
    if up == down:
        return np.array(samples)
    taps = _taps(up, down)
    reach = taps.shape[1] // 2
    padded = np.pad(samples, (reach, reach))
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps.shape[1])
    size = -(-len(samples) * up // down)
    result = np.empty(size)
    for start in range(0, size, 1 << 14):  # in pieces: the windows of a piece are copied
        places = np.arange(start, min(start + (1 << 14), size), dtype=np.int64) * down
        result[start : start + len(places)] = np.einsum("nk,nk->n", windows[places // up], taps[places % up])
    return result


def _taps(up: int, down: int) -> Samples:
    """Returns the filter of each of `up` phases: weights of the input samples from -reach to reach around it."""
    cutoff = ROLLOFF * min(1.0, up / down)
    reach = math.ceil(ZERO_CROSSINGS / cutoff)
    distance = np.arange(-reach, reach + 1)[None, :] - np.arange(up)[:, None] / up
    inside = np.clip(1.0 - (distance * cutoff / ZERO_CROSSINGS) ** 2, 0.0, None)
    window = np.where(inside > 0, np.i0(KAISER_BETA * np.sqrt(inside)) / np.i0(KAISER_BETA), 0.0)
    taps = cutoff * np.sinc(cutoff * distance) * window
    normalised: Samples = taps / taps.sum(axis=1, keepdims=True)
    return normalised
