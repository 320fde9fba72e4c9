"""What the files of a cache say of a build that runs, has died, goes on, and has finished."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from beam_pipes.building.progress import Status, finished_words, in_words, read_status
from beam_pipes.commands import app


def building(cache: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "beam_pipes",
            "build",
            "sample_declarations:slow",
            "--to",
            str(cache),
            "--no-report",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )


def when_shards_are_done(cache: Path) -> Status:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if cache.is_dir() and (status := read_status(cache)).progress is not None and status.progress.shards_done:
            return status
        time.sleep(0.05)
    raise AssertionError("no source shard was done within a minute")


def test_of_a_build_that_runs_dies_continues_and_finishes(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zz-slow.txt").write_text("slow\n" * 1_000)  # shards that are done, and some that take 40 s
    cache = tmp_path / "cache"
    process = building(cache)
    try:
        status = when_shards_are_done(cache)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    running = status.progress
    assert running is not None and running.running and status.builder is not None
    assert running.records_per_sec and running.eta_secs
    assert running.account.read > 0 and "Slow" in running.account.units
    text = str(status)
    assert "nothing is published." in text and "being built by process" in text
    assert f"{running.shards_done} of {running.shards} source shards are done." in text
    assert "records/s, about " in text and "last sign of life: " in text

    dead = read_status(cache)
    assert dead.builder is None and dead.progress is not None and not dead.progress.running
    assert dead.progress.eta_secs is None and dead.progress.shards_done >= running.shards_done
    assert "no build is running: run the build again to continue" in str(dead)
    as_json = json.loads(json.dumps(dead.to_json()))
    assert as_json["progress"]["stages"]["Slow"]["in"] == dead.progress.account.read
    assert as_json["progress"]["shards_done"] == dead.progress.shards_done

    shown = CliRunner().invoke(app, ["status", str(cache)]).output
    assert "━" in shown and "Slow" in shown and "no build is running" in shown

    (text_input / "zz-slow.txt").write_text("quick\n" * 3 + "slow\n" * 20)
    process = building(cache)
    deadline = time.monotonic() + 60
    while read_status(cache).builder is None and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    watched = CliRunner().invoke(app, ["status", str(cache), "--watch", "--every-secs", "0.1"])
    assert watched.exit_code == 0 and " is published (" in " ".join(watched.output.split())
    assert process.wait(timeout=60) == 0
    finished = read_status(cache)
    assert finished.published is not None
    assert finished.last_build[0].startswith("built in ") and "time by stage: " in finished.last_build[1]
    assert "Slow" in finished.last_build[1] and finished.last_build[0] in str(finished)


def test_a_build_record_without_times_says_nothing() -> None:
    assert finished_words({}, 100) == []
    output = finished_words({"started_at": 10.0, "ended_at": 20.0, "reused_shards": 0}, 100)
    assert output == ["built in 10.0 s (10 records/s), 0 source shards reused."]


@pytest.mark.parametrize(
    ("secs", "words"), [(3.21, "3.2 s"), (200, "3 min 20 s"), (7300, "2 h 1 min"), (3 * 86_400, "3 days")]
)
def test_times_in_words(secs: float, words: str) -> None:
    assert in_words(secs) == words
