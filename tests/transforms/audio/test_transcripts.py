"""Manifests of all kinds: which rows they have, which file or piece of one a row is about, and what is refused."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from beam_pipes.errors import DatasetError
from beam_pipes.identity.canonical import Asset
from beam_pipes.transforms.audio import Transcripts
from beam_pipes.transforms.manifest_rows import Row, piece_of, rows_of_manifest


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fields(name: str, text: str) -> list[dict[str, object]]:
    Path(name).write_text(text)
    return [dict(row.fields) for row in rows_of_manifest(name)]


def test_two_columns_of_ljspeech_are_file_and_text_and_three_have_both_spellings() -> None:
    assert fields("metadata.csv", 'a|"to be\nb|or not\n') == [
        {"audio": "a", "text": '"to be'},
        {"audio": "b", "text": "or not"},
    ]
    assert fields("metadata.csv", "a|Mr. x|Mister x\n") == [{"audio": "a", "raw_text": "Mr. x", "text": "Mister x"}]
    named = "audio_file|text|speaker_name\nwavs/a.wav|to be|7\n"  # as in Coqui
    assert fields("metadata.csv", named) == [{"audio_file": "wavs/a.wav", "text": "to be", "speaker_name": "7"}]


def test_a_text_beside_a_sound_file_is_its_transcript() -> None:
    assert fields("a.lab", "to be\n") == [{"audio": "a", "text": "to be"}]
    assert fields("a.b.normalized.txt", "to be\n") == [{"audio": "a.b", "text": "to be"}]


CUT: dict[str, Any] = {
    "id": "long-1",
    "type": "MonoCut",
    "start": 10.0,
    "duration": 5.0,
    "channel": 1,
    "recording": {"id": "long", "sources": [{"type": "file", "channels": [0, 1], "source": "rec/long.wav"}]},
    "supervisions": [
        {"id": "s1", "recording_id": "long", "start": 0.5, "duration": 1.5, "channel": 1, "text": "to be"},
        {"id": "s2", "recording_id": "long", "start": 2.0, "duration": 3.0, "channel": 1, "text": None, "speaker": "x"},
    ],
}


def test_each_supervision_of_a_cut_of_lhotse_is_a_piece_of_its_recording() -> None:
    Path("cuts.jsonl.gz").write_bytes(gzip.compress(json.dumps(CUT).encode()))

    rows = list(rows_of_manifest("cuts.jsonl.gz"))

    assert [(row.fields["audio"], row.fields["text"], row.fields.get("speaker")) for row in rows] == [
        ("rec/long.wav", "to be", None),
        ("rec/long.wav", None, "x"),
    ]
    assert [piece_of(row) for row in rows] == [(10.5, 12.0, 1, False, 0.025), (12.0, 15.0, 1, False, 0.025)]


@pytest.mark.parametrize(
    "change",
    [
        {"type": "MixedCut", "recording": None, "tracks": []},
        {"recording": {**CUT["recording"], "transforms": [{"name": "Speed", "kwargs": {"factor": 1.1}}]}},
        {"recording": {"id": "long", "sources": [{"type": "command", "channels": [0], "source": "cat a.wav"}]}},
        {"type": "MultiCut", "channel": [0, 1]},
    ],
)
def test_cuts_that_are_no_part_of_one_file_are_refused(change: dict[str, Any]) -> None:
    Path("cuts.jsonl").write_text("\n" + json.dumps({**CUT, **change}) + "\n")
    message = (
        rf"^cuts\.jsonl:2: expected a cut of lhotse that is a part of one file .*{change.get('type', 'MonoCut')}.* id, "
    )
    with pytest.raises(DatasetError, match=message):
        list(rows_of_manifest("cuts.jsonl"))


@pytest.mark.parametrize(
    ("times", "num_secs", "samples"),
    [
        ({}, 3.0, None),
        ({"offset": None, "duration": ""}, 3.0, None),
        ({"offset": 1.0, "duration": 1.0}, 3.0, (100, 200)),
        ({"offset": "0.29", "duration": "0.01"}, 3.0, (29, 30)),  # strings of CSV; 0.29 * 100 is 28.999999999999996
        ({"offset": 1.5}, 3.0, (150, 300)),
        ({"start": 1, "end": 2.5}, 3.0, (100, 250)),
        ({"start_time": 0.0, "end_time": 1.0}, 1.02, (0, 100)),
        ({"offset": 2.0, "duration": 1.02}, 3.0, (200, 300)),  # rounded
        ({"duration": 1.0}, 3.0, (0, 100)),
        ({"duration": 3}, 3.4, (0, 340)),
        ({"duration": 3.4}, 3.36, (0, 336)),
        ({"duration": 3.25}, 3.36, (0, 325)),
        ({"duration": 4320}, 4.32, "outside"),
        ({"offset": 2.0, "duration": 1.1}, 3.0, "outside"),
        ({"offset": 3.0, "duration": 0.01}, 3.0, "outside"),
        ({"offset": 5.0}, 3.0, "outside"),
    ],
)
def test_times_of_a_row_are_a_piece_of_the_file(
    times: dict[str, object], num_secs: float, samples: tuple[int, int] | str | None
) -> None:
    piece = piece_of(Row("m.jsonl:1", {"audio": "a.wav", **times}))

    if piece is None or samples is None:
        assert piece is samples
    else:
        assert (piece.samples(round(num_secs * 100), 100) or "outside") == samples


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (
            {"start": "00:01.5"},
            "m.jsonl:1: expected seconds in the field 'start', which says what piece of the file the row is about, "
            "found '00:01.5'. Convert it to seconds, or rename the field if it is something else.",
        ),
        (
            {"offset": True},
            "expected seconds in the field 'offset', which says what piece of the file the row is about, ",
        ),
        (
            {"offset": float("nan")},
            "expected seconds in the field 'offset', which says what piece of the file the row ",
        ),
        (
            {"offset": -1},
            "m.jsonl:1: expected a piece of a sound file, found from -1 s to the end. Repair the row or leave it out.",
        ),
        ({"start": 2, "end": 2}, "expected a piece of a sound file, found from 2 s to 2 s."),
        ({"duration": 0}, "expected a piece of a sound file, found from 0 s to 0 s."),
    ],
)
def test_times_that_are_no_piece_are_refused(times: dict[str, object], message: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(message)):
        piece_of(Row("m.jsonl:1", times))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "m.jsonl",
            '{"audio": "a"}\n\n["a"]\n',
            'm.jsonl:3: expected a JSON object, found ["a"]. Repair or remove the',
        ),
        ("m.jsonl", "7\n", "m.jsonl:1: expected a JSON object, found 7. Repair or remove the line."),
        (
            "m.json",
            "[\n{}]\n",
            "m.json:1: expected a JSON object: Expecting value: line 2 column 1 (char 2). Each line of ",
        ),
        (
            "m.csv",
            "audio,text\na.wav,to be, or\n",
            "m.csv:2: expected 2 columns (audio, text), found 3: ['a.wav', 'to be'",
        ),
        ("m.csv", 'audio,text\na.wav,"to be\nb.wav,or\n', "m.csv: expected a manifest, which is UTF-8 text"),
        (
            "m.tsv",
            "path\tsentence\na.wav\tto\tbe\n",
            "m.tsv:2: expected 2 columns (path, sentence), found 3: ['a.wav', ",
        ),
        (
            "m.csv",
            "a|to be\nb|or|not\n",
            "m.csv:2: expected 2 columns (audio, text), found 3: ['b', 'or', 'not']. Quote ",
        ),
        ("m.csv", "a|b|c\nd|e\n", "m.csv:2: expected 3 columns (audio, raw_text, text), found 2: ['d', 'e']."),
        (
            "m.csv",
            "a|7|c|d\n",
            "m.csv:1: expected two or three columns, as in LJSpeech (file|text or file|raw text|text), ",
        ),
    ],
)
def test_malformed_manifests_are_refused_with_file_and_line(name: str, text: str, message: str) -> None:
    Path(name).write_text(text)
    with pytest.raises(DatasetError, match=re.escape(message)):
        list(rows_of_manifest(name))


@pytest.mark.parametrize("row", [{"text": "x"}, {"audio": None}, {"audio": ""}, {"audio": ["a.wav"]}])
def test_a_row_that_names_no_file_is_refused_with_its_place(row: dict[str, object]) -> None:
    Path("m.jsonl").write_text('{"audio": "a.wav"}\n' + json.dumps(row) + "\n")
    with pytest.raises(DatasetError, match=r"m\.jsonl:2: expected a field 'audio' that names the sound file, found "):
        Transcripts(files=[Asset("m.jsonl")]).rows("a.wav")


def matched(rows: Sequence[dict[str, object]], paths: Sequence[str], manifest: str = "m.jsonl") -> Transcripts:
    Path(manifest).parent.mkdir(parents=True, exist_ok=True)
    Path(manifest).write_text("".join(json.dumps({"text": "", **row}) + "\n" for row in rows))
    return Transcripts(files=[Asset(manifest)]).matched(paths, [], root=".")


def test_exact_paths_come_before_base_names() -> None:
    found = matched([{"audio": "a.wav"}, {"audio": "./sub/b"}], ["a.wav", "sub/a.wav", "sub/b.wav", "b.wav"])

    counts = {path: len(found.rows(path)) for path in ("a.wav", "sub/a.wav", "sub/b.wav", "b.wav")}
    assert counts == {"a.wav": 1, "sub/a.wav": 0, "sub/b.wav": 1, "b.wav": 0}


def test_paths_begin_at_the_manifest_within_the_root_and_absolute_ones_are_exact_too() -> None:
    deep = matched([{"audio": "a.wav"}, {"audio": "../a.wav"}], ["a.wav", "sub/a.wav", "x/a.wav"], "sub/m.jsonl")
    absolute = matched([{"audio": str(Path("a.wav").absolute())}], ["a.wav", "sub/a.wav"])

    assert [[row.place[-1] for row in deep.rows(path)] for path in ("sub/a.wav", "a.wav", "x/a.wav")] == [
        ["1"],
        ["2"],
        [],
    ]
    assert [len(absolute.rows(path)) for path in ("a.wav", "sub/a.wav")] == [1, 0]


def test_one_manifest_in_another_folder_is_another_configuration() -> None:
    one = matched([{"audio": "a.wav"}], ["x/a.wav", "y/a.wav"], "x/m.jsonl")
    other = matched([{"audio": "a.wav"}], ["x/a.wav", "y/a.wav"], "y/m.jsonl")

    assert one.fingerprint_config() != other.fingerprint_config()


def test_a_file_has_several_pieces_and_each_is_described_once() -> None:
    pieces = [{"audio": "a.wav", "offset": at, "duration": 1} for at in (0, 1, 2)]

    assert len(matched(pieces, ["a.wav"]).rows("a.wav")) == 3
    message = (
        r"two transcripts are about the same piece of the file 'a\.wav': .*:1 and .*:4\. Leave one of them out, or say"
    )
    with pytest.raises(DatasetError, match=message):
        matched([*pieces, pieces[0]], ["a.wav"])


def test_the_error_of_a_row_about_an_unread_format_advises_to_convert_it() -> None:
    message = (
        r"a transcript is about the file 'clips/a\.m4a', and there is none\. Convert it to FLAC, for example with: "
        r"ffmpeg -i clips/a\.m4a clips/a\.flac, and name that file\."
    )
    with pytest.raises(DatasetError, match=message):
        matched([{"audio": "clips/a.m4a"}], ["clips/a.wav"])


def kaldi(*, segments: bool) -> None:
    Path("d").mkdir()
    Path("d/wav.scp").write_text("rec1 /data/a.wav\nrec2 clips/b.wav\n")
    Path("d/text").write_text("u1 to be\nu2\nrec1 or not\n")
    Path("d/utt2spk").write_text("u1 s1\n")
    if segments:
        Path("d/segments").write_text("u1 rec2 0.5 1.5\nu2 rec1 0 -1\n")


def test_the_directory_of_kaldi_has_pieces_of_recordings_or_whole_ones() -> None:
    kaldi(segments=False)
    whole = [row.fields for row in rows_of_manifest("d/wav.scp")]
    Path("d/segments").write_text("u1 rec2 0.5 1.5\nu2 rec1 0 -1\n")
    rows = list(rows_of_manifest("d/wav.scp"))

    assert [(row["audio"], row["text"], row["start"]) for row in whole] == [
        ("/data/a.wav", "or not", None),
        ("clips/b.wav", None, None),
    ]
    assert [(row.place, row.fields["audio"], row.fields["text"], row.fields["speaker"]) for row in rows] == [
        ("d/segments:1", "clips/b.wav", "to be", "s1"),
        ("d/segments:2", "/data/a.wav", "", None),
    ]
    assert [piece_of(row)[:2] for row in rows] == [(0.5, 1.5), (0.0, None)]
    assert list(rows_of_manifest("d/text")) == []


def test_lines_of_kaldi_are_split_at_tabs_too() -> None:
    kaldi(segments=True)
    with_blanks = [row.fields for row in rows_of_manifest("d/wav.scp")]
    for file in Path("d").iterdir():
        file.write_text(file.read_text().replace(" ", "\t", 1) + "\n")

    assert [row.fields for row in rows_of_manifest("d/wav.scp")] == with_blanks
    assert Transcripts(files=[Asset("d/wav.scp")]).fingerprint_config()["kaldi"] == 2


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "wav.scp",
            "rec2 sph2pipe -f wav b.sph |\n",
            "d/segments:1: expected utterance, recording, start and end as in K",
        ),
        (
            "segments",
            "u1 rec2 0.5\n",
            "and a file (no command) in d/wav.scp, found 'rec2 0.5' and 'clips/b.wav'. Write",
        ),
        (
            "segments",
            "u1 rec7 0.5 1\n",
            "in d/wav.scp, found 'rec7 0.5 1' and ''. Write the sound to files, and their na",
        ),
    ],
)
def test_what_is_not_read_of_kaldi_is_named(file: str, text: str, message: str) -> None:
    kaldi(segments=True)
    Path("d", file).write_text(text)
    with pytest.raises(DatasetError, match=re.escape(message)):
        list(rows_of_manifest("d/wav.scp"))
