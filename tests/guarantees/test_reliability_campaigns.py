"""The campaigns of `benchmarks.reliability`, small; and that they would notice."""

from __future__ import annotations

import dataclasses
import random
import re
from pathlib import Path

import pytest

import beam_pipes
from beam_pipes.cache import Cache
from beam_pipes.loader import Loader
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
from benchmarks.campaigns import corruptions, endings
from benchmarks.campaigns.corruptions import DAMAGES, corrupt
from benchmarks.campaigns.declarations import INPUT_VARIABLE, REFERENCE, write_input
from benchmarks.campaigns.endings import ENDINGS, endings_campaign
from benchmarks.campaigns.kills import Scene, labelled_kills
from benchmarks.campaigns.resumes import resume_campaign


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_input(tmp_path / "input", files=3)
    monkeypatch.setenv(INPUT_VARIABLE, str(tmp_path / "input"))
    build(REFERENCE, tmp_path / "cache", options=LocalOptions(workers=1))
    return tmp_path / "cache"


def test_every_damage_to_every_file_of_a_published_cache_is_detected(cache: Path) -> None:
    counts = corrupt(cache, tries=400)

    assert counts.tried == 400
    assert counts.undetected == []
    assert counts.by_kind.keys() == {"manifest", "shard", "index", "dead letters"}
    assert counts.by_damage.keys() == DAMAGES.keys()
    assert Cache.open(cache, verify=True).splits  # it is as it was


def test_the_corruption_campaign_notices_what_verification_misses(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cache, "open", lambda path, **options: None)
    monkeypatch.setattr(corruptions, "answered_files", lambda path: dict.fromkeys([path / "manifest.json"], "manifest"))
    assert len(corrupt(cache, tries=5).undetected) == 5


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_changes_bytes(name: str) -> None:
    data = bytes(range(256))
    assert any(DAMAGES[name](data, random.Random(seed)) != data for seed in range(5))


def test_resumption_on_other_hosts_and_workers_gives_the_same_batches(cache: Path) -> None:
    counts = resume_campaign(cache, tuples=24)

    assert counts.different == []
    assert (counts.tried, counts.equal) == (24, 24)


def test_the_resumption_campaign_notices_a_state_that_is_ignored(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loader, "set_state", lambda loader, state: None)

    counts = resume_campaign(cache, tuples=8)

    assert counts.equal < counts.tried == 8


def test_the_kill_campaign_notices_a_step_that_is_never_reached_and_a_record_that_is_missing(tmp_path: Path) -> None:
    counts = labelled_kills(tmp_path, ["no/such/step"])
    assert counts.problems == ["no/such/step was never reached"]

    scene = Scene(tmp_path / "scene", files=2, changed=2, old=False)
    try:
        assert scene.build().succeeded
        scene.ids |= {123_456}
        (scene.cache / ".tmp-left").write_bytes(b"")
        assert scene.lost_and_duplicated() == (1, 0)
        assert list(scene.final_problems()) == ["left behind: ['.tmp-left']"]
    finally:
        scene.close()


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (endings._FINISHED, "commands/build.py"),
        (endings._STOPPED, "cli.py"),
        (endings._WORKERS_LOST, "building/workers/tasks.py"),
        (endings._WORKERS_LOST, "building/workers/fork_server.py"),
    ],
)
def test_the_campaign_of_endings_waits_for_words_that_are_printed(words: str, file: str) -> None:
    """It waited for other ones: every build that lost its workers was a problem, whatever became of it."""
    source = (Path(beam_pipes.__file__).parent / file).read_text(encoding="utf-8")
    literals = re.sub(r'"\s+f?"', "", source)  # as one, where a message is written on several lines

    assert words.lower() in literals.lower()


def test_commands_that_are_ended_say_so_leave_nothing_and_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "ENDINGS", (ENDINGS[0], ENDINGS[-1]))

    counts = endings_campaign(tmp_path, endings=2, files=4)

    assert counts.problems == []
    assert counts.by_ending == {str(ending): 1 for ending in (ENDINGS[0], ENDINGS[-1])}
    assert counts.deadly_records == 2


def test_the_campaign_of_endings_notices_words_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "ENDINGS", (dataclasses.replace(ENDINGS[0], words="no such words"),))
    monkeypatch.setattr(endings, "_LINE_SECS", 0.01)  # no build is finished by then
    monkeypatch.setattr(endings, "_deadly", lambda directory, counts: None)

    [problem] = endings_campaign(tmp_path, endings=1, files=4).problems

    assert re.search(
        "SIGTERM to the launcher after .* s: it does not say 'no such words': .*terminated", problem, re.DOTALL
    )
