"""Spectra in NumPy: the short-time Fourier transform and its inverse, the mel scale and its filter bank, resampling."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from beam_pipes.checks import choice, integer
from beam_pipes.errors import DatasetError
from beam_pipes.extras import require

PAD_MODES = ("constant", "edge", "reflect", "symmetric")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StftOptions:
    """How a wave is cut into frames and windowed.

    A frame has `n_fft` samples; the periodic Hann window spans its middle `win_length` (all by default), and frames are
    `hop_length` samples apart (a quarter of the window by default). With `center`, frame t is centred at sample
    `t * hop_length`, and the wave is extended at its ends by `n_fft // 2` samples by `pad_mode` (of `numpy.pad`);
    without it, frame t starts there.
    """

    n_fft: int
    win_length: int | None = None
    hop_length: int | None = None
    center: bool = True
    pad_mode: str = "reflect"

    def __post_init__(self) -> None:
        for name in ("n_fft", "win_length", "hop_length"):
            value = getattr(self, name)
            if value is not None or name == "n_fft":
                object.__setattr__(self, name, integer(value, least=1, what=f"STFT: {name}", error=DatasetError))
        if self.window_size > self.n_fft:
            raise DatasetError(f"STFT needs win_length <= n_fft={self.n_fft}, got {self.win_length}")
        choice(self.pad_mode, of=PAD_MODES, what="STFT: pad_mode", error=DatasetError)

    @property
    def window_size(self) -> int:
        """Samples under the window."""
        return self.n_fft if self.win_length is None else self.win_length

    @property
    def hop(self) -> int:
        """Samples between frames."""
        return max(1, self.window_size // 4) if self.hop_length is None else self.hop_length

    def window(self) -> npt.NDArray[np.float64]:
        """Returns the window of `n_fft` weights: periodic Hann, 0.5 - 0.5 cos(2πk/win_length), zeros around it."""
        size = self.window_size
        hann = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(size) / size)
        left = (self.n_fft - size) // 2
        return np.pad(hann, (left, self.n_fft - size - left))

    def num_frames(self, num_samples: int) -> int:
        """Returns how many frames a wave of `num_samples` has: `1 + num_samples // hop` with `center`."""
        padded = num_samples + 2 * (self.n_fft // 2) if self.center else num_samples
        return 1 + (padded - self.n_fft) // self.hop


def stft(wave: np.ndarray, options: StftOptions) -> npt.NDArray[np.complex128]:
    """Returns the spectrum of each frame, complex128 of shape `(1 + n_fft // 2, frames)`.

    Row k is the frequency `k * sample_rate / n_fft`. Raises `DatasetError` for a wave that is not 1-D or too short to
    be extended or framed.
    """
    samples = np.asarray(wave, dtype=np.float64)
    if samples.ndim != 1:
        raise DatasetError(f"stft needs one channel of samples, shape (T,), got shape {samples.shape}")
    reach = options.n_fft // 2 if options.center else 0
    needed = {"constant": 0, "edge": 1, "symmetric": reach}.get(options.pad_mode, reach + 1)
    if len(samples) < (needed if options.center else options.n_fft):
        least = needed if options.center else options.n_fft
        raise DatasetError(
            f"stft needs at least {least} samples with n_fft={options.n_fft}, center={options.center}, "
            f"pad_mode={options.pad_mode!r}; got {len(samples)}. Pad the wave, or leave it out"
        )
    padded = np.pad(samples, reach, mode=options.pad_mode)  # type: ignore[call-overload]
    frames = np.lib.stride_tricks.sliding_window_view(padded, options.n_fft)[:: options.hop]
    spectrum: npt.NDArray[np.complex128] = np.fft.rfft(frames * options.window(), axis=-1).T
    return spectrum


def istft(spectrum: np.ndarray, options: StftOptions, *, length: int | None = None) -> npt.NDArray[np.float64]:
    """Returns the wave whose `stft` is `spectrum`: weighted overlap-add (Griffin and Lim, 1984).

    If the squared windows of neighbouring frames leave no gap, `istft(stft(wave, options), options,
    length=len(wave))` is the wave. `length` cuts or zero-fills the result; by default the last whole hop ends it.
    """
    frames = np.fft.irfft(np.asarray(spectrum).T, n=options.n_fft, axis=-1)
    window = options.window()
    total = options.n_fft + options.hop * (len(frames) - 1)
    wave, weight = np.zeros(total), np.zeros(total)
    for number, frame in enumerate(frames * window):
        start = number * options.hop
        wave[start : start + options.n_fft] += frame
        weight[start : start + options.n_fft] += window**2
    heard = weight > np.finfo(np.float64).tiny
    wave[heard] /= weight[heard]
    reach = options.n_fft // 2 if options.center else 0
    wave = wave[reach : len(wave) - reach] if length is None else wave[reach:]
    return wave if length is None else np.pad(wave[:length], (0, max(0, length - len(wave))))


Array = npt.NDArray[np.float64]

# Slaney's scale (Auditory Toolbox, 1998): linear to 1000 Hz at 200/3 Hz per mel, then 27 mels for a factor of 6.4.
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
    is empty or beyond half the sample rate, and for filters too narrow for any bin of the spectrum.
    """
    top = sample_rate / 2 if f_max is None else f_max
    if not 0 <= f_min < top <= sample_rate / 2:
        raise DatasetError(
            f"mel_filters needs 0 <= f_min < f_max <= {sample_rate / 2} Hz, half the sample rate; "
            f"got f_min={f_min}, f_max={top}"
        )
    bins = np.arange(1 + n_fft // 2) * (sample_rate / n_fft)
    filters = triangles(bins, f_min=f_min, f_max=top, n_mels=n_mels, scale=scale, normalize=normalize)
    empty = np.flatnonzero(~filters.any(axis=1))
    if len(empty):
        raise DatasetError(
            f"mel_filters: {len(empty)} of {n_mels} filters hold no bin of n_fft={n_fft} at {sample_rate} Hz, the "
            f"first is {empty[0]}; use fewer n_mels or a larger n_fft"
        )
    return filters


def triangles(
    frequencies: npt.NDArray[np.floating],
    *,
    f_min: float,
    f_max: float,
    n_mels: int,
    scale: str = "slaney",
    normalize: bool = True,
) -> Array:
    """Returns the weights of `mel_filters` at any frequencies in Hz: float64 of shape `(n_mels, len(frequencies))`.

    A filter without any of the frequencies is all zeros. DALI keeps such a filter, librosa warns about it;
    `mel_filters` refuses it, because a model would learn from a band that is always silent.
    """
    bounds = hz_to_mel([f_min, f_max], scale=scale)
    corners = mel_to_hz(np.linspace(bounds[0], bounds[1], n_mels + 2), scale=scale)
    left, peak, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (frequencies - left) / (peak - left), (right - frequencies) / (right - peak)
    filters = np.maximum(0.0, np.minimum(rising, falling))
    return np.asarray(filters * (2.0 / (right - left)) if normalize else filters)


def _check_scale(scale: str) -> None:
    choice(scale, of=SCALES, what="mel scale", error=DatasetError)


Samples = npt.NDArray[np.float64]


def resample(wave: np.ndarray, from_rate: int, to_rate: int) -> Samples:
    """Returns `wave` at `to_rate` Hz: `ceil(len * to_rate / from_rate)` samples in float64, by soxr at its best.

    Beyond its ends a wave counts as silence. A constant stays constant away from the ends; frequencies up to 0.9 of the
    lower Nyquist frequency are kept, those above it are removed. Raises `MissingExtraError` without the package soxr.
    """
    for name, rate in (("from_rate", from_rate), ("to_rate", to_rate)):
        integer(rate, least=1, what=f"resample: {name}, in Hz,", error=DatasetError)
    samples: Samples = np.asarray(wave, dtype=np.float64)
    if from_rate == to_rate or not len(samples):
        return np.array(samples)
    size = -(-len(samples) * to_rate // from_rate)
    # soxr rounds the length down, so silence longer than the missing sample is appended.
    silence = np.zeros(1 + -(-from_rate // to_rate))
    made: Samples = require("soxr", purpose="resampling").resample(
        np.append(samples, silence), from_rate, to_rate, quality="VHQ"
    )
    return made[:size]
