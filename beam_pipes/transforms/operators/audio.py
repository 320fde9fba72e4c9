"""Operators over sound: `decoders.audio`, `audio_resample`, `preemphasis_filter` and `nonsilent_region` of waves;
`spectrogram`, `power_spectrum`, `mel_filter_bank`, `to_decibels` and `mfcc`.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from beam_pipes.graph.operator import Argument, Constant, Operator
from beam_pipes.graph.samples import Sample
from beam_pipes.graph.spec import TensorSpec
from beam_pipes.graph.tensors import Array, Namespace, Value
from beam_pipes.transforms.audio.sound_files import whole
from beam_pipes.transforms.audio.spectra import SCALES, triangles
from beam_pipes.transforms.operators.arrays import Mapped, cast_to, opencv, placed_like, saturated, scratch


class MelFilterBank(Operator):
    """Sums the frequencies of a spectrogram under triangular filters, equally wide in mels: (bins, …) → (nfilter,
    …).

    `mel_filter_bank(fn.spectrogram(wave, nfft=512), nfilter=80, sample_rate=16000)` → (80, frames) float32

    With `normalize` each filter has unit area in Hz. A filter without a bin gives zeros.
    """

    inputs = ("spectrogram",)
    devices = ("cpu", "gpu")
    version = "2"
    nfilter = Constant("int", default=128, doc="number of filters", least=1)
    sample_rate = Constant("float", default=44100.0, doc="of the wave, in Hz")
    freq_low = Constant("float", default=0.0, doc="start of the first filter, in Hz")
    freq_high = Constant("float", default=0.0, doc="end of the last filter, in Hz; 0 is half the sample rate")
    normalize = Constant("bool", default=True, doc="whether filters have unit area, instead of a peak of 1")
    mel_formula = Constant("str", default="slaney", doc="the definition of mels", choices=SCALES)

    def check(self) -> None:
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
        self.expect(spec, "spectrograms", least_rank=1)
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

    def filters(self, bins: int) -> npt.NDArray[np.float32]:
        """(nfilter, bins) float32: the weight of each bin in each filter."""
        return _filters(
            bins, self.sample_rate, self.freq_low, self._top, self.nfilter, self.mel_formula, self.normalize
        )

    def run_arrays(self, xp: Namespace, spectrogram: Value) -> Value:
        axis = 1 + self._axis(spectrogram.ndim - 1)
        table = self.filters(spectrogram.shape[axis])
        values = cast_to(xp, spectrogram, np.dtype("float32"))
        # A product for each sample, not one for all: the order of BLAS's additions depends on the number of rows.
        moved = xp.moveaxis(values, axis, -1)
        rows = xp.reshape(moved, (moved.shape[0], -1, moved.shape[-1]))
        if xp is np:
            made: Value = np.zeros((*rows.shape[:2], self.nfilter), np.float32)
            for frames, out in zip(rows, made, strict=True):
                _multiply_bands(frames, table, out)
        else:
            made = xp.matmul(rows, placed_like(xp, np.ascontiguousarray(table.T), values))
        return xp.moveaxis(xp.reshape(made, (*moved.shape[:-1], self.nfilter)), -1, axis)


# Filters per product, over the bins that any of them holds; and the number of multiplications above which OpenBLAS uses
# its own threads, which would compete with ours.
_FILTERS_AT_ONCE, _MOST_PRODUCTS = 16, 1 << 18


def _multiply_bands(frames: Array, table: Array, out: Array) -> None:
    """`out = frames @ table.T`, without most of the zeros of the table."""
    for at in range(0, len(table), _FILTERS_AT_ONCE):
        some = table[at : at + _FILTERS_AT_ONCE]
        held = np.flatnonzero(some.any(axis=0))
        if len(held):
            bins = slice(held[0], held[-1] + 1)
            weights = np.ascontiguousarray(some[:, bins].T)
            step = max(1, _MOST_PRODUCTS // weights.size)
            for start in range(0, len(frames), step):
                made = out[start : start + step, at : at + len(some)]
                np.matmul(frames[start : start + step, bins], weights, out=made)


@functools.lru_cache(maxsize=16)
def _filters(
    bins: int, sample_rate: float, low: float, high: float, count: int, scale: str, normalize: bool
) -> npt.NDArray[np.float32]:
    frequencies = np.arange(bins) * (sample_rate / (2 * (bins - 1))) if bins > 1 else np.zeros(1)
    found = triangles(frequencies, f_min=low, f_max=high, n_mels=count, scale=scale, normalize=normalize)
    return found.astype(np.float32)


LAYOUTS = ("ft", "tf")


class Spectrogram(Operator):
    """Power (or magnitude, `power=1`) of the spectrum of each frame: (samples,) → (nfft // 2 + 1, frames) float32.

    A frame of `window_length` samples begins every `window_step`; with `center_windows` frame t is centred at sample
    `t * window_step`, and samples beyond the ends of the wave are its mirror image (`reflect_padding`) or silence. The
    window is Hann's, `sin²(π (i + 0.5) / window_length)`, or `window_fn`, and zeros follow it up to `nfft` points.
    """

    inputs = ("wave",)
    devices = ("cpu", "gpu")
    nfft = Constant("int", default=None, doc="points of the transform; the length of the window by default")
    window_length = Constant("int", default=512, doc="samples of a frame", least=1)
    window_step = Constant("int", default=256, doc="samples from one frame to the next", least=1)
    window_fn = Constant("floats", default=None, doc="the weights of the window; Hann's by default")
    power = Constant("int", default=2, doc="2 for the power of the spectrum, 1 for its magnitude")
    center_windows = Constant("bool", default=True, doc="whether the wave is extended so that frames are centred")
    reflect_padding = Constant("bool", default=True, doc="whether it is extended by its mirror image, or by zeros")
    layout = Constant(
        "str", default="ft", doc="'ft': frequencies, then frames; 'tf': frames, then frequencies", choices=LAYOUTS
    )

    def check(self) -> None:
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
        self.expect(spec, "waves of one channel, (samples,)", ranks=[1])
        length = spec.shape[0] if spec.shape is not None else None
        frames = None if length is None else max(0, self._num_frames(length))
        bins = self._points // 2 + 1
        return TensorSpec.of("float32", (bins, frames) if self.layout == "ft" else (frames, bins), self.layout)

    def _num_frames(self, length: int) -> int:
        step = int(self.window_step)
        return 1 + (length if self.center_windows else length - int(self.window_length)) // step

    def _places(self, length: int) -> tuple[Array, Array]:
        """The sample of the wave at each place of the concatenated frames, and whether it is within the wave."""
        frames = self._num_frames(length)
        if length < 1 or frames < 1:
            raise ValueError(f"a wave of {length} samples has no frame of window_length={self.window_length}")
        start = -(self.window_length // 2) if self.center_windows else 0
        places = start + np.arange((frames - 1) * self.window_step + self.window_length)
        inside = (places >= 0) & (places < length)
        if length == 1:
            return np.zeros_like(places), inside
        beyond = places[~inside]
        places[~inside] = np.abs((beyond + length - 1) % (2 * (length - 1)) - (length - 1))
        return places, inside

    def _weights(self) -> Any:
        if self.window_fn is not None:
            return self.window_fn.astype(np.float32)
        ramp = (np.arange(self.window_length) + 0.5) / self.window_length
        return (np.sin(np.pi * ramp) ** 2).astype(np.float32)

    def run_arrays(self, xp: Namespace, waves: Value) -> Value:
        places, inside = self._places(waves.shape[1])

        def constant(array: Array) -> Value:
            return placed_like(xp, array, waves)

        whole = xp.take(cast_to(xp, waves, np.dtype("float32")), constant(places), axis=1)
        if not self.reflect_padding:
            whole = whole * constant(inside.astype(np.float32))
        if xp is np:
            frames: Any = sliding_window_view(whole, self.window_length, axis=1)[:, :: self.window_step]
            power: Value = _powers(frames, self._weights(), self._points)
        else:
            starts = np.arange(0, len(places) - self.window_length + 1, self.window_step)[:, None]
            within = starts + np.arange(self.window_length)
            frames = xp.reshape(xp.take(whole, constant(within.reshape(-1)), axis=1), (waves.shape[0], *within.shape))
            spectrum = xp.fft.rfft(frames * constant(self._weights()), n=self._points, axis=-1)
            power = xp.real(spectrum) ** 2 + xp.imag(spectrum) ** 2
        made = cast_to(xp, power if self.power == 2 else xp.sqrt(power), np.dtype("float32"))
        return made if self.layout == "tf" else xp.permute_dims(made, (0, 2, 1))


def _powers(frames: Array, weights: Array, points: int) -> Array:
    """(n, frames, window) float32 → (n, frames, points // 2 + 1) float32: the power of each frame's spectrum."""
    cv2 = opencv()
    if cv2 is None or points % 2 or cv2.getOptimalDFTSize(points) != points:
        spectrum = np.fft.rfft(frames * weights, n=points, axis=-1)
        return np.real(spectrum) ** 2 + np.imag(spectrum) ** 2
    made = np.empty((*frames.shape[:2], points // 2 + 1), np.float32)
    # A tenth of NumPy's time, and wave by wave, in memory that stays in a cache. A row holds the first real part, real
    # and imaginary ones in turn, and the last real one.
    rows = scratch("spectrum", (frames.shape[1], points))
    for wave, power in zip(frames, made, strict=True):
        np.multiply(wave, weights, out=rows[:, : len(weights)])
        rows[:, len(weights) :] = 0.0
        np.square(cv2.dft(rows, rows, flags=cv2.DFT_ROWS), out=rows)
        power[:, 0], power[:, -1] = rows[:, 0], rows[:, -1]
        np.add(rows[:, 1:-1:2], rows[:, 2:-1:2], out=power[:, 1:-1])
    return made


class ToDecibels(Operator):
    """`multiplier * log10(max(x / reference, least))`, float32; `least` corresponds to `cutoff_db`.

    `to_decibels([1, 10, 100])` → `[-20, -10, 0]`

    The reference is the largest value of the sample unless it is given.
    """

    inputs = ("data",)
    devices = ("cpu", "gpu")
    multiplier = Constant("float", default=10.0, doc="10 for power, 20 for magnitude", above=0)
    reference = Constant("float", default=0.0, doc="the value of 0 dB; 0 for the largest value of each sample", least=0)
    cutoff_db = Constant("float", default=-200.0, doc="floor in dB: lower values are raised to it")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return inputs[0].replace(dtype=np.dtype("float32"))

    def run_arrays(self, xp: Namespace, data: Value) -> object:
        values = cast_to(xp, data, np.dtype("float32"))
        if self.reference:
            scaled = values * (1.0 / self.reference)
        else:
            most = xp.max(xp.reshape(values, (values.shape[0], -1)), axis=1)
            most = xp.where(most == 0, xp.ones_like(most), most)
            scaled = values / xp.reshape(most, (-1,) + (1,) * (values.ndim - 1))
        least = np.float32(10.0 ** (self.cutoff_db / self.multiplier))
        if isinstance(scaled, np.ndarray):  # in place: fresh memory costs half as much as the logarithm
            np.fmax(scaled, least, out=scaled)
            return np.multiply(np.log10(scaled, out=scaled), np.float32(self.multiplier), out=scaled)
        limited = xp.where(scaled > float(least), scaled, xp.full_like(scaled, float(least)))
        return xp.log10(limited) * self.multiplier


class Audio(Operator):
    """Decodes WAV, FLAC and OGG files: bytes → (samples, channels), and the sample rate in Hz (float32).

    `decoders.audio(files, sample_rate=16000, downmix=True)` → float32 (samples,) in [-1, 1], 16000.0

    Integer dtypes have their full range: 1.0 becomes 32767 as int16. Files of integers give those that they store,
    unless they are mixed or resampled.
    """

    inputs = ("data",)
    num_outputs = 2
    version = "2"
    sample_rate = Argument("float", default=0.0, doc="resample to this many Hz, as `audio_resample`; 0: as in the file")
    quality = Constant("float", default=50.0, doc="0 to 100: how many lobes of the sinc count, 3, 16 at 50, up to 64")
    downmix = Constant("bool", default=False, doc="whether channels are averaged to one, without an axis")
    dtype = Constant("dtype", default="float32", doc="the dtype of the samples", choices=("float32", "int16", "int32"))

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        self.expect(inputs[0], "the bytes of files, uint8[·]", ranks=[1], dtype="uint8")
        wave = TensorSpec(self.dtype, (None,) if self.downmix else (None, None))
        return [wave, TensorSpec.of("float32", ())]

    def run(self, sample: Sample, data: Array, *, sample_rate: float) -> tuple[Array, Array]:
        sound = whole(
            data.tobytes(), name=f"a file of {data.size} bytes", dtype_of=lambda file: self.read_as(file, sample_rate)
        )
        return self.finished(sound.samples, sound.rate, sample_rate)

    def read_as(self, file: Any, sample_rate: float) -> str:
        """The dtype in which soundfile should read a file for `finished`: integers unchanged, else float32."""
        changed = self.downmix or (sample_rate and sample_rate != file.samplerate)
        return "float32" if changed or not file.subtype.startswith("PCM") else self.dtype.name

    def finished(self, wave: Array, rate: float, sample_rate: float) -> tuple[Array, Array]:
        """A wave read in the dtype `read_as`, (samples, channels), converted by the arguments, and its rate."""
        if wave.dtype.kind == "i":
            return wave, np.float32(rate)
        if self.downmix:
            wave = wave.mean(axis=1, dtype=np.float32) if wave.shape[1] > 1 else wave[:, 0]
        if sample_rate and sample_rate != rate:
            length, channels = math.ceil(len(wave) * sample_rate / rate), wave.shape[1:]
            columns = wave.astype(np.float64).reshape(len(wave), -1)
            wave = _by_sinc(columns, length, sample_rate / rate, self.quality).reshape(length, *channels)
            rate = sample_rate
        wave = wave.astype(np.float32, copy=False)
        if self.dtype.kind == "i":
            wave = saturated(np, wave.astype(np.float64) * float(np.iinfo(self.dtype).max), self.dtype)
        return wave, np.float32(rate)


class AudioResample(Mapped):
    """Waves, (samples,) or (samples, channels), at another rate: `audio_resample(wave, in_rate=44100, out_rate=16000)`.

    Uses a sinc under a Hann window, as DALI does: frequencies above half of a lower rate are not filtered out first.
    """

    in_rate = Argument("float", default=None, doc="the rate of the wave")
    out_rate = Argument("float", default=None, doc="the rate of the output, in the same unit")
    scale = Argument("float", default=None, doc="output samples per input sample, instead of two rates")
    out_length = Argument("int", default=None, doc="number of output samples, instead of rates or a scale")
    quality = Constant("float", default=50.0, doc="0 to 100: how many lobes of the sinc count, 3, 16 at 50, up to 64")
    dtype = Constant("dtype", default=None, doc="the dtype of the output, in its full range; the input's by default")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        shape = inputs[0].shape
        return super().infer(inputs[0] if shape is None else inputs[0].replace(shape=(None, *shape[1:])))

    def run(
        self,
        sample: Sample,
        wave: Array,
        *,
        in_rate: float | None,
        out_rate: float | None,
        scale: float | None,
        out_length: Any,
    ) -> object:
        given = [scale, out_length, None if in_rate is None or out_rate is None else out_rate / in_rate]
        if sum(one is not None for one in given) != 1 or not wave.size:
            raise ValueError("give scale, out_length, or in_rate and out_rate, and a wave with samples")
        # A scale is float32 in DALI: 0.55 of 300 samples are 165.000003, which it rounds up to 166.
        length, factor = out_length, given[2] if scale is None else float(np.float32(scale))
        if factor is None:
            factor = length / len(wave)
        length = math.ceil(len(wave) * factor) if length is None else length
        dtype = wave.dtype if self.dtype is None else self.dtype
        values = wave.astype(np.float64)
        if wave.dtype.kind in "iu":
            values = values / np.iinfo(wave.dtype).max * (2 if wave.dtype.kind == "u" else 1) - (wave.dtype.kind == "u")
        made = _by_sinc(values.reshape(len(wave), -1), length, factor, self.quality).reshape(length, *wave.shape[1:])
        if dtype.kind in "iu":
            made = (made + 1) / 2 if dtype.kind == "u" else made
            return saturated(np, made * float(np.iinfo(dtype).max), dtype)
        return made.astype(dtype)


# Number of phases from which resampling works sample by sample, and of those computed per matrix product.
_MOST_PHASES, _PHASES_AT_ONCE = 1024, 16


def _by_sinc(wave: Array, length: int, factor: float, quality: float) -> Any:
    """(n, channels) → (length, channels)."""
    lobes = round(0.007 * quality**2 - 0.09 * quality + 3)
    ratio = Fraction(factor).limit_denominator(_MOST_PHASES)
    if ratio and float(ratio) == factor and ratio.numerator <= _MOST_PHASES:
        return _by_phases(wave, length, ratio, lobes)
    padded = np.pad(wave, ((lobes, lobes + 1), (0, 0)))
    made = np.empty((length, wave.shape[1]))
    for start in range(0, length, 4096):
        places = np.arange(start, min(start + 4096, length)) / factor
        near = np.floor(places).astype(np.int64)[:, None] + np.arange(-lobes, lobes + 1)
        weights = _sinc_weights(near - places[:, None], lobes)
        made[start : start + 4096] = np.einsum("nk,nkc->nc", weights, padded[np.clip(near + lobes, 0, len(padded) - 1)])
    return made


def _sinc_weights(distances: Array, lobes: int) -> Any:
    """The windowed sinc, from a table of 32 values per lobe; zero beyond the lobes."""
    ramp = np.arange(-32 * lobes, 32 * lobes + 1)
    table = np.sinc(ramp / 32) * (0.5 + 0.5 * np.cos(np.pi * ramp * 2 / len(ramp)))
    return np.interp(distances * 32, ramp, table, left=0.0, right=0.0)


def _by_phases(wave: Array, length: int, ratio: Fraction, lobes: int) -> Any:
    """`_by_sinc` if the weights repeat after a number of samples: matrix products."""
    up, down, phases = _phases(ratio.numerator, ratio.denominator, lobes)
    blocks = -(-length // up)
    most = max(first + len(weights) for first, weights in phases) + (blocks - 1) * down
    made = np.empty((wave.shape[1], blocks, up))
    for channel, out in enumerate(made):
        padded = np.zeros(max(most, lobes + len(wave)))
        padded[lobes : lobes + len(wave)] = wave[:, channel]
        at = 0
        for first, weights in phases:
            windows = as_strided(padded[first:], (blocks, len(weights)), (8 * down, 8), writeable=False)
            np.matmul(windows, weights, out=out[:, at : at + weights.shape[1]])
            at += weights.shape[1]
    return made.reshape(wave.shape[1], -1)[:, :length].T


@functools.lru_cache(maxsize=16)
def _phases(up: int, down: int, lobes: int) -> tuple[int, int, list[tuple[int, Array]]]:
    """Output and input samples per period; for groups of output samples, the first input sample, with `lobes` of zeros
    in front of the wave, and the weights (input samples, output samples)."""
    times = -(-_PHASES_AT_ONCE // up)
    up, down = up * times, down * times
    made = []
    for start in range(0, up, _PHASES_AT_ONCE):
        places = np.arange(start, min(start + _PHASES_AT_ONCE, up)) * down / up
        near = np.arange(math.floor(places[0]) - lobes, math.floor(places[-1]) + lobes + 1)
        made.append((int(near[0]) + lobes, _sinc_weights(near[:, None] - places, lobes)))
    return up, down, made


class PreemphasisFilter(Mapped):
    """Subtracts from each sample a part of the previous one: `preemphasis_filter([1, 2, 4], preemph_coeff=0.5)` →
    `[0.5, 1.5, 3]`.
    """

    preemph_coeff = Argument("float", default=0.97, doc="the part that is subtracted")
    border = Constant(
        "str",
        default="clamp",
        doc="the value before the first one: a copy of it, 'clamp', 'zero', or the second, 'reflect'",
        choices=("clamp", "reflect", "zero"),
    )
    dtype = Constant("dtype", default="float32", doc="the dtype of the output")

    def run(self, sample: Sample, wave: Array, *, preemph_coeff: float) -> object:
        values = wave.astype(np.float32)
        before = np.roll(values, 1)
        second = values[1:2] if len(values) > 1 else values[:1]
        before[:1] = {"clamp": values[:1], "reflect": second, "zero": np.zeros_like(values[:1])}[self.border]
        return saturated(np, values - np.float32(preemph_coeff) * before, self.dtype)


class NonsilentRegion(Operator):
    """The start and length of the sound, as int32 scalars: `nonsilent_region(wave)` → `51, 99`.

    Windows whose mean square is `cutoff_db` below the reference are silent: `0, 0` if all are; zeros alone are whole.
    """

    inputs = ("wave",)
    num_outputs = 2
    cutoff_db = Argument("float", default=-60.0, doc="level in dB below which a window is silent")
    window_length = Argument("int", default=2048, doc="samples of a window, at most those of the wave")
    reference_power = Argument("float", default=0.0, doc="the mean square that is 0 dB; 0: the highest of the wave")
    reset_interval = Constant("int", default=8192, doc="after so many samples floats are summed anew; -1: never")
    version = "3"

    def infer(self, *inputs: TensorSpec) -> list[TensorSpec]:
        return [TensorSpec.of("int32", ()), TensorSpec.of("int32", ())]

    def run(
        self, sample: Sample, wave: Array, *, cutoff_db: float, window_length: int, reference_power: float
    ) -> tuple[np.int32, np.int32]:
        length = max(1, min(window_length, len(wave)))
        powers = _window_powers(wave, length, len(wave) if self.reset_interval < 1 else self.reset_interval)
        most = np.float32(reference_power) or powers.max(initial=0.0)
        loud = powers >= most * np.float32(10 ** (cutoff_db / 10))
        first = int(loud.argmax()) if len(loud) else 0
        if not loud.any():
            return np.int32(0), np.int32(0)
        return np.int32(first), np.int32(len(loud) - int(loud[::-1].argmax()) - first - 1 + length)


def _window_powers(wave: Array, length: int, reset_interval: int) -> Array:
    """The mean squares of all windows of `length` samples, float32.

    Integers are summed exactly. Floats are summed in float32, where a window takes over the sum of the one before: its
    errors decide whether a window at the cutoff counts, so the order of additions is DALI's.
    """
    if wave.dtype.kind in "iu":
        sums = np.concatenate([[0], np.cumsum(np.square(wave, dtype=np.int64))])
        return np.asarray((sums[length:] - sums[:-length]) / length, np.float32)
    squares = np.square(wave, dtype=np.float32)
    powers = np.empty(max(len(wave) - length + 1, 0), np.float32)
    begin = 0
    while begin < len(powers):
        end = max(min(begin + reset_interval, len(wave)) - length + 1, begin + 1)
        steps = np.empty(2 * (end - begin) - 1, np.float32)
        steps[0] = np.add.accumulate(squares[begin : begin + length])[-1]
        np.negative(squares[begin : end - 1], out=steps[1::2])
        steps[2::2] = squares[begin + length : end + length - 1]
        np.divide(np.add.accumulate(steps, out=steps)[::2], np.float32(length), out=powers[begin:end])
        begin = end
    return powers


class PowerSpectrum(Operator):
    """Power, or magnitude, of the spectrum along an axis: `power_spectrum([1, 1, 1, 1])` → `[16, 0, 0]`, float32."""

    inputs = ("data",)
    axis = Constant("int", default=-1, doc="the axis")
    nfft = Constant("int", default=None, doc="points of the transform; the extent of the axis by default")
    power = Constant("int", default=2, doc="2 for the power, 1 for the magnitude")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec.of_rank("float32", inputs[0].ndim, inputs[0].layout)

    def run(self, sample: Sample, data: Array) -> object:
        spectrum = np.abs(np.fft.rfft(data, n=self.nfft, axis=self.axis))
        return (spectrum**self.power).astype(np.float32)


class MFCC(Operator):
    """Cepstral coefficients of a spectrogram in decibels: its cosine transform, (bins, …) → (n_mfcc, …) float32.

    `mfcc(fn.to_decibels(fn.mel_filter_bank(spectrogram)), n_mfcc=13)`
    """

    inputs = ("spectrogram",)
    n_mfcc = Constant("int", default=20, doc="number of coefficients, at most the number of bins")
    dct_type = Constant("int", default=2, doc="type of the cosine transform, 1 to 4", least=1, most=4)
    normalize = Constant("bool", default=False, doc="whether its basis is orthonormal; not for type 1")
    lifter = Constant(
        "float", default=0.0, doc="coefficient i is multiplied by 1 + lifter / 2 sin(π (i + 1) / lifter); 0: by 1"
    )
    axis = Constant("int", default=0, doc="the axis of the bins")

    def check(self) -> None:
        if self.dct_type == 1 and self.normalize:
            raise self.argument_error("dct_type=1 is not normalized: give one of normalize and dct_type=1.")

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        return TensorSpec.of_rank("float32", inputs[0].ndim, inputs[0].layout)

    def run(self, sample: Sample, spectrogram: Array) -> Array:
        moved = np.moveaxis(spectrogram, self.axis, 0).astype(np.float64)
        made = np.tensordot(self._table(len(moved))[: self.n_mfcc], moved, axes=1)
        return np.ascontiguousarray(np.moveaxis(made, 0, self.axis), np.float32)

    def _table(self, size: int) -> Array:
        """(size, size): the basis of the transform, row by row."""
        kind, n, k = self.dct_type, np.arange(size)[None, :], np.arange(size)[:, None]
        period = size - 1 if kind == 1 else size
        table = np.cos(np.pi / period * (n + (kind in (2, 4)) / 2) * (k + (kind in (3, 4)) / 2))
        if kind in (1, 3):
            table[:, 0] /= math.sqrt(2) if self.normalize else 2
        if kind == 1:
            table[:, -1] /= 2
        if self.normalize:
            table *= math.sqrt(2 / size)
            table[:1] /= math.sqrt(2) if kind == 2 else 1
        return table * (1 + self.lifter / 2 * np.sin(np.pi * (k + 1) / self.lifter) if self.lifter else 1)
