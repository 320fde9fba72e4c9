"""The recipe `audio`: what it declares, and what becomes of files and manifests."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from media_files import RATE, built, loaded, tone
from typer.testing import CliRunner

from beam_pipes import Cache, build
from beam_pipes.commands import app
from beam_pipes.errors import DatasetError, DeclarationError, StageError
from beam_pipes.recipes import audio, audio_example
from beam_pipes.sources import FileContent
from beam_pipes.transforms.audio import Transcripts
from beam_pipes.transforms.manifest_rows import rows_of_manifest

pytestmark = pytest.mark.usefixtures("here")


def clips(lines: list[dict[str, Any]] | None = None) -> None:
    """Three clips of half a second, one second and one and a half, and a manifest."""
    for number in range(3):
        tone(f"talks/clips/{number}.wav", secs=(number + 1) / 2)
    rows = [{"audio_filepath": f"clips/{n}.wav", "text": f"to be {n}", "speaker": n % 2} for n in range(3)]
    Path("talks/manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines or rows))


def test_a_manifest_names_files_and_their_transcripts() -> None:
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
    with pytest.raises(DatasetError, match=r"sound from a\.wav: Format not recognised\. It begins with b'RIF'\.$"):
        list(audio_example(FileContent("a.wav", b"RIF"), sample_rate=RATE))
    for content, words in (
        (b"", "The file is empty"),
        (b"<!DOCTYPE html>", "It is HTML. Download it again: a server sent a page instead"),
        (b"version https://git-lfs.github.com/spec/v1", "Fetch the file it stands for: git lfs pull"),
    ):
        with pytest.raises(DatasetError, match=words):
            list(audio_example(FileContent("a.wav", content), sample_rate=RATE))


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

    assert bool(Transcripts(files=[Asset("m.jsonl")]).rows(path)) == is_same


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"audio": "0.wav"}], {}, "manifest.jsonl has no field such as text, transcript, transcription, sentence, "),
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
            "talks/manifest.jsonl:1: the transcript of '0.wav' has no field 'age'; it has audio, text.",
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


def test_a_sound_file_or_a_manifest_in_another_encoding_is_not_a_manifest() -> None:
    clips()
    Path("talks/latin.csv").write_bytes("audio,text\nclips/0.wav,caf\xe9\n".encode("latin-1"))
    words = (
        r"expected a manifest, which is UTF-8 text \(.jsonl, .csv or .tsv, one row for each file\): .* Name the "
        "manifest or the directory of the files, or convert the file to UTF-8."
    )
    with pytest.raises(DatasetError, match=f"talks/latin.csv: {words}"):
        audio("talks/latin.csv").declaration()
    with pytest.raises(DeclarationError, match="'talks/clips/0.wav' is one sound file. Name its directory, talks"):
        audio("talks/clips/0.wav").declaration()


def ramp(path: str, *, channels: int = 1) -> np.ndarray:
    """Three seconds of int16 samples that differ from each other, and in the second channel by one."""
    wave = np.arange(-12_000, 12_000, dtype=np.int16)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.stack([wave + each for each in range(channels)], axis=1), RATE)
    return wave


def manifest(*rows: dict[str, Any]) -> str:
    Path("talks/m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "talks/m.jsonl"


def test_a_file_gives_an_example_for_each_piece_that_the_manifest_names() -> None:
    wave = ramp("talks/a.wav")
    pieces = [{"audio_filepath": "a.wav", "offset": at, "duration": 0.5, "text": f"from {at}"} for at in (0, 2.5, 1)]

    cache = built(audio(manifest(*pieces), sample_rate=RATE, dtype="int16", keep_fields={"offset": "float32"}))

    examples = list(cache["train"])
    assert [(each["text"], each["offset"], each["num_samples"]) for each in examples] == [
        ("from 0", 0.0, 4000),
        ("from 2.5", 2.5, 4000),
        ("from 1", 1.0, 4000),
    ]
    for example, at in zip(examples, (0, 20_000, 8000), strict=True):
        np.testing.assert_array_equal(example["audio"], wave[at : at + 4000])


def test_a_supervision_of_lhotse_is_about_one_channel() -> None:
    wave = ramp("talks/rec.wav", channels=2)
    row = {"id": "rec-1", "recording_id": "rec", "start": 1.0, "duration": 1.0, "channel": 1, "text": "to be"}

    (example,) = built(audio(manifest(row), sample_rate=RATE, dtype="int16"))["train"]

    np.testing.assert_array_equal(example["audio"], wave[8000:16_000] + 1)
    with pytest.raises(
        StageError, match="about 'rec.wav' in its channel 2, but the file has 2 channels. Repair the row"
    ):
        built(audio(manifest({**row, "channel": 2}), sample_rate=RATE), "other")


@pytest.mark.parametrize(("suffix", "field"), [("jsonl", "channel_selector"), ("csv", "channel")])
def test_speakers_of_a_call_have_a_channel_each(suffix: str, field: str) -> None:
    wave = ramp("talks/call.wav", channels=2)
    named = manifest(*[{"audio_filepath": "call.wav", "text": f"said in {each}", field: each} for each in (1, 0)])
    if suffix == "csv":
        named = "talks/m.csv"
        Path(named).write_text(f"audio_filepath,text,{field}\ncall.wav,said in 1,1\ncall.wav,said in 0,0\n")

    for example, channel in zip(built(audio(named, sample_rate=RATE, dtype="int16"))["train"], (1, 0), strict=True):
        assert example["text"] == f"said in {channel}"
        np.testing.assert_array_equal(example["audio"], wave + channel)


@pytest.mark.parametrize("channel", [[0, 1], -1, True, 0.5])
def test_several_channels_are_no_piece(channel: Any) -> None:
    ramp("talks/call.wav", channels=2)
    row = {"audio_filepath": "call.wav", "text": "to be", "channel_selector": channel}
    with pytest.raises(DatasetError, match=f"expected one channel, from 0 on, found {re.escape(str(channel))}. Name"):
        audio(manifest(row))


def test_pieces_outside_of_their_file_fail_or_are_left_out_alone() -> None:
    ramp("talks/a.wav")
    rows = [{"audio": "a.wav", "text": "x", "offset": at, "duration": 1} for at in (2.5, 1)]
    message = (
        r"m\.jsonl:1: a transcript is about 'a\.wav' from 2\.5 s to 3\.5 s, but the file lasts 3 s\. Repair the row "
        r"\(times are in seconds, channels begin at 0\), or leave such pieces out \(--on-error drop\)\."
    )
    with pytest.raises(StageError, match=message):
        built(audio(manifest(*rows), sample_rate=RATE))

    account = build(audio(manifest(*rows), sample_rate=RATE, on_error="drop").declaration(), to="cache").account

    assert account.units["audio_example"].partly_dropped == {"piece_outside_file": 1}
    assert [each["num_samples"] for each in Cache.open("cache")["train"]] == [8000]


def test_rows_without_text_are_dropped_with_a_reason() -> None:
    for name in "abcdef":
        tone(f"talks/{name}.wav")
    texts: list[dict[str, Any]] = [{"text": "to be"}, {"text": None}, {"text": ""}, {"text": " \t"}, {}]
    rows = [{"audio": f"{name}.wav", **text} for name, text in zip("abcde", texts, strict=True)]
    Path("talks/m.csv").write_text("audio,text\na.wav,to be\nb.wav\nc.wav,\n")

    for data, dropped in {manifest(*rows): 5, "talks/m.csv": 5}.items():
        account = build(audio(data, sample_rate=RATE).declaration(), to=data + "-cache", workers=1).account
        assert account.units["audio_example"].dropped == {"no_transcript": dropped}
        assert [each["text"] for each in Cache.open(data + "-cache")["train"]] == ["to be"]


def test_what_is_too_loud_for_int16_is_counted() -> None:
    Path("talks").mkdir()
    soundfile.write("talks/a.wav", np.array([0.5, 2.4, -1.0, -7.0]), RATE, subtype="FLOAT")

    result = build(audio("talks", sample_rate=RATE, dtype="int16").declaration(), to="cache", workers=1)

    assert next(iter(Cache.open("cache")["train"]))["audio"].tolist() == [16384, 32767, -32768, -32768]
    statistics = result.account.units["audio_example"].statistics
    assert str(statistics["audio_example_clipped_samples"]) == "audio_example_clipped_samples: 2"


def test_texts_of_sound_are_found_in_another_folder() -> None:
    for name in ("p1_1", "p1_2", "p2_1"):
        tone(f"vctk/wav48/{name[:2]}/{name}.wav")
    for name, text in {"p1/p1_1": "to be\n", "p2/p2_1": "or", "p2/readme": "x"}.items():
        Path("vctk/txt", name).parent.mkdir(parents=True, exist_ok=True)
        Path(f"vctk/txt/{name}.txt").write_text(text)
    recipe = audio("vctk", sample_rate=RATE)

    assert {each["path"]: each["text"] for each in built(recipe)["train"]} == {
        "wav48/p1/p1_1.wav": "to be",
        "wav48/p2/p2_1.wav": "or",
    }
    assert recipe.left_out == {".txt": 1}


def test_transcripts_of_mls_have_speakers() -> None:
    tone("mls/train/audio/8/1/8_1_0.wav")
    Path("mls/train/transcripts.txt").write_text("8_1_0\tto  be\n")

    (example,) = built(audio("mls", sample_rate=RATE, keep_fields=["speaker", "chapter"]))["train"]

    assert (example["text"], example["speaker"], example["chapter"]) == ("to  be", "8", "1")


def test_a_missing_text_or_channel_of_pandas_is_nan() -> None:
    ramp("talks/call.wav", channels=2)
    tone("talks/b.wav")
    Path("talks/m.jsonl").write_text(
        '{"audio": "call.wav", "text": "to be", "channel": 1.0}\n{"audio": "b.wav", "text": NaN, "channel": NaN}\n'
    )

    (example,) = built(audio("talks/m.jsonl", sample_rate=RATE))["train"]

    assert example["text"] == "to be"
    np.testing.assert_array_equal(example["audio"], soundfile.read("talks/call.wav", dtype="float32")[0][:, 1])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("m.txt", "a.wav|to be\n", r"'talks/m\.txt' should be a manifest.* only needs the name metadata\.csv"),
        ("a.vtt", "WEBVTT\n", r"Subtitles and alignments \(\.srt, \.vtt, \.ctm, \.TextGrid\) are not read"),
        ("m.csv", "path,text,path\na.wav,x,b.wav\n", r"m\.csv:1: expected names .* that differ, found 'path' 2 times"),
        (
            "s.jsonl",
            '{"recording_id": "r1", "text": "x", "start": 0, "duration": 1}\n',
            r"none\. Supervisions name rec",
        ),
    ],
)
def test_lists_that_are_no_manifests_are_refused(name: str, text: str, message: str) -> None:
    tone("talks/a.wav")
    Path("talks", name).write_text(text)
    with pytest.raises((DeclarationError, DatasetError), match=message):
        audio(f"talks/{name}", sample_rate=RATE)


def test_a_manifest_that_may_not_be_read_says_so() -> None:
    Path("m.jsonl").write_text("")
    Path("m.jsonl").chmod(0)
    Path().chmod(0o755)
    account = os.geteuid()
    os.seteuid(account or 65534)  # root may read everything
    try:
        with pytest.raises(
            DatasetError, match=r"m\.jsonl: this account may not read it\. Allow it: chmod a\+r m\.jsonl"
        ):
            list(rows_of_manifest("m.jsonl"))
    finally:
        os.seteuid(account)


def test_a_cache_may_lie_beside_a_manifest_and_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    clips()
    monkeypatch.chdir("talks")

    found = CliRunner().invoke(app, ["audio", "manifest.jsonl", "--to", "cache", "--no-report"])

    assert found.exit_code == 0 and len(Cache.open("cache")["train"]) == 3


LAYOUTS: dict[str, dict[str, str]] = {
    "audiofolder": {"metadata.csv": 'file_name,transcription\ntrain/1.wav,"to be, or"\ntest/1.wav,not\n'},
    "audiofolder_of_splits": {
        "train/metadata.jsonl": '{"file_name": "1.wav", "transcription": "to be, or"}\n',
        "test/metadata.jsonl": '{"file_name": "1.wav", "transcription": "not"}\n',
    },
    "texts_beside": {"train/1.txt": "to be, or\n", "test/1.txt": "not\n", "README.txt": "Sound"},
    "labs_beside": {"train/1.lab": "to be, or", "test/1.lab": "not"},
    "both_spellings_beside": {
        "train/1.normalized.txt": "to be, or",
        "train/1.original.txt": "To be",
        "test/1.normalized.txt": "not",
    },
    "bars": {"metadata.csv": "train/1|to be, or\ntest/1.wav|not\n"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_directory_has_its_transcripts_in_one_of_the_usual_layouts(layout: str) -> None:
    for folder in ("train", "test"):
        tone(f"talks/{folder}/1.wav")
    for name, text in {**LAYOUTS[layout], "notes.md": "", "a.m4a": ""}.items():
        Path("talks", name).write_text(text)

    recipe = audio("talks", sample_rate=RATE)
    cache = built(recipe)

    for split, text in {"train": "to be, or", "test": "not"}.items():
        assert [(each["path"], each["text"]) for each in cache[split]] == [(f"{split}/1.wav", text)]
    left = {"texts_beside": {".txt": 1}, "both_spellings_beside": {".txt": 1}}.get(layout, {})
    assert recipe.left_out == {".m4a": 1, ".md": 1, **left}


def test_folders_that_are_splits_stay_apart() -> None:
    for folder in ("in/train-clean-100/84", "in/train-other-500/3", "in/dev-clean/1"):
        tone(f"talks/{folder}/1.wav")
    cache = built(audio("talks", sample_rate=RATE))
    assert {split: [each["path"] for each in cache[split]] for split in cache.splits} == {
        "dev-clean": ["in/dev-clean/1/1.wav"],
        "train-clean-100": ["in/train-clean-100/84/1.wav"],
        "train-other-500": ["in/train-other-500/3/1.wav"],
    }
    with pytest.raises(DeclarationError, match="of 'talks' are already splits, but splits were given too. Omit them"):
        audio("talks", splits={"train": 0.5, "eval": 0.5})
    tone("talks/in/music/1.wav")
    with pytest.raises(
        DeclarationError, match="are called as splits are, but there are others beside them: music. Name"
    ):
        audio("talks")
    assert list(audio("talks", splits={"train": 1}).declaration().splits) == ["train"]
    for folder in ("dev1", "dev2"):  # two speakers
        tone(f"speakers/{folder}/1.wav")
    assert list(audio("speakers").declaration().splits) == ["train"]


def test_a_table_of_common_voice_names_files_in_another_folder() -> None:
    for name in "ab":
        tone(f"cv/clips/common_voice_{name}.wav")
    rows = [
        "client_id\tpath\tsentence_id\tsentence",
        'x\tcommon_voice_a.wav\t1\t"Good-bye, he said',
        "x\tcommon_voice_b.wav",
    ]
    Path("cv/train.tsv").write_text("".join(f"{row}\n" for row in rows))

    result = build(audio("cv/train.tsv", sample_rate=RATE).declaration(), to="cache", workers=1)

    assert [each["text"] for each in Cache.open("cache")["train"]] == ['"Good-bye, he said']
    assert result.account.units["audio_example"].dropped == {"no_transcript": 1}


@pytest.mark.parametrize("data", ["talks", "talks/segments", "talks/wav.scp"])
def test_a_directory_of_kaldi_is_a_manifest(data: str) -> None:
    wave = ramp("talks/wav/rec.wav")
    files = {
        "wav.scp": "rec1 wav/rec.wav\n",
        "segments": "u1 rec1 0.5 1.5\nu2 rec1 2 -1\n",
        "text": "u1 to be\nu2 or\n",
    }
    for name, text in files.items():
        Path("talks", name).write_text(text)

    recipe = audio(data, sample_rate=RATE, dtype="int16")
    examples = list(built(recipe)["train"])

    assert [each["text"] for each in examples] == ["to be", "or"] and recipe.left_out == {}
    np.testing.assert_array_equal(examples[0]["audio"], wave[4000:12_000])
    np.testing.assert_array_equal(examples[1]["audio"], wave[16_000:])


def test_a_directory_of_sound_that_is_not_decoded_says_how_to_convert_it() -> None:
    Path("talks").mkdir()
    Path("talks/a.m4a").write_bytes(b"")
    message = (
        "there are no sound files in 'talks' that libsndfile decodes, but 1 that it does not. Convert it to "
        "FLAC, for example with: ffmpeg -i a.m4a a.flac"
    )
    with pytest.raises(DeclarationError, match=message):
        audio("talks")


def test_a_manifest_on_another_machine_is_refused() -> None:
    message = (
        "manifests are read from this machine, but 'gs://talks/m.jsonl.gz' is elsewhere. Copy it here, and name the"
    )
    with pytest.raises(DeclarationError, match=message):
        audio("gs://talks/m.jsonl.gz")


def test_the_summary_tells_seconds_and_what_was_clipped() -> None:
    Path("talks").mkdir()
    soundfile.write("talks/a.wav", np.tile([0.5, 2.4], RATE), RATE, subtype="FLOAT")
    options = ["--dtype", "int16", "--sample-rate", str(RATE), "--to", "cache", "--no-report", "--workers", "1"]

    printed = CliRunner().invoke(app, ["audio", "talks", *options], catch_exceptions=False).output

    assert "1 record read, 1 written, 0 dropped, 0 dead letters; 1 source shard; " in printed
    assert (
        "train: 1 example, 2.00 seconds\n8,000 samples too loud for int16, clipped; --dtype float32 keeps them"
        in printed
    )
