"""Saved plans: a build that is held to one does what was planned, or nothing."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sample_declarations

from beam_pipes.building.plan import SavedPlan, make_plan, plan_input
from beam_pipes.building.references import load_declaration
from beam_pipes.errors import OutputError, PlanError, StalePlanError
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import TextLines
from beam_pipes.sources.digests import DigestCache

ONE = LocalOptions(workers=1)


def _saved(tmp_path: Path, **options: Any) -> SavedPlan:
    file = tmp_path / "plan.json"
    SavedPlan.of(make_plan(sample_declarations.words(**options), tmp_path / "cache")).save(file)
    return SavedPlan.load(file)


def test_a_build_of_what_was_planned_runs(text_input: Path, tmp_path: Path) -> None:
    saved = _saved(tmp_path)
    os.utime(text_input / "large.txt", (1, 1))  # touched and not changed

    result = build(sample_declarations.words(), tmp_path / "cache", options=ONE, saved_plan=saved)

    assert result.snapshot == saved.snapshot
    assert build(sample_declarations.words(), tmp_path / "cache", options=ONE, saved_plan=saved).up_to_date


def test_input_that_changed_stops_the_build(text_input: Path, tmp_path: Path) -> None:
    saved = _saved(tmp_path)
    (text_input / "more.txt").write_text("to be or not\n")

    with pytest.raises(
        StalePlanError,
        match=r"the plan is out of date: the input changed: 9 files with [\d,]+ bytes then, 10 files with [\d,]+ bytes "
        r"now\. Nothing was built\. Plan again, check the forecast",
    ):
        build(sample_declarations.words(), tmp_path / "cache", options=ONE, saved_plan=saved)

    assert not (tmp_path / "cache" / "snapshots").exists()


def test_a_declaration_that_changed_stops_the_build(text_input: Path, tmp_path: Path) -> None:
    saved = _saved(tmp_path)

    with pytest.raises(StalePlanError, match=r"out of date: the declaration changed: seed: 0 → 1\. Nothing was built"):
        build(sample_declarations.words(seed=1), tmp_path / "cache", options=ONE, saved_plan=saved)
    with pytest.raises(StalePlanError, match=r"it is of 'words', and 'others' is to be built"):
        others = dataclasses.replace(sample_declarations.words(), name="others")
        build(others, tmp_path / "cache", options=ONE, saved_plan=saved)


def test_a_generation_that_was_not_planned_stops_the_build(text_input: Path, tmp_path: Path) -> None:
    saved = _saved(tmp_path)
    build(sample_declarations.words(), tmp_path / "cache", options=ONE, saved_plan=saved)

    with pytest.raises(StalePlanError, match="everything must be rebuilt, or has been since"):
        build(sample_declarations.words(), tmp_path / "cache", options=ONE, saved_plan=saved, overwrite=True)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 2, "name": "words"}'])
def test_what_is_not_a_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)

    with pytest.raises(PlanError, match=r"expected a plan in '.*plan.json', got .*Make one: beam-pipes plan"):
        SavedPlan.load(tmp_path / "plan.json")


def test_a_plan_that_cannot_be_saved_is_an_error(text_input: Path, tmp_path: Path) -> None:
    plan = make_plan(sample_declarations.words(), tmp_path / "cache")

    with pytest.raises(OutputError, match="nowhere/plan.json' cannot be written: No such file"):
        SavedPlan.of(plan).save(tmp_path / "nowhere" / "plan.json")


def test_plan_and_build_on_the_command_line(text_input: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
        command = [sys.executable, "-m", "beam_pipes", *arguments, "sample_declarations:words", "--to", cache]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)

    cache, plan = str(tmp_path / "cache"), str(tmp_path / "plan.json")
    planned = run("plan", "--save", plan)
    assert "forecast from 496 records of " in planned.stdout, planned.stderr
    assert "remaining: " in planned.stdout
    assert json.loads(Path(plan).read_text())["forecast"]["records_read"] == {"value": 496.0, "error": 0.0}

    with open(text_input / "large.txt", "a") as file:
        file.write("and more\n")
    refused = run("build", "--plan", plan, "--workers", "1")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("beam-pipes: the plan is out of date: the input changed")

    run("plan", "--save", plan, "--no-forecast")
    assert json.loads(Path(plan).read_text())["forecast"] is None
    assert run("build", "--plan", plan, "--workers", "1").returncode == 0


def test_what_a_plan_has_read_is_not_read_again_to_be_digested(
    text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no cache yet: the directory that is planned for stays as it is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    cache = tmp_path / "cache"
    declaration = load_declaration("sample_declarations:words")
    time.sleep(0.1)  # until a change of the input would show in its times

    planned = plan_input(declaration, cache)

    assert not cache.exists()
    [kept] = (tmp_path / "user").rglob("digests/*")
    digests = DigestCache.load(kept)
    declaration.source.plan(target_shard_bytes=declaration.target_shard_bytes, digests=digests)
    assert (digests.hits, digests.misses) == (planned.source.num_files, 0)
    build(declaration, cache, options=LocalOptions(workers=1))
    assert plan_input(declaration, cache).source == planned.source
    assert (cache / ".digests").exists() and not kept.exists()


def test_compressed_files_that_cannot_be_split_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sample_declarations.INPUT_VARIABLE, str(tmp_path / "in"))
    rows = b"".join(hashlib.sha256(b"%d" % n).hexdigest().encode() + b"\n" for n in range(20_000))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "large.txt.gz").write_bytes(gzip.compress(rows))
    (tmp_path / "in" / "small.txt.gz").write_bytes(gzip.compress(rows[:6500]))
    (tmp_path / "in" / "plain.txt").write_bytes(rows)
    size = (tmp_path / "in" / "large.txt.gz").stat().st_size
    declaration = dataclasses.replace(
        load_declaration("sample_declarations:words"), source=TextLines(tmp_path / "in"), target_shard_bytes=100_000
    )

    plan = make_plan(declaration, tmp_path / "cache")

    assert plan.streams() == plan.to_json()["streams"] == {"large.txt.gz": size}
    output = subprocess.run(
        [sys.executable, "-m", "beam_pipes", "plan", "sample_declarations:words_of_gzip"]
        + ["--to", str(tmp_path / "cache"), "--no-forecast"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "250"},
    )
    assert (
        f"large.txt.gz: one worker has to read all of its {size:,} bytes, which will take longest. Compress it with "
        "bgzip, or as several zstd frames, and it is split."
    ) in output.stdout, output.stderr
