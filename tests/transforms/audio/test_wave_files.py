"""Sound files and resampling."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import soundfile
import soxr

from beam_pipes.errors import DatasetError
from beam_pipes.transforms.audio import AudioProcessor, read_wav, resample, write_wav


def sine(frequency, seconds, sample_rate):
    """A wave of amplitude 1/2."""
    return 0.5 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * sample_rate)) / sample_rate)


def test_what_was_written_is_read(tmp_path):
    wave = sine(440, 0.1, 22050)

    write_wav(tmp_path / "a.wav", wave, 22050)
    read, rate = read_wav(tmp_path / "a.wav")

    assert (22050, np.float32) == (rate, read.dtype)
    np.testing.assert_allclose(wave, read, atol=2**-15)


def test_bytes_and_open_files_are_read_too(tmp_path):
    write_wav(tmp_path / "a.wav", sine(440, 0.1, 8000), 8000)
    content = (tmp_path / "a.wav").read_bytes()

    np.testing.assert_array_equal(read_wav(content)[0], read_wav(io.BytesIO(content))[0])
    np.testing.assert_array_equal(read_wav(content)[0], read_wav(str(tmp_path / "a.wav"))[0])


def test_channels_are_averaged(tmp_path):
    soundfile.write(tmp_path / "a.flac", np.array([[0.5, 0.25]] * 100), 8000)

    np.testing.assert_allclose(read_wav(tmp_path / "a.flac")[0], 0.375, atol=1e-4)


def test_a_processor_resamples_and_scales_to_the_peak(tmp_path):
    write_wav(tmp_path / "a.wav", sine(440, 0.2, 48000), 48000)

    wave = AudioProcessor(16000, 512).read_wav(tmp_path / "a.wav")
    plain = AudioProcessor(16000, 512, normalize=False).read_wav(tmp_path / "a.wav")

    assert 3200 == len(wave) == len(plain)
    assert 0.999 == pytest.approx(np.abs(wave).max())
    np.testing.assert_allclose(plain[200:-200], sine(440, 0.2, 16000)[200:-200], atol=1e-3)


def test_silence_stays_silence(tmp_path):
    AudioProcessor(16000, 512).write_wav(tmp_path / "a.wav", np.zeros(600))

    assert 0 == np.abs(AudioProcessor(16000, 512).read_wav(tmp_path / "a.wav")).max()


@pytest.mark.parametrize(("source", "target"), [(48000, 22050), (22050, 48000), (44100, 16000), (8000, 24000)])
def test_resampling_keeps_what_both_rates_can_hold(source, target):
    wave = sine(1000, 0.2, source)

    resampled = resample(wave, source, target)

    assert -(-len(wave) * target // source) == len(resampled)
    np.testing.assert_allclose(resampled[500:-500], sine(1000, 0.2, target)[500 : len(resampled) - 500], atol=1e-4)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 440, 441, 442, 1000])
@pytest.mark.parametrize(("source", "target"), [(44100, 16000), (16000, 44100), (48000, 8000), (8000, 8001)])
def test_a_resampled_wave_is_as_long_as_its_time_says(source, target, length):
    wave = np.random.default_rng(length).normal(size=length)

    resampled = resample(wave, source, target)

    assert -(-length * target // source) == len(resampled)
    expected = soxr.resample(np.append(wave, np.zeros(2000)), source, target, quality="VHQ")
    np.testing.assert_allclose(resampled, expected[: len(resampled)], atol=1e-9)


def test_resampling_removes_what_the_lower_rate_cannot_hold():
    assert np.abs(resample(sine(9000, 0.2, 48000), 48000, 16000)[300:-300]).max() < 1e-4


def test_resampling_keeps_a_constant_and_a_copy():
    np.testing.assert_allclose(resample(np.full(2000, 0.25), 44100, 48000)[300:-300], 0.25, rtol=1e-8)

    wave = np.zeros(3)
    same = resample(wave, 8000, 8000)
    same[0] = 1
    assert 0 == wave[0]


@pytest.mark.parametrize(
    ("use", "words"),
    [
        pytest.param(
            lambda path: resample(np.ones(3), 0, 5),
            "resample: from_rate, in Hz, should be an integer of at least 1, got 0.",
            id="from",
        ),
        pytest.param(
            lambda path: resample(np.ones(3), 5, 2.5),
            "resample: to_rate, in Hz, should be an integer of at least 1, got 2.5.",
            id="to",
        ),
        pytest.param(
            lambda path: write_wav(path / "loud.wav", [0.5, -1.5], 8000),
            "write_wav needs samples between -1 and 1 for loud.wav, got a peak of 1.5",
            id="loud",
        ),
    ],
)
def test_wrong_use_is_refused(tmp_path, use, words):
    with pytest.raises(DatasetError, match=f"^{re.escape(words)}$"):
        use(tmp_path)


def test_what_cannot_be_decoded_is_named(tmp_path):
    (tmp_path / "bad.wav").write_bytes(b"no sound at all")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), 8000)

    with pytest.raises(DatasetError, match=r"^cannot decode sound from .*bad\.wav: .*[Ff]ormat") as caught:
        read_wav(tmp_path / "bad.wav")
    assert str(tmp_path / "bad.wav") == caught.value.source
    with pytest.raises(DatasetError, match="^cannot decode sound from 3 bytes: "):
        read_wav(b"xyz")
    with pytest.raises(DatasetError, match=r"^the sound in .*empty\.wav contains no samples$"):
        read_wav(tmp_path / "empty.wav")
    with pytest.raises(DatasetError, match=r"^cannot decode sound from .*missing\.wav: there is no such file\.$"):
        read_wav(tmp_path / "missing.wav")
    with pytest.raises(DatasetError, match=r"^cannot decode sound from .*: it is a directory\.$"):
        read_wav(str(tmp_path))
