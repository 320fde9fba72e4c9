"""Spectrograms, mel filters and decibels, against SciPy and plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal
from operator_runs import run

from beam_pipes.errors import DatasetError, InferenceError, OperatorArgumentError, OperatorError
from beam_pipes.graph import Pipeline
from beam_pipes.transforms import fn
from beam_pipes.transforms.audio.spectra import mel_filters

WAVE = np.random.default_rng(1).normal(size=1000).astype(np.float32)


def one(call: Any, sample: Any) -> Any:
    return run(call, [sample])[0]


@pytest.mark.parametrize(("length", "step", "nfft"), [(256, 64, 256), (200, 80, 512), (101, 33, 128)])
def test_spectrogram_is_scipys(length: int, step: int, nfft: int) -> None:
    found = one(
        lambda x: fn.spectrogram(x, window_length=length, window_step=step, nfft=nfft, center_windows=False), WAVE
    )
    window = np.sin(np.pi * (np.arange(length) + 0.5) / length) ** 2
    transform = scipy.signal.ShortTimeFFT(window, hop=step, fs=1, mfft=nfft, phase_shift=None)
    frames = found.shape[1]
    middle = transform.m_num_mid  # SciPy's frame p is centred at sample p * hop
    waves = [WAVE[t * step : t * step + length] for t in range(frames)]
    expected = np.stack([np.abs(np.fft.rfft(wave * window, nfft)) ** 2 for wave in waves], axis=1)
    assert frames == 1 + (1000 - length) // step and middle == length // 2
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    centred = one(
        lambda x: fn.spectrogram(x, window_length=length, window_step=step, nfft=nfft, reflect_padding=False), WAVE
    )
    by_scipy = np.abs(transform.stft(WAVE.astype(np.float64), p0=0, p1=centred.shape[1], padding="zeros")) ** 2
    np.testing.assert_allclose(centred, by_scipy, rtol=1e-3, atol=1e-3)


def test_spectrogram_of_reflected_ends_layouts_and_magnitudes() -> None:
    found = one(lambda x: fn.spectrogram(x, window_length=128, window_step=32), WAVE)
    extended = np.pad(WAVE, 64, mode="reflect")
    plain = one(lambda x: fn.spectrogram(x, window_length=128, window_step=32, center_windows=False), extended)
    np.testing.assert_allclose(found, plain[:, : found.shape[1]], rtol=1e-4, atol=1e-4)
    turned = one(lambda x: fn.spectrogram(x, window_length=128, window_step=32, layout="tf", power=1), WAVE)
    np.testing.assert_allclose(turned.T**2, found, rtol=1e-3, atol=1e-3)
    ones = one(lambda x: fn.spectrogram(x, window_length=8, window_step=4, window_fn=[1.0] * 8), np.ones(9, np.float32))
    assert ones.shape == (5, 3) and ones[0].tolist() == [64, 64, 64]
    assert one(lambda x: fn.spectrogram(x, window_length=8), np.ones(3, np.float32)).shape == (5, 1)


def test_spectrogram_says_what_is_wrong() -> None:
    with pytest.raises(OperatorArgumentError, match=r"nfft should be at least window_length=512, got 100"):
        fn.spectrogram(WAVE, nfft=100)
    with pytest.raises(OperatorArgumentError, match=r"window_fn should hold window_length=512 weights, got 3"):
        fn.spectrogram(WAVE, window_fn=[1, 2, 3])
    with pytest.raises(OperatorArgumentError, match=r"layout should be one of ft, tf, got 'ff'"):
        fn.spectrogram(WAVE, layout="ff")
    with pytest.raises(InferenceError, match=r"expected waves of one channel"):
        one(lambda x: fn.spectrogram(x), np.zeros((2, 4), np.float32))
    with pytest.raises(OperatorError, match=r"a wave of 3 samples has no frame of window_length=512"):
        one(lambda x: fn.spectrogram(x, center_windows=False), np.zeros(3, np.float32))


@pytest.mark.parametrize("formula", ["slaney", "htk"])
@pytest.mark.parametrize("normalize", [True, False])
def test_mel_filter_bank_has_the_filters_of_transforms_audio(formula: str, normalize: bool) -> None:
    spectrogram = np.random.default_rng(2).random((257, 9)).astype(np.float32)
    found = one(
        lambda x: fn.mel_filter_bank(
            x, nfilter=20, sample_rate=16000, freq_low=50, freq_high=7000, mel_formula=formula, normalize=normalize
        ),
        spectrogram,
    )
    filters = mel_filters(
        sample_rate=16000, n_fft=512, n_mels=20, f_min=50, f_max=7000, scale=formula, normalize=normalize
    )
    np.testing.assert_allclose(found, filters @ spectrogram, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "empty", "total", "peaks"),
    [
        ({}, [0, 21], 0.9224090105381038, [0.0, 0.02198764495551586, 0.0023558856919407845, 0.01963176019489765]),
        (
            {"mel_formula": "htk", "normalize": False},
            [0, 1, 4, 7],
            125.14817554224283,
            [0.0, 0.0, 0.6687555313110352, 0.33124446868896484],
        ),
    ],
)
def test_filters_that_hold_no_bin_are_zeros_as_in_dali(
    options: dict[str, Any], empty: list[int], total: float, peaks: list[float]
) -> None:
    # What DALI 2.4 gives for the unit matrix. `mel_filters` refuses the same filters.
    found = one(
        lambda x: fn.mel_filter_bank(x, nfilter=80, sample_rate=22050, **options), np.eye(129, dtype=np.float32)
    )
    assert np.flatnonzero(~found.any(axis=1)).tolist() == empty
    np.testing.assert_allclose(found.sum(dtype=np.float64), total, rtol=1e-5)
    np.testing.assert_allclose(found.max(axis=1)[:4], peaks, rtol=1e-4)
    scale, normalize = options.get("mel_formula", "slaney"), options.get("normalize", True)
    with pytest.raises(DatasetError, match=rf"{len(empty)} of 80 filters hold no bin .* the first is {empty[0]};"):
        mel_filters(sample_rate=22050, n_fft=256, n_mels=80, scale=scale, normalize=normalize)


def test_mel_filter_bank_finds_the_frequencies_by_layout() -> None:
    def both(x: Any) -> Any:
        return [
            fn.mel_filter_bank(fn.spectrogram(x, window_length=64, layout=layout), nfilter=8, sample_rate=8000)
            for layout in ("ft", "tf")
        ]

    by_frequency, by_time = run(both, [WAVE])
    np.testing.assert_allclose(by_frequency[0], by_time[0].T, rtol=1e-5)
    with pytest.raises(OperatorArgumentError, match=r"expected 0 <= freq_low < freq_high <= 4000"):
        fn.mel_filter_bank(np.zeros((5, 2), np.float32), sample_rate=8000, freq_high=5000)
    with pytest.raises(OperatorArgumentError, match=r"mel_formula should be one of htk, slaney, got 'mel'"):
        fn.mel_filter_bank(np.zeros((5, 2), np.float32), mel_formula="mel")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [-20, -10, 0]),
        ({"reference": 1.0}, [0, 10, 20]),
        ({"multiplier": 20, "reference": 10.0}, [-20, 0, 20]),
        ({"cutoff_db": -15}, [-15, -10, 0]),
    ],
)
def test_to_decibels(options: dict[str, float], expected: list[float]) -> None:
    found = one(lambda x: fn.to_decibels(x, **options), np.array([1.0, 10.0, 100.0], np.float32))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_silence_is_the_cutoff() -> None:
    assert one(lambda x: fn.to_decibels(x), np.zeros(2, np.float32)).tolist() == [-200, -200]
    with pytest.raises(OperatorArgumentError, match=r"multiplier should be a number above 0"):
        fn.to_decibels(np.zeros(2, np.float32), multiplier=0)


def test_specs_of_sound_are_known_at_definition() -> None:
    pipe = Pipeline(batch_size=1)
    with pipe:
        node = fn.mel_filter_bank(fn.spectrogram(np.zeros(1024, np.float32)), nfilter=40)
    assert str(node.spec) == "float32[40×5] ft"
