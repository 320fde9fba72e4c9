"""SIGKILL at every labelled step and at random moments: a reader sees a whole snapshot, the next build finishes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beam_pipes.cache import Cache
from beam_pipes.storage.locks import LABELS, VARIABLE
from benchmarks.campaigns.kills import Scene, labelled_kills, random_kills

# These steps are passed for every file: not only the first one may go wrong.
MANY = [f"{label}#{n}" for label in ("storage/staged", "storage/renamed", "storage/link-staged") for n in (4, 9)]


def test_a_kill_at_any_labelled_step_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    labels = [*LABELS, *MANY]

    counts = labelled_kills(tmp_path, labels)

    assert counts.problems == []
    assert (counts.kills, counts.survived) == (len(labels), len(labels))
    assert (counts.records_lost, counts.records_duplicated) == (0, 0)
    assert counts.shard_executions <= counts.executions_allowed


def test_a_worker_killed_at_a_step_of_a_shard_ends_the_build_and_the_next_one_continues(tmp_path: Path) -> None:
    counts = labelled_kills(tmp_path, ["shard/dead-letters-renamed"], workers=2)

    assert counts.problems == []
    assert counts.survived == 1


def test_kills_at_random_moments_lose_at_most_the_shards_in_flight(tmp_path: Path) -> None:
    counts = random_kills(tmp_path, kills=4, files=8)

    assert counts.problems == []
    assert counts.survived == counts.kills >= 4
    assert (counts.records_lost, counts.records_duplicated) == (0, 0)
    assert counts.shards <= counts.shard_executions <= counts.executions_allowed
    assert counts.reads_meanwhile > 0


def test_without_a_completion_a_shard_is_built_again_and_with_it_not(tmp_path: Path) -> None:
    """The count of executions tells: one kill before the completion of the first shard, one after it."""
    before = labelled_kills(tmp_path / "before", ["shard/renamed"])
    after = labelled_kills(tmp_path / "after", ["shard/completed"])

    assert before.shard_executions == before.shards + 1
    assert after.shard_executions == after.shards


def test_a_first_build_that_is_killed_publishes_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, files=4, changed=4, old=False)
    try:
        outcome = scene.build(at="publish/snapshot-manifest-written")

        assert outcome.killed
        assert scene.current() is None
        assert scene.build().succeeded
        assert list(scene.final_problems()) == []
    finally:
        scene.close()


def test_the_command_line_is_killed_where_the_environment_says(text_input: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-m", "beam_pipes", "build", "sample_declarations:words", "--to", str(cache)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    killed = subprocess.run(
        [*command, "--workers", "1"], env={**environment, VARIABLE: "shard/completed#2"}, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(list(cache.rglob("completions/*.json"))) == 2

    subprocess.run([*command, "--workers", "1"], env=environment, check=True, capture_output=True)
    assert Cache.open(cache, verify=True).splits == ("eval", "train", "words")


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_build_that_is_interrupted_at_random_moments_leaves_no_process_and_no_file(
    tmp_path: Path, signal_number: signal.Signals
) -> None:
    scene = Scene(tmp_path, files=8, changed=8, old=False, line_secs=0.002)
    try:
        for step in range(2):
            outcome = scene.build(after_secs=0.15 + 0.5 * step, signal_number=signal_number, workers=1 + step % 2)
            assert outcome.orphans == 0
            if signal_number == signal.SIGINT and not outcome.succeeded:
                assert outcome.error_type == "KeyboardInterrupt"
                assert not [path for path in scene.cache.rglob("*") if ".tmp-" in path.name]
        assert scene.build(workers=2).succeeded
        assert list(scene.final_problems()) == []
    finally:
        scene.close()


def test_two_builders_of_one_directory_do_not_disturb_each_other(tmp_path: Path) -> None:
    scene = Scene(tmp_path, files=6, changed=6, old=False)
    try:
        first, second = _commands(scene, 2)
        output = [process.communicate(timeout=60)[1] for process in (first, second)]

        codes = sorted(process.returncode for process in (first, second))
        assert codes in ([0, 1], [0, 0])  # the second one may have come when the first had finished
        if codes == [0, 1]:
            loser = output[0] if first.returncode else output[1]
            assert "another build is writing to" in loser
            assert "Wait for it, stop it, or build to another directory." in loser
        assert list(scene.final_problems()) == []
    finally:
        scene.close()


def test_the_error_of_a_second_builder_names_the_first(tmp_path: Path) -> None:
    scene = Scene(tmp_path, files=6, changed=6, old=False)
    try:
        [first] = _commands(scene, 1, line_secs="0.01")
        deadline = time.monotonic() + 60
        while not list(scene.cache.rglob("completions/*.json")) and time.monotonic() < deadline:
            time.sleep(0.01)
        outcome = scene.build()
        first.communicate(timeout=60)

        assert outcome.error_type == "CacheBusyError"
        assert f"process {first.pid} on " in (outcome.error or "")
        assert first.returncode == 0
        assert list(scene.final_problems()) == []
    finally:
        scene.close()


def _commands(scene: Scene, count: int, *, line_secs: str = "0.002") -> list[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "beam_pipes", "build", "benchmarks.campaigns.declarations:logged"]
    environment = {**os.environ, **scene.env, "CAMPAIGN_LINE_SECS": line_secs, "PYTHONPATH": os.pathsep.join(sys.path)}
    return [
        subprocess.Popen(
            [*command, "--to", str(scene.cache), "--workers", "1"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
