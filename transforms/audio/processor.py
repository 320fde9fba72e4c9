"""From sound files to mel spectrograms, with the options in one object (`AudioProcessor`).

Reading and writing sound files, and normalizers that bring magnitudes into the range that a model learns on and back.
`Transcripts`: which text belongs to which sound file.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from beam_pipes.errors import DatasetError
from beam_pipes.extras import require
from beam_pipes.identity.canonical import Asset
from beam_pipes.transforms.audio.spectra import StftOptions, istft, mel_filters, resample, stft

Spectrogram = npt.NDArray[np.float32]

# The loudest sample after normalisation; just below 1, so that 16-bit PCM holds it.
PEAK = 0.999


class AudioProcessor:
    """Reads sound and computes spectrograms; picklable, and safe to share between threads.

        processor = AudioProcessor(sample_rate=22050, n_fft=1024, win_length=1024, hop_length=256, f_max=8000)
        mel = processor.mel_spectrogram(processor.read_wav("clip.wav"))  → float32 (80, 1 + samples // 256)

    Args:
      sample_rate: Hz; files of another rate are resampled.
      n_fft, win_length, hop_length: samples a frame, under the window, and between frames.
      n_mels: bands of a mel spectrogram.
      f_min, f_max: Hz, the range of the bands; up to half the sample rate by default.
      center, pad_mode: see `StftOptions`.
      normalize: scale each wave that is read to a peak of 0.999; silence stays silence.
    """

    def __init__(
        self,
        sample_rate: int,
        n_fft: int,
        win_length: int | None = None,
        hop_length: int | None = None,
        n_mels: int = 80,
        f_min: float = 0.0,
        f_max: float | None = None,
        *,
        center: bool = True,
        pad_mode: str = "reflect",
        normalize: bool = True,
    ) -> None:
        self.sample_rate = sample_rate
        self.normalize = normalize
        self.options = StftOptions(
            n_fft=n_fft, win_length=win_length, hop_length=hop_length, center=center, pad_mode=pad_mode
        )
        self.mel_filter = mel_filters(sample_rate=sample_rate, n_fft=n_fft, n_mels=n_mels, f_min=f_min, f_max=f_max)

    def read_wav(self, source: str | os.PathLike[str] | bytes | BinaryIO) -> Wave:
        """Returns one channel at `sample_rate`, float32; see `beam_pipes.transforms.audio.read_wav`."""
        wave, _ = read_wav(source, sample_rate=self.sample_rate)
        peak = float(np.max(np.abs(wave)))
        return wave / np.float32(peak / PEAK) if self.normalize and peak > 0 else wave

    def write_wav(self, path: str | os.PathLike[str], wave: np.ndarray) -> None:
        """Writes samples in [-1, 1] as 16-bit PCM at `sample_rate`."""
        write_wav(path, wave, self.sample_rate)

    def stft(self, wave: np.ndarray) -> npt.NDArray[np.complex128]:
        """Returns complex128 of shape (1 + n_fft // 2, frames)."""
        return stft(wave, self.options)

    def istft(self, spectrum: np.ndarray, *, length: int | None = None) -> np.ndarray:
        """Returns the wave of a complex spectrum, float64."""
        return istft(spectrum, self.options, length=length)

    def spectrogram(self, wave: np.ndarray) -> Spectrogram:
        """Returns magnitudes, float32 of shape (1 + n_fft // 2, frames)."""
        magnitudes: Spectrogram = np.abs(self.stft(wave)).astype(np.float32)
        return magnitudes

    def mel_spectrogram(self, wave: np.ndarray) -> Spectrogram:
        """Returns magnitudes in mel bands, float32 of shape (n_mels, frames)."""
        mel: Spectrogram = (self.mel_filter @ np.abs(self.stft(wave))).astype(np.float32)
        return mel


Array = np.ndarray


@dataclasses.dataclass(frozen=True)
class LogMagnitude:
    """The natural logarithm of magnitudes, floored at `min`: 1.0 → 0.0, silence → log(1e-5) = -11.51.

    `inverse(transform(x))` is `max(x, min)`. The floor's default is that of Tacotron 2 and WaveFlow.
    """

    min: float = 1e-5

    def __post_init__(self) -> None:
        if not self.min > 0:
            raise DatasetError(f"LogMagnitude needs a min above 0, the logarithm's domain; got {self.min}")

    def transform(self, magnitude: Array) -> Array:
        """Returns log magnitudes in the input's float dtype, float64 for integers."""
        array = np.asarray(magnitude)
        if array.dtype.kind != "f":
            array = array.astype(np.float64)
        return np.asarray(np.log(np.maximum(array, array.dtype.type(self.min))))

    def inverse(self, normalized: Array) -> Array:
        """Returns magnitudes of log magnitudes."""
        return np.asarray(np.exp(normalized))


@dataclasses.dataclass(frozen=True)
class UnitMagnitude:
    """Decibels in [0, 1]: `(20 log10(max(x, min)) - 20 + 100) / 100`, clipped; 10.0 → 1.0, 1e-4 and less → 0.0.

    `inverse(transform(x))` is x between 1e-4 and 10. `min` is the floor before the logarithm.
    """

    min: float = 1e-5

    def __post_init__(self) -> None:
        if not self.min > 0:
            raise DatasetError(f"UnitMagnitude needs a min above 0, the logarithm's domain; got {self.min}")

    def transform(self, magnitude: Array) -> Array:
        """Returns decibels scaled to [0, 1]."""
        decibels = 20.0 * np.log10(np.maximum(magnitude, self.min)) - 20.0
        scaled: Array = np.clip((decibels + 100.0) / 100.0, 0.0, 1.0)
        return scaled

    def inverse(self, normalized: Array) -> Array:
        """Returns magnitudes of scaled decibels."""
        return np.asarray(10.0 ** ((np.clip(normalized, 0.0, 1.0) * 100.0 - 100.0 + 20.0) / 20.0))


Wave = npt.NDArray[np.float32]


def read_wav(source: str | os.PathLike[str] | bytes | BinaryIO, *, sample_rate: int | None = None) -> tuple[Wave, int]:
    """Decodes a sound file to one channel of float32 in [-1, 1], and returns it with its sample rate in Hz.

    Args:
      source: a path, the bytes of a file, or an open binary file; WAV, FLAC, OGG and other formats of libsndfile.
      sample_rate: resample to this many Hz; the file's own rate by default.

    Several channels are averaged. Raises `DatasetError`, with the source, for a file that cannot be decoded or
    has no samples, and `MissingExtraError` without the package soundfile.
    """
    soundfile = require("soundfile", purpose="read_wav")
    name = f"{len(source)} bytes" if isinstance(source, bytes) else str(source)
    try:
        samples, rate = soundfile.read(
            io.BytesIO(source) if isinstance(source, bytes) else source, dtype="float32", always_2d=True
        )
    except (RuntimeError, OSError) as error:  # soundfile's own errors are RuntimeErrors
        told = getattr(error, "error_string", error)  # without the address of an object, which no two runs share
        if isinstance(source, str | os.PathLike) and not os.path.isfile(source):  # libsndfile says "System error."
            told = "it is a directory." if os.path.isdir(source) else "there is no such file."
        raise DatasetError(f"cannot decode sound from {name}: {told}", source=name) from error
    if not len(samples):
        raise DatasetError(f"the sound in {name} contains no samples", source=name)
    wave = samples.mean(axis=1, dtype=np.float32)
    if sample_rate is None or sample_rate == rate:
        return wave, int(rate)
    return resample(wave, int(rate), sample_rate).astype(np.float32), sample_rate


def write_wav(path: str | os.PathLike[str], wave: np.ndarray, sample_rate: int) -> None:
    """Writes one channel of samples in [-1, 1] as 16-bit PCM; louder ones are an error, as they would be clipped."""
    soundfile = require("soundfile", purpose="write_wav")
    peak = float(np.max(np.abs(wave), initial=0.0))
    if not peak <= 1.0:
        raise DatasetError(f"write_wav needs samples between -1 and 1 for {Path(path).name}, got a peak of {peak}")
    soundfile.write(os.fspath(path), wave, sample_rate, subtype="PCM_16")


# What is said in sound files.

AUDIO_SUFFIXES = (".flac", ".mp3", ".ogg", ".wav")
_LJSPEECH = ("audio", "raw_text", "text")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Transcripts:
    """Rows about sound files, read on first use:

        {"audio_filepath": "clips/a.wav", "text": "to be", "speaker": 7}   a manifest in JSON Lines, CSV or TSV
        84-121123-0000 GO DO YOU HEAR                                      84-121123.trans.txt, as in LibriSpeech
        LJ001-0001|Printing, in 1455|Printing, in fourteen fifty-five      metadata.csv, as in LJSpeech

    A row names a file by any end of its path, with or without its suffix: `/data/clips/a.wav`, `a.wav` and
    `a` are all `clips/a.wav`.

    `Transcripts(files=[Asset("manifest.jsonl")]).row("clips/a.wav")` → `{"audio": "a.wav", "text": "to be"}`

    Args:
        files: manifests (`.jsonl`, `.json`, `.csv`, `.tsv`), or `*.trans.txt`. Fingerprints cover their content.
        audio_field, text_field: of the rows.
    """

    files: Sequence[Asset]
    audio_field: str = "audio"
    text_field: str = "text"

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def fingerprint_config(self) -> Mapping[str, object]:
        """Everything the texts depend on, as JSON."""
        digests = [file.digest() for file in self.files]
        return {"files": digests, "audio_field": self.audio_field, "text_field": self.text_field}

    def row(self, path: str) -> Mapping[str, object] | None:
        """The row about a file; None if there is none."""
        for named, row in self._rows.get(_bare(path).name, ()):
            if _is_same_file(named, path):
                return row
        return None

    @functools.cached_property
    def _rows(self) -> Mapping[str, list[tuple[str, Mapping[str, object]]]]:
        """Name of a file without its suffix → its names in rows, and these rows."""
        found: dict[str, list[tuple[str, Mapping[str, object]]]] = {}
        for file in self.files:
            for row in rows_of_manifest(os.fspath(file)):
                named = os.path.normpath(str(row[self.audio_field])).replace(os.sep, "/")
                found.setdefault(_bare(named).name, []).append((named, row))
        return found

    def check(self, paths: Sequence[str], fields: Sequence[str]) -> None:
        """Raises `DatasetError` unless every row is about one file, every file has at most one row, and all
        `fields` exist.
        """
        by_stem: dict[str, list[str]] = {}
        for path in paths:
            by_stem.setdefault(_bare(path).name, []).append(path)
        for stem, rows in self._rows.items():
            taken: dict[str, str] = {}
            for named, row in rows:
                same = [path for path in by_stem.get(stem, ()) if _is_same_file(named, path)]
                if len(same) != 1:
                    told = "is none" if not same else f"are {len(same)}, such as {same[0]!r} and {same[1]!r}"
                    raise DatasetError(
                        f"a transcript is about the file {named!r}, and there {told}. Name the directory of the sound "
                        "files as audio_root=… (--audio-root), and files by their paths in it."
                    )
                if same[0] in taken:
                    raise DatasetError(
                        f"two transcripts are about the file {same[0]!r}. Leave one of them out, or cut the file."
                    )
                taken[same[0]] = named
                if missing := [field for field in fields if field not in row]:
                    raise DatasetError(
                        f"the transcript of {named!r} has no field {missing[0]!r}; it has {', '.join(row)}."
                    )


def _bare(path: str) -> PurePosixPath:
    """A path without the suffix of a sound file; `84-121.a` has none."""
    pure = PurePosixPath(path)
    return pure.with_suffix("") if pure.suffix.lower() in AUDIO_SUFFIXES else pure


def _is_same_file(named: str, path: str) -> bool:
    """Whether one path is the end of the other; a suffix counts if both have one."""
    has_suffix = _bare(named) != PurePosixPath(named)
    one, other = PurePosixPath(named).parts, (PurePosixPath(path) if has_suffix else _bare(path)).parts
    shorter = min(len(one), len(other))
    return one[-shorter:] == other[-shorter:]


def rows_of_manifest(path: str) -> Iterator[Mapping[str, object]]:
    """The rows of a manifest. Raises `DatasetError` for an invalid line, and for what is no text in UTF-8."""
    try:
        yield from _rows_of_manifest(path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(
            f"{path}: expected a manifest, which is UTF-8 text (.jsonl, .csv or .tsv, one row for each sound file): "
            f"{error}. Name the manifest or the directory of the sound files, or convert the file to UTF-8."
        ) from error


def _rows_of_manifest(path: str) -> Iterator[Mapping[str, object]]:
    with open(path, encoding="utf-8-sig", newline="") as lines:
        if path.endswith((".jsonl", ".json")):
            for number, line in enumerate(lines, start=1):
                try:
                    row = json.loads(line) if line.strip() else {}
                except ValueError as error:
                    raise DatasetError(f"{path}:{number}: expected a JSON object: {error}.") from error
                if row:
                    yield row
        elif path.endswith(".trans.txt"):
            for line in lines:
                name, _, text = line.strip().partition(" ")
                speaker, _, rest = name.partition("-")
                if name:
                    yield {"audio": name, "text": text, "speaker": speaker, "chapter": rest.partition("-")[0]}
        else:
            first = lines.readline()
            lines.seek(0)
            if path.endswith(".csv") and "|" in first:  # as in LJSpeech: no header, no quotes
                yield from csv.DictReader(lines, _LJSPEECH, delimiter="|", quoting=csv.QUOTE_NONE)
            elif path.endswith(".tsv"):
                yield from csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
            else:
                yield from csv.DictReader(lines)
