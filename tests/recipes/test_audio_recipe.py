"""The recipe `audio`: what it declares, and what becomes of files and manifests."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from media_files import RATE, built, loaded, tone

from beam_pipes import Cache, build
from beam_pipes.errors import DatasetError, DeclarationError
from beam_pipes.recipes import audio, audio_example
from beam_pipes.sources import FileContent
from beam_pipes.transforms.audio import Transcripts

pytestmark = pytest.mark.usefixtures("here")


def clips(lines: list[dict[str, Any]] | None = None) -> None:
    """Three clips of half a second, one second and one and a half, and a manifest."""
    for number in range(3):
        tone(f"talks/clips/{number}.wav", secs=(number + 1) / 2)
    rows = [{"audio_filepath": f"clips/{n}.wav", "text": f"to be {n}", "speaker": n % 2} for n in range(3)]
    Path("talks/manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines or rows))


def test_a_manifest_names_files_and_what_is_said_in_them() -> None:
    clips()
    recipe = audio("talks/manifest.jsonl", sample_rate=16_000, keep_fields={"speaker": "int64"})

    cache = built(recipe)

    assert [(each["path"], each["text"], each["speaker"], each["num_samples"]) for each in cache["train"]] == [
        ("clips/0.wav", "to be 0", 0, 8000),
        ("clips/1.wav", "to be 1", 1, 16000),
        ("clips/2.wav", "to be 2", 0, 24000),
    ]
    wave = next(iter(cache["train"]))["audio"]
    expected = 0.5 * np.sin(2 * np.pi * 200 * np.arange(8000) / 16_000)
    assert wave.dtype == np.float32 and np.abs(wave - expected)[500:-500].max() < 1e-3
    assert loaded(recipe, cache)["audio"].shape == (3, 24000)


@pytest.mark.parametrize("name", ["manifest.csv", "manifest.tsv", "metadata.csv"])
def test_manifests_are_csv_tsv_or_as_in_ljspeech(name: str) -> None:
    for clip in ("a", "b"):
        tone(f"talks/wavs/{clip}.flac")
    separator = {"manifest.csv": ",", "manifest.tsv": "\t", "metadata.csv": "|"}[name]
    rows = [["file", "said", "sentence"], ["a.flac", "x", "to be"], ["wavs/b.flac", "y", "or, not"]]
    if name == "metadata.csv":
        rows = [["a", "1", "to be"], ["b", "2", "or, not"]]
    quoted = [[f'"{field}"' if separator == "," else field for field in row] for row in rows]
    Path(f"talks/{name}").write_text("".join(separator.join(row) + "\n" for row in quoted))

    cache = built(audio("talks" if name == "metadata.csv" else f"talks/{name}", sample_rate=RATE))

    assert [each["text"] for each in cache["train"]] == ["to be", "or, not"]


def librispeech() -> None:
    for speaker, chapter in ((84, 121), (97, 5), (99, 1), (100, 2)):
        folder = f"libri/{speaker}/{chapter}"
        for number in range(3):
            tone(f"{folder}/{speaker}-{chapter}-{number:04}.flac", rate=16_000)
        lines = [f"{speaker}-{chapter}-{number:04} GO {number}\n" for number in range(3)]
        Path(f"{folder}/{speaker}-{chapter}.trans.txt").write_text("".join(lines))


def test_side_files_of_librispeech_have_text_and_speakers() -> None:
    librispeech()
    recipe = audio("libri", by="speaker", keep_fields=["chapter"], splits={"train": 0.5, "eval": 0.5}, seed=1)

    cache = built(recipe)

    examples = [example for split in cache.splits for example in cache[split]]
    assert {(each["path"], each["text"], each["chapter"]) for each in examples} >= {
        ("84/121/84-121-0000.flac", "GO 0", "121"),
        ("100/2/100-2-0002.flac", "GO 2", "2"),
    }
    speakers = [{each["speaker"] for each in cache[split]} for split in cache.splits]
    assert speakers[0] | speakers[1] == {"84", "97", "99", "100"} and not speakers[0] & speakers[1]


def test_a_changed_transcript_is_another_declaration() -> None:
    librispeech()
    recipe = audio("libri")
    before = built(recipe).manifest.snapshot
    side = Path("libri/84/121/84-121.trans.txt")
    side.write_text(side.read_text().replace("GO 0", "STAY"))

    after = built(audio("libri"))

    assert after.manifest.snapshot != before
    assert next(each["text"] for each in after["train"] if each["path"].startswith("84/")) == "STAY"


def test_sound_is_dropped_with_a_reason_and_stored_as_integers() -> None:
    clips()
    tone("talks/clips/9.wav")
    recipe = audio("talks/manifest.jsonl", sample_rate=RATE, dtype="int16", min_secs=0.6, max_secs=1.2)

    result = build(recipe.declaration(), to="cache", workers=1)

    unit = result.account.units["audio_example"]
    assert unit.dropped == {"too_short": 1, "too_long": 1, "no_transcript": 1}
    (example,) = Cache.open("cache")["train"]
    assert example["audio"].dtype == np.int16 and 16_000 < example["audio"].max() < 16_400
    assert str(unit.statistics["audio_example_milliseconds"]) == "audio_example_milliseconds: 1000"


def test_sound_without_transcripts_has_no_text() -> None:
    tone("sounds/a/1.ogg", rate=16_000)

    (example,) = built(audio("sounds"))["train"]

    assert sorted(example) == ["audio", "num_samples", "path"]
    with pytest.raises(
        DeclarationError, match="the field 'speaker' belongs to transcripts, but there are none in 'sou"
    ):
        audio("sounds", by="speaker", splits={"train": 1.0})
    with pytest.raises(DatasetError, match=r"cannot decode sound from 3 bytes: Format not recognised\.$"):
        audio_example(FileContent("a.wav", b"RIF"), sample_rate=RATE)


@pytest.mark.parametrize(
    ("named", "path", "is_same"),
    [
        ("/data/clips/1.wav", "clips/1.wav", True),
        ("1.wav", "clips/1.wav", True),
        ("1", "clips/1.wav", True),
        ("./clips/1", "clips/1.wav", True),
        ("clips/1.flac", "clips/1.wav", False),
        ("other/1.wav", "clips/1.wav", False),
        ("11.wav", "clips/1.wav", False),
        ("84-1.a", "84-1.a.wav", True),
    ],
)
def test_a_row_names_a_file_by_the_end_of_its_path(named: str, path: str, is_same: bool) -> None:
    Path("m.jsonl").write_text(json.dumps({"audio": named, "text": "x"}) + "\n")
    from beam_pipes.identity.canonical import Asset

    row = Transcripts(files=[Asset("m.jsonl")]).row(path)

    assert (row is not None) == is_same


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"audio": "0.wav"}], {}, "manifest.jsonl has no field 'text or transcript or transcription or sentence or "),
        (
            [{"a": "0.wav", "text": ""}],
            {},
            "that names the sound file; it has a, text. Name a different one as audio_field=",
        ),
        (
            [{"audio": "0.wav", "t": ""}],
            {"text_field": "x"},
            "has no field 'x' that is the transcript; it has audio, t.",
        ),
        (
            [{"audio": "7.wav", "text": ""}],
            {},
            "a transcript is about the file '7.wav', and there is none. Name the dir",
        ),
        (
            [{"audio": n, "text": ""} for n in ("0.wav", "clips/0.wav")],
            {},
            "two transcripts are about the file 'clips/0",
        ),
        (
            [{"audio": "0.wav", "text": ""}],
            {"keep_fields": ["age"]},
            "the transcript of '0.wav' has no field 'age'; it has audio, text.",
        ),
        (None, {"dtype": "int8"}, "dtype should be one of float32, int16, got 'int8'."),
        (None, {"sample_rate": 0}, "sample_rate is a number of Hz, such as 16000, got 0."),
    ],
)
def test_manifests_that_do_not_fit_are_refused(
    rows: list[dict[str, Any]] | None, options: dict[str, Any], message: str
) -> None:
    clips(rows)
    with pytest.raises((DeclarationError, DatasetError), match=re.escape(message)):
        audio("talks/manifest.jsonl", **options)


def test_a_name_that_two_files_have_is_refused() -> None:
    clips([{"audio": "0.wav", "text": ""}])
    tone("talks/more/0.wav")
    with pytest.raises(
        DatasetError, match="and there are 2, such as 'clips/0.wav' and 'more/0.wav'. Name the directory"
    ):
        audio("talks/manifest.jsonl")
    Path("talks/manifest.jsonl").write_text("{\n")
    with pytest.raises(DatasetError, match="talks/manifest.jsonl:1: expected a JSON object: "):
        audio("talks/manifest.jsonl")


def test_wave_files_that_were_cut_short_are_refused_and_those_without_a_length_read() -> None:
    file = io.BytesIO()
    soundfile.write(file, np.full((1600, 2), 0.25), 16000, format="WAV", subtype="PCM_16")
    content = file.getvalue()

    message = "the sound should have 6,400 bytes of samples, as its header says, but the file ends after 1,200. Copy it"
    with pytest.raises(DatasetError, match=message):
        audio_example(FileContent("a.wav", content[: 44 + 1200]), sample_rate=16_000)
    for unknown in (0xFFFFFFFF, 0x7FFFFFFF - 36):
        length = unknown.to_bytes(4, "little")
        piped = audio_example(
            FileContent("a.wav", content[:4] + length + content[8:40] + length + content[44:]), sample_rate=16_000
        )
        assert piped["num_samples"] == 1600


def test_a_sound_file_or_a_manifest_in_another_encoding_is_no_manifest() -> None:
    clips()
    Path("talks/latin.csv").write_bytes("audio,text\nclips/0.wav,caf\xe9\n".encode("latin-1"))
    words = (
        r"expected a manifest, which is UTF-8 text \(.jsonl, .csv or .tsv, one row for each sound file\): .* Name the "
        "manifest or the directory of the sound files, or convert the file to UTF-8."
    )
    for path in ("talks/clips/0.wav", "talks/latin.csv"):
        with pytest.raises(DatasetError, match=f"{path}: {words}"):
            audio(path).declaration()
