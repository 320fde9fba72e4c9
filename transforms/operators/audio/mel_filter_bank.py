"""`fn.mel_filter_bank`: a spectrogram on the mel scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipes.graph.argument import Constant
from beam_pipes.graph.operator import Operator
from beam_pipes.graph.tensor_spec import TensorSpec
from beam_pipes.transforms.audio.mel import SCALES, hz_to_mel, mel_to_hz
from beam_pipes.transforms.operators.generic.conversion import cast_to, placed_like


class MelFilterBank(Operator):
    """Sums of the frequencies of a spectrogram under triangular filters, equally wide in mels: (bins, …) → (nfilter,
    …).

    `mel_filter_bank(fn.spectrogram(wave, nfft=512), nfilter=80, sample_rate=16000)` → (80, frames) float32

    With `normalize` each filter has unit area in Hz. A filter that holds no bin gives zeros.
    """

    inputs = ("spectrogram",)
    devices = ("cpu", "gpu")
    version = "2"
    nfilter = Constant("int", default=128, doc="how many filters")
    sample_rate = Constant("float", default=44100.0, doc="of the wave, in Hz")
    freq_low = Constant("float", default=0.0, doc="where the first filter begins, in Hz")
    freq_high = Constant("float", default=0.0, doc="where the last one ends, in Hz; 0 is half the sample rate")
    normalize = Constant("bool", default=True, doc="whether filters have unit area, instead of a peak of 1")
    mel_formula = Constant("str", default="slaney", doc="'slaney' or 'htk'")

    def check(self) -> None:
        if self.mel_formula not in SCALES:
            raise self.argument_error(f"mel_formula should be one of {', '.join(SCALES)}, got {self.mel_formula!r}.")
        if self.nfilter < 1:
            raise self.argument_error(f"nfilter should be at least 1, got {self.nfilter}.")
        if not 0 <= self.freq_low < self._top <= self.sample_rate / 2:
            raise self.argument_error(
                f"expected 0 <= freq_low < freq_high <= {self.sample_rate / 2:g}, half the sample rate; got "
                f"{self.freq_low:g} and {self._top:g}."
            )

    @property
    def _top(self) -> float:
        return float(self.freq_high or self.sample_rate / 2)

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        spec = inputs[0]
        if spec.ndim == 0:
            raise self.refuse(f"expected spectrograms, got {spec}")
        self._layout = spec.layout
        if spec.shape is None:
            return TensorSpec.of("float32", None, spec.layout)
        shape = list(spec.shape)
        shape[self._axis(len(shape))] = self.nfilter
        return TensorSpec.of("float32", tuple(shape), spec.layout)

    def _axis(self, ndim: int) -> int:
        """Where the frequencies are: the axis `f` of the layout, else the last but one."""
        if "f" in self._layout:
            return self._layout.index("f")
        return max(ndim - 2, 0)

    def filters(self, bins: int) -> Any:
        """(nfilter, bins) float32: the weight of each bin in each filter."""
        frequencies = np.arange(bins) * (self.sample_rate / (2 * (bins - 1))) if bins > 1 else np.zeros(1)
        ends = hz_to_mel([self.freq_low, self._top], scale=self.mel_formula)
        corners = mel_to_hz(np.linspace(ends[0], ends[1], self.nfilter + 2), scale=self.mel_formula)
        left, peak, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
        rising, falling = (frequencies - left) / (peak - left), (right - frequencies) / (right - peak)
        made = np.maximum(0.0, np.minimum(rising, falling))
        return (made * (2.0 / (right - left)) if self.normalize else made).astype(np.float32)

    def run_arrays(self, xp: Any, spectrogram: Any) -> Any:
        axis = 1 + self._axis(spectrogram.ndim - 1)
        table = self.filters(spectrogram.shape[axis])
        values = cast_to(xp, spectrogram, np.dtype("float32"))
        # A product for each sample, not one for all: BLAS adds in another order for another number of rows.
        moved = xp.moveaxis(values, axis, -1)
        rows = xp.reshape(moved, (moved.shape[0], -1, moved.shape[-1]))
        made = xp.matmul(rows, placed_like(xp, np.ascontiguousarray(table.T), values))
        return xp.moveaxis(xp.reshape(made, (*moved.shape[:-1], self.nfilter)), -1, axis)
