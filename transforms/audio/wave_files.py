"""Reading and writing sound files."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from beam_pipes.errors import DatasetError
from beam_pipes.extras import require
from beam_pipes.transforms.audio.resampling import resample

Wave = np.ndarray[Any, np.dtype[np.float32]]


def read_wav(source: str | os.PathLike[str] | bytes | BinaryIO, *, sample_rate: int | None = None) -> tuple[Wave, int]:
    """Decodes a sound file to one channel of float32 in [-1, 1], and returns it with its sample rate in Hz.

    Args:
      source: a path, the bytes of a file, or an open binary file; WAV, FLAC, OGG and what else libsndfile reads.
      sample_rate: resample to this many Hz; the file's own rate by default.

    Several channels are averaged. Raises `DatasetError`, with the source, for what cannot be decoded or holds no
    sample, and `MissingExtraError` without the package soundfile.
    """
    soundfile = require("soundfile", purpose="read_wav")
    name = f"{len(source)} bytes" if isinstance(source, bytes) else str(source)
    try:
        samples, rate = soundfile.read(
            io.BytesIO(source) if isinstance(source, bytes) else source, dtype="float32", always_2d=True
        )
    except (RuntimeError, OSError) as error:  # soundfile's own errors are RuntimeErrors
        raise DatasetError(f"cannot decode sound from {name}: {error}", source=name) from error
    if not len(samples):
        raise DatasetError(f"the sound in {name} holds no sample", source=name)
    wave = samples.mean(axis=1, dtype=np.float32)
    if sample_rate is None or sample_rate == rate:
        return wave, int(rate)
    return resample(wave, int(rate), sample_rate).astype(np.float32), sample_rate


def write_wav(path: str | os.PathLike[str], wave: np.ndarray[Any, Any], sample_rate: int) -> None:
    """Writes one channel of samples in [-1, 1] as 16-bit PCM; louder ones are an error, as they would be clipped."""
    soundfile = require("soundfile", purpose="write_wav")
    peak = float(np.max(np.abs(wave), initial=0.0))
    if not peak <= 1.0:
        raise DatasetError(f"write_wav needs samples between -1 and 1 for {Path(path).name}, got a peak of {peak}")
    soundfile.write(os.fspath(path), wave, sample_rate, subtype="PCM_16")
