"""Builds by array jobs of a real Slurm: submitted, detached, cancelled, requeued, lost and tried again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from beam_workers import wait_for
from built_files import built_files
from portable_declarations import CLICKS_VARIABLE, PACE_VARIABLE
from running_jobs import beam_pipes, completions, running_command
from slurm_cluster import slurm_cluster

from beam_pipes.errors import BuildError, DeclarationError, JobLostError, StageError
from beam_pipes.runners import LocalOptions, SlurmOptions, attach, build, read_jobs
from beam_pipes.runners.jobs import cancel

PACED = "portable_declarations:paced"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as configuration, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(configuration))
        patch.setattr("beam_pipes.runners.clusters._ASK_EVERY_SECS", 1)
        yield


@pytest.fixture
def expected(paced_input: Path, tmp_path: Path) -> dict[str, bytes]:
    build(PACED, tmp_path / "local", options=LocalOptions(workers=1))
    return built_files(tmp_path / "local")


def _tasks(job: str, state: str) -> list[str]:
    asked = ["squeue", "--noheader", f"--jobs={job}", f"--states={state}", "--array", "--format=%i"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()


def test_a_build_and_its_analysis_are_those_of_this_machine(slurm: None, paced_input: Path, tmp_path: Path) -> None:
    reference = "portable_declarations:analysed"
    build(reference, tmp_path / "local", options=LocalOptions(workers=1))
    done = build(reference, tmp_path / "slurm", options=SlurmOptions(workers=2, processes=2))
    assert (done.num_shards, done.up_to_date) == (20, False)
    assert built_files(tmp_path / "slurm") == built_files(tmp_path / "local")
    assert read_jobs(tmp_path / "slurm") == []
    assert not list(tmp_path.glob("slurm/snapshots/*/tasks")) + list(tmp_path.glob("slurm/analysis/tasks"))
    record = json.loads(next(tmp_path.glob("slurm/snapshots/*/build.json")).read_bytes())
    assert record["options"] == {"runner": "slurm", "workers": 2, "processes": 2, "beam_args": []}


def test_a_job_lives_without_its_launcher_and_its_tasks_are_requeued(
    slurm: None, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PACE_VARIABLE, "0.02")
    cache = tmp_path / "slurm"
    said = beam_pipes("build", PACED, "--to", str(cache), "--runner", "slurm", "--workers", "3", "--detach")
    assert f"beam-pipes attach {cache}" in said
    (job,) = read_jobs(cache)
    assert job.state.lives
    wait_for(lambda: len(completions(cache)) > 2, what="some source shards are done")
    running = _tasks(job.record.job, "RUNNING")
    for task in running[:2]:
        subprocess.run(["scontrol", "requeue", task], check=False)  # as a preemption does
    assert attach(cache).jobs == (job.record.job,)
    assert built_files(cache) == expected


def test_a_cancelled_job_ends_and_its_finished_shards_are_kept(
    slurm: None, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PACE_VARIABLE, "0.1")
    cache = tmp_path / "slurm"
    build(PACED, cache, options=SlurmOptions(workers=2, detach=True))
    wait_for(lambda: len(completions(cache)) > 1, what="some source shards are done")
    (ended,) = cancel(cache)
    assert ended.error is None
    assert read_jobs(cache) == []
    monkeypatch.setenv(PACE_VARIABLE, "0")
    assert build(PACED, cache, options=LocalOptions(workers=1)).reused_shards > 1
    assert built_files(cache) == expected


def test_ctrl_c_cancels_the_array(
    slurm: None, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "slurm"
    command = ("build", PACED, "--to", str(cache), "--runner", "slurm", "--workers", "2")
    with running_command(*command, **{PACE_VARIABLE: "0.1"}) as launcher:
        launcher.wait_for(lambda: len(completions(cache)) > 1, what="some source shards are done")
        launcher.process.send_signal(2)
        launcher.end()
    assert read_jobs(cache) == []
    asked = ["squeue", "--noheader", "--states=RUNNING,COMPLETING", "--format=%i"]
    wait_for(lambda: not subprocess.run(asked, capture_output=True, check=True).stdout, what="no task of Slurm runs")


def test_an_error_of_a_stage_is_raised_here(
    slurm: None, paced_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PACE_VARIABLE, "no number")
    with pytest.raises(StageError, match="stage 'Paced' failed.*no number"):
        build(PACED, tmp_path / "slurm", options=SlurmOptions(workers=2))


def test_an_array_that_ends_early_is_lost_and_another_attempt_continues(
    slurm: None,
    expected: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a time limit ends it."""
    monkeypatch.setenv(PACE_VARIABLE, "0.1")
    cache = tmp_path / "slurm"
    with ThreadPoolExecutor(1) as pool:
        built = pool.submit(build, PACED, cache, options=SlurmOptions(workers=2, attempts=2))
        wait_for(lambda: built.done() or len(completions(cache)) > 1, what="some source shards are done")
        monkeypatch.setenv(PACE_VARIABLE, "0")
        subprocess.run(["scancel", read_jobs(cache)[0].record.job], check=True)
        built.result()
    said = capsys.readouterr().err
    assert "none of its workers is left" in said and "That was attempt 1 of 2" in said
    assert built_files(cache) == expected


def test_a_script_is_written_and_submitted_by_hand(slurm: None, expected: dict[str, bytes], tmp_path: Path) -> None:
    cache, script = tmp_path / "slurm", tmp_path / "job.sh"
    of_slurm = (f"--script={script}", "--comment=by hand")
    said = beam_pipes("build", PACED, "--to", str(cache), "--runner", "slurm", "--workers", "2", "--", *of_slurm)
    assert f"Launch it, once:       sbatch {script}" in said
    assert "#SBATCH '--comment=by hand'" in script.read_text().splitlines()
    subprocess.run(["sbatch", str(script)], check=True, capture_output=True)
    wait_for(lambda: list(cache.glob("manifest.json")) and not list(cache.glob("snapshots/*/tasks/*")), what="the end")
    assert build(PACED, cache).up_to_date
    assert built_files(cache) == expected


def test_what_slurm_refuses_is_reported_in_its_words(slurm: None, paced_input: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="sbatch refused the job: .*invalid partition.*options after --") as raised:
        build(PACED, tmp_path / "slurm", options=SlurmOptions(workers=2, beam_args=("--partition=none",)))
    assert not isinstance(raised.value, JobLostError)
    assert read_jobs(tmp_path / "slurm") == []


def test_options_that_contradict_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeclarationError, match="slurm: workers should be given.*--workers 16 -- --partition=cpu"):
        SlurmOptions.from_args(["--partition=cpu"])
    with pytest.raises(DeclarationError, match="script writes the job and submits nothing"):
        SlurmOptions(workers=2, script="job.sh", detach=True)
    monkeypatch.setenv(CLICKS_VARIABLE, str(tmp_path / "clicks.txt"))
    with pytest.raises(DeclarationError, match="which Beam has to run: slurm starts workers without Beam"):
        build("portable_declarations:grouped", tmp_path / "cache", options=SlurmOptions(workers=2))


def test_a_machine_without_slurm_says_what_to_do(
    paced_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match=r"sbatch, which is not on PATH.*--script=FILE"):
        build(PACED, tmp_path / "slurm", options=SlurmOptions(workers=2))
