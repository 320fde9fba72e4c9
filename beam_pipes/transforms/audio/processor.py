"""From sound files to mel spectrograms, with the options in one object (`AudioProcessor`).

Normalizers map magnitudes to the range used for training, and back.
"""

from __future__ import annotations

import dataclasses
import os
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import DatasetError
from beam_pipes.transforms.audio.sound_files import Wave, read_wav, write_wav
from beam_pipes.transforms.audio.spectra import StftOptions, istft, mel_filters, stft

Spectrogram = npt.NDArray[np.float32]

# The loudest sample after normalisation; just below 1, so that 16-bit PCM holds it.
PEAK = 0.999


class AudioProcessor:
    """Reads sound and computes spectrograms; picklable, and safe to share between threads.

        processor = AudioProcessor(sample_rate=22050, n_fft=1024, win_length=1024, hop_length=256, f_max=8000)
        mel = processor.mel_spectrogram(processor.read_wav("clip.wav"))  → float32 (80, 1 + samples // 256)

    Args:
      sample_rate: Hz; files of another rate are resampled.
      n_fft, win_length, hop_length: samples per frame, per window, and between frames.
      n_mels: bands of a mel spectrogram.
      f_min, f_max: Hz, the range of the bands; up to half the sample rate by default.
      center, pad_mode: see `StftOptions`.
      normalize: scale each wave that is read to a peak of 0.999; silence stays silence.
    """

    def __init__(
        self,
        sample_rate: int,
        n_fft: int,
        win_length: int | None = None,
        hop_length: int | None = None,
        n_mels: int = 80,
        f_min: float = 0.0,
        f_max: float | None = None,
        *,
        center: bool = True,
        pad_mode: str = "reflect",
        normalize: bool = True,
    ) -> None:
        self.sample_rate = sample_rate
        self.normalize = normalize
        self.options = StftOptions(
            n_fft=n_fft, win_length=win_length, hop_length=hop_length, center=center, pad_mode=pad_mode
        )
        self.mel_filter = mel_filters(sample_rate=sample_rate, n_fft=n_fft, n_mels=n_mels, f_min=f_min, f_max=f_max)

    def read_wav(self, source: str | os.PathLike[str] | bytes | BinaryIO) -> Wave:
        """Returns one channel at `sample_rate`, float32; see `beam_pipes.transforms.audio.read_wav`."""
        wave, _ = read_wav(source, sample_rate=self.sample_rate)
        peak = float(np.max(np.abs(wave)))
        return wave / np.float32(peak / PEAK) if self.normalize and peak > 0 else wave

    def write_wav(self, path: str | os.PathLike[str], wave: np.ndarray) -> None:
        """Writes samples in [-1, 1] as 16-bit PCM at `sample_rate`."""
        write_wav(path, wave, self.sample_rate)

    def stft(self, wave: np.ndarray) -> npt.NDArray[np.complex128]:
        """Returns complex128 of shape (1 + n_fft // 2, frames)."""
        return stft(wave, self.options)

    def istft(self, spectrum: np.ndarray, *, length: int | None = None) -> np.ndarray:
        """Returns the wave of a complex spectrum, float64."""
        return istft(spectrum, self.options, length=length)

    def spectrogram(self, wave: np.ndarray) -> Spectrogram:
        """Returns magnitudes, float32 of shape (1 + n_fft // 2, frames)."""
        magnitudes: Spectrogram = np.abs(self.stft(wave)).astype(np.float32)
        return magnitudes

    def mel_spectrogram(self, wave: np.ndarray) -> Spectrogram:
        """Returns magnitudes in mel bands, float32 of shape (n_mels, frames)."""
        mel: Spectrogram = (self.mel_filter @ np.abs(self.stft(wave))).astype(np.float32)
        return mel


Array = np.ndarray


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
        scaled: Array = np.clip((decibels + 100.0) / 100.0, 0.0, 1.0)
        return scaled

    def inverse(self, normalized: Array) -> Array:
        """Returns magnitudes of scaled decibels."""
        return np.asarray(10.0 ** ((np.clip(normalized, 0.0, 1.0) * 100.0 - 100.0 + 20.0) / 20.0))
