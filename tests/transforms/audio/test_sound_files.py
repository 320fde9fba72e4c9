"""Sound files of every kind against soundfile itself, whole and cut short."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import soundfile

from beam_pipes.errors import DatasetError
from beam_pipes.transforms.audio import read_wav
from beam_pipes.transforms.audio.sound_files import decoded

RATE = 16_000
NOISE = 0.1 * np.random.default_rng(0).normal(size=RATE)
KINDS = {
    "wav": ("WAV", "PCM_16"),
    "24.wav": ("WAVEX", "PCM_24"),
    "32.wav": ("WAV", "PCM_32"),
    "float.wav": ("WAV", "FLOAT"),
    "ulaw.wav": ("WAV", "ULAW"),
    "rf64.wav": ("RF64", "PCM_16"),
    "sphere.wav": ("NIST", "PCM_16"),
    "w64.wav": ("W64", "PCM_16"),
    "au.wav": ("AU", "PCM_16"),
    "aiff": ("AIFF", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "24.flac": ("FLAC", "PCM_24"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}


def sound(kind: str, wave: np.ndarray = NOISE, **options: object) -> bytes:
    file = io.BytesIO()
    container, subtype = KINDS[kind]
    soundfile.write(file, wave, RATE, format=container, subtype=subtype, **options)
    return file.getvalue()


def read(content: bytes, dtype: str = "float32") -> np.ndarray:
    return soundfile.read(io.BytesIO(content), dtype=dtype, always_2d=True)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_are_those_of_soundfile(kind: str, channels: int) -> None:
    content = sound(kind, NOISE if channels == 1 else np.stack([NOISE, 2 * NOISE[::-1]], axis=1))

    found = decoded(content, name="a")

    np.testing.assert_array_equal(found.samples, read(content))
    assert found.rate == RATE


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "float.wav"])
def test_int16_samples_are_those_of_soundfile(kind: str) -> None:
    content = sound(kind, np.append(NOISE, np.linspace(-0.9, 0.9, 1000)))

    found = decoded(content, name="a", int16_at=RATE)
    wave, clipped = found.as_int16(found.wave(sample_rate=RATE))

    np.testing.assert_array_equal(wave, read(content, "int16")[:, 0])
    assert clipped == 0


def test_equal_channels_keep_their_int16_and_what_is_too_loud_is_counted() -> None:
    integers = np.random.default_rng(1).integers(-32768, 32768, RATE).astype(np.int16)
    stereo = decoded(sound("wav", np.stack([integers, integers], axis=1)), name="a", int16_at=RATE)
    loud = decoded(sound("float.wav", np.array([0.5, 1.0, -1.0, 2.4, -1.5])), name="a", int16_at=RATE)

    np.testing.assert_array_equal(stereo.as_int16(stereo.wave())[0], integers)
    wave, clipped = loud.as_int16(loud.wave())
    assert wave.tolist() == [16384, 32767, -32768, 32767, -32768] and clipped == 2


@pytest.mark.parametrize("left", [0.5, 0.9, -1], ids=["half", "nine_tenths", "all_but_a_byte"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_cut_short_is_refused(kind: str, left: float) -> None:
    content = sound(kind)

    message = (
        r"^the sound in talks/a should have [\d,]+ (bytes( of samples)?|samples|frames), as its header says, but the "
        r"file ends after [\d,]+\. Copy the file again, or leave such files out \(--on-error drop\)\.$"
        r"|^the OGG file talks/a was cut short: it has no page that ends its stream\. Copy the file"
        r"|^cannot decode sound from talks/a: Error : flac decoder lost sync\.$"
        r"|^cannot decode sound from talks/a: Supported file format but file is malformed\.$"
    )
    with pytest.raises(DatasetError, match=message):
        decoded(content[: -1 if left < 0 else round(left * len(content))], name="talks/a")


def test_what_a_program_wrote_to_a_pipe_has_no_length_and_is_read_to_its_end() -> None:
    wave = sound("wav")
    for unknown in (0xFFFF_FFFF, 0x7FFF_FFFF - 36):
        length = unknown.to_bytes(4, "little")
        piped = wave[:4] + length + wave[8:40] + length + wave[44:]
        np.testing.assert_array_equal(decoded(piped, name="a").samples, read(wave))
    flac = bytearray(sound("flac"))
    flac[21] &= 0xF0
    flac[22:42] = bytes(20)  # the number of samples, and their MD5
    np.testing.assert_array_equal(decoded(bytes(flac), name="a").samples, read(sound("flac")))


def changed(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]


def test_damage_that_libsndfile_does_not_tell_is_refused() -> None:
    flac, ogg = sound("flac"), sound("ogg")
    with pytest.raises(
        DatasetError,
        match="the samples in a are not those that were encoded: their MD5 differs from that of the header. Copy",
    ):
        decoded(changed(flac, 30), name="a")
    with pytest.raises(DatasetError, match="the OGG file a is damaged: a page has a wrong checksum at byte 3,"):
        decoded(changed(ogg, len(ogg) // 2), name="a")
    pages = [match.start() for match in re.finditer(b"OggS", ogg)]
    with pytest.raises(DatasetError, match="the OGG file a is damaged: a page is missing at byte [34],"):
        decoded(ogg[: pages[2]] + ogg[pages[3] :], name="a")


@pytest.mark.parametrize("kind", ["ogg", "opus"])
def test_streams_of_ogg_that_libsndfile_would_leave_out_are_refused(kind: str) -> None:
    content = sound(kind)

    assert len(read(content + content)) == len(read(content))
    with pytest.raises(DatasetError, match="the OGG file a has several streams one after the other, of which libsndf"):
        decoded(content + content, name="a")


def test_mp3_files_that_libsndfile_reads_in_part_are_refused() -> None:
    variable, constant = sound("mp3"), sound("mp3", bitrate_mode="CONSTANT", compression_level=0.5)
    without_header = [content[content.index(content[:4], 4) :] for content in (variable, constant)]

    assert len(decoded(without_header[1], name="a").samples) >= RATE  # as old encoders wrote it
    for left in (-1, -2000):
        with pytest.raises(DatasetError, match=r"should have [\d,]+ frames, as its header says, but"):
            decoded(without_header[1][:left], name="a")
    for content in (without_header[0], variable + variable):
        with pytest.raises(
            DatasetError, match=r"the MP3 file a has [\d,]+ samples, but libsndfile would read [\d,]+ of"
        ):
            decoded(content, name="a")
    tagged = b"ID3\x04\0\0\0\0\0\x10" + b"\xff\xfb\x90\x64" * 4 + variable + b"TAG" + bytes(125)
    np.testing.assert_array_equal(decoded(tagged, name="a").samples, read(variable))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers_are_refused(bad: float) -> None:
    wave = np.zeros(RATE)
    wave[[800, 900]] = bad
    with pytest.raises(
        DatasetError, match=r"the sound in a has 2 samples that are NaN or infinite, the first at 0\.050 s\. Create"
    ):
        decoded(sound("float.wav", wave), name="a")


@pytest.mark.parametrize(
    ("begins", "kind"),
    [
        (b"\0\0\0\x20ftypM4A ", "MPEG-4 or AAC"),
        (b"\x1aE\xdf\xa3", "WebM or Matroska"),
        (b"\xff\xf1\x50", "MPEG-4 or AAC"),
    ],
)
def test_sound_that_libsndfile_does_not_decode_is_named_with_a_remedy(begins: bytes, kind: str) -> None:
    with pytest.raises(
        DatasetError,
        match=rf"It is {kind}, which libsndfile does not decode\. Convert it to FLAC, for example with: ffmpeg -i "
        r"a/b\.m4a a/b\.flac$",
    ):
        decoded(begins + bytes(100), name="a/b.m4a")


# Made by others: sox, Cool Edit, the Python library `wavfile`, and by hand.
WAVES = sorted(Path(scipy.io.__file__).parent.glob("tests/data/*.wav"))
REFUSED = {
    "test-44100Hz-le-1ch-4bytes-early-eof.wav": "should have 17,640 bytes of samples, as its header says, but the file",
    "test-44100Hz-le-1ch-4bytes-early-eof-no-data.wav": "No 'data' chunk marker",
    "test-44100Hz-le-1ch-4bytes-incomplete-chunk.wav": "No 'data' chunk marker",
    "test-8000Hz-le-3ch-5S-36bit.wav": "unimplemented format",
    "test-8000Hz-le-3ch-5S-45bit.wav": "unimplemented format",
    "test-8000Hz-le-3ch-5S-53bit.wav": "unimplemented format",
    "test-8000Hz-le-3ch-5S-64bit.wav": "unimplemented format",
}


@pytest.mark.parametrize("path", WAVES, ids=lambda path: path.name)
def test_files_of_other_writers_are_read_as_by_soundfile_or_refused(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if words := REFUSED.get(path.name):
            with pytest.raises(DatasetError, match=re.escape(words)):
                read_wav(path)
        else:
            samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
            np.testing.assert_array_equal(read_wav(path)[0], samples.mean(axis=1, dtype=np.float32))
            assert read_wav(path)[1] == rate
