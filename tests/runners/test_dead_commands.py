"""`beam-pipes dead` and `beam-pipes replay-dead`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import replay_declarations
from typer.testing import CliRunner

from beam_pipes.cache import Cache
from beam_pipes.commands import app
from beam_pipes.errors import CacheNotFoundError, OutputError, SourceError
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources.repaired import read_repairs

REFERENCE = "replay_declarations:rows"


def beam_pipes(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv(replay_declarations.INPUT_VARIABLE, str(tmp_path / "input"))
    (tmp_path / "input").mkdir()
    lines = [b'{"id": 1, "text": "door"}', b'{"id": 2, "text": "poison"}', b'{"id": 3, "text": "caf\xe9"}']
    (tmp_path / "input" / "rows.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    build(REFERENCE, tmp_path / "cache", options=LocalOptions(workers=1))
    return str(tmp_path / "cache")


def test_dead_letters_are_listed_exported_repaired_and_replayed(cache: str, tmp_path: Path) -> None:
    listed = beam_pipes("dead", cache, "--stage", "Measure")
    assert "ValueError" in listed and "rows.jsonl@26: cannot measure 'poison'" in listed
    assert '"text": "poison"' in listed and "in transform" in listed
    assert json.loads(beam_pipes("dead", cache, "--json"))["dead_letters"] == 2
    assert "SourceError" in beam_pipes("stats", cache)

    letters = tmp_path / "letters.jsonl"
    assert "2 dead letters are in" in beam_pipes("dead", cache, "-n", "0", "--export", str(letters))
    assert read_repairs(letters) == {}  # nothing is edited yet
    letters.write_text(letters.read_text().replace("poison", "antidote"))
    assert read_repairs(letters) == {"rows.jsonl@26": b'{"id": 2, "text": "antidote"}'}

    replayed = beam_pipes("replay-dead", cache, REFERENCE, "--repairs", str(letters), "--workers", "1")

    assert "1 dead letter rerun in 1 source shard, 0 rebuilt, 0 kept; 1 dead letter left" in replayed
    assert [letter.stage for letter in Cache.open(cache).dead_letters()] == ["source"]


def test_a_line_of_repairs_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "letters.jsonl").write_text('{"source": "a", "position": 3, "text": "x"}\n{"position": 3}\n')

    with pytest.raises(SourceError, match=r"letters.jsonl, line 2: expected an object with source, position, and text"):
        read_repairs(tmp_path / "letters.jsonl")
    (tmp_path / "letters.jsonl").write_bytes(b'{"source": "\xff"}\n')
    with pytest.raises(SourceError, match=r"letters.jsonl, line 1: expected an object .* UnicodeDecodeError"):
        read_repairs(tmp_path / "letters.jsonl")


def test_repairs_that_are_not_there_are_named(cache: str, tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"expected a file of repaired records at '.*gone', .* cannot be read: No such"
    ):
        beam_pipes("replay-dead", cache, REFERENCE, "--repairs", str(tmp_path / "gone"))


def test_letters_are_not_exported_to_where_nothing_can_be_written(cache: str, tmp_path: Path) -> None:
    with pytest.raises(
        OutputError, match="'.*letters' cannot be written: No such file or directory. Choose a writable place"
    ):
        beam_pipes("dead", cache, "--export", str(tmp_path / "gone" / "letters"))
    with pytest.raises(CacheNotFoundError):
        beam_pipes("dead", str(tmp_path / "typo"), "--export", str(tmp_path / "letters"))
    assert not (tmp_path / "letters").exists()


def test_a_replay_of_a_cache_that_is_not_there_makes_no_directory(cache: str, tmp_path: Path) -> None:
    with pytest.raises(CacheNotFoundError, match="typo"):
        beam_pipes("replay-dead", str(tmp_path / "typo"), REFERENCE)
    with pytest.raises(CacheNotFoundError, match="typo"):
        beam_pipes("replay-dead", str(tmp_path / "typo"), REFERENCE, "--to", str(tmp_path / "other"))

    assert not (tmp_path / "typo").exists()
    assert not (tmp_path / "other").exists()


def test_a_stage_and_an_error_without_letters_are_reported_from_a_cache_without_letters(cache: str) -> None:
    output = beam_pipes("dead", cache, "--stage", "Mesure")
    assert output == (
        "no dead letters of this stage and error; there are: --stage Measure --error ValueError; --stage source "
        "--error SourceError.\n"
    )
