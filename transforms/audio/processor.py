"""From sound files to mel spectrograms, with the options held in one object."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import numpy as np

from beam_pipes.transforms.audio.mel import mel_filters
from beam_pipes.transforms.audio.stft import StftOptions, istft, stft
from beam_pipes.transforms.audio.wave_files import Wave, read_wav, write_wav

Spectrogram = np.ndarray[Any, np.dtype[np.float32]]

# The loudest sample after normalisation; just below 1, so that 16-bit PCM holds it.
PEAK = 0.999


class AudioProcessor:
    """Reads sound and computes spectrograms; picklable, and safe to share between threads.

        processor = AudioProcessor(sample_rate=22050, n_fft=1024, win_length=1024, hop_length=256, f_max=8000)
        mel = processor.mel_spectrogram(processor.read_wav("clip.wav"))  → float32 (80, 1 + samples // 256)

    Args:
      sample_rate: Hz; files of another rate are resampled.
      n_fft, win_length, hop_length: samples a frame, under the window, and between frames.
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

    def write_wav(self, path: str | os.PathLike[str], wave: np.ndarray[Any, Any]) -> None:
        """Writes samples in [-1, 1] as 16-bit PCM at `sample_rate`."""
        write_wav(path, wave, self.sample_rate)

    def stft(self, wave: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.complex128]]:
        """Returns complex128 of shape (1 + n_fft // 2, frames)."""
        return stft(wave, self.options)

    def istft(self, spectrum: np.ndarray[Any, Any], *, length: int | None = None) -> np.ndarray[Any, Any]:
        """Returns the wave of a complex spectrum, float64."""
        return istft(spectrum, self.options, length=length)

    def spectrogram(self, wave: np.ndarray[Any, Any]) -> Spectrogram:
        """Returns magnitudes, float32 of shape (1 + n_fft // 2, frames)."""
        magnitudes: Spectrogram = np.abs(self.stft(wave)).astype(np.float32)
        return magnitudes

    def mel_spectrogram(self, wave: np.ndarray[Any, Any]) -> Spectrogram:
        """Returns magnitudes in mel bands, float32 of shape (n_mels, frames)."""
        mel: Spectrogram = (self.mel_filter @ np.abs(self.stft(wave))).astype(np.float32)
        return mel
