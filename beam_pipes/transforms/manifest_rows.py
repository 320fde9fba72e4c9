"""Rows about files, in manifests and texts, and the file or the piece of a file that each row describes.

    {"audio_filepath": "clips/a.wav", "text": "to be", "speaker": 7}      JSON Lines, CSV or TSV
    {"audio_filepath": "long.wav", "offset": 1.5, "duration": 2, …}       a piece of a file, as in NeMo
    {"id": "long-1", "recording": {…}, "supervisions": [{…}]}             cuts and supervisions of lhotse
    84-121123-0000 GO DO YOU HEAR                                         84-121123.trans.txt, as in LibriSpeech
    1_2_000003\tor not                                                    transcripts.txt, as in MLS
    LJ001-0001|Printing, in 1455|Printing, in fourteen fifty-five         metadata.csv, as in LJSpeech
    file_name,transcription                                               metadata.csv, as Hugging Face's audiofolder
    to be                                                                 a.txt or a.lab beside a.wav
    long-1 long 1.5 3.5                                                   segments, text and wav.scp of Kaldi
    {"images": […], "annotations": […], "categories": […]}                instances_train.json of COCO

`rows_of_manifest` reads them, each row with its place for messages; `Transcripts` finds the rows of a sound file;
`piece_of` gives the part of the file that a row describes.
"""

from __future__ import annotations

import abc
import csv
import dataclasses
import functools
import gzip
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TextIO

from beam_pipes.errors import DatasetError
from beam_pipes.identity.canonical import Asset
from beam_pipes.sources.byte_stream import advice_if_not_utf8
from beam_pipes.transforms.audio.sound_files import AUDIO_SUFFIXES, UNREAD_SUFFIXES, convert

if TYPE_CHECKING:
    from typing_extensions import Self

AUDIO_FIELDS = (
    "audio", "audio_filepath", "audio_file", "path", "file", "file_name", "filename", "wav", "recording_id", "id",
)  # fmt: skip
TEXT_FIELDS = ("text", "transcript", "transcription", "sentence", "normalized_text")
#: Suffixes of files with the text of the sound file beside them, `a.txt` for `a.wav`; the first that exists is used.
TEXT_SUFFIXES = (".normalized.txt", ".txt", ".lab")
#: Ends of files with a line for each sound file, its name and its text: those of LibriSpeech, and of MLS.
SPEECH_TEXTS = (".trans.txt", "transcripts.txt")
#: The files read in a Kaldi directory; those with the last name have the rows of all.
KALDI = ("segments", "text", "utt2spk", "wav.scp")
_LJSPEECH = {2: ("audio", "text"), 3: ("audio", "raw_text", "text")}
_STARTS = ("offset", "start", "start_time", "begin", "begin_time")
_ENDS = ("end", "end_time")
#: Tolerance between times in manifests and the end of a file; lhotse allows as much.
TOLERANCE_SECS = 0.025


class Row(NamedTuple):
    """A row and its place, `manifest.jsonl:7`."""

    place: str
    fields: Mapping[str, object]

    @property
    def is_beside(self) -> bool:
        """Whether a file is text, which may describe the sound file beside it, or is not sound."""
        return self.place.endswith(TEXT_SUFFIXES)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ManifestRows:
    """Rows about files, read on first use: transcripts of sound, or what is said about pictures.

    Args:
        files: manifests (`.jsonl`, `.json`, `.csv`, `.tsv`), or texts beside the files. Fingerprints cover their
            content.
        root: the directory of the files, if rows name these by their exact paths below the directory of their manifest.
            Else a row names a file by any end of its path, with or without its suffix: `/data/clips/a.wav`, `a.wav` and
            `a` are all `clips/a.wav`.
    """

    files: Sequence[Asset]
    root: str | None = None

    #: In messages: what rows are, what they are about, and the options of the directory of the files.
    words: ClassVar[tuple[str, str, str]]
    #: Suffixes of the files, and of others of their kind that are not read.
    suffixes: ClassVar[Sequence[str]]
    unread: ClassVar[tuple[str, ...]] = ()
    #: What to do about two rows that are about the same.
    advice: ClassVar[str]

    @property
    @abc.abstractmethod
    def file_field(self) -> str:
        """The field that names the file."""

    def part_of(self, row: Row) -> object:
        """The part of the file that a row is about; two rows about the same are an error."""
        return None

    def __post_init__(self) -> None:
        if self.root is not None:  # because a stage may change the working directory
            object.__setattr__(self, "root", os.path.abspath(self.root))

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def fingerprint_config(self) -> Mapping[str, object]:
        """Everything the texts depend on, as JSON."""
        own = [each.name for each in dataclasses.fields(self) if each.name.endswith("_field")]
        config = {"files": [file.digest() for file in self.files], **{name: getattr(self, name) for name in own}}
        if any(os.path.basename(file) in KALDI for file in self.files):
            config["kaldi"] = 2  # 1 split its lines at blanks only, not at tabs
        return config if self.root is None else {**config, "folders": list(map(self._folder, self.files))}

    def rows(self, path: str) -> list[Row]:
        """The rows about a file, in their order."""
        return [row for named, row in self._rows.get(self._stem(path), ()) if self._is_about(named, path)]

    @functools.cached_property
    def _rows(self) -> Mapping[str, list[tuple[str, Row]]]:
        """Name of a file without its suffix → its names in rows, and these rows."""
        found: dict[str, list[tuple[str, Row]]] = {}
        for file in self.files:
            folder = "" if self.root is None else self._folder(file)
            for row in rows_of_manifest(os.fspath(file)):
                named = row.fields.get(self.file_field)
                if not isinstance(named, str | int) or named == "":
                    has = ", ".join(map(str, row.fields)) if self.file_field not in row.fields else repr(named)
                    raise DatasetError(
                        f"{row.place}: expected a field {self.file_field!r} that names the {self.words[1]}, found "
                        f"{has}. Repair the row or leave it out."
                    )
                path = os.path.normpath(os.path.join(folder, str(named))).replace(os.sep, "/")
                found.setdefault(self._stem(path), []).append((path, row))
        return found

    def _folder(self, manifest: Asset) -> str:
        """The base of a manifest's paths: its directory, if it is within the root; "" is the root."""
        assert self.root is not None
        folder = os.path.relpath(os.path.dirname(os.path.abspath(manifest)), self.root).replace(os.sep, "/")
        return "" if folder == "." or folder.startswith("..") else folder

    def _is_about(self, named: str, path: str) -> bool:
        """Whether one path is the end of the other, or with a root, the other; a suffix counts if both have one."""
        if self.root is not None and named.startswith("/"):
            named = os.path.relpath(named, self.root).replace(os.sep, "/")
        other = path if self._bare(named) != named else self._bare(path)
        if named == other or self.root is not None:
            return named == other
        return other.endswith(f"/{named}") or named.endswith(f"/{other}")

    def _bare(self, path: str) -> str:
        """A path without the suffix of such a file: `a/84-121` of `a/84-121.wav`; `84-121.a` has none."""
        bare, _, suffix = path.rpartition(".")
        return bare if bare and f".{suffix.lower()}" in (*self.suffixes, *self.unread) else path

    def _stem(self, path: str) -> str:
        return self._bare(path).rpartition("/")[2]

    def matched(self, paths: Sequence[str], fields: Sequence[str], *, root: str) -> Self:
        """These rows, with `root` if that makes every row name one file.

        Raises `DatasetError` unless every row describes one file, all `fields` exist, no two rows describe the same
        piece of a file, and the fields that define the piece are numbers.
        """
        by_stem: dict[str, list[str]] = {}
        for path in paths:
            by_stem.setdefault(self._stem(path), []).append(path)
        exact = dataclasses.replace(self, root=root)
        is_one = [(len(exact._about(named, by_stem)) == 1, row.is_beside) for named, row in exact._all_rows()]
        if any(one for one, _ in is_one) and all(one or beside for one, beside in is_one):
            exact._check(by_stem, fields)
            return exact
        self._check(by_stem, fields)
        return self

    def _all_rows(self) -> Iterator[tuple[str, Row]]:
        return (each for rows in self._rows.values() for each in rows)

    def _about(self, named: str, by_stem: Mapping[str, Sequence[str]]) -> list[str]:
        return [path for path in by_stem.get(self._stem(named), ()) if self._is_about(named, path)]

    def _check(self, by_stem: Mapping[str, Sequence[str]], fields: Sequence[str]) -> None:
        taken: dict[tuple[object, ...], str] = {}
        (what, about, option), several = self.words, self.words[0].split()[1]
        for named, row in self._all_rows():
            same = self._about(named, by_stem)
            if not same and row.is_beside:
                continue  # a read-me file
            if len(same) != 1:
                raise DatasetError(
                    f"{row.place}: {what} is about the file {named!r}, and there "
                    + (
                        f"are {len(same)}, such as {same[0]!r} and {same[1]!r}. Name the directory of the {about}s "
                        f"as {option}, and all files by their paths in it."
                        if same
                        else f"is none. {convert(named)}, and name that file."
                        if named.lower().endswith(self.unread or ("\0",))
                        else "is none. Supervisions name recordings, not files: write them to cuts, with lhotse cut "
                        "simple -r recordings.jsonl.gz -s supervisions.jsonl.gz cuts.jsonl.gz, and name these."
                        if self.file_field == "recording_id"
                        else f"is none. Name the directory of the {about}s as {option}, and files by their paths in it."
                    )
                )
            piece = self.part_of(row)
            if (other := taken.setdefault((same[0], piece), row.place)) != row.place:
                raise DatasetError(
                    f"two {several}s are about the {'file' if piece is None else 'same piece of the file'} "
                    f"{same[0]!r}: {other} and {row.place}. {self.advice}"
                )
            if missing := [field for field in fields if field not in row.fields]:
                raise DatasetError(
                    f"{row.place}: the {several} of {named!r} has no field {missing[0]!r}; it has "
                    f"{', '.join(map(str, row.fields))}. Name one of these, or add it to the row."
                )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Transcripts(ManifestRows):
    """Transcripts of sound files, read on first use.

    `Transcripts(files=[Asset("manifest.jsonl")]).rows("clips/a.wav")` → `[Row("manifest.jsonl:1", {"audio": …, …})]`

    Args:
        files: manifests (`.jsonl`, `.json`, `.csv`, `.tsv`), `*.trans.txt`, or texts beside sound files. Fingerprints
            cover their content.
        audio_field, text_field: of the rows.
        root: see `ManifestRows`.
    """

    audio_field: str = "audio"
    text_field: str = "text"

    words = ("a transcript", "sound file", "audio_root=… (--audio-root)")
    advice = "Leave one of them out, or say which part of the file each is about, in seconds: offset and duration."
    suffixes, unread = AUDIO_SUFFIXES, UNREAD_SUFFIXES

    @property
    def file_field(self) -> str:
        return self.audio_field

    def part_of(self, row: Row) -> Excerpt | None:
        return piece_of(row)


# Pieces.


class Excerpt(NamedTuple):
    """The piece that a row describes: seconds `start` to `end` of a file, to its end if None; one channel, or all.

    Times are rounded: an `end` at most `slack` seconds after the end of the file counts as that end. A row that states
    only its length (`is_whole`) describes the whole file if that has this length, within the slack.
    """

    start: float
    end: float | None
    channel: int | None
    is_whole: bool
    slack: float

    def samples(self, num_samples: int, rate: int) -> tuple[int, int] | None:
        """The first sample and the one after the last in a file of `num_samples`; None if it lacks some."""
        first = round(self.start * rate)
        stop = num_samples if self.end is None else first + round((self.end - self.start) * rate)
        if (stop > num_samples or self.is_whole) and abs(stop - num_samples) <= self.slack * rate:
            stop = num_samples
        return (first, stop) if first < stop <= num_samples else None

    def __str__(self) -> str:
        return f"from {self.start:g} s to {'the end' if self.end is None else f'{self.end:g} s'}"


def piece_of(row: Row) -> Excerpt | None:
    """The piece of a file that a row describes; None if it has no times and no channel.

    `offset`, `start`, `start_time`, `begin` or `begin_time`, and `duration`, `end` or `end_time`, in seconds; `channel`
    (lhotse) or `channel_selector` (NeMo), from 0.
    """
    fields = row.fields
    start = _secs(row, _STARTS)
    duration, end = _secs(row, ("duration",)), _secs(row, _ENDS)
    named = fields.get("channel_selector", fields.get("channel"))
    if isinstance(named, float) and (named.is_integer() or named != named):
        named = int(named) if named == named else None  # pandas writes 1.0 and NaN if some rows have no channel
    if isinstance(named, list | bool | float) or (isinstance(named, int) and named < 0):
        raise DatasetError(
            f"{row.place}: expected one channel, from 0 on, found {named!r:.40}. Name one, or write the channels that "
            "belong together to a file, whose channels are averaged."
        )
    channel = int(str(named)) if str(named).isdecimal() else None  # a name is that of a station, or all are averaged
    if start is None and duration is None and end is None and channel is None:
        return None
    first = 0.0 if start is None else float(start)
    last = first + float(duration) if duration is not None else None if end is None else float(end)
    if first < 0 or (last is not None and last <= first):
        raise DatasetError(
            f"{row.place}: expected a piece of a sound file, found {Excerpt(first, last, None, False, 0)}. Repair the "
            "row or leave it out."
        )
    # 3 may be 3.4, and 3.2 is not.
    rounded = 0.5 * 10.0 ** -len((duration or end or "").partition(".")[2]) if start is None else 0.0
    return Excerpt(first, last, channel, start is None, max(TOLERANCE_SECS, rounded))


def _secs(row: Row, names: Iterable[str]) -> str | None:
    """The first of these fields that has a value; the value must be a number and is returned as written."""
    for name in names:
        value = row.fields.get(name)
        if value is None or value == "":
            continue
        try:
            if isinstance(value, bool) or not float(str(value)) < float("inf"):
                raise ValueError
        except ValueError:
            raise DatasetError(
                f"{row.place}: expected seconds in the field {name!r}, which says what piece of the file the row is "
                f"about, found {value!r}. Convert it to seconds, or rename the field if it is something else."
            ) from None
        return str(value)
    return None


# Files of rows.


def rows_of_manifest(path: str) -> Iterator[Row]:
    """The rows of a manifest. Raises `DatasetError` for an invalid line and for files that are not UTF-8 text."""
    place = path
    opened: Callable[..., TextIO] = gzip.open if path.endswith(".gz") else open
    name = path.removesuffix(".gz")
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as lines:
            if advice := advice_if_not_utf8(lines.buffer.peek(1)):  # type: ignore[attr-defined]  # of files and gzip
                raise UnicodeError(advice.removeprefix(". "))
            if name.endswith(".json") and (coco := _coco(lines)) is not None:
                yield from _coco_rows(path, coco)
            elif name.endswith((".jsonl", ".json")):
                yield from json_rows(path, lines)
            elif name.endswith(SPEECH_TEXTS):
                for number, line in enumerate(lines, start=1):
                    named, *text = re.split("[ \t]", line.strip(), maxsplit=1)
                    speaker, chapter, _ = [*re.split("[-_]", named, maxsplit=2), "", ""][:3]
                    if named:
                        fields = {"audio": named, "text": "".join(text), "speaker": speaker, "chapter": chapter}
                        yield Row(f"{path}:{number}", fields)
            elif os.path.basename(name) in KALDI:
                yield from _kaldi_rows(path) if name.endswith(KALDI[-1]) else ()
            elif ending := next((ending for ending in TEXT_SUFFIXES if name.endswith(ending)), None):
                yield Row(path, {"audio": os.path.basename(name).removesuffix(ending), "text": lines.read().strip()})
            else:
                yield from _csv_rows(path, lines)
    except PermissionError as error:
        raise DatasetError(f"{place}: this account may not read it. Allow it: chmod a+r {path}") from error
    except (UnicodeError, csv.Error, gzip.BadGzipFile, EOFError) as error:
        raise DatasetError(
            f"{place}: expected a manifest, which is UTF-8 text (.jsonl, .csv or .tsv, one row for each file): "
            f"{error}. Name the manifest or the directory of the files, or convert the file to UTF-8."
        ) from error


def json_rows(path: str, lines: Iterable[str]) -> Iterator[Row]:
    """The rows of JSON Lines, each a dict; a cut of lhotse gives one for each of its supervisions."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DatasetError(
                f"{place}: expected a JSON object: {error}. Each line of a manifest is one; convert an array with: jq "
                "-c '.[]'"
            ) from error
        if not isinstance(row, dict):
            advice = " An array is converted with: jq -c '.[]'" * isinstance(row, list)
            raise DatasetError(
                f"{place}: expected a JSON object, found {line.strip():.60}. Repair or remove the line.{advice}"
            )
        if isinstance(row.get("recording"), dict) or isinstance(row.get("supervisions", row.get("tracks")), list):
            yield from (Row(place, fields) for fields in _rows_of_cut(place, row))
        else:
            yield Row(place, row)


def _coco(lines: TextIO) -> Mapping[str, object] | None:
    """What a file of COCO holds, whether on one line or several; None for other files, which are read again."""
    first = lines.readline()
    try:
        content = json.loads(first if first.strip() != "{" else first + lines.read())
    except (ValueError, RecursionError):
        content = None
    lines.seek(0)
    return content if isinstance(content, dict) and isinstance(content.get("images"), list) else None


def _coco_rows(path: str, content: Mapping[str, Any]) -> Iterator[Row]:
    """The images of COCO, with the fields of their annotations as lists: `objects.bbox`, `objects.category_id`."""
    try:
        names = {each["id"]: each["name"] for each in content.get("categories", [])}
        about: dict[object, list[Mapping[str, object]]] = {each["id"]: [] for each in content["images"]}
        fields = dict.fromkeys(key for each in content["annotations"] for key in each if key != "image_id")
        for each in content["annotations"]:
            about[each["image_id"]].append(each)
        for image in content["images"]:
            own = about[image["id"]]
            objects: dict[str, object] = {key: [each.get(key) for each in own] for key in fields}
            if "category_id" in fields:
                objects["category"] = [names[each["category_id"]] for each in own]
            yield Row(path, {**image, "objects": objects})
    except (AttributeError, KeyError, TypeError) as error:
        raise DatasetError(
            f"{path}: expected annotations as COCO's, which name an image and a category by ids that are there, found "
            f"{type(error).__name__}: {error}. Repair the file, or convert it to JSON Lines with a line for each image."
        ) from error


def _rows_of_cut(place: str, cut: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """A cut of lhotse: the piece that each of its supervisions describes, in times of the recording."""
    recording, supervisions = cut.get("recording"), cut.get("supervisions")
    try:
        if not isinstance(recording, Mapping) or not isinstance(supervisions, list) or recording.get("transforms"):
            raise ValueError
        (source,) = recording["sources"]
        if source["type"] != "file" or not isinstance(cut.get("channel", 0), int):
            raise ValueError
        for supervision in supervisions or [{}]:
            begin = float(str(cut["start"])) + float(supervision.get("start", 0.0))
            secs = supervision.get("duration", cut["duration"])
            row = {
                **supervision,
                "audio": source["source"],
                "offset": begin,
                "duration": secs,
                "text": supervision.get("text"),
            }
            yield {**row, "recording_id": recording["id"], "channel": cut.get("channel", 0)}
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(
            f"{place}: expected a cut of lhotse that is a part of one file as it was recorded (MonoCut), found "
            f"{cut.get('type', 'another')!r} with {', '.join(cut)}. Write such cuts, or save the sound with lhotse's "
            "save_audios, and give the manifest of that."
        ) from error


def _kaldi_rows(path: str) -> Iterator[Row]:
    """The utterances of the directory of a `wav.scp`: pieces of recordings if there are `segments`, else recordings."""

    def table(name: str) -> dict[str, tuple[str, str]]:
        """First word → place and rest of its line."""
        found = os.path.join(os.path.dirname(path), name)
        if not os.path.exists(found):
            return {}
        with open(found, encoding="utf-8") as lines:
            split = ((f"{found}:{number}", line.split(maxsplit=1)) for number, line in enumerate(lines, start=1))
            return {words[0]: (place, "".join(words[1:]).strip()) for place, words in split if words}

    segments, texts, speakers, recordings = map(table, KALDI)
    for id_, (place, value) in (segments or recordings).items():
        recording, *times = value.split() if segments else [id_]
        source = recordings.get(recording, ("", ""))[1]
        if len(times) != 2 * bool(segments) or not source or source.endswith("|"):
            raise DatasetError(
                f"{place}: expected {'utterance, recording, start and end' if segments else 'a name and a file'} as in "
                f"Kaldi, and a file (no command) in {path}, found {value!r} and {source!r}. Write the sound to files, "
                "and their names to wav.scp."
            )
        start, end = times or (None, None)
        row = {"id": id_, "audio": source, "start": start, "end": None if end == "-1" else end}
        yield Row(place, {**row, "text": texts.get(id_, ("", None))[1], "speaker": speakers.get(id_, ("", None))[1]})


def _csv_rows(path: str, lines: TextIO) -> Iterator[Row]:
    """Rows of CSV; of TSV, whose writers do not quote; and of LJSpeech, with bars, neither quotes nor a header."""
    first = lines.readline()
    lines.seek(0)
    has_bars = path.endswith(".csv") and "|" in first
    if has_bars or path.endswith((".tsv", ".tsv.gz")):
        rows = csv.reader(lines, delimiter="|" if has_bars else "\t", quoting=csv.QUOTE_NONE)
    else:
        rows = csv.reader(lines, strict=True)
    names: Sequence[str] | None = None
    for row in rows:
        place = f"{path}:{rows.line_num}"
        if not row:
            continue
        if names is None:
            is_header = not has_bars or not {*row}.isdisjoint(AUDIO_FIELDS)
            names = row if is_header else _LJSPEECH.get(len(row))
            if names is None:
                raise DatasetError(
                    f"{place}: expected two or three columns, as in LJSpeech (file|text or file|raw text|text), found "
                    f"{len(row)}. Put a line with the names of the columns above, such as audio|text|speaker."
                )
            if is_header and len(row) == 1 and (other := next(filter(row[0].__contains__, ";\t|"), None)):
                raise DatasetError(
                    f"{place}: expected names of columns with {rows.dialect.delimiter!r} between them, found "
                    f"{row[0]!r:.80}, with {other!r}. Write the file with commas, or with tabs as a .tsv."
                )
            if is_header and (twice := [name for name in dict.fromkeys(row) if name and row.count(name) > 1]):
                raise DatasetError(
                    f"{place}: expected names of columns that differ, found {twice[0]!r} {row.count(twice[0])} times. "
                    "Rename or remove all but one of them."
                )
            if is_header:
                continue
        if len(row) > len(names) or (has_bars and len(row) < len(names)):
            raise DatasetError(
                f"{place}: expected {len(names)} columns ({', '.join(names)}), found {len(row)}: {row!r:.120}. Quote "
                "what holds the separator, or repair the row."
            )
        yield Row(place, {**dict.fromkeys(names), **dict(zip(names, row, strict=False))})
