"""Records of jobs whose servers are there, gone, or silent; what is refused and what is said, before anything runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from gcs_emulator import free_port
from typer.testing import CliRunner

from beam_pipes.building.leftovers import collect, remove_temporaries
from beam_pipes.building.progress import read_status
from beam_pipes.cache import Cache
from beam_pipes.commands import app
from beam_pipes.commands.options import Building
from beam_pipes.errors import BuildError, CacheNotFoundError, DeclarationError, JobLostError
from beam_pipes.runners import (
    BeamOptions,
    DataflowOptions,
    FlinkOptions,
    LocalOptions,
    PortableOptions,
    PrismOptions,
    attach,
    build,
    cancel,
    read_jobs,
)
from beam_pipes.runners.beam_job import living_job
from beam_pipes.runners.jobs import LaunchRecord, error_of, last_words, unlike
from beam_pipes.runners.options import JobState
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.locks import this_process

POOL: dict[str, Any] = {"environment_type": "EXTERNAL", "environment_config": "localhost:50000"}
REFERENCE = "sample_declarations:words"


def record(cache: Path, endpoint: str, **changes: Any) -> LaunchRecord:
    """A job on record for a snapshot that is not there."""
    fields: dict[str, Any] = {
        "directory": f"{cache}/snapshots/0123456789abcdef",
        "runner": "portable",
        "job": "job-001",
        "beam_args": (f"--job_endpoint={endpoint}", "--job_name=a-name-of-its-own"),
        "launcher": this_process(),
        "needs_launcher": False,
        "fingerprints": {"declaration": "d", "source": "s"},
        "num_shards": 40,
        "started_at": time.time(),
    }
    made = LaunchRecord(**{**fields, **changes})
    made.write()
    return made


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(
            lambda: BeamOptions(detach=True),
            "direct: a job cannot be detached here: it runs in this process. Choose --runner portable, flink or data",
            id="direct",
        ),
        pytest.param(
            lambda: PrismOptions(detach=True),
            "prism: a job cannot be detached here: Prism is started for the build and ends with it. Run one apart",
            id="prism",
        ),
        pytest.param(
            lambda: PortableOptions(job_endpoint="localhost:1", detach=True),
            r"this process does its work \(environment_type LOOPBACK\). Choose EXTERNAL, DOCKER or PROCESS",
            id="loopback",
        ),
        pytest.param(
            lambda: FlinkOptions(flink_job_server_jar="server.jar", detach=True, **POOL),
            "flink: a job cannot be detached here: Flink runs inside the job server.*Name a cluster: --flink-master",
            id="flink_within_the_job_server",
        ),
        pytest.param(
            lambda: FlinkOptions(detach=True, attempts=2, **POOL),
            "attempts=2 needs this process to submit the next job.*the cluster's restart-strategy restarts detached "
            "jobs",
            id="attempts_of_nobody",
        ),
        pytest.param(lambda: BeamOptions(attempts=0), "direct: attempts should be a number, at least 1, got 0", id="0"),
        pytest.param(
            lambda: Building(detach=True).options([]), "--detach belongs to jobs of Beam's runners; 'local'", id="local"
        ),
        pytest.param(
            lambda: Building(attempts=2).options([]),
            "--attempts belongs to jobs of Beam's runners",
            id="local_attempts",
        ),
    ],
)
def test_what_cannot_be_detached_or_tried_again_is_refused(make: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        make()


def test_what_can_be_detached_is_taken() -> None:
    cloud = {"project": "my-project", "region": "europe-west1", "temp_location": "gs://bucket/temp"}

    assert DataflowOptions(**cloud, sdk_container_image="image:1", detach=True).detach
    assert FlinkOptions(flink_job_server_jar="jars", flink_master="localhost:8081", detach=True, **POOL).detach
    given = Building(runner="portable", job_endpoint="localhost:1", **POOL, attempts=3)
    assert given.options([]) == PortableOptions(job_endpoint="localhost:1", attempts=3, **POOL)


def test_tasks_are_not_detached() -> None:
    done = CliRunner().invoke(app, ["build", "--tasks", ".*", "--to", "caches", "--runner", "flink", "--detach"])

    assert isinstance(done.exception, DeclarationError)


def test_a_server_that_does_not_know_a_job_says_that_it_has_ended(prism: str, tmp_path: Path, text_input: Path) -> None:
    """Prism numbers its jobs from one whenever it is started: there is another job of this number."""
    build(REFERENCE, tmp_path / "other", options=PortableOptions(job_endpoint=prism))
    record(tmp_path, prism)

    [job] = read_jobs(tmp_path)

    assert job.state.name == "gone"
    assert f"job job-001 (portable, job_endpoint={prism}): gone (the server at {prism} does not know it)" in str(job)
    with pytest.raises(JobLostError, match="has ended, and its outcome is unknown .* With --attempts 3 .attempts=3."):
        attach(tmp_path)
    assert not read_jobs(tmp_path)


def test_nothing_is_concluded_from_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = f"localhost:{free_port()}"
    found = record(tmp_path, silent)
    monkeypatch.setattr("beam_pipes.runners.jobs.SILENT_SECS", 0.1)

    with pytest.raises(
        JobLostError, match=f"does not answer .nobody answers at {silent} .UNAVAILABLE..: it may still run. Nothing"
    ):
        attach(tmp_path)
    [ended] = cancel(tmp_path)
    printed = CliRunner().invoke(app, ["cancel", str(tmp_path)])

    assert ended.error == f"nobody answers at {silent} (UNAVAILABLE)"
    assert printed.exit_code == 1
    assert (
        f"could not be cancelled (nobody answers at {silent} (UNAVAILABLE)) and may still run. Cancel" in printed.output
    )
    assert living_job(found) is None
    assert [each.record for each in read_jobs(tmp_path)] == [found]


def test_what_ran_in_its_launcher_is_gone_with_it(tmp_path: Path) -> None:
    dead = {**this_process(), "started": "0"}
    found = record(tmp_path, f"localhost:{free_port()}", launcher=dead, needs_launcher=True)

    assert found.state() == JobState(name="gone", words="its launcher ran its work or its server, and has ended")
    assert living_job(found) is None
    assert not read_jobs(tmp_path)


def test_what_a_job_may_be_writing_is_left_alone(tmp_path: Path, text_input: Path) -> None:
    cache = tmp_path / "cache"
    build(REFERENCE, cache, options=LocalOptions(workers=1))
    found = record(cache, f"localhost:{free_port()}")
    half_written, leftover = Path(found.directory, ".tmp-1"), Path(Cache.open(cache).directory, ".tmp-2")
    half_written.touch()
    leftover.touch()

    collected = collect(cache, keep=0)
    assert (half_written.exists(), leftover.exists()) == (True, False)
    assert found.snapshot in collected.kept
    found.remove()
    remove_temporaries(storage_for(cache), str(cache))
    assert not half_written.exists()
    assert collect(cache, keep=0).removed == (found.snapshot,)


def test_the_status_of_a_cache_points_to_its_jobs(tmp_path: Path) -> None:
    found = record(tmp_path, "localhost:1")
    Path(found.directory, "completions").mkdir()
    Path(found.directory, "completions", "00000-of-00040.json").write_text("{}")

    status = read_status(tmp_path)

    assert status.to_json()["jobs"] == 1
    assert str(status).endswith(f"jobs on record: 1; `beam-pipes jobs {tmp_path}` tells whether they run.")
    found.remove()
    assert str(read_status(tmp_path)).endswith(
        "no build is running: run the build again to continue from the finished shards."
    )


def test_what_differs_is_named(tmp_path: Path) -> None:
    found = record(tmp_path, "localhost:1")

    assert unlike(found, {"declaration": "d", "source": "s"}) == []
    assert unlike(found, {"declaration": "d", "source": "t", "generation": "1"}) == ["generation", "source"]


def test_a_directory_without_jobs_says_so(tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["jobs", str(tmp_path)]).output

    assert f"no job is on record in {tmp_path}: `beam-pipes status {tmp_path}` tells what is published." in printed
    with pytest.raises(CacheNotFoundError, match="does not exist: nothing was built there"):
        read_jobs(tmp_path / "absent")


def test_a_job_that_somebody_cancelled_is_not_lost(tmp_path: Path) -> None:
    found = record(tmp_path, "localhost:1")

    error = error_of(found, JobState(name="cancelled", words="CANCELED"))

    assert type(error) is BuildError
    assert "was cancelled where it runs: nothing was published. Run the build again to continue" in str(error)


def test_the_words_of_a_failure_are_not_the_frames_of_java() -> None:
    output = "RestClientException: [\n\tat a.b.C$1.run(C.java:1)\nCaused by: x.JobNotFound: no job (1)\n\t... 5 more\n]"

    assert last_words(output) == "Caused by: x.JobNotFound: no job (1)"
    assert last_words("") == ""
