"""Manifests of sound files: which files, or pieces of them, there are, and what is said in each.

In the sound of `_files` each sample is a number of its own, so that a piece that begins or ends elsewhere has other
values.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.recipes import audio
from reference_pages.formats.rows import (
    LeftOut,
    Read,
    Reference,
    Refused,
    Row,
    library,
    of_recipe,
    several,
    text,
)

RATE = 8_000
_SECS = 2


def _files(*names: str) -> Callable[[Path], object]:
    """Writes sound files; one called `a.wav`, which has two seconds, if none is named."""

    def write(directory: Path) -> None:
        for number, name in enumerate(names or ["a.wav"]):
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            samples = np.arange(RATE * _SECS, dtype=np.int16) + np.int16(number)
            library("soundfile").write(path, samples, RATE, subtype="PCM_16")

    return write


def manifest(name: str, content: str | bytes, *sounds: str) -> Callable[[Path], object]:
    """Writes sound files, and a manifest beside them."""
    return several(_files(*sounds), text(name, content))


def json_lines(*rows: Mapping[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def examples(name: str = "", **options: Any) -> Callable[[Path], Any]:
    """What the recipe makes of a manifest of this name, or of the directory: what is said, and the samples."""
    return of_recipe(lambda path: audio(str(path / name), sample_rate=RATE, **options), "text", "audio")


Piece = tuple[str, str, float, float | None]


def read_by(name: str, pieces: Callable[[Path], Iterable[Piece]]) -> Reference:
    """Text, file, first second and end of each piece, by a reader of this name; soundfile gives the samples."""

    def read(directory: Path) -> Sequence[object]:
        found = []
        for said, file, start, end in pieces(directory):
            stop = None if end is None else round(end * RATE)
            samples, _ = library("soundfile").read(directory / file, start=round(start * RATE), stop=stop, dtype="f4")
            found.append((said, samples))
        return found

    return Reference(name, read)


def whole(name: str, *pieces: tuple[str, str]) -> Reference:
    """Whole files: text and file of each."""
    return read_by(name, lambda directory: [(said, file, 0, None) for said, file in pieces])


def _rows_of(directory: Path, name: str) -> list[dict[str, Any]]:
    content = (directory / name).read_bytes()
    return [*map(json.loads, (gzip.decompress(content) if name.endswith(".gz") else content).splitlines())]


def by_pandas(name: str, piece: Callable[[Any], tuple[str, str]], **options: Any) -> Reference:
    """The rows of a file without quotes as pandas reads them; text and file of each."""

    def pieces(directory: Path) -> Iterable[Piece]:
        frame = library("pandas").read_csv(directory / name, quoting=csv.QUOTE_NONE, **options)
        return [(*piece(row), 0, None) for _, row in frame.iterrows()]

    return read_by("pandas", pieces)


NEMO = json_lines(
    {"audio_filepath": "a.wav", "text": "to be", "offset": 0.25, "duration": 0.5},
    {"audio_filepath": "a.wav", "text": "or not", "offset": 1.0, "duration": 1.0},
)
BY_JSON = read_by(
    "`json`",
    lambda path: [
        (row["text"], row["audio_filepath"], row["offset"], row["offset"] + row["duration"])
        for row in _rows_of(path, next(each.name for each in path.iterdir() if "json" in each.name))
    ],
)
RECORDING = {"id": "a", "sources": [{"type": "file", "channels": [0], "source": "a.wav"}], "sampling_rate": RATE}
CUT: dict[str, Any] = {
    "id": "a-1", "type": "MonoCut", "start": 0.5, "duration": 1.0, "channel": 0, "recording": RECORDING,
    "supervisions": [{"id": "s", "recording_id": "a", "start": 0.25, "duration": 0.5, "text": "to be"}],
}  # fmt: skip
OTHER_CUTS: dict[str, dict[str, object]] = {
    "cuts of several files (`MixedCut`)": {"type": "MixedCut", "recording": None, "tracks": []},
    "of several channels (`MultiCut`)": {"type": "MultiCut", "channel": [0, 1]},
    "with augmentation": {"recording": {**RECORDING, "transforms": [{"name": "Speed", "kwargs": {"factor": 1.1}}]}},
    "of commands": {"recording": {**RECORDING, "sources": [{"type": "command", "channels": [0], "source": "cat a"}]}},
}
SUPERVISION = {"id": "s", "recording_id": "a", "start": 0.5, "duration": 0.25, "channel": 0, "text": "to be"}
COMMON_VOICE = 'client_id\tpath\tsentence\tage\n7\ta.wav\t"To be, he said\t\n8\tb.wav\tor not\t\n'
KALDI = several(
    _files("a.wav", "b.wav"),
    text("wav.scp", "a a.wav\nb b.wav\n"),
    text("text", "u1 to be\nu2\tor not\n"),
    text("utt2spk", "u1\ts1\nu2\ts1\n"),
    text("segments", "u1 b 0.5 1.5\nu2\ta\t0 -1\n"),
)


def _of_ljspeech(row: Any) -> tuple[str, str]:
    return row.said, f"wavs/{row.id}.wav"


TWO = [("to be", "a.wav"), ("or not", "b.wav")]
ROWS = [
    Row("NeMo", "`audio_filepath`, `text`, `offset`, `duration`", manifest("m.json", NEMO), examples("m.json"),
        Read(BY_JSON, "pieces of files")),
    Row("NeMo", "compressed by gzip", manifest("m.jsonl.gz", gzip.compress(NEMO.encode())), examples("m.jsonl.gz"),
        Read(BY_JSON)),
    Row("lhotse", "cuts (`MonoCut`) with supervisions", manifest("cuts.jsonl", json_lines(CUT)),
        examples("cuts.jsonl"),
        Read(read_by("arithmetic", lambda path: [("to be", "a.wav", 0.75, 1.25)]), "a piece for each supervision")),
    Row("lhotse", "supervisions", manifest("s.jsonl", json_lines(SUPERVISION)), examples("s.jsonl"),
        Read(read_by("arithmetic", lambda path: [("to be", "a.wav", 0.5, 0.75)]), "a piece for each")),
    *(Row("lhotse", what, manifest("cuts.jsonl", json_lines({**CUT, **change})), examples("cuts.jsonl"),
          Refused("expected a cut of lhotse that is a part of one file as it was recorded"))
      for what, change in OTHER_CUTS.items()),
    Row("Kaldi", "`wav.scp`, `text`, `segments`, with blanks or tabs", KALDI, examples(), Read(read_by(
        "arithmetic", lambda path: [("or not", "a.wav", 0, None), ("to be", "b.wav", 0.5, 1.5)]), "pieces of files")),
    Row("Kaldi", "`wav.scp` and `text` alone", several(_files("a.wav", "b.wav"), text("text", "u1 to be\nu2 or not\n"),
        text("wav.scp", "u1 a.wav\nu2 b.wav\n")), examples(), Read(whole("–", *TWO), "whole files")),
    Row("Kaldi", "commands in `wav.scp`", manifest("wav.scp", "u1 sph2pipe -f wav a.sph |\n"), examples(),
        Refused("and a file (no command) in")),
    Row("Common Voice", "TSV; quotes are text, files are named without their folder",
        manifest("test.tsv", COMMON_VOICE, "clips/a.wav", "clips/b.wav"), examples("test.tsv"),
        Read(by_pandas("test.tsv", lambda row: (row.sentence, f"clips/{row.path}"), sep="\t"))),
    Row("LJSpeech", "three columns between bars", manifest("metadata.csv", 'a|Mr. "x|Mister x\n', "wavs/a.wav"),
        examples(), Read(by_pandas("metadata.csv", _of_ljspeech, sep="|", header=None, names=["id", "raw", "said"]),
                         "the last one is what is said")),
    Row("LJSpeech", "two columns", manifest("metadata.csv", "a|to be\n", "wavs/a.wav"), examples(),
        Read(by_pandas("metadata.csv", _of_ljspeech, sep="|", header=None, names=["id", "said"]))),
    Row("LJSpeech", "a row of another number of columns", manifest("metadata.csv", "a|to be\nb|x|y\n"), examples(),
        Refused("expected 2 columns (audio, text), found 3")),
    Row("audiofolder", "`metadata.csv`", manifest("metadata.csv", 'file_name,transcription\na.wav,"to be, or not"\n'),
        examples(), Read(read_by("`csv`", lambda path: [
            (row["transcription"], row["file_name"], 0, None)
            for row in csv.DictReader((path / "metadata.csv").read_text().splitlines())]))),
    Row("audiofolder", "`metadata.jsonl`", manifest("metadata.jsonl", json_lines(
        {"file_name": "a.wav", "text": "to be"})), examples(), Read(read_by("`json`", lambda path: [
            (row["text"], row["file_name"], 0, None) for row in _rows_of(path, "metadata.jsonl")]))),
    Row("LibriSpeech", "`*.trans.txt`", manifest("8/1/8-1.trans.txt", "8-1-0 TO BE\n8-1-1 OR NOT\n",
        "8/1/8-1-0.wav", "8/1/8-1-1.wav"), examples(),
        Read(whole("–", ("TO BE", "8/1/8-1-0.wav"), ("OR NOT", "8/1/8-1-1.wav")))),
    Row("MLS", "`transcripts.txt`", manifest("train/transcripts.txt", "8_1_0\tto be\n8_1_1\tor not\n",
        "train/audio/8/1/8_1_0.wav", "train/audio/8/1/8_1_1.wav"), examples(), Read(whole(
            "–", ("to be", "train/audio/8/1/8_1_0.wav"), ("or not", "train/audio/8/1/8_1_1.wav")))),
    Row("VCTK", "`txt/a.txt` for `wav/a.wav`", manifest("txt/a.txt", "to be\n", "wav/a.wav"), examples(),
        Read(whole("–", ("to be", "wav/a.wav")))),
    Row("all", "two columns of one name", manifest("m.csv", "audio,text,audio\na.wav,to be,b.wav\n"), examples("m.csv"),
        Refused("expected names of columns that differ, found 'audio' 2 times")),
    Row("all", "lists of files that are called `.txt`, subtitles, alignments", manifest("a.srt", "1\n"),
        examples("a.srt"), Refused("Subtitles and alignments (.srt, .vtt, .ctm, .TextGrid) are not read")),
    *(Row("texts", f"`a{suffix}` beside `a.wav`", manifest(f"a{suffix}", "to be\n"), examples(),
          Read(whole("–", ("to be", "a.wav")), "read, without blanks at both ends"))
      for suffix in (".normalized.txt", ".txt", ".lab")),
    Row("all", "a byte order mark", manifest("m.csv", "\ufeffaudio,text\na.wav,to be\n"), examples("m.csv"),
        Read(whole("`csv`, utf-8-sig", ("to be", "a.wav")), "ignored")),
    Row("all", "text that is not UTF-8", manifest("m.csv", b"audio,text\na.wav,\xff\n"), examples("m.csv"),
        Refused("expected a manifest, which is UTF-8 text")),
    Row("all", "a JSON array", manifest("m.json", '[\n{"audio": "a.wav", "text": "x"}\n]\n'), examples("m.json"),
        Refused("convert an array with: jq -c '.[]'")),
    Row("all", "times that are no seconds", manifest("m.jsonl", json_lines(
        {"audio": "a.wav", "text": "x", "start": "00:01.5"})), examples("m.jsonl"),
        Refused("expected seconds in the field 'start'")),
    Row("all", "a row about a file that is not there", manifest("m.jsonl", json_lines({"audio": "b.wav", "text": "x"})),
        examples("m.jsonl"), Refused("a transcript is about the file 'b.wav', and there is none")),
    Row("all", "a name that several files have", manifest("m.jsonl", json_lines({"audio": "a.wav", "text": "x"}),
        "x/a.wav", "y/a.wav"), examples("m.jsonl"), Refused("a transcript is about the file 'a.wav', and there are 2")),
    Row("all", "two rows about the same piece", manifest("m.jsonl", 2 * json_lines({"audio": "a.wav", "text": "x"})),
        examples("m.jsonl"), Refused("two transcripts are about the file 'a.wav'")),
    Row("all", "files without a row", manifest("m.csv", "audio,text\na.wav,to be\n", "a.wav", "b.wav"),
        examples("m.csv"), LeftOut("no_transcript", whole("–", ("to be", "a.wav")))),
    Row("all", "rows whose text is missing or blank", manifest("m.csv", "audio,text\na.wav,to be\nb.wav, \n", "a.wav",
        "b.wav"), examples("m.csv"), LeftOut("no_transcript", whole("–", ("to be", "a.wav")))),
    Row("all", "a piece that ends behind its file", manifest("m.jsonl", json_lines(
        {"audio": "a.wav", "text": "x", "offset": 1, "duration": 2})), examples("m.jsonl"),
        Refused("from 1 s to 3 s, but the file lasts 2 s")),
    Row("all", "the same with `--on-error drop`", manifest("m.jsonl", json_lines(
        {"audio": "a.wav", "text": "x", "offset": 1, "duration": 2}, {"audio": "a.wav", "text": "y", "duration": 1})),
        examples("m.jsonl", on_error="drop"),
        LeftOut("piece_outside_file", read_by("–", lambda path: [("y", "a.wav", 0, 1)]))),
    Row("Parquet", "sound in its columns", text("a.parquet", b"PAR1"), examples(),
        Refused("Media inside of Parquet files are read by a declaration of your own")),
]  # fmt: skip
