"""`audio`: files of sound, and what is said in them, to arrays.

    talks/a.flac, manifest.jsonl  ──▶  {"audio": float32 (51200,), "text": "to be", …}

Sound is in directories, or in tar archives in the layout of WebDataset, whose samples have a transcript beside it:
`a.flac` with `a.txt`. `audio_example` is the stage that its modules use.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from beam_pipes.errors import DatasetError, DeclarationError
from beam_pipes.extras import require
from beam_pipes.identity.canonical import Asset
from beam_pipes.recipes.media_files import are_archives, field_of_samples, files_of, first_sample
from beam_pipes.recipes.texts import kept, source_of
from beam_pipes.recipes.written import Code, Common, CommonOptions, Module, Recipe, call, spelled
from beam_pipes.sources.file_source import FileContent
from beam_pipes.sources.selection import Paths
from beam_pipes.sources.tar import has_field, sample_file
from beam_pipes.transforms.audio.processor import AUDIO_SUFFIXES, Transcripts, read_wav, rows_of_manifest
from beam_pipes.transforms.chat import kept_fields
from beam_pipes.typed import count, drop, stage

if TYPE_CHECKING:
    from typing_extensions import Unpack

SOUND_DTYPES = ("float32", "int16")
AUDIO_FIELDS = ("audio", "audio_filepath", "path", "file", "file_name", "filename", "wav", "id")
TEXT_FIELDS = ("text", "transcript", "transcription", "sentence", "normalized_text")
#: Where samples of tar archives have a transcript, the first that exists; `json.text` is in a `.json`.
SAMPLE_TEXT_FIELDS = ("txt", "text", *(f"json.{field}" for field in TEXT_FIELDS))
SIDE_FILES, METADATA = "*.trans.txt", "metadata.csv"
# What libsndfile logs of the chunk of samples; lengths from this one on mean that it was not known.
_CUT_SHORT = re.compile(r"^data : (\d+) \(should be (\d+)\)", re.MULTILINE)
_NO_LENGTH = 0x7FFF_0000
# Of files beside the sound that are no sound: transcripts, manifests, read-me files.
_TEXT_SUFFIXES = frozenset({".csv", ".json", ".jsonl", ".md", ".tsv", ".txt"})


def find_transcripts(data: str, *, audio_field: str | None, text_field: str | None) -> tuple[Code, Transcripts] | None:
    """The transcripts of a manifest or a directory, with the Python expression for them; None if there are none."""
    files = [data]
    code: Code | None = None
    if os.path.isdir(data):
        files = sorted(map(str, Path(data).rglob(SIDE_FILES)))
        code = Code(f"[Asset(path) for path in sorted({call('Path', data).text}.rglob({spelled(SIDE_FILES)}))]")
        if not files and os.path.isfile(os.path.join(data, METADATA)):
            files, code = [os.path.join(data, METADATA)], None
        if not files:
            return None
    first: Mapping[str, object] = next(rows_of_manifest(files[0]), {})
    fields = {
        "audio_field": _field(files[0], first, audio_field, AUDIO_FIELDS, "names the sound file"),
        "text_field": _field(files[0], first, text_field, TEXT_FIELDS, "is the transcript"),
    }
    made = Transcripts(files=[Asset(file) for file in files], **fields)
    assets = code or Code(f"[{call('Asset', files[0]).text}]")
    told = {option: field for option, field in fields.items() if field != option.removesuffix("_field")}
    return call("Transcripts", files=assets, **told), made


def _field(file: str, row: Mapping[str, object], given: str | None, known: Sequence[str], what: str) -> str:
    for name in known if given is None else (given,):
        if name in row:
            return name
    option = "audio_field" if known is AUDIO_FIELDS else "text_field"
    raise DeclarationError(
        f"{file} has no field {given or ' or '.join(known)!r} that {what}; it has "
        f"{', '.join(map(str, row)) or 'no rows'}. Name a different one as {option}=… (--{option.replace('_', '-')})."
    )


@stage
def audio_example(
    file: object,
    *,
    sample_rate: int,
    transcripts: Transcripts | None = None,
    text_field: str | None = None,
    keep: Mapping[str, str] | None = None,
    dtype: str = "float32",
    min_secs: float | None = None,
    max_secs: float | None = None,
) -> dict[str, object] | None:
    """A sound file to an example: `a.flac` → `{"audio": float32 (51200,), "num_samples": 51200, "text": "to be", …}`.

    Args:
        file: a `FileContent`, or a sample of a tar archive; samples without sound are dropped as `no_audio`.
        sample_rate: in Hz; files of another one are resampled, and channels averaged.
        transcripts: the transcripts of the files. Files without one are dropped as `no_transcript`.
        text_field: which field of a sample is its transcript. Samples without one are dropped likewise.
        keep: further fields of transcripts or samples to store, each with its dtype.
        dtype: "float32" in [-1, 1], or "int16", 32767 times as much.
        min_secs, max_secs: shorter or longer files are dropped as `too_short` or `too_long`.

    Raises `DatasetError` for a file that cannot be decoded.
    """
    sound = sample_file(file, AUDIO_SUFFIXES) if isinstance(file, Mapping) else file
    if sound is None:
        return drop("no_audio")
    assert isinstance(sound, FileContent)
    example: dict[str, object] = {"path": sound.path}
    row = file if isinstance(file, Mapping) else transcripts.row(sound.path) if transcripts is not None else None
    text_field = transcripts.text_field if transcripts is not None else text_field
    if text_field is not None:
        if row is None or (isinstance(file, Mapping) and not has_field(row, text_field)):
            return drop("no_transcript")
        text = kept_fields(row, {text_field: "str"})[text_field]
        example["text"] = text if transcripts is not None else text.strip()  # a file of text ends with a newline
    if row is not None:
        example |= kept_fields(row, keep)
    _check_whole(sound.content)
    wave, _ = read_wav(sound.content, sample_rate=sample_rate)
    secs = len(wave) / sample_rate
    if min_secs is not None and secs < min_secs:
        return drop("too_short")
    if max_secs is not None and secs > max_secs:
        return drop("too_long")
    count("milliseconds", round(1000 * secs))
    if dtype == "int16":
        return {**example, "audio": np.rint(np.clip(wave, -1, 1) * 32767).astype(np.int16), "num_samples": len(wave)}
    return {**example, "audio": wave, "num_samples": len(wave)}


def _check_whole(content: bytes) -> None:
    """Raises `DatasetError` for a WAV file that was cut short: libsndfile decodes what is left of it.

    Programs that write to a pipe do not know the length, and declare one that no file has, or none.
    """
    if content[:4] != b"RIFF":
        return  # other formats fail as a whole
    with contextlib.suppress(RuntimeError):  # `read_wav` tells what is wrong
        found = _CUT_SHORT.search(require("soundfile", purpose="WAV").info(io.BytesIO(content)).extra_info)
        if found is not None and int(found[2]) < int(found[1]) < _NO_LENGTH:
            raise DatasetError(
                f"the sound should have {int(found[1]):,} bytes of samples, as its header says, but the file ends "
                f"after {int(found[2]):,}. Copy it again, or leave such files out (--on-error)."
            )


def audio(
    data: Paths,
    *,
    sample_rate: int = 16_000,
    audio_root: str | os.PathLike[str] | None = None,
    audio_field: str | None = None,
    text_field: str | None = None,
    keep_fields: Mapping[str, str] | Sequence[str] = (),
    dtype: str = "float32",
    min_secs: float | None = None,
    max_secs: float | None = None,
    **options: Unpack[CommonOptions],
) -> Recipe:
    """From sound files and transcripts to a cache of samples: `a.flac` → `{"audio": float32 (51200,), "text": …}`.

        audio("LibriSpeech/dev-clean", by="speaker", splits={"train": 0.9, "eval": 0.1}).declaration()
        audio("talks-*.tar", keep_fields=["json.speaker"]).declaration()

    Args:
        data: a manifest (`.jsonl`, `.csv` or `.tsv`, one row per file), or a directory of sound files. Transcripts of a
            directory are its `*.trans.txt`, as in LibriSpeech, or its `metadata.csv`; without them there is no text. Or
            tar archives in the layout of WebDataset, whose samples have a transcript as `.txt` or in a `.json`.
        sample_rate: in Hz; files of another one are resampled.
        audio_root: the directory of the sound files. Default: that of the manifest.
        audio_field, text_field: of the manifest. Default: the first of the well-known names that it has. Of samples of
            archives, `text_field` alone; default: the first of `SAMPLE_TEXT_FIELDS` that the first sample has.
        keep_fields: further fields to store, as text; or field → dtype. LibriSpeech has `speaker` and `chapter`. Keys
            of the `.json` of a sample are `json.KEY`.
        dtype: of samples, one of `SOUND_DTYPES`.
        min_secs, max_secs: files that are shorter or longer are dropped, and counted.
        options: see `Common`. `by` is a field of the transcripts, which is also stored.

    Raises `DeclarationError` if there are no sound files, the manifest names others, or it has no such field.
    """
    if dtype not in SOUND_DTYPES:
        raise DeclarationError(f"dtype should be one of {', '.join(SOUND_DTYPES)}, got {dtype!r}.")
    if isinstance(sample_rate, bool) or sample_rate < 1:
        raise DeclarationError(f"sample_rate is a number of Hz, such as 16000, got {sample_rate!r}.")
    common = Common.of("audio", options)
    keep = kept(keep_fields, common.by)
    module = Module()
    features = {"audio": call("FeatureSpec", dtype, shape=(None,)), "num_samples": call("FeatureSpec", "int32")}
    transcripts = None
    if are_archives(data, AUDIO_SUFFIXES, "sound files"):
        for option, value in {"audio_root": audio_root, "audio_field": audio_field}.items():
            if value is not None:
                raise DeclarationError(f"{option} is for manifests, but the data are tar archives. Omit it.")
        sample = first_sample(data, AUDIO_SUFFIXES, "sound")
        text_field = field_of_samples(sample, text_field, SAMPLE_TEXT_FIELDS, "text_field")
        for field in keep:
            field_of_samples(sample, field, (), "keep_fields")
        module.assign("source", source_of(data, "tar"), "beam_pipes.sources")
    else:
        transcripts = _assign_sound_files(
            module, data, keep, audio_root=audio_root, audio_field=audio_field, text_field=text_field
        )
        text_field = None  # the transcripts know it
    if transcripts is not None or text_field is not None:
        features["text"] = call("FeatureSpec", "str")
    module.use("beam_pipes.recipes", "audio_example")
    making = call(
        "stage",
        Code("audio_example"),
        sample_rate=sample_rate,
        transcripts=transcripts,
        text_field=text_field,
        keep=keep or None,
        dtype=None if dtype == "float32" else dtype,
        min_secs=min_secs,
        max_secs=max_secs,
    )
    features |= {each: call("FeatureSpec", of) for each, of in {"path": "str", **keep}.items()}
    module.declare(common, [making], features=features)
    loads = (
        "from beam_pipes.loader import Loader\n"
        "for batch in Loader(SPLIT, batch_size=ROWS): ...  "
        f"# audio {dtype} (ROWS, longest), {', '.join([*features][1:])}"
    )
    return Recipe(
        module.text("Sound and what is said in it, as `beam-pipes audio` declares them."),
        loads,
        rows=16,
        left_out=module.left_out,
    )


def _assign_sound_files(
    module: Module,
    data: Paths,
    keep: Mapping[str, str],
    *,
    audio_root: str | os.PathLike[str] | None,
    audio_field: str | None,
    text_field: str | None,
) -> Code | None:
    """Assigns the source of a manifest or a directory, and the transcripts; their name, None if there are none."""
    given = os.fspath(data if isinstance(data, str | os.PathLike) else data[0])
    root = given if audio_root is None else os.fspath(audio_root)
    if os.path.isfile(given) and audio_root is None:
        root = os.path.dirname(given) or "."
    files, patterns, others = files_of(root, AUDIO_SUFFIXES, "sound files")
    module.left_out.update({suffix: count for suffix, count in others.items() if suffix not in _TEXT_SUFFIXES})
    module.assign("source", call("Files", root, pattern=patterns), "beam_pipes.sources")
    found = find_transcripts(given, audio_field=audio_field, text_field=text_field)
    if found is None:
        if keep:
            raise DeclarationError(
                f"the field {next(iter(keep))!r} belongs to transcripts, but there are none in {given!r}. Give a "
                "manifest, or omit it."
            )
        return None
    code, transcripts = found
    transcripts.check([file.name for file in files], [*keep])
    module.use("beam_pipes.identity.canonical", "Asset")
    if ".rglob(" in code.text:
        module.use("pathlib", "Path")
    module.assign("transcripts", code, "beam_pipes.transforms.audio")
    return Code("transcripts")
