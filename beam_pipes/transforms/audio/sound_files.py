"""Sound files: which ones are read, whether they are whole, and their samples. libsndfile decodes them.

    decoded(content, name="a.flac")                →  Sound(samples=float32 (220500, 2), rate=44100, subtype="PCM_16")
    decoded(…).wave(sample_rate=16000)             →  float32 (80000,), channels averaged
    read_wav("a.flac", sample_rate=16000)          →  the same wave, and 16000

A truncated file decodes silently to what is left of it, and several files that were joined to the first of them. So the
facts that a format states about its completeness are compared with the content (`check_whole`): bytes of samples (WAV,
RF64, AIFF), number of samples (FLAC, SPHERE), MD5 (FLAC), number of frames (MP3), pages and the end of the stream
(OGG); and a second beginning is looked for (`check_single`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import DatasetError
from beam_pipes.extras import require
from beam_pipes.transforms.audio.spectra import resample
from beam_pipes.transforms.image_files import kind_of

Wave = npt.NDArray[np.float32]

AUDIO_SUFFIXES = (".aif", ".aifc", ".aiff", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".wav")
#: Sound that libsndfile does not decode.
UNREAD_SUFFIXES = (".aac", ".amr", ".ape", ".m4a", ".mka", ".mp4", ".webm", ".wma", ".wv")

#: First bytes of files that libsndfile does not decode, whatever their names.
UNREAD_KINDS = {
    b"\x1aE\xdf\xa3": "WebM or Matroska",
    b"0&\xb2u": "WMA",
    b"#!AMR": "AMR",
    b"wvpk": "WavPack",
    b"MAC ": "Monkey's Audio",
}
_MORE = {"MPEG-4 or AAC": rb"....ftyp|\xff[\xf0\xf1\xf8\xf9]", "FLAC in OGG": rb"OggS.{23,40}\x7fFLAC"}
# What takes the place of files of any kind.
_INSTEAD = ("HTML", "Git LFS pointer", "AppleDouble")
# Programs that write to a pipe do not know the length, and state an impossible one or none.
_NO_LENGTH = 0x7FFF_0000
_UNKNOWN_FRAMES = 1 << 62
# libsndfile's log messages about files that end early.
_SHOULD_BE = re.compile(r"^ *(?:riff|data|Data Size) *: (\d+) \(should be (\d+)\)", re.MULTILINE)
#: Files of chunks.
_CHUNKED = (b"RIFF", b"RIFX", b"RF64", b"BW64", b"FORM")
_REMEDY = "Copy the file again, or leave such files out (--on-error drop)."


@dataclasses.dataclass(frozen=True)
class Sound:
    """A decoded file: `samples` of shape (n, channels), float32 in [-1, 1] or the file's own int16; `rate` in Hz."""

    samples: npt.NDArray[Any]
    rate: int
    subtype: str

    def wave(
        self, *, sample_rate: int | None = None, first: int = 0, stop: int | None = None, channel: int | None = None
    ) -> npt.NDArray[Any]:
        """Samples `first` to `stop` at `sample_rate`: those of one channel, or the average of all."""
        part = self.samples[first:stop]
        if channel is not None or part.shape[1] == 1:
            wave = part[:, channel or 0]
        else:
            wave = part.mean(axis=1, dtype=np.float32)
        if sample_rate is None or sample_rate == self.rate:
            return wave
        return resample(wave, self.rate, sample_rate).astype(np.float32)

    def as_int16(self, wave: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int16], int]:
        """A wave as int16, scaled as by libsndfile, and the number of samples that are too loud and clipped."""
        if wave.dtype == np.int16:
            return wave, 0
        scaled = np.rint(wave * np.float32(32767 if self.subtype in ("OPUS", "VORBIS") else 32768))
        clipped = int(np.count_nonzero(np.abs(scaled) > 32768))  # 1.0 itself is off by one step, as in every reader
        return np.clip(scaled, -32768, 32767).astype(np.int16), clipped


def decoded(content: bytes, *, name: str, int16_at: int | None = None) -> Sound:
    """The samples of a file, in float32. Raises `DatasetError` as `whole` does.

    `int16_at`: a file of integers with one channel and this sample rate gives them as int16, as libsndfile reads them.
    """

    def dtype_of(file: Any) -> str:
        is_exact = file.channels == 1 and file.samplerate == int16_at
        is_float = file.subtype in ("FLOAT", "DOUBLE", "VORBIS", "OPUS") or file.subtype.startswith("MPEG")
        return "int16" if is_exact and not is_float else "float32"

    return whole(content, name=name, dtype_of=dtype_of)


def whole(content: bytes, *, name: str, dtype_of: Callable[[Any], str]) -> Sound:
    """All samples of a file in the dtype, float32, int16 or int32, that `dtype_of` names for soundfile's open file.

    Every reader of sound decodes here, or asks here once about each file of which it reads pieces. Raises
    `DatasetError`, with `name`, if the file is damaged, cut short, empty, several files in one, or holds NaN.
    """
    soundfile = require("soundfile", purpose="decoding sound")
    check_single(content, name)
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            dtype = dtype_of(file)
            if file.format == "FLAC":
                samples = _samples_of_flac(file, content, name)
            else:
                if file.seekable():
                    file.seek(0)  # as `soundfile.read` does: the MP3 decoder rounds differently after a seek
                samples = file.read(_frames_of(file), dtype=dtype, always_2d=True)
            check_whole(content, file, len(samples), name)
            rate, subtype = int(file.samplerate), str(file.subtype)
    except (RuntimeError, OSError) as error:  # soundfile's own errors are RuntimeErrors
        # The text without an object's address, which differs between runs.
        raise DatasetError(
            f"cannot decode sound from {name}: {getattr(error, 'error_string', error)}{_if_unread(content, name)}",
            source=name,
        ) from error
    if not len(samples):
        raise DatasetError(f"the sound in {name} contains no samples", source=name)
    if samples.dtype.kind == "f" and not np.isfinite(samples).all():
        bad = ~np.isfinite(samples).all(axis=1)
        raise DatasetError(
            f"the sound in {name} has {bad.sum():,} samples that are NaN or infinite, the first at "
            f"{np.argmax(bad) / rate:.3f} s. Create the file again, or leave such files out (--on-error drop).",
            source=name,
        )
    if dtype == "int16" and samples.dtype == np.int32:
        samples = (samples >> 16).astype(np.int16)
    elif dtype == "float32" and samples.dtype == np.int32:
        samples = np.multiply(samples, np.float32(2.0**-31), dtype=np.float32)
    return Sound(samples=samples, rate=rate, subtype=subtype)


def _frames_of(file: Any) -> int:
    """What `file.read` wants as a number of frames: of GSM all of them, as it cannot seek; else -1, up to the end."""
    return -1 if file.seekable() else int(file.frames)


def read_wav(source: str | os.PathLike[str] | bytes | BinaryIO, *, sample_rate: int | None = None) -> tuple[Wave, int]:
    """Decodes a sound file to one channel of float32 in [-1, 1], and returns it with its sample rate in Hz.

    Args:
      source: a path, the bytes of a file, or an open binary file; WAV, FLAC, OGG and other formats of libsndfile.
      sample_rate: resample to this many Hz; the file's own rate by default.

    Several channels are averaged. Raises `DatasetError`, with the source, for a file that cannot be decoded, was cut
    short, has no samples or some that are NaN or infinite, and `MissingExtraError` without the package soundfile.
    """
    name = f"{len(source)} bytes" if isinstance(source, bytes) else str(source)
    if isinstance(source, bytes):
        content = source
    elif isinstance(source, str | os.PathLike):
        try:
            content = Path(source).read_bytes()
        except OSError as error:
            reasons = {IsADirectoryError: "it is a directory.", FileNotFoundError: "there is no such file."}
            raise DatasetError(
                f"cannot decode sound from {name}: {reasons.get(type(error), error)}", source=name
            ) from error
    else:
        content = source.read()
    sound = decoded(content, name=name)
    return sound.wave(sample_rate=sample_rate), sample_rate or sound.rate


def write_wav(path: str | os.PathLike[str], wave: np.ndarray, sample_rate: int) -> None:
    """Writes one channel of samples in [-1, 1] as 16-bit PCM; louder ones are an error, as they would be clipped."""
    soundfile = require("soundfile", purpose="write_wav")
    peak = float(np.max(np.abs(wave), initial=0.0))
    if not peak <= 1.0:
        raise DatasetError(f"write_wav needs samples between -1 and 1 for {Path(path).name}, got a peak of {peak}")
    soundfile.write(os.fspath(path), wave, sample_rate, subtype="PCM_16")


def convert(name: str) -> str:
    """What to do with sound that is not decoded: `Convert it to FLAC, for example with: ffmpeg -i a.m4a a.flac`."""
    return f"Convert it to FLAC, for example with: ffmpeg -i {name} {os.path.splitext(name)[0]}.flac"


def _if_unread(content: bytes, name: str) -> str:
    kinds = [kind for magic, kind in UNREAD_KINDS.items() if content.startswith(magic)]
    kinds += [kind for kind, pattern in _MORE.items() if re.match(pattern, content, re.DOTALL)]
    if not kinds:
        other = kind_of(content)
        if other is not None and other.name in _INSTEAD:
            return f" It is {other.name}. {other.remedy}."
        is_known = content[:4] in (*_SIGNATURES, b"OggS", b".snd") or content[:3] == b"ID3" or content[:1] == b"\xff"
        return "" if is_known else f" It begins with {content[:24]!r}." if content else " The file is empty."
    kind = kinds[0]
    return f" It is {kind}, which libsndfile does not decode. {convert(name if ' bytes' not in name else 'clip.m4a')}"


# Whether a file is whole, and one file.

# How files of a kind begin: first four bytes → bytes that follow, and where.
_SIGNATURES: dict[bytes, list[tuple[int, bytes]]] = {
    **dict.fromkeys((b"RIFF", b"RIFX", b"RF64", b"BW64"), [(8, b"WAVE")]),
    b"FORM": [(8, b"AIFF"), (8, b"AIFC")],
    b"fLaC": [(4, b"\0\0\0\x22"), (4, b"\x80\0\0\x22")],
    b"riff": [(4, b"\x2e\x91\xcf\x11\xa5\xd6\x28\xdb")],
    b"caff": [(4, b"\0\1\0\0desc")],
    b"NIST": [(4, b"_1A\n   1024\n")],
}


def _after_id3(content: bytes) -> int:
    """Where the sound begins: after an ID3 tag, if the file has one."""
    return 10 + sum((content[6 + k] & 0x7F) << 7 * (3 - k) for k in range(4)) if content[:3] == b"ID3" else 0


def check_single(content: bytes, name: str) -> None:
    """Raises `DatasetError` for several files one after the other (`cat a.wav b.wav`), and for several chunks of
    samples in one: libsndfile reads the first of them, or takes the headers of the others for samples.
    """
    at = first = _after_id3(content)
    kind = content[at : at + 4]
    signatures = [(4, content[4:8]), (12, content[12:24])] if kind == b".snd" else _SIGNATURES.get(kind, ())
    matches = all if kind == b".snd" else any  # of AU, the offset of the samples, and their kind, rate and channels
    several = _has_two_chunks_of_samples(content)
    while signatures and not several and 0 <= (at := content.find(kind, at + 4)):
        several = matches(content.startswith(follows, at + offset) for offset, follows in signatures)
    if several:
        raise DatasetError(
            f"the sound in {name} is several recordings one after the other, of which libsndfile reads the first at "
            f"most{f' (another one begins at byte {at:,})' if at > first else ''}. Join recordings with a "
            "program that knows their format, such as sox a.wav b.wav joined.wav, or leave such files out (--on-error "
            "drop).",
            source=name,
        )


def check_whole(content: bytes, file: Any, num_read: int, name: str) -> None:
    """Raises `DatasetError` for a file that holds less than it states."""
    stated: tuple[int, int, str] | None = None
    if content[:4] in _CHUNKED:
        stated = _bytes_of_samples(content)
    elif content[:7] == b"NIST_1A" and (count := re.search(rb"\nsample_count -i (\d+)", content[:1024])):
        stated = int(count[1]), num_read, "samples"
    elif file.format == "FLAC" and file.frames < _UNKNOWN_FRAMES:
        stated = file.frames, num_read, "samples"
    elif file.format == "MP3":
        stated = _frames_of_mp3(content, file, name)
    elif file.format == "OGG":
        _check_pages(content, name)
    elif found := _SHOULD_BE.search(file.extra_info):  # of AU, CAF and W64
        stated = int(found[1]) if int(found[1]) < _NO_LENGTH else 0, int(found[2]), "bytes"
    if stated is not None and stated[1] < stated[0]:
        raise DatasetError(
            f"the sound in {name} should have {stated[0]:,} {stated[2]}, as its header says, but the file ends after "
            f"{stated[1]:,}. {_REMEDY}",
            source=name,
        )


def _chunks_of_samples(content: bytes) -> Iterator[tuple[int, int]]:
    """For WAV, RF64 and AIFF: where the samples of each chunk of them begin, and their stated number of bytes, 0 if
    none is stated.
    """
    is_aiff = content[:4] == b"FORM"
    order: Literal["big", "little"] = "big" if is_aiff or content[:4] == b"RIFX" else "little"
    at, long_size = 12, 0
    while at + 8 <= len(content):
        size = int.from_bytes(content[at + 4 : at + 8], order)
        if content[at : at + 4] == b"ds64":
            long_size = int.from_bytes(content[at + 16 : at + 24], "little")
        elif content[at : at + 4] == (b"SSND" if is_aiff else b"data"):
            size = long_size if size == 0xFFFF_FFFF else size if size < _NO_LENGTH else 0
            yield at + 8, size
            if not size:
                return
        at += 8 + size + size % 2


def _has_two_chunks_of_samples(content: bytes) -> bool:
    return content[:4] in _CHUNKED and len(list(itertools.islice(_chunks_of_samples(content), 2))) > 1


def _bytes_of_samples(content: bytes) -> tuple[int, int, str] | None:
    """For WAV, RF64 and AIFF: the stated and the actual number of bytes of samples."""
    for at, size in _chunks_of_samples(content):
        return size, len(content) - at, "bytes of samples"
    return None


def _samples_of_flac(file: Any, content: bytes, name: str) -> npt.NDArray[Any]:
    """int32 samples, in the upper bits, compared with the MD5 in the header; float32 if it states no length."""
    if file.frames >= _UNKNOWN_FRAMES:  # the encoder wrote to a pipe, so there is no MD5 either
        return _to_the_end(file)
    samples: npt.NDArray[np.int32] = file.read(dtype="int32", always_2d=True)
    at = content.find(b"fLaC") + 8  # STREAMINFO is the first block; ID3 tags may precede it
    md5, bits = content[at + 18 : at + 34], 1 + ((content[at + 12] & 1) << 4 | content[at + 13] >> 4)
    if any(md5) and len(samples) == file.frames:
        integers, width = samples >> (32 - bits), (bits + 7) // 8
        if width == 3:
            stored = np.ascontiguousarray(integers.astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3])
        else:
            stored = integers.astype(f"<i{width}")
        if hashlib.md5(stored.data, usedforsecurity=False).digest() != md5:
            raise DatasetError(
                f"the samples in {name} are not those that were encoded: their MD5 differs from that of the header. "
                f"{_REMEDY}",
                source=name,
            )
    return samples


def _to_the_end(file: Any) -> Wave:
    """All samples of a file whose length libsndfile does not know. Reading past the end fails after the samples are
    delivered, so the rest of the array shows their number.
    """
    parts: list[Wave] = []
    while True:
        part = np.full((1 << 20, file.channels), np.nan, np.float32)
        try:
            file.read(out=part)
            at_end = False
        except RuntimeError as error:
            if "psf_fseek" not in str(error):
                raise
            at_end = True
        count = int(np.count_nonzero(~np.isnan(part[:, 0])))
        parts.append(part[:count])
        if at_end or count < len(part):
            return np.concatenate(parts)


# MPEG audio, layer III: kilobits per second by index, and Hz; version 1, then 2 and 2.5.
_KBPS = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)
# The first frame may hold a header with the number of frames instead of sound, after the side information.
_VBR_HEADER = re.compile(rb"(?:Xing|Info)...[\1\3\5\7\t\x0b\r\x0f](....)|VBRI.{10}(....)", re.DOTALL)
# Samples that encoders add at each end, stated in the header in 12 bits each.
_MOST_PADDING = 2 * 4096
_HZ = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}


def _mp3_frame(content: bytes, at: int) -> tuple[int, int] | None:
    """Bytes and samples of the frame that begins there; None if there is none or its length is unknown."""
    if len(content) < at + 4 or content[at] != 0xFF or content[at + 1] & 0xE6 != 0xE2:
        return None
    version, kbps, hz = content[at + 1] >> 3 & 3, content[at + 2] >> 4, content[at + 2] >> 2 & 3
    if version == 1 or kbps in (0, 15) or hz == 3:
        return None
    is_first = version == 3
    samples = 1152 if is_first else 576
    rate = _KBPS[0 if is_first else 1][kbps] * 1000
    return samples // 8 * rate // _HZ[version][hz] + (content[at + 2] >> 1 & 1), samples


def _frames_of_mp3(content: bytes, file: Any, name: str) -> tuple[int, int, str] | None:
    """The stated number of frames and the actual number of whole ones; None if none is stated and the last is whole.

    libsndfile reads as many samples as the header states, or an estimate without one; the rest is lost.
    """
    at = _after_id3(content)
    count = samples = 0
    stated: int | None = None
    in_step = is_cut = False
    while 0 <= (at := content.find(b"\xff", at)):
        frame = _mp3_frame(content, at)
        if frame is None or not (in_step or _mp3_frame(content, at + frame[0])):
            at += 1  # tags, or bytes that look like the beginning of a frame
            in_step = False
            continue
        if not count and stated is None and (header := _VBR_HEADER.search(content, at, at + 64)):
            stated = int.from_bytes(header[1] or header[2], "big")
        elif is_cut := at + frame[0] > len(content):
            pass
        else:
            count, samples = count + 1, samples + frame[1]
        at += frame[0]
        in_step = True
    stated = count + 1 if stated is None and is_cut else stated  # the last frame has a header too
    if stated is not None and stated - count > (0 if is_cut else 1):  # some encoders count the frame of the header too
        return stated, count, "frames"
    if samples > file.frames + (_MOST_PADDING if stated is not None else 2 * 1152):
        raise DatasetError(
            f"the MP3 file {name} has {samples:,} samples, but libsndfile would read {file.frames:,} of them, as the "
            f"header states fewer or is missing. Write a right one: ffmpeg -i {name} -c copy -write_xing 1 new.mp3",
            source=name,
        )
    return None


_MIRRORED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


def _check_pages(content: bytes, name: str) -> None:
    """Raises `DatasetError` for an OGG file in which a page is damaged or missing, or whose streams do not end."""
    numbers: dict[bytes, int] = {}
    open_streams: set[bytes] = set()
    at = 0
    while 0 <= (at := content.find(b"OggS", at)):
        segments = content[at + 27 : at + 27 + content[at + 26]] if at + 27 <= len(content) else b""
        page = content[at : at + 27 + len(segments) + sum(segments)]
        if len(page) < 27 or at + len(page) > len(content) or len(page) < 27 + page[26] + sum(segments):
            break  # cut within the page
        # The checksum of OGG is that of zlib with mirrored bits, and without the inversions.
        crc = zlib.crc32((page[:22] + bytes(4) + page[26:]).translate(_MIRRORED), 0xFFFF_FFFF) ^ 0xFFFF_FFFF
        serial, number = page[14:18], int.from_bytes(page[18:22], "little")
        if page[5] & 2 and numbers and not open_streams:
            raise DatasetError(
                f"the OGG file {name} has several streams one after the other, of which libsndfile reads the first. "
                f"Make one of them: ffmpeg -i {name} new.flac",
                source=name,
            )
        is_next = page[5] & 2 or serial not in numbers or number == numbers[serial] + 1
        if page[22:26] != crc.to_bytes(4, "big").translate(_MIRRORED) or not is_next:
            raise DatasetError(
                f"the OGG file {name} is damaged: a page {'is missing' if not is_next else 'has a wrong checksum'} at "
                f"byte {at:,}. {_REMEDY}",
                source=name,
            )
        numbers[serial] = number
        (open_streams.discard if page[5] & 4 else open_streams.add)(serial)
        at += len(page)
    if open_streams:
        raise DatasetError(
            f"the OGG file {name} was cut short: it has no page that ends its stream. {_REMEDY}", source=name
        )
