"""`audio`: files of sound, and their transcripts, to arrays.

    talks/a.flac, manifest.jsonl  ──▶  {"audio": float32 (51200,), "text": "to be", …}

Sound is in directories, or in tar archives in the layout of WebDataset, whose samples have a transcript beside it:
`a.flac` with `a.txt`. `audio_example` is the stage that its modules use.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

from beam_pipes.checks import choice
from beam_pipes.errors import DatasetError, DeclarationError
from beam_pipes.identity.canonical import Asset
from beam_pipes.recipes.media_files import (
    are_archives,
    check_archives,
    field_of_samples,
    files_of,
    first_sample,
    is_hidden,
)
from beam_pipes.recipes.options import FIELDS_HELP, Option, ends_of, fields_of, hertz_of
from beam_pipes.recipes.row_files import assign_source
from beam_pipes.recipes.split_names import readers_of, split_folders
from beam_pipes.recipes.texts import kept
from beam_pipes.recipes.written import Code, Common, CommonOptions, EndsInTime, Module, Recipe, call, keep_time, spelled
from beam_pipes.sources.file_source import FileContent
from beam_pipes.sources.selection import FoundFile, Paths, select
from beam_pipes.sources.tar import sample_file
from beam_pipes.storage.local import is_remote
from beam_pipes.transforms.audio.sound_files import AUDIO_SUFFIXES, UNREAD_SUFFIXES, Sound, convert, decoded
from beam_pipes.transforms.kept_fields import kept_fields
from beam_pipes.transforms.manifest_rows import (
    AUDIO_FIELDS,
    KALDI,
    SPEECH_TEXTS,
    TEXT_FIELDS,
    TEXT_SUFFIXES,
    Row,
    Transcripts,
    piece_of,
    rows_of_manifest,
)
from beam_pipes.typed import count, drop, stage

if TYPE_CHECKING:
    from typing_extensions import Unpack

SOUND_DTYPES = ("float32", "int16")
#: The counter of samples too loud for int16.
CLIPPED = "clipped_samples"
#: Fields of tar samples that may hold a transcript; the first that exists is used. `json.text` is in a `.json`.
SAMPLE_TEXT_FIELDS = ("txt", "text", *(f"json.{field}" for field in TEXT_FIELDS))
#: Files with the transcripts of a directory; the first kind that exists is used: LibriSpeech's and MLS's, then
#: LJSpeech's and Hugging Face's audiofolder's. Without them, files of text beside sound files are transcripts.
DIRECTORY_MANIFESTS = ("*.trans.txt", "transcripts.txt", "metadata.csv", "metadata.jsonl")


def find_transcripts(
    data: str,
    sounds: Sequence[str],
    *,
    root: str,
    audio_field: str | None = None,
    text_field: str | None = None,
    keep: Sequence[str] = (),
) -> tuple[Code, Transcripts] | None:
    """The transcripts of a manifest or a directory, about `sounds` in `root`, with the Python expression for them; None
    if there are none.
    """
    if is_remote(data):
        return None  # other files are counted as left out
    if os.path.isfile(data) and os.path.basename(data) not in KALDI:
        if not data.removesuffix(".gz").endswith((".csv", ".json", ".jsonl", ".tsv", *SPEECH_TEXTS)):
            raise DeclarationError(
                f"{data!r} should be a manifest, which is .jsonl, .csv or .tsv, one row for each sound file or piece "
                "of one. Write such a file, with audio, text and maybe offset and duration in seconds as names of its "
                "columns; a list of file|text in lines only needs the name metadata.csv. Subtitles and alignments "
                "(.srt, .vtt, .ctm, .TextGrid) are not read; texts of sound files are if the directory is named."
            )
    pattern, files = _manifests_in(data, sounds) if os.path.isdir(data) else (None, _with_others_of_kaldi(data))
    if not files:
        return None
    assets: object = [call("Asset", file) for file in files]
    if pattern is not None and files != [os.path.join(data, pattern)]:
        assets = Code(f"[Asset(path) for path in sorted({call('Path', data).text}.rglob({spelled(pattern)}))]")
    rows = itertools.islice(itertools.chain.from_iterable(map(rows_of_manifest, files)), 100)
    has = list(dict.fromkeys(name for row in rows for name in row.fields))
    fields = {
        "audio_field": _field(files[0], has, audio_field, AUDIO_FIELDS, "names the sound file"),
        "text_field": _field(files[0], has, text_field, TEXT_FIELDS, "is the transcript"),
    }
    made = Transcripts(files=[Asset(file) for file in files], **fields).matched(sounds, keep, root=root)
    renamed = {option: field for option, field in fields.items() if field != option.removesuffix("_field")}
    return call("Transcripts", files=assets, **renamed, root=None if made.root is None else root), made


def _with_others_of_kaldi(manifest: str) -> list[str]:
    """A manifest; for Kaldi, all manifests in the directory."""
    folder, name = os.path.split(manifest)
    if name not in KALDI or not os.path.isfile(os.path.join(folder, KALDI[-1])):
        return [manifest]
    return [path for name in KALDI if os.path.isfile(path := os.path.join(folder, name))]


def _manifests_in(directory: str, sounds: Sequence[str]) -> tuple[str | None, list[str]]:
    """The transcripts in a directory of sound files, and the pattern that finds them, if it takes one."""
    if os.path.isfile(kaldi := os.path.join(directory, KALDI[-1])):
        return None, _with_others_of_kaldi(kaldi)
    stems = [os.path.join(directory, os.path.splitext(name)[0]) for name in sounds]
    beside = [suffix for suffix in TEXT_SUFFIXES if any(os.path.isfile(f"{stem}{suffix}") for stem in stems)]
    for pattern in (*DIRECTORY_MANIFESTS, *(f"*{suffix}" for suffix in beside)):
        if files := sorted(str(path) for path in Path(directory).rglob(pattern)):
            return pattern, files
    names = {os.path.basename(stem) for stem in stems}  # texts in a directory of their own, as in VCTK
    for suffix in TEXT_SUFFIXES:
        files = sorted(str(path) for path in Path(directory).rglob(f"*{suffix}"))
        if any(os.path.basename(file).removesuffix(suffix) in names for file in files):
            return f"*{suffix}", files
    return None, []


#: The sample rate of speech, unless another one is named.
DEFAULT_HZ = 16_000


def _field(file: str, has: Sequence[str], given: str | None, known: Sequence[str], what: str) -> str:
    for name in known if given is None else (given,):
        if name in has:
            return name
    option = "audio_field" if known is AUDIO_FIELDS else "text_field"
    raise DeclarationError(
        f"{file} has no field {repr(given) if given else 'such as ' + ', '.join(known)} that {what}; it has "
        f"{', '.join(map(str, has)) or 'no rows'}. Name a different one as {option}=… (--{option.replace('_', '-')})."
    )


@stage(version="4")
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
    drop_outside: bool = False,
) -> Iterator[dict[str, object]]:
    """A sound file to examples: `a.flac` → `{"audio": float32 (51200,), "num_samples": 51200, "text": "to be", …}`.

    A file gives one, or one for each piece named in transcripts.

    Args:
        file: a `FileContent`, or a sample of a tar archive; samples without sound are dropped as `no_audio`,
            those in hidden folders as `hidden`.
        sample_rate: in Hz; files of another one are resampled, and channels averaged.
        transcripts: the transcripts of the files. Files without one are dropped as `no_transcript`, and so are rows
            whose text is missing, null or blank.
        text_field: which field of a sample is its transcript. Samples without one are dropped likewise.
        keep: further fields of transcripts or samples to store, each with its dtype.
        dtype: "float32" in [-1, 1], or "int16": as libsndfile reads the file, else multiplied by 32768. Louder samples
            are clipped, and counted as `clipped_samples`.
        min_secs, max_secs: shorter or longer pieces are dropped as `too_short` or `too_long`.
        drop_outside: whether pieces outside their file are dropped, as `piece_outside_file`.

    Raises `DatasetError` for a file that cannot be decoded or is truncated, and for pieces outside it.
    """
    sound = sample_file(file, AUDIO_SUFFIXES) if isinstance(file, Mapping) else file
    if sound is None:
        yield drop("no_audio")
        return
    assert isinstance(sound, FileContent)
    if isinstance(file, Mapping):
        if is_hidden(sound.path):  # as a directory leaves it out
            yield drop("hidden")
            return
        rows = [Row(sound.path, file)]
    else:
        rows = [Row(sound.path, {})] if transcripts is None else transcripts.rows(sound.path)
        text_field = None if transcripts is None else transcripts.text_field
    if not rows:
        yield drop("no_transcript")
    whole: Sound | None = None
    for row in rows:
        example: dict[str, object] = {"path": sound.path}
        if text_field is not None:
            text = kept_fields(row.fields, {text_field: "str"}, sparse=True)[text_field]
            if not text.strip() or row.fields.get(text_field) != row.fields.get(text_field):  # NaN, as pandas has it
                yield drop("no_transcript")
                continue
            example["text"] = text.strip() if isinstance(file, Mapping) else text  # a file of text ends with a newline
        if text_field is not None or isinstance(file, Mapping):
            example |= kept_fields(row.fields, keep, sparse=True)
        whole = whole or decoded(sound.content, name=sound.path, int16_at=sample_rate if dtype == "int16" else None)
        first, stop, channel = 0, len(whole.samples), None
        if transcripts is not None and (piece := piece_of(row)) is not None:
            channels = whole.samples.shape[1]
            channel = piece.channel if channels > 1 else None
            found = piece.samples(stop, whole.rate)
            if found is None or (channel or 0) >= channels:
                if drop_outside:
                    yield drop("piece_outside_file")
                    continue
                there = f"lasts {stop / whole.rate:g} s" if found is None else f"has {channels} channels"
                about = piece if found is None else f"in its channel {channel}"
                raise DatasetError(
                    f"{row.place}: a transcript is about {sound.path!r} {about}, but the file {there}. Repair the row "
                    "(times are in seconds, channels begin at 0), or leave such pieces out (--on-error drop)."
                )
            first, stop = found
        wave = whole.wave(sample_rate=sample_rate, first=first, stop=stop, channel=channel)
        secs = len(wave) / sample_rate
        if min_secs is not None and secs < min_secs:
            yield drop("too_short")
        elif max_secs is not None and secs > max_secs:
            yield drop("too_long")
        else:
            count("milliseconds", round(1000 * secs))
            if dtype == "int16":
                wave, clipped = whole.as_int16(wave)
                count(CLIPPED, clipped)
            yield {**example, "audio": wave, "num_samples": len(wave)}


def audio(
    data: Annotated[
        Paths,
        Option("manifest (.jsonl, .csv, .tsv), directory of sound files with transcripts beside them, or tar archives"),
    ],
    *,
    sample_rate: Annotated[int, Option("sample rate in Hz; others are resampled [16000]", read=hertz_of)] = DEFAULT_HZ,
    audio_root: Annotated[
        str | os.PathLike[str] | None, Option("directory of the sound files [that of the manifest]")
    ] = None,
    audio_field: Annotated[str | None, Option("manifest field that names the sound file [by name]")] = None,
    text_field: Annotated[
        str | None, Option("manifest field, tar member or json.KEY that is the transcript [by name]")
    ] = None,
    keep_fields: Annotated[
        Mapping[str, str] | Sequence[str], Option(FIELDS_HELP, name="--keep-field", read=fields_of, repeated=True)
    ] = (),
    split_by_time: Annotated[
        EndsInTime | None,
        Option("FIELD:SPLIT=END,SPLIT: splits by this field of transcripts, each up to its END in time", read=ends_of),
    ] = None,
    dtype: Annotated[str, Option(f"dtype of samples: {', '.join(SOUND_DTYPES)}")] = "float32",
    min_secs: Annotated[float | None, Option("drop shorter files")] = None,
    max_secs: Annotated[float | None, Option("drop longer files")] = None,
    stratify: Annotated[str | None, Option("FIELD: each of its classes has the shares of --split")] = None,
    **options: Unpack[CommonOptions],
) -> Recipe:
    """From sound files and transcripts to a cache of samples: `a.flac` → `{"audio": float32 (51200,), "text": …}`.

        audio("LibriSpeech/dev-clean", by="speaker", splits={"train": 0.9, "eval": 0.1}).declaration()
        audio("talks-*.tar", keep_fields=["json.speaker"]).declaration()

    Args:
        data: a manifest (`.jsonl`, `.csv` or `.tsv`, one row per file, or per piece of one with `offset` and `duration`
            in seconds), or a directory of sound files. Transcripts of a directory are its `DIRECTORY_MANIFESTS`, or
            files of text beside the sound; without them there is no text. Or tar archives in the layout of WebDataset,
            whose samples have a transcript as `.txt` or in a `.json`.
        sample_rate: in Hz; files of another one are resampled.
        audio_root: the directory of the sound files. Default: that of the manifest.
        audio_field, text_field: of the manifest. Default: the first well-known name that it has. For samples of
            archives only `text_field`; default: the first of `SAMPLE_TEXT_FIELDS` in the first sample.
        keep_fields: further fields to store, as text; or field → dtype. LibriSpeech has `speaker` and `chapter`. Keys
            of the `.json` of a sample are `json.KEY`.
        split_by_time: a field of transcripts or samples, which is stored too, and the ends of `SplitByTime`, instead of
            `splits`: `("taken", {"train": "2024-06-01", "eval": None})`.
        dtype: of samples, one of `SOUND_DTYPES`.
        min_secs, max_secs: shorter or longer pieces are dropped, and counted.
        stratify: a field of transcripts or samples, which is stored too: each of its classes has the shares of
            `splits`, by `Strata`, which runs the stages once more to count.
        options: see `Common`. `by` is a field of the transcripts, which is also stored.

    Raises `DeclarationError` if there are no sound files, the manifest names others, or it has no such field.
    """
    choice(dtype, of=SOUND_DTYPES, what="dtype")
    if isinstance(sample_rate, bool) or sample_rate < 1:
        raise DeclarationError(f"sample_rate is a number of Hz, such as 16000, got {sample_rate!r}.")
    given = os.fspath(data if isinstance(data, str | os.PathLike) else data[0])
    if is_remote(given) and PurePosixPath(given.removesuffix(".gz")).suffix in (".csv", ".json", ".jsonl", ".tsv"):
        raise DeclarationError(
            f"manifests are read from this machine, but {given!r} is elsewhere. Copy it here, and name the directory "
            "of the sound files as audio_root=… (--audio-root)."
        )
    if os.path.isfile(given) and given.lower().endswith(AUDIO_SUFFIXES):
        raise DeclarationError(
            f"{given!r} is one sound file. Name its directory, {os.path.dirname(given) or '.'}, or a manifest."
        )
    common = Common.of("audio", options)
    keep = keep_time(kept(keep_fields, common.by), split_by_time)
    if stratify is not None:
        keep = {stratify: "str", **keep}
    module = Module()
    splits = None if split_by_time is None else module.splits_by_time(common, split_by_time)
    features = {"audio": call("FeatureSpec", dtype, shape=(None,)), "num_samples": call("FeatureSpec", "int32")}
    transcripts = None
    if are_archives(data, AUDIO_SUFFIXES, "sound files"):
        for option, value in {"audio_root": audio_root, "audio_field": audio_field}.items():
            if value is not None:
                raise DeclarationError(f"{option} is for manifests, but the data are tar archives. Omit it.")
        sample = first_sample(data, AUDIO_SUFFIXES, "sound")
        check_archives(data, common.splits or splits)
        text_field = field_of_samples(sample, text_field, SAMPLE_TEXT_FIELDS, "text_field")
        named = {common.by: "by", (split_by_time or (None,))[0]: "split_by_time", stratify: "stratify"}
        for field in keep:
            field_of_samples(sample, field, (), named.get(field, "keep_fields"))
        assign_source(module, common, data, "tar")
    else:
        transcripts = _assign_sound_files(
            module,
            common,
            data,
            keep,
            audio_root=audio_root,
            audio_field=audio_field,
            text_field=text_field,
            is_split=splits is not None,
        )
        text_field = None  # the transcripts define it
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
        drop_outside=True if transcripts is not None and common.on_error != "fail" else None,
    )
    features |= {each: call("FeatureSpec", of) for each, of in {"path": "str", **keep}.items()}
    analyzers = None
    if stratify is not None:
        making, strata, splits = module.stratified(common, stratify, making)
        analyzers = [strata]
    module.declare(common, [making], features=features, analyzers=analyzers, splits=splits)
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
    common: Common,
    data: Paths,
    keep: Mapping[str, str],
    *,
    audio_root: str | os.PathLike[str] | None,
    audio_field: str | None,
    text_field: str | None,
    is_split: bool,
) -> Code | None:
    """Assigns the source of a manifest or a directory, and the transcripts; returns their name, None without any."""
    given = os.fspath(data if isinstance(data, str | os.PathLike) else data[0])
    root = given if audio_root is None else os.fspath(audio_root)
    if os.path.isfile(given) and audio_root is None:
        root = os.path.dirname(given) or "."
    try:
        option = "--audio-root" if audio_root is None and os.path.isfile(given) else ""
        files, patterns, others, _ = files_of(root, AUDIO_SUFFIXES, "sound files", option=option)
    except DeclarationError as error:
        there = select(root).find() if os.path.isdir(root) else ()
        if unread := [file.name for file in there if file.name.lower().endswith(UNREAD_SUFFIXES)]:
            raise DeclarationError(
                f"there are no sound files in {root!r} that libsndfile decodes, but {len(unread):,} that it does not. "
                f"{convert(unread[0])}"
            ) from error
        raise
    is_split = is_split or bool(common.splits)
    folders = split_folders([file.name for file in files], root, is_split) if root == given else []
    notes = common.notes_of(given)
    readers = readers_of(folders, root, is_split, patterns=patterns, notes=notes, relative_to=root)
    module.use("beam_pipes.sources", "Files")
    module.assign("source", readers or call("Files", root, pattern=patterns, **notes))
    found = find_transcripts(
        given,
        [file.name for file in files],
        root=root,
        audio_field=audio_field,
        text_field=text_field,
        keep=[*keep],
    )
    used = Counter(PurePosixPath(path).suffix.lower() for path in _used(found, root, files))
    module.left_out.update({suffix: count - used[suffix] for suffix, count in others.items() if count > used[suffix]})
    if found is None:
        if keep:
            raise DeclarationError(
                f"the field {next(iter(keep))!r} belongs to transcripts, but there are none in {given!r}. Give a "
                "manifest, or omit it."
            )
        return None
    code, _ = found
    module.use("beam_pipes", "Asset")
    if ".rglob(" in code.text:
        module.use("pathlib", "Path")
    module.assign("transcripts", code, "beam_pipes.transforms.audio")
    return Code("transcripts")


def _used(found: tuple[Code, Transcripts] | None, root: str, sounds: Sequence[FoundFile]) -> list[str]:
    """The files of transcripts beside sound files; a text without a sound file beside it is not a transcript."""
    files = [] if found is None else [os.path.relpath(file, root).replace(os.sep, "/") for file in found[1].files]
    named_by: Callable[[str], str] = os.path.basename if found is not None and found[1].root is None else str
    stems = {named_by(os.path.splitext(sound.name)[0]) for sound in sounds}
    endings = {file: next(filter(file.endswith, TEXT_SUFFIXES), "") for file in files}
    return [
        file
        for file, ending in endings.items()
        if not file.startswith("..")
        and (not ending or file.endswith(SPEECH_TEXTS) or named_by(file.removesuffix(ending)) in stems)
    ]
