"""`fn.decoders.audio`: the bytes of sound files as samples."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from beam_pipes.extras import require
from beam_pipes.graph.argument import Argument, Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.audio.resampling import resample
from beam_pipes.transforms.operators.generic.conversion import saturated


class Audio(Operator):
    """Decodes WAV, FLAC and OGG files: bytes → (samples, channels), and the sample rate in Hz (float32).

    `decoders.audio(files, sample_rate=16000, downmix=True)` → float32 (samples,) in [-1, 1], 16000.0

    Integer dtypes have their full range: 1.0 becomes 32767 as int16.
    """

    inputs = ("data",)
    num_outputs = 2
    sample_rate = Argument("float", default=0.0, doc="resample to this many Hz; 0 keeps those of the file")
    quality = Constant("float", default=50.0, doc="taken so that graphs move over; resampling has one quality here")
    downmix = Constant("bool", default=False, doc="whether channels are averaged to one, without an axis")
    dtype = Constant("dtype", default="float32", doc="the dtype of the samples: float32, int16 or int32")

    def check(self) -> None:
        if self.dtype.name not in ("float32", "int16", "int32"):
            raise self.argument_error(f"dtype should be float32, int16 or int32, got {self.dtype}.")

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        spec = inputs[0]
        if (spec.dtype is not None and spec.dtype != np.uint8) or spec.ndim not in (1, None):
            raise self.refuse(f"expected the bytes of files, uint8[·], got {spec}")
        wave = TensorSpec(self.dtype, (None,), "t") if self.downmix else TensorSpec(self.dtype, (None, None), "tc")
        return [wave, TensorSpec.of("float32", ())]

    def run(self, sample: Any, data: Any, *, sample_rate: float) -> tuple[Any, Any]:
        soundfile = require("soundfile", purpose="fn.decoders.audio")
        try:
            wave, rate = soundfile.read(io.BytesIO(data.tobytes()), dtype="float32", always_2d=True)
        except (RuntimeError, OSError) as error:  # soundfile's own errors are RuntimeErrors
            raise ValueError(f"the sound file of {data.size} bytes cannot be decoded: {error}") from error
        if not len(wave):
            raise ValueError(f"the sound file of {data.size} bytes holds no sample")
        if self.downmix:
            wave = wave.mean(axis=1, dtype=np.float32)
        if sample_rate < 0:
            raise ValueError(f"sample_rate should be a number of Hz, got {sample_rate}")
        if sample_rate and sample_rate != rate:
            if self.downmix:
                wave = resample(wave, int(rate), round(sample_rate))
            else:
                channels = [resample(wave[:, index], int(rate), round(sample_rate)) for index in range(wave.shape[1])]
                wave = np.stack(channels, axis=1)
            rate = sample_rate
        wave = wave.astype(np.float32, copy=False)
        if self.dtype.kind == "i":
            wave = saturated(np, wave.astype(np.float64) * float(np.iinfo(self.dtype).max), self.dtype)
        return wave, np.float32(rate)
