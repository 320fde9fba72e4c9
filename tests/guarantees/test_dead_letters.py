"""Dead letters are complete, and the same on every runner."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import replay_declarations

from beam_pipes import FeatureSpec, declare, stage
from beam_pipes.cache import Cache
from beam_pipes.errors import StageError, TooManyDeadLettersError
from beam_pipes.runners import LocalOptions, build
from beam_pipes.runners.replay import replay_dead
from beam_pipes.sources import Memory, RecordBatch, TextLines
from benchmarks.campaigns.corrupted_records import KINDS, RUNNERS, dead_letter_campaign

ONE = LocalOptions(workers=1)


def test_six_kinds_of_corruption_give_the_same_dead_letters_on_every_runner_and_with_retries(tmp_path: Path) -> None:
    counts = dead_letter_campaign(tmp_path, records=1_000)

    assert counts.runners == list(RUNNERS)
    assert counts.planted == 10 * len(KINDS)
    assert counts.failures_retried > 0
    assert (counts.missing, counts.extra, counts.incomplete, counts.different) == (0, 0, 0, [])


def test_the_campaign_notices_a_dead_letter_that_is_not_as_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where records lose their last byte on the way from stages into dead letters, every one of them is noticed."""
    whole = RecordBatch.raw
    monkeypatch.setattr(RecordBatch, "raw", lambda batch, index: whole(batch, index)[:-1])

    counts = dead_letter_campaign(tmp_path, records=400, runners=["local_1"])

    of_stages = [kind for kind, (stage, _) in KINDS.items() if stage != "source"]
    assert counts.missing == counts.extra == sum(counts.planted_by_kind[kind] for kind in of_stages) > 0


@pytest.fixture
def two_bad_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "input"
    directory.mkdir()
    lines = [b'{"id": 1, "text": "door cat"}', b'{"id": 2, "text": "door poison"}', b'{"id": 3}']
    (directory / "sub.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    monkeypatch.setenv(replay_declarations.INPUT_VARIABLE, str(directory))
    return directory


def test_a_dead_letter_holds_all_there_is_to_know(two_bad_rows: Path, tmp_path: Path) -> None:
    build(replay_declarations.rows(), tmp_path / "cache", options=ONE)

    poison, no_text = Cache.open(tmp_path / "cache").dead_letters()

    assert (poison.record, poison.record_id) == (b'{"id": 2, "text": "door poison"}', "sub.jsonl@30")
    assert (poison.stage, poison.error_type, poison.message) == ("Measure", "ValueError", "cannot measure 'poison'")
    assert (poison.ordinal, poison.item) == (1, 1)  # the second word failed
    first, *_, last = poison.traceback.splitlines()
    assert first.startswith('  File "replay_declarations.py", line ') and first.endswith(", in transform")
    assert last == "ValueError: cannot measure 'poison'"
    assert (no_text.stage, no_text.error_type, no_text.message) == ("Clean", "KeyError", "'text'")


@stage
def refuse(line: str) -> dict[str, str]:
    if line == "bad":
        raise ValueError("half a pair, \ud800, in a message")
    return {"text": line}


def test_a_letter_takes_what_no_file_of_text_does(tmp_path: Path) -> None:
    """Data has half surrogate pairs, which get into messages; a name of a file may be any bytes."""
    directory = tmp_path / "input"
    directory.mkdir()
    name = os.fsdecode(b"caf\xe9.txt")
    (directory / name).write_text("good\nbad\n")
    declaration = declare("letters", TextLines(directory), [refuse], on_error="dead_letter")

    build(declaration, tmp_path / "cache", options=ONE)

    [letter] = Cache.open(tmp_path / "cache").dead_letters()
    assert letter.message == "half a pair, \\ud800, in a message"
    assert letter.traceback.endswith("ValueError: half a pair, \\ud800, in a message")
    assert (letter.source, letter.record_id) == (name, f"{name}@5")
    command = ["dead", str(tmp_path / "cache"), "--export", str(tmp_path / "letters.jsonl")]
    subprocess.run([sys.executable, "-m", "beam_pipes", *command], check=True, capture_output=True)
    assert json.loads((tmp_path / "letters.jsonl").read_text())["source"] == name
    repaired = replay_dead(declaration, tmp_path / "cache", repairs={letter.record_id: b"mended"}, options=ONE)
    assert (repaired.replayed, repaired.dead) == (1, 0)


def test_a_message_of_a_stage_that_fails_can_be_printed(tmp_path: Path) -> None:
    with pytest.raises(StageError) as failed:
        build(
            declare("letters", Memory(["bad"]), [refuse], features={"text": FeatureSpec("str")}),
            tmp_path / "cache",
            options=ONE,
        )

    assert "ValueError: half a pair, \\ud800, in a message. Fix the record" in str(failed.value)
    str(failed.value).encode()


@pytest.mark.parametrize(
    ("max_bad", "message"),
    [
        pytest.param(
            1, r"2 records failed, and max_bad allows 1 \(of 3 read\); by stage: Clean 1, Measure 1", id="count"
        ),
        pytest.param(0.5, r"2 records failed, and max_bad allows a fraction of 0.5 \(of 3 read\)", id="fraction"),
    ],
)
def test_too_many_of_them_stop_the_build(two_bad_rows: Path, tmp_path: Path, max_bad: float, message: str) -> None:
    with pytest.raises(TooManyDeadLettersError, match=message):
        build(replay_declarations.rows(max_bad=max_bad), tmp_path / "cache", options=ONE)
    assert not (tmp_path / "cache" / "manifest.json").exists()

    enough = dataclasses.replace(replay_declarations.rows(), max_bad=type(max_bad)(2 * max_bad))
    build(enough, tmp_path / "cache", options=ONE)
