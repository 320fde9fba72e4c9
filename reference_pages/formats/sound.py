"""Sound files: samples are those of libsndfile, read by soundfile, or of the standard library."""

from __future__ import annotations

import functools
import io
import wave
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.recipes import audio
from beam_pipes.recipes.audio import CLIPPED
from beam_pipes.transforms.audio.sound_files import UNREAD_KINDS, UNREAD_SUFFIXES, decoded
from reference_pages.formats.rows import (
    Found,
    LeftOut,
    Read,
    Reference,
    Refused,
    Row,
    library,
    of_recipe,
    only,
    several,
    stated,
    text,
)

RATE = 16_000
NOISE = 0.1 * np.random.default_rng(0).normal(size=RATE)
STEREO = np.stack([NOISE, 2 * NOISE[::-1]], axis=1)

Change = Callable[[bytes], bytes]


@functools.cache
def _encoded(container: str, subtype: str, channels: int = 2, rate: int = RATE, **options: Any) -> bytes:
    file = io.BytesIO()
    samples = STEREO if channels == 2 else NOISE
    library("soundfile").write(file, samples, rate, format=container, subtype=subtype, **options)
    return file.getvalue()


def sound(
    container: str, subtype: str, change: Change | None = None, *, name: str = "a.wav", **options: Any
) -> Callable[[Path], object]:
    """Writes a file as libsndfile makes it, `change`d if that is given."""

    def write(directory: Path) -> None:
        content = _encoded(container, subtype, **options)
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if change is None else change(content))

    return write


def of_samples(samples: Sequence[float]) -> Callable[[Path], object]:
    """Writes these samples as floats."""
    return lambda directory: library("soundfile").write(directory / "a.wav", samples, RATE, subtype="FLOAT")


# Ours.


def decode(directory: Path) -> Found:
    path = only(directory)
    return Found([decoded(path.read_bytes(), name=path.name).samples])


def decode_int16(directory: Path) -> Found:
    path = only(directory)
    found = decoded(path.read_bytes(), name=path.name, int16_at=RATE)
    samples, clipped = found.as_int16(found.wave(sample_rate=RATE))
    return Found([samples], left_out={CLIPPED: clipped} if clipped else {})


def wave_of(directory: Path, sample_rate: int | None = None) -> Found:
    path = only(directory)
    return Found([decoded(path.read_bytes(), name=path.name).wave(sample_rate=sample_rate)])


def examples(directory: Path) -> Found:
    return of_recipe(lambda path: audio(str(path), sample_rate=RATE), "path", "num_samples")(directory)


# References.


def _by_soundfile(file: Any, dtype: str = "float32") -> Any:
    return library("soundfile").read(file, dtype=dtype, always_2d=True)[0]


SOUNDFILE = Reference("soundfile", lambda directory: [_by_soundfile(only(directory))])
INT16 = Reference("soundfile, as int16", lambda directory: [_by_soundfile(only(directory), "int16")[:, 0]])


def _by_wave(directory: Path) -> list[Any]:
    with wave.open(str(only(directory)), "rb") as file:
        width, channels = file.getsampwidth(), file.getnchannels()
        parts = np.frombuffer(file.readframes(file.getnframes()), np.uint8).reshape(-1, width)
    upper = np.zeros((len(parts), 4), np.uint8)
    upper[:, 4 - width :] = parts
    return [(upper.view("<i4").astype(np.float32) * np.float32(2.0**-31)).reshape(-1, channels)]


WAVE = Reference("`wave`, divided by the largest integer and 1", _by_wave)
SCIPY = Reference("`scipy.io.wavfile`", lambda path: [library("scipy.io.wavfile").read(only(path))[1].astype("f4")])


def as_whole(what: str, container: str, subtype: str, **options: Any) -> Reference:
    """The samples of the same file before it was changed."""
    return Reference(what, lambda directory: [_by_soundfile(io.BytesIO(_encoded(container, subtype, **options)))])


# Changes.


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def without_length(content: bytes) -> bytes:
    unknown = b"\xff" * 4
    return content[:4] + unknown + content[8:40] + unknown + content[44:]


def without_streaminfo(content: bytes) -> bytes:
    flac = bytearray(content)
    flac[21] &= 0xF0
    flac[22:42] = bytes(20)  # the number of samples, and their MD5
    return bytes(flac)


def with_other_byte(at: int, content: bytes) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]


def damaged(content: bytes) -> bytes:
    return with_other_byte(len(content) // 2, content)


def twice(content: bytes) -> bytes:
    return content + content


def without_first_frame(content: bytes) -> bytes:
    return content[content.index(content[:4], 4) :]


def tagged(content: bytes) -> bytes:
    return b"ID3\x04\0\0\0\0\0\x10" + b"\xff\xfb\x90\x64" * 4 + content + b"TAG" + bytes(125)


def with_list_chunk(content: bytes) -> bytes:
    chunk = b"LIST\x10\0\0\0INFOISFT\4\0\0\0abc\0"
    size = int.from_bytes(content[4:8], "little") + len(chunk)
    return content[:4] + size.to_bytes(4, "little") + content[8:36] + chunk + content[36:]


def with_bytes_behind(content: bytes) -> bytes:
    return content + b"what another program has added"


def with_two_chunks(content: bytes) -> bytes:
    return content[:4] + (len(content) - 8 + len(content[36:])).to_bytes(4, "little") + content[8:] + content[36:]


SEVERAL = "is several recordings one after the other, of which libsndfile reads the first at most"
SHORT = "as its header says, but the file ends after"
ROWS = [
    Row("all", "several channels", sound("WAV", "PCM_16"), wave_of, Read(
        Reference("NumPy", lambda path: [_by_soundfile(only(path)).mean(axis=1, dtype=np.float32)]),
        "averaged, in float32")),
    Row("all", "another sample rate", sound("WAV", "PCM_16", channels=1, rate=44_100),
        lambda path: wave_of(path, RATE), Read(
        Reference("soxr, VHQ", lambda path: [library("soxr").resample(
            np.append(_by_soundfile(only(path)).astype(float)[:, 0], np.zeros(2000)), 44_100, RATE, quality="VHQ"
        )[: -(-RATE * RATE // 44_100)].astype(np.float32)]),
        "resampled; as long as its time says", tolerance=1e-6)),
    Row("all", "no samples", of_samples([]), decode, Refused("contains no samples")),
    Row("all", "samples that are NaN or infinite", of_samples([0.5, np.nan, 0.0]), decode,
        Refused("has 1 samples that are NaN or infinite, the first at 0.000 s")),
    Row("all, as int16", "samples louder than 1", of_samples([0.5, -1.0, 2.4]), decode_int16,
        LeftOut(CLIPPED, stated("arithmetic", [16384, -32768, 32767]), what="clipped")),
    Row("all, as int16", "integers of other widths", sound("FLAC", "PCM_24", name="a.flac", channels=1), decode_int16,
        Read(INT16, "their upper 16 bits")),
    Row("WAV", "integers of 16 bits", sound("WAV", "PCM_16"), decode, Read(WAVE)),
    Row("WAV", "integers of 24 bits", sound("WAV", "PCM_24"), decode, Read(WAVE)),
    Row("WAV", "integers of 32 bits", sound("WAV", "PCM_32"), decode, Read(WAVE, "rounded to float32")),
    Row("WAV", "integers of 8 bits", sound("WAV", "PCM_U8"), decode, Read(SOUNDFILE)),
    Row("WAV", "floats of 32 bits", sound("WAV", "FLOAT"), decode, Read(SCIPY)),
    Row("WAV", "floats of 64 bits", sound("WAV", "DOUBLE"), decode, Read(SCIPY, "rounded to float32")),
    Row("WAV", "µ-law", sound("WAV", "ULAW"), decode, Read(SOUNDFILE)),
    Row("WAV", "A-law", sound("WAV", "ALAW"), decode, Read(SOUNDFILE)),
    Row("WAV", "IMA ADPCM", sound("WAV", "IMA_ADPCM"), decode, Read(SOUNDFILE)),
    Row("WAV", "GSM 6.10", sound("WAV", "GSM610", channels=1), decode, Read(SOUNDFILE)),
    Row("WAV", "an extensible header", sound("WAVEX", "PCM_24"), decode, Read(SOUNDFILE)),
    Row("WAV", "chunks of metadata before the samples", sound("WAV", "PCM_16", with_list_chunk), decode,
        Read(as_whole("the same file without them", "WAV", "PCM_16"), "ignored")),
    Row("WAV", "bytes behind the last chunk", sound("WAV", "PCM_16", with_bytes_behind), decode,
        Read(as_whole("the same file without them", "WAV", "PCM_16"), "ignored")),
    Row("WAV", "no length, as programs write it to a pipe", sound("WAV", "PCM_16", without_length), decode,
        Read(as_whole("the same file with it", "WAV", "PCM_16"), "read to the end of the file")),
    Row("WAV", "cut short", sound("WAV", "PCM_16", cut), decode, Refused(SHORT)),
    Row("WAV", "several chunks of samples", sound("WAV", "PCM_16", with_two_chunks), decode, Refused(SEVERAL)),
    *(Row(container, "several files in one", sound(container.replace("SPHERE", "NIST"), "PCM_16", twice,
          name=f"a.{container.lower()}"), decode, Refused(SEVERAL))
      for container in ("WAV", "RF64", "W64", "AU", "CAF", "SPHERE", "AIFF", "FLAC")),
    Row("RF64", "integers of 16 bits", sound("RF64", "PCM_16"), decode, Read(SOUNDFILE)),
    Row("RF64", "cut short", sound("RF64", "PCM_16", cut), decode, Refused(SHORT)),
    Row("W64", "called `.wav`", sound("W64", "PCM_16"), decode, Read(SOUNDFILE)),
    Row("AU", "called `.wav`", sound("AU", "PCM_16"), decode, Read(SOUNDFILE)),
    Row("CAF", "called `.wav`", sound("CAF", "PCM_16"), decode, Read(SOUNDFILE)),
    Row("SPHERE", "called `.wav`", sound("NIST", "PCM_16"), decode, Read(SOUNDFILE)),
    Row("AIFF", "integers of 16 bits", sound("AIFF", "PCM_16", name="a.aiff"), decode, Read(SOUNDFILE)),
    Row("AIFF", "integers of 24 bits", sound("AIFF", "PCM_24", name="a.aif"), decode, Read(SOUNDFILE)),
    Row("AIFF", "cut short", sound("AIFF", "PCM_16", cut, name="a.aiff"), decode, Refused(SHORT)),
    Row("FLAC", "16 bits", sound("FLAC", "PCM_16", name="a.flac"), decode, Read(SOUNDFILE)),
    Row("FLAC", "24 bits", sound("FLAC", "PCM_24", name="a.flac"), decode, Read(SOUNDFILE)),
    Row("FLAC", "neither length nor MD5, as encoders write it to a pipe",
        sound("FLAC", "PCM_16", without_streaminfo, name="a.flac"), decode,
        Read(as_whole("the same file with them", "FLAC", "PCM_16"), "read to the end of the file")),
    Row("FLAC", "samples that are not those of the MD5",
        sound("FLAC", "PCM_16", functools.partial(with_other_byte, 30), name="a.flac"), decode,
        Refused("their MD5 differs from that of the header")),
    Row("FLAC", "a damaged frame", sound("FLAC", "PCM_16", damaged, name="a.flac"), decode,
        Refused("cannot decode sound from a.flac")),
    Row("OGG", "Vorbis", sound("OGG", "VORBIS", name="a.ogg"), decode, Read(SOUNDFILE)),
    Row("OGG", "Opus", sound("OGG", "OPUS", name="a.opus"), decode, Read(SOUNDFILE)),
    Row("OGG", "FLAC", text("a.oga", b"OggS" + bytes(24) + b"\x7fFLAC" + bytes(99)), decode,
        Refused("It is FLAC in OGG, which libsndfile does not decode. Convert it to FLAC")),
    Row("OGG", "a damaged page", sound("OGG", "VORBIS", damaged, name="a.ogg"), decode,
        Refused("is damaged: a page has a wrong checksum at byte")),
    Row("OGG", "cut short", sound("OGG", "VORBIS", cut, name="a.ogg"), decode,
        Refused("it has no page that ends its stream")),
    Row("OGG", "several streams one after the other", sound("OGG", "VORBIS", twice, name="a.ogg"),
        decode, Refused("has several streams one after the other")),
    Row("MP3", "variable bit rate", sound("MP3", "MPEG_LAYER_III", name="a.mp3"), decode, Read(SOUNDFILE)),
    Row("MP3", "constant bit rate", sound("MP3", "MPEG_LAYER_III", name="a.mp3", bitrate_mode="CONSTANT",
        compression_level=0.5), decode, Read(SOUNDFILE)),
    Row("MP3", "tags at both ends", sound("MP3", "MPEG_LAYER_III", tagged, name="a.mp3"), decode,
        Read(as_whole("the same file without them", "MP3", "MPEG_LAYER_III"), "ignored")),
    Row("MP3", "cut short", sound("MP3", "MPEG_LAYER_III", cut, name="a.mp3"), decode, Refused(SHORT)),
    Row("MP3", "variable bit rate without a header that says how long it is",
        sound("MP3", "MPEG_LAYER_III", without_first_frame, name="a.mp3", channels=1), decode,
        Refused("as the header states fewer or is missing")),
    Row("MP3", "several files in one", sound("MP3", "MPEG_LAYER_III", twice, name="a.mp3"), decode,
        Refused("as the header states fewer or is missing")),
    *(Row(kind, "all", text("a.wav", begins + bytes(100)), decode,
          Refused(f"It is {kind}, which libsndfile does not decode. Convert it to FLAC"))
      for begins, kind in {**UNREAD_KINDS, b"\0\0\0\x20ftypM4A ": "MPEG-4 or AAC"}.items()),
    Row("a directory", f"only files of {', '.join(UNREAD_SUFFIXES)}", text("a.m4a", b""), examples,
        Refused("that libsndfile decodes, but 1 that it does not")),
    Row("a directory", "files of other kinds", several(sound("WAV", "PCM_16"), text("b.mid", b"MThd")), examples,
        LeftOut(".mid", stated("–", ("a.wav", RATE)))),
    Row("a directory", "hidden files", several(sound("WAV", "PCM_16"), text(".b.wav", b"")), examples,
        LeftOut("hidden", stated("–", ("a.wav", RATE)))),
]  # fmt: skip
