"""`fn.spectrogram`: the spectrum of each frame of a wave."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.operators.generic.conversion import cast_to, placed_like

LAYOUTS = ("ft", "tf")


class Spectrogram(Operator):
    """Power (or magnitude, `power=1`) of the spectrum of each frame: (samples,) → (nfft // 2 + 1, frames) float32.

    A frame of `window_length` samples begins every `window_step`; with `center_windows` frame t is centred at sample
    `t * window_step`, and what lies beyond the ends of the wave is its mirror image (`reflect_padding`) or silence. The
    window is Hann's, `sin²(π (i + 0.5) / window_length)`, or `window_fn`, and zeros follow it up to `nfft` points.
    """

    inputs = ("wave",)
    devices = ("cpu", "gpu")
    nfft = Constant("int", default=None, doc="points of the transform; the length of the window by default")
    window_length = Constant("int", default=512, doc="samples of a frame")
    window_step = Constant("int", default=256, doc="samples from one frame to the next")
    window_fn = Constant("floats", default=None, doc="the weights of the window; Hann's by default")
    power = Constant("int", default=2, doc="2 for the power of the spectrum, 1 for its magnitude")
    center_windows = Constant("bool", default=True, doc="whether the wave is extended so that frames are centred")
    reflect_padding = Constant("bool", default=True, doc="whether it is extended by its mirror image, or by zeros")
    layout = Constant("str", default="ft", doc="'ft': frequencies, then frames; 'tf': frames, then frequencies")

    def check(self) -> None:
        if self.power not in (1, 2):
            raise self.argument_error(f"power should be 1 or 2, got {self.power}.")
        if self.layout not in LAYOUTS:
            raise self.argument_error(f"layout should be 'ft' or 'tf', got {self.layout!r}.")
        if self.window_length < 1 or self.window_step < 1:
            raise self.argument_error(
                f"window_length and window_step should be at least 1, got {self.window_length} and {self.window_step}."
            )
        if self.window_fn is not None and len(self.window_fn) != self.window_length:
            raise self.argument_error(
                f"window_fn should hold window_length={self.window_length} weights, got {len(self.window_fn)}."
            )
        if self.nfft is not None and self.nfft < self.window_length:
            raise self.argument_error(f"nfft should be at least window_length={self.window_length}, got {self.nfft}.")

    @property
    def _points(self) -> int:
        return int(self.window_length if self.nfft is None else self.nfft)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        if spec.ndim not in (1, None):
            raise self.refuse(f"expected waves of one channel, (samples,), got {spec}")
        length = spec.shape[0] if spec.shape is not None else None
        frames = None if length is None else max(0, self._num_frames(length))
        bins = self._points // 2 + 1
        return TensorSpec.of("float32", (bins, frames) if self.layout == "ft" else (frames, bins), self.layout)

    def _num_frames(self, length: int) -> int:
        step = int(self.window_step)
        return 1 + (length if self.center_windows else length - int(self.window_length)) // step

    def _places(self, length: int) -> tuple[Any, Any]:
        """(frames, window_length): which sample is where, and whether it lies within the wave."""
        frames = self._num_frames(length)
        if length < 1 or frames < 1:
            raise ValueError(f"a wave of {length} samples has no frame of window_length={self.window_length}")
        start = -(self.window_length // 2) if self.center_windows else 0
        places = start + np.arange(frames)[:, None] * self.window_step + np.arange(self.window_length)[None, :]
        inside = (places >= 0) & (places < length)
        if length == 1:
            return np.zeros_like(places), inside
        period = 2 * (length - 1)
        mirrored = np.abs((places + length - 1) % period - (length - 1))
        return mirrored, inside

    def _weights(self) -> Any:
        if self.window_fn is not None:
            return self.window_fn.astype(np.float32)
        ramp = (np.arange(self.window_length) + 0.5) / self.window_length
        return (np.sin(np.pi * ramp) ** 2).astype(np.float32)

    def run_arrays(self, xp: Any, waves: Any) -> Any:
        places, inside = self._places(waves.shape[1])
        weights = self._weights()[None, :]
        if not self.reflect_padding:
            weights = weights * inside

        def constant(array: Any) -> Any:
            return placed_like(xp, array, waves)

        values = cast_to(xp, waves, np.dtype("float32"))
        frames = xp.reshape(xp.take(values, constant(places.reshape(-1)), axis=1), (waves.shape[0], *places.shape))
        frames = frames * constant(weights.astype(np.float32))
        spectrum = xp.fft.rfft(frames, n=self._points, axis=-1)
        power = xp.real(spectrum) ** 2 + xp.imag(spectrum) ** 2
        made = cast_to(xp, power if self.power == 2 else xp.sqrt(power), np.dtype("float32"))
        return made if self.layout == "tf" else xp.permute_dims(made, (0, 2, 1))
