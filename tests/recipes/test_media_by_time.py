"""`images` and `audio` with `--split-by-time`: by a field of rows, or of samples in tar archives."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from media_files import archive, built, picture, tone, wav
from typer.testing import CliRunner

from beam_pipes.cache import Cache
from beam_pipes.commands import app
from beam_pipes.recipes import audio, images
from beam_pipes.recipes.written import EndsInTime

pytestmark = pytest.mark.usefixtures("here")

DAYS = {"0": "2024-05-31", "1": "2024-06-01", "2": "2025-01-01T08:00"}
ENDS: EndsInTime = ("taken", {"train": "2024-06-01", "eval": None})


def splits_of(cache: Cache) -> dict[str, list[str]]:
    return {split: sorted(Path(str(row["path"])).stem for row in cache[split]) for split in ("train", "eval")}


def test_images_are_split_by_the_time_of_their_rows() -> None:
    for name in DAYS:
        picture(f"pics/{name}.png")
    rows = "".join(f"{name}.png,{day},{2000 + int(name)}\n" for name, day in DAYS.items())
    Path("pics/metadata.csv").write_text(f"file_name,taken,year\n{rows}")

    cache = built(images("pics", resize=8, label=False, split_by_time=ENDS))
    assert splits_of(cache) == {"train": ["0"], "eval": ["1", "2"]}
    assert {str(row["taken"]) for row in cache["train"]} == {DAYS["0"]}

    years = images("pics", resize=8, label=False, split_by_time=("year", {"train": 2002, "eval": None}))
    assert splits_of(built(years, to="years")) == {"train": ["0", "1"], "eval": ["2"]}


def test_sound_is_split_by_the_time_of_its_transcript_or_sample() -> None:
    for name in DAYS:
        tone(f"sounds/{name}.wav", secs=0.1)
    rows = [{"audio": f"{name}.wav", "text": "a", "taken": day} for name, day in DAYS.items()]
    Path("sounds/m.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    members = {f"{name}.json": json.dumps({"taken": day, "text": "a"}).encode() for name, day in DAYS.items()}
    archive("a.tar", dict(sorted((members | {f"{name}.wav": wav(0.1) for name in DAYS}).items())))

    for data, field in (("sounds/m.jsonl", "taken"), ("a.tar", "json.taken")):
        cache = built(audio(data, split_by_time=(field, ENDS[1])), to=f"cache-{field}")
        assert splits_of(cache) == {"train": ["0"], "eval": ["1", "2"]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--split-by-time when:train=2024,eval",
            r"split_by_time \(--split-by-time\): there is no field 'when'.*There are: file_name, taken",
        ),
        ("--split-by-time taken:train=2024-06-01,eval --split a=0.5,b=0.5", "omit --split or --split-by-time"),
        ("--split-by-time taken:train=2024-06-01,eval", "the field 'taken' should be a time.*found str: 'May'"),
    ],
)
def test_mistakes_with_times_of_images_are_told(options: str, message: str) -> None:
    picture("pics/0.png")
    Path("pics/metadata.csv").write_text("file_name,taken\n0.png,May\n")

    result = CliRunner().invoke(app, f"images pics --no-label --resize 8 {options} --to cache".split())

    words = " ".join(str(result.exception if result.exception is not None else result.output).split())
    assert result.exit_code and re.search(message, words), words


@pytest.mark.parametrize("option", ["keep-field", "by", "split-by-time", "stratify"])
def test_a_field_that_samples_of_sound_lack_is_told_with_its_option(option: str) -> None:
    archive("a.tar", {"0.json": b'{"text": "a"}', "0.wav": wav(0.1)})
    rest = ":a=2024-06-01,b" if option == "split-by-time" else " --split a=0.5,b=0.5"

    result = CliRunner().invoke(app, f"audio a.tar --to cache --{option} json.who{rest}".split())

    assert f"(--{option})" in " ".join(str(result.exception).split())


def test_splits_of_rows_and_of_time_are_refused_together() -> None:
    picture("pics/0.png")
    Path("pics/metadata.csv").write_text("file_name,taken,split\n0.png,2024-01-01,train\n")

    result = CliRunner().invoke(
        app, "images pics --no-label --split-by-time taken:train=2024-06-01,eval --to cache".split()
    )

    assert result.exit_code and "the field 'split' of the rows names the splits" in " ".join(
        str(result.exception).split()
    )
