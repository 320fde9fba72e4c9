"""The short-time Fourier transform and its inverse, in NumPy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from beam_pipes.errors import DatasetError

PAD_MODES = ("constant", "edge", "reflect", "symmetric")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StftOptions:
    """How a wave is cut into frames and windowed.

    `n_fft` samples a frame, of which the periodic Hann window spans the middle `win_length` (all by default), a frame
    every `hop_length` samples (a quarter of the window by default). With `center`, frame t is centred at sample
    `t * hop_length`, and the wave is extended at its ends by `n_fft // 2` samples as `pad_mode` says (of
    `numpy.pad`); without it, frame t starts there.
    """

    n_fft: int
    win_length: int | None = None
    hop_length: int | None = None
    center: bool = True
    pad_mode: str = "reflect"

    def __post_init__(self) -> None:
        for name in ("n_fft", "win_length", "hop_length"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise DatasetError(f"STFT needs {name} to be an int of at least 1, got {value!r}")
        if self.window_size > self.n_fft:
            raise DatasetError(f"STFT needs win_length <= n_fft={self.n_fft}, got {self.win_length}")
        if self.pad_mode not in PAD_MODES:
            raise DatasetError(f"STFT needs pad_mode to be one of: {', '.join(PAD_MODES)}; got {self.pad_mode!r}")

    @property
    def window_size(self) -> int:
        """Samples under the window."""
        return self.n_fft if self.win_length is None else self.win_length

    @property
    def hop(self) -> int:
        """Samples between frames."""
        return max(1, self.window_size // 4) if self.hop_length is None else self.hop_length

    def window(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Returns the window of `n_fft` weights: periodic Hann, 0.5 - 0.5 cos(2πk/win_length), zeros around it."""
        size = self.window_size
        hann = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(size) / size)
        left = (self.n_fft - size) // 2
        return np.pad(hann, (left, self.n_fft - size - left))

    def num_frames(self, num_samples: int) -> int:
        """Returns how many frames a wave of `num_samples` has: `1 + num_samples // hop` with `center`."""
        padded = num_samples + 2 * (self.n_fft // 2) if self.center else num_samples
        return 1 + (padded - self.n_fft) // self.hop


def stft(wave: np.ndarray[Any, Any], options: StftOptions) -> np.ndarray[Any, np.dtype[np.complex128]]:
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
    spectrum: np.ndarray[Any, np.dtype[np.complex128]] = np.fft.rfft(frames * options.window(), axis=-1).T
    return spectrum


def istft(
    spectrum: np.ndarray[Any, Any], options: StftOptions, *, length: int | None = None
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns the wave whose `stft` is `spectrum`: weighted overlap-add (Griffin and Lim, 1984).

    Where the squared windows of neighbouring frames leave no gap, `istft(stft(wave, options), options,
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
