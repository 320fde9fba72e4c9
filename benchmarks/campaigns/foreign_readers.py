"""One file that others wrote, read by us and by its reference reader: Pillow, soundfile, pandas, pyarrow, tarfile, ….

    compared(file)  →  Outcome(file, "equal", "")
                       Outcome(file, "refused", "input a.tar is not a tar archive, …"): by both, and by us in our words
                       Outcome(file, "on purpose", …): as `ON_PURPOSE` says
                       Outcome(file, "wrong", "[3]: 'or' and 'or not'")

Ours are the functions that recipes call for a file, and the sources that they declare. Files are cut into shards of
64 KiB, so that what is split is compared too.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import subprocess
import tarfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
import pillow_heif
import pyarrow.feather
import pyarrow.parquet
import scipy.io.wavfile
import soundfile
import zstandard
from PIL import Image, ImageOps

from beam_pipes.errors import BeamPipesError
from beam_pipes.recipes import audio_example, image_example, row_example, table
from beam_pipes.sources import CSV, TSV, ArrowRows, FileContent, JSONLines, Parquet, Source, Tar, TextLines
from beam_pipes.transforms.audio.sound_files import decoded
from benchmarks.campaigns.foreign_corpora import ON_PURPOSE, ForeignFile

_SHARD_BYTES = 64 << 10


class Bad(NamedTuple):
    """A record that is refused, with our words; the reference has none."""

    words: str = ""


class Outcome(NamedTuple):
    """What came of a file: `what` is "equal", "refused", "on purpose" or "wrong"."""

    file: ForeignFile
    what: str
    words: str


class Unreadable(Exception):
    """A reference reader does not read a file."""


def compared(file: ForeignFile) -> Outcome:
    """What becomes of a file that we and its reference read."""
    ours, theirs = READERS[file.kind]
    expected: object = None
    refused_by_theirs = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = theirs(file.path)
    except Exception as error:  # of many classes: these are the readers of others
        refused_by_theirs = f"{type(error).__name__}: {error}"
    try:
        found = ours(file.path)
    except (BeamPipesError, ValueError) as error:
        return _refused(file, error, refused_by_theirs)
    except Exception as error:
        return Outcome(file, "wrong", f"foreign error: {type(error).__name__}: {error}")
    words = next((each.words for each in _parts(found) if isinstance(each, Bad)), "")
    if refused_by_theirs:
        return _differs(file, words or f"we read it, the reference does not: {refused_by_theirs}")
    if difference := difference_of(found, expected):
        return _differs(file, words or difference, difference)
    if any(each.matches(file.name) for each in ON_PURPOSE):
        return Outcome(file, "wrong", "it does not differ any more: take it out of ON_PURPOSE")
    return Outcome(file, "refused" if words else "equal", words)


def _refused(file: ForeignFile, error: Exception, refused_by_theirs: str) -> Outcome:
    words = str(error)
    # A stage says what is wrong with a file, and the build of which record that is.
    is_of_stage = type(error) is ValueError and file.kind == "image"
    if not is_of_stage and (not isinstance(error, BeamPipesError) or file.path.name not in words):
        return Outcome(file, "wrong", f"foreign error, or without the file: {type(error).__name__}: {words}")
    return Outcome(file, "refused", words) if refused_by_theirs else _differs(file, words)


def _differs(file: ForeignFile, words: str, difference: str = "") -> Outcome:
    if any(each.matches(file.name) and each.has_said(words) for each in ON_PURPOSE):
        return Outcome(file, "on purpose", words)
    return Outcome(file, "wrong", f"{difference}: {words}" if difference not in ("", words) else words)


def _parts(found: object) -> Iterator[object]:
    yield from found.get("rows", ()) if isinstance(found, Mapping) else found if isinstance(found, list) else ()


def difference_of(ours: Any, theirs: Any, where: str = "") -> str:
    """Where two values differ, and in what; nothing if they are the same."""
    if isinstance(ours, Bad) and isinstance(theirs, Bad):
        return ""
    if isinstance(theirs, Column):
        return _difference_of_columns(ours, theirs, where)
    if isinstance(ours, np.ndarray) or isinstance(theirs, np.ndarray):
        one, other = np.asarray(ours), np.asarray(theirs)
        same_kind = one.dtype == other.dtype or not isinstance(ours, np.ndarray) or not isinstance(theirs, np.ndarray)
        if same_kind and one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            return ""
        at = f" first at {np.argwhere(one != other)[:1].tolist()}" if one.shape == other.shape else ""
        return f"{where}: {one.dtype} {one.shape} and {other.dtype} {other.shape}{at}"
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if list(ours) != list(theirs):
            return f"{where}: keys {list(ours)} and {list(theirs)}"
        return next(filter(None, (difference_of(ours[key], theirs[key], f"{where}.{key}") for key in ours)), "")
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        pairs = enumerate(zip(ours, theirs, strict=False))
        found = next(filter(None, (difference_of(one, other, f"{where}[{at}]") for at, (one, other) in pairs)), "")
        return found or (f"{where}: {len(ours)} and {len(theirs)}" if len(ours) != len(theirs) else "")
    if isinstance(ours, np.datetime64):
        theirs = theirs.to_datetime64()
    if isinstance(ours, float) and isinstance(theirs, float) and ours != ours and theirs != theirs:
        return ""
    if ours == theirs and isinstance(ours, bool | float) == isinstance(theirs, bool | float):
        return ""
    return f"{where}: {ours!r:.200} and {theirs!r:.200}"


# Images: the default, over white; and the colours that transparency hides.


def _our_image(path: Path) -> object:
    file = FileContent(path.name, path.read_bytes())
    return {
        background: image_example(file, encode="pixels", background=background)["image"]  # type: ignore[index]
        for background in ("white", "none")
    }


def _their_image(path: Path) -> object:
    pillow_heif.register_heif_opener()  # without it, Pillow does not open HEIC
    with Image.open(path) as file:
        upright = ImageOps.exif_transpose(file)
        if file.mode.startswith("I;16"):  # which Pillow clips at 255 when it converts it: the upper 8 bits
            upright = Image.fromarray((np.asarray(upright).astype(np.uint16) >> 8).astype(np.uint8))
        over_white = upright.convert("RGB")
        if upright.has_transparency_data:
            colours = upright.convert("RGBA")
            over_white = Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours).convert("RGB")
        return {"white": np.asarray(over_white), "none": np.asarray(upright.convert("RGB"))}


# Sound: every channel, their average as the recipe stores it, and for files of integers what SciPy reads.


def _our_sound(path: Path) -> object:
    content = path.read_bytes()
    sound = decoded(content, name=path.name)
    (example,) = audio_example(FileContent(path.name, content), sample_rate=sound.rate)
    return {"rate": sound.rate, "samples": sound.samples, "audio": example["audio"], "other": sound.samples}


def _their_sound(path: Path) -> object:
    if soundfile.info(path).frames >= _NO_LENGTH:  # of FLAC that was written to a pipe, which soundfile.read refuses
        return _by_ffmpeg(path)
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    audio = samples.mean(axis=1, dtype=np.float32) if samples.shape[1] > 1 else samples[:, 0]
    return {"rate": rate, "samples": samples, "audio": audio, "other": _by_scipy(path, samples)}


_NO_LENGTH = 1 << 62


def _by_ffmpeg(path: Path) -> object:
    about = soundfile.info(path)
    command = ["ffmpeg", "-v", "error", "-i", str(path), "-f", "f32le", "-"]
    content = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL).stdout
    samples = np.frombuffer(content, np.float32).reshape(-1, about.channels)
    audio = samples.mean(axis=1, dtype=np.float32) if about.channels > 1 else samples[:, 0]
    return {"rate": about.samplerate, "samples": samples, "audio": audio, "other": samples}


def _by_scipy(path: Path, otherwise: Any) -> Any:
    """The samples by a reader that shares no code with libsndfile; `otherwise` for what it does not read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, values = scipy.io.wavfile.read(path)
    except Exception:
        return otherwise
    values = values.reshape(len(values), -1)
    if values.dtype.kind == "u":
        return ((values.astype(np.float32) - 128) / 128).astype(np.float32)
    if values.dtype.kind == "f":
        return values.astype(np.float32)
    return (values.astype(np.float64) / 2.0 ** (8 * values.dtype.itemsize - 1)).astype(np.float32)


# Rows of text: csv says which fields there are, pandas what columns are called and which numbers they hold.

_SEPARATORS = {"csv": ",", "tsv": "\t"}


class Column(NamedTuple):
    """A column as its reference has it: the texts of its fields, and the numbers that they are; None for none."""

    texts: list[str] | None
    numbers: Any


def _difference_of_columns(ours: Any, theirs: Column, where: str) -> str:
    if not isinstance(ours, np.ndarray):
        return "" if theirs.texts is None else difference_of(ours, theirs.texts, where)
    numbers = theirs.numbers
    if numbers is None or (ours.dtype.kind != "f" and numbers.dtype.kind != ours.dtype.kind):
        return f"{where}: {ours.dtype} and {'text' if numbers is None else numbers.dtype}"
    return difference_of(ours, numbers.astype(ours.dtype), where)


def _our_rows(path: Path, kind: str) -> object:
    names = table(str(path), format=kind).names  # what the recipe declares: its source and types
    options = {name: value for name, value in vars(names["source"]).items() if name in ("columns", "quote")}
    raw = _records((CSV if kind == "csv" else TSV)(path, **options))
    typed = _records(names["source"])
    is_bad = any(isinstance(each, Bad) for each in [*raw, *typed])
    return {
        "rows": raw,
        "columns": {} if is_bad else _columns(row_example(typed, types=names["types"]), names["types"]),
    }


def _columns(examples: list[dict[str, Any]], types: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: [each[name] for each in examples]
        if dtype == "str"
        else np.array([each[name] for each in examples], dtype)
        for name, dtype in types.items()
    }


def _their_rows(path: Path, kind: str) -> object:
    options: dict[str, Any] = {
        "sep": _SEPARATORS[kind],
        "quoting": csv.QUOTE_MINIMAL if kind == "csv" else csv.QUOTE_NONE,
    }
    frame = pandas.read_csv(
        path, **options, keep_default_na=False, na_values=[""], float_precision="round_trip", low_memory=False
    )
    names = [*frame.columns]
    text = io.StringIO(_decompressed(path).decode("utf-8-sig"), newline="")
    reader = csv.reader(text, delimiter=options["sep"], quoting=options["quoting"])
    header, *fields = [row for row in reader if row]
    rows = [dict(zip(names, row, strict=True)) if len(row) == len(header) else Bad() for row in fields]
    if all(isinstance(row, Bad) for row in rows):
        raise Unreadable("there are no rows with as many fields as the header")
    if any(isinstance(row, Bad) for row in rows):
        return {"rows": rows, "columns": {}}
    return {
        "rows": rows,
        "columns": {name: Column([row[name] for row in rows], _numbers(frame[name])) for name in names},
    }


def _numbers(column: Any) -> Any:
    return column.to_numpy() if column.dtype.kind in "biuf" else None


# JSON, Parquet, Arrow.


def _their_json(path: Path) -> object:
    rows: list[object] = []
    for line in _decompressed(path).split(b"\n"):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            rows.append(row if isinstance(row, dict) else Bad())
    return rows


def _our_parquet(path: Path) -> object:
    rows = _records(Parquet(path))
    names = table(str(path), format="parquet").names
    return {
        "rows": rows,
        "columns": _columns(row_example(_records(names["source"]), types=names["types"]), names["types"]),
    }


def _their_parquet(path: Path) -> object:
    read = pyarrow.parquet.read_table(path)
    columns = {}
    for name in read.column_names:
        values, kind = read[name].to_pylist(), read[name].type
        texts = [each or "" for each in values] if pyarrow.types.is_string(kind) else None
        is_number = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)
        columns[name] = Column(texts, read[name].to_numpy() if is_number else None)
    return {"rows": read.to_pylist(), "columns": columns}


def _records(source: Source) -> list[Any]:
    """All records of a source in order; one that it refuses is `Bad`, with words of ours that name the file."""
    records: list[Any] = []
    for shard in source.plan(target_shard_bytes=_SHARD_BYTES).shards:
        of_shard: dict[int, object] = {}
        for batch in source.read(shard):
            of_shard |= zip(batch.ordinals, batch.values, strict=True)
            for bad in batch.bad:
                if not isinstance(bad.error, BeamPipesError):
                    raise TypeError(f"{bad.record_id}: {type(bad.error).__name__}: {bad.error}")
                of_shard[bad.ordinal] = Bad(f"{bad.record_id}: {bad.error}")
        records += [record for _, record in sorted(of_shard.items())]
    return records


# Text and archives.


def _their_lines(path: Path) -> object:
    lines = _decompressed(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines[:-1] = [line.removesuffix(b"\r") for line in lines[:-1]]
    if not lines[-1]:
        lines.pop()
    return [_decoded(line) for line in lines]


def _decoded(line: bytes) -> str | Bad:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return Bad()


def _decompressed(path: Path) -> bytes:
    opener = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstandard.open}.get(path.suffix, open)
    with opener(path, "rb") as file:  # type: ignore[operator]
        content: bytes = file.read()
        return content


def _our_samples(path: Path) -> object:
    return _records(Tar(path, decode=False))


def _their_samples(path: Path) -> object:
    samples: list[Any] = []
    before = None
    content = io.BytesIO(_decompressed(path)) if path.suffix == ".zst" else None  # which tarfile does not know yet
    with tarfile.open(path, fileobj=content) as archive:
        for member in archive:
            folder, slash, name = member.name.rpartition("/")
            stem, _, extension = name.partition(".")
            if not member.isreg() or not stem or not extension:
                continue
            content = archive.extractfile(member)
            assert content is not None
            if before != (folder, stem):
                samples.append({"__key__": f"{folder}{slash}{stem}"})
                before = folder, stem
            sample = samples[-1]
            if isinstance(sample, Bad) or extension in sample:
                samples[-1] = Bad()
            else:
                sample[extension] = content.read()
    return samples


#: Kind → our reader, and its reference.
READERS: Mapping[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "arrow": (lambda path: _records(ArrowRows(path)), lambda path: pyarrow.feather.read_table(path).to_pylist()),
    "csv": (lambda path: _our_rows(path, "csv"), lambda path: _their_rows(path, "csv")),
    "image": (_our_image, _their_image),
    "json": (lambda path: _records(JSONLines(path)), _their_json),
    "parquet": (_our_parquet, _their_parquet),
    "sound": (_our_sound, _their_sound),
    "tar": (_our_samples, _their_samples),
    "text": (lambda path: _records(TextLines(path)), _their_lines),
    "tsv": (lambda path: _our_rows(path, "tsv"), lambda path: _their_rows(path, "tsv")),
}
