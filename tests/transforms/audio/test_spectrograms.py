"""STFT, mel filters and normalizers: values known from their definitions and from librosa 0.11."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import DatasetError
from beam_pipes.transforms.audio import (
    AudioProcessor,
    LogMagnitude,
    StftOptions,
    UnitMagnitude,
    hz_to_mel,
    istft,
    mel_filters,
    mel_to_hz,
    stft,
)


def sine(frequency, num_samples, sample_rate=22050):
    """A wave of amplitude 1."""
    return np.sin(2 * np.pi * frequency * np.arange(num_samples) / sample_rate)


def test_a_sine_on_a_bin_has_the_height_that_the_window_gives_it():
    bin_hz = 22050 / 1024

    spectrum = np.abs(stft(sine(100 * bin_hz, 8192), StftOptions(n_fft=1024, center=False)))

    # A Hann window sums to n/2; a sine of amplitude 1 shows half of that, its two neighbours half of it again.
    assert (513, 29) == spectrum.shape
    np.testing.assert_allclose(spectrum[100], 256, rtol=1e-9)
    np.testing.assert_allclose(spectrum[[99, 101]], 128, rtol=1e-9)
    assert np.delete(spectrum, [99, 100, 101], axis=0).max() < 1e-9


def test_an_impulse_has_a_flat_spectrum_of_the_window_weight():
    wave = np.zeros(64)
    wave[32] = 1.0

    spectrum = np.abs(stft(wave, StftOptions(n_fft=16, hop_length=4)))

    np.testing.assert_allclose(spectrum[:, 8], np.ones(9), atol=1e-12)
    np.testing.assert_allclose(spectrum[:, 7], np.full(9, 0.5 - 0.5 * np.cos(2 * np.pi * 12 / 16)), atol=1e-12)
    assert 0 == spectrum[:, :6].max()


@given(st.integers(4, 40), st.data(), st.sampled_from(["reflect", "constant", "edge", "symmetric"]), st.booleans())
def test_the_number_of_frames_is_known_beforehand(n_fft, data, pad_mode, center):
    options = StftOptions(
        n_fft=n_fft,
        win_length=data.draw(st.integers(4, n_fft)),
        hop_length=data.draw(st.integers(1, 50)),
        pad_mode=pad_mode,
        center=center,
    )
    num_samples = data.draw(st.integers(n_fft, 200))

    spectrum = stft(np.ones(num_samples), options)

    assert (1 + n_fft // 2, options.num_frames(num_samples)) == spectrum.shape


@given(st.integers(8, 64), st.integers(2, 8), st.integers(64, 300), st.integers(0, 2**32))
def test_the_inverse_gives_the_wave_back(n_fft, overlap, num_samples, seed):
    options = StftOptions(n_fft=n_fft, hop_length=max(1, n_fft // overlap // 2))
    wave = np.random.default_rng(seed).uniform(-1, 1, num_samples)

    back = istft(stft(wave, options), options, length=num_samples)

    np.testing.assert_allclose(wave, back, atol=1e-9)


def test_the_inverse_ends_with_the_last_whole_hop_or_where_it_is_reported():
    options = StftOptions(n_fft=64, hop_length=16)
    spectrum = stft(np.ones(100), options)

    assert 96 == len(istft(spectrum, options))
    assert [1.0, 0.0] == istft(spectrum, options, length=200)[[90, 199]].round(9).tolist()


def test_the_slaney_scale_is_linear_below_a_kilohertz_and_logarithmic_above():
    np.testing.assert_allclose(hz_to_mel([0, 60, 999, 1000]), [0, 0.9, 14.985, 15], rtol=1e-12)
    np.testing.assert_allclose(hz_to_mel([4000, 11025]), [35.16376031, 49.91059448], rtol=1e-9)
    np.testing.assert_allclose(hz_to_mel(6400) - hz_to_mel(1000), 27)


def test_the_htk_scale_is_its_formula():
    np.testing.assert_allclose(
        hz_to_mel([0, 60, 1000, 4000], scale="htk"), [0, 92.68185813, 999.98553714, 2146.06452751], rtol=1e-9
    )


@given(st.floats(0, 24_000), st.sampled_from(["htk", "slaney"]))
def test_mels_and_hertz_are_inverse(frequency, scale):
    np.testing.assert_allclose(mel_to_hz(hz_to_mel(frequency, scale=scale), scale=scale), frequency, atol=1e-6)


def test_filters_have_the_values_of_librosa():
    filters = mel_filters(sample_rate=22050, n_fft=1024, n_mels=80, f_max=8000)

    assert (80, 513) == filters.shape
    np.testing.assert_allclose(filters.sum(), 3.7136882015278, rtol=1e-12)
    assert [2, 36, 358] == filters[[0, 20, 79]].argmax(axis=1).tolist()
    np.testing.assert_allclose(filters[[0, 20, 79]].max(axis=1), [0.0226513902, 0.0219296302, 0.00326599283], rtol=1e-8)


def test_filters_have_unit_area_or_unit_peak():
    area = mel_filters(sample_rate=16000, n_fft=16384, n_mels=20)
    peak = mel_filters(sample_rate=16000, n_fft=16384, n_mels=20, normalize=False)

    np.testing.assert_allclose(area.sum(axis=1) * 16000 / 16384, 1.0, rtol=1e-2)
    np.testing.assert_allclose(peak.max(axis=1), 1.0, rtol=2e-2)
    corners = mel_to_hz(np.linspace(0, hz_to_mel(8000), 22))
    inner = slice(int(corners[1] * 1.024) + 1, int(corners[-2] * 1.024))
    np.testing.assert_allclose(peak.sum(axis=0)[inner], 1.0, rtol=1e-9)  # neighbouring triangles add up to one


def test_a_mel_spectrogram_has_the_values_of_librosa():
    wave = 0.5 * sine(440, 4096) + 0.25 * sine(3000, 4096)
    processor = AudioProcessor(sample_rate=22050, n_fft=1024, win_length=1024, hop_length=256, f_max=8000)

    mel = processor.mel_spectrogram(wave)

    assert ((80, 17), np.float32) == (mel.shape, mel.dtype)
    places = [(0, 0), (10, 8), (11, 8), (12, 8), (79, 16)]
    expected = [0.389478323, 2.05775131, 4.23251458, 0.792441643, 0.0039932784]
    np.testing.assert_allclose([mel[place] for place in places], expected, rtol=1e-5)
    np.testing.assert_allclose(mel.sum(), 171.197467, rtol=1e-5)


def test_a_processor_travels_and_inverts():
    processor = pickle.loads(pickle.dumps(AudioProcessor(16000, 512, hop_length=128)))
    wave = sine(500, 4000, 16000)

    np.testing.assert_allclose(wave, processor.istft(processor.stft(wave), length=4000), atol=1e-9)
    assert (257, 32) == processor.spectrogram(wave).shape
    assert np.float32 == processor.spectrogram(wave).dtype


def test_log_magnitude_is_the_natural_logarithm_above_a_floor():
    normalizer = LogMagnitude()

    np.testing.assert_allclose(normalizer.transform(np.array([np.e, 1, 0])), [1, 0, -11.512925465], atol=1e-9)
    assert np.float32 == normalizer.transform(np.ones(2, np.float32)).dtype
    np.testing.assert_allclose(normalizer.transform(np.array([1, 0])), [0, -11.512925465], atol=1e-9)
    np.testing.assert_allclose(normalizer.inverse(normalizer.transform(np.array([2.0, 1e-9]))), [2.0, 1e-5])


def test_unit_magnitude_is_decibels_between_zero_and_one():
    normalizer = UnitMagnitude()

    np.testing.assert_allclose(normalizer.transform(np.array([10, 1, 1e-4, 0, 99])), [1, 0.8, 0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(normalizer.inverse(normalizer.transform(np.array([2.0, 0.5]))), [2.0, 0.5])


@pytest.mark.parametrize(
    ("use", "words"),
    [
        pytest.param(
            lambda: StftOptions(n_fft=0), "STFT: n_fft should be an integer of at least 1, got 0.", id="n_fft"
        ),
        pytest.param(
            lambda: StftOptions(n_fft=8, hop_length=2.5),
            "STFT: hop_length should be an integer of at least 1, got 2.5.",
            id="hop",
        ),
        pytest.param(
            lambda: StftOptions(n_fft=8, win_length=9), "STFT needs win_length <= n_fft=8, got 9", id="window"
        ),
        pytest.param(
            lambda: StftOptions(n_fft=8, pad_mode="wrap"),
            "STFT: pad_mode should be one of constant, edge, reflect, symmetric, got 'wrap'.",
            id="pad_mode",
        ),
        pytest.param(
            lambda: stft(np.ones((2, 9)), StftOptions(n_fft=8)),
            "stft needs one channel of samples, shape (T,), got shape (2, 9)",
            id="channels",
        ),
        pytest.param(
            lambda: stft(np.ones(4), StftOptions(n_fft=8)),
            "stft needs at least 5 samples with n_fft=8, center=True, pad_mode='reflect'; got 4. Pad the "
            "wave, or leave it "
            "out",
            id="short",
        ),
        pytest.param(
            lambda: stft(np.ones(7), StftOptions(n_fft=8, center=False)),
            "stft needs at least 8 samples with n_fft=8, center=False, pad_mode='reflect'; got 7. Pad the "
            "wave, or leave "
            "it out",
            id="short_frame",
        ),
        pytest.param(
            lambda: mel_filters(sample_rate=16000, n_fft=512, f_max=9000),
            "mel_filters needs 0 <= f_min < f_max <= 8000.0 Hz, half the sample rate; got f_min=0.0, f_max=9000",
            id="range",
        ),
        pytest.param(
            lambda: mel_filters(sample_rate=22050, n_fft=256, n_mels=80),
            "mel_filters: 2 of 80 filters hold no bin of n_fft=256 at 22050 Hz, the first is 0; use fewer "
            "n_mels or a larger "
            "n_fft",
            id="empty",
        ),
        pytest.param(
            lambda: hz_to_mel(1, scale="bark"), "mel scale should be one of htk, slaney, got 'bark'.", id="scale"
        ),
        pytest.param(
            lambda: LogMagnitude(min=0), "LogMagnitude needs a min above 0, the logarithm's domain; got 0", id="log_min"
        ),
        pytest.param(
            lambda: UnitMagnitude(min=-1),
            "UnitMagnitude needs a min above 0, the logarithm's domain; got -1",
            id="unit_min",
        ),
    ],
)
def test_wrong_options_are_refused(use, words):
    with pytest.raises(DatasetError, match=f"^{re.escape(words)}$"):
        use()
