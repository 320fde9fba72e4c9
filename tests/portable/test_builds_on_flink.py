"""Builds on Flink: within Beam's job server, and on a session cluster of which parts are killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from beam_workers import BeamWorkers, beam_workers, wait_for
from built_files import built_files
from flink_cluster import JARS, FlinkCluster
from gcs_emulator import new_bucket, running
from model_declarations import INPUT_VARIABLE as MODEL_INPUT
from model_declarations import write_lines
from portable_declarations import PACE_VARIABLE, RECORDS_PER_FILE, write_files
from running_jobs import RunningCommand, beam_pipes, command_of, completions, running_command
from sample_declarations import INPUT_VARIABLE

from beam_pipes import add_column, stage, with_columns, write_cache
from beam_pipes.building.progress import read_status
from beam_pipes.cache import Cache, storage_for
from beam_pipes.errors import BuildError, StageError
from beam_pipes.runners import FlinkOptions, LocalOptions, build, read_jobs
from beam_pipes.storage.local import LocalStorage
from benchmarks.harness import process_tree

pytestmark = [
    pytest.mark.flink,
    pytest.mark.timeout(600),
    # Beam's worker in the submitting process leaves threads that end with an exception where their job fails.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

REFERENCE = "sample_declarations:words"
PACED = "portable_declarations:paced"


def job_servers() -> set[int]:
    """The processes of Beam's job server for Flink that this test began; other workers of the suite begin their own."""
    mark = f"PYTEST_CURRENT_TEST={os.environ['PYTEST_CURRENT_TEST']}".encode()
    found = set()
    for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):  # it has ended
            if any("FlinkJobServerDriver" in word for word in command_of(pid)[1:]):
                found |= {pid} if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") else set()
    return found


def test_a_flink_of_one_machine_gives_the_same_bytes_and_ends_with_the_build(text_input: Path, tmp_path: Path) -> None:
    build(REFERENCE, tmp_path / "local", options=LocalOptions(workers=1))

    with running_command("build", REFERENCE, "--to", str(tmp_path / "flink"), "--runner", "flink") as command:
        output = command.end(timeout_secs=300)
    assert command.process.returncode == 1
    assert "flink: expected a Beam job server at localhost:8099" in output
    given = ["--runner", "flink", "--flink-job-server-jar", str(JARS), "--parallelism", "2"]
    with running_command("build", REFERENCE, "--to", str(tmp_path / "flink"), *given) as command:
        output = command.end(timeout_secs=300)

    assert command.process.returncode == 0, output
    assert built_files(tmp_path / "flink") == built_files(tmp_path / "local")
    assert not job_servers()


def test_a_session_cluster_with_a_pool_of_workers_gives_the_same_bytes(
    job_server: str, cluster: FlinkCluster, text_input: Path, tmp_path: Path
) -> None:
    build(REFERENCE, tmp_path / "local", options=LocalOptions(workers=1))

    with beam_workers() as workers:
        options = FlinkOptions(
            job_endpoint=job_server,
            flink_master=cluster.rest,
            parallelism=2,
            environment_type="EXTERNAL",
            environment_config=workers.endpoint,
            job_name="words",
        )
        build(REFERENCE, tmp_path / "flink", options=options)

    assert built_files(tmp_path / "flink") == built_files(tmp_path / "local")
    assert cluster.states("words") == ["FINISHED"]
    [job] = cluster.jobs("words")
    assert max(vertex["parallelism"] for vertex in cluster.get(f"/jobs/{job['jid']}")["vertices"]) == 2


def test_the_step_of_a_model_is_a_task_of_its_own_and_gives_the_same_bytes(
    job_server: str, cluster: FlinkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path / "input")
    monkeypatch.setenv(MODEL_INPUT, str(tmp_path / "input"))
    build("model_declarations:scored", tmp_path / "local", options=LocalOptions(workers=1))

    options = FlinkOptions(job_endpoint=job_server, flink_master=cluster.rest, parallelism=2, job_name="scored")
    build("model_declarations:scored", tmp_path / "flink", options=options)

    assert built_files(tmp_path / "flink") == built_files(tmp_path / "local")
    [job] = cluster.jobs("scored")
    names = " ".join(vertex["name"] for vertex in cluster.get(f"/jobs/{job['jid']}")["vertices"])
    # Beam's name of a fused stage lists what it runs.
    assert re.search(r"\[\d+\]\{?score\}?", names), names


@stage
def words(record: dict[str, Any]) -> dict[str, Any]:
    return {"words": len(record["text"].split())}


def test_a_column_has_the_same_bytes(job_server: str, tmp_path: Path) -> None:
    rows = [{"text": "to be " * number} for number in range(40)]
    for name in ("local", "flink"):
        write_cache(tmp_path / name, {"train": rows, "eval": rows[:3]}, num_shards=3)

    add_column("words", tmp_path / "local", words, workers=1)
    options = FlinkOptions(job_endpoint=job_server, parallelism=2, job_name="column")
    add_column("words", tmp_path / "flink", words, options=options)

    assert built_files(tmp_path / "flink") == built_files(tmp_path / "local")
    split = with_columns(tmp_path / "flink/train", "words")
    assert [row["words"] for row in split] == [len(row["text"].split()) for row in split]


@pytest.mark.gcs
def test_a_session_cluster_reads_from_a_bucket_and_builds_to_it(
    job_server: str, cluster: FlinkCluster, text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running("fake-gcs-server") as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        bucket = f"gs://{new_bucket(url)}"
        storage, near = storage_for(bucket), LocalStorage()
        for name in near.tree(str(text_input)):
            storage.replace(f"{bucket}/in/{name}", near.read_bytes(f"{text_input}/{name}"))
        monkeypatch.setenv(INPUT_VARIABLE, f"{bucket}/in")
        local = build(REFERENCE, tmp_path / "local", options=LocalOptions(workers=1))
        with beam_workers() as workers:
            given = [*on_cluster(job_server, cluster, workers), "--", "--job_name=buckets"]
            output = beam_pipes("build", REFERENCE, "--to", f"{bucket}/cache", *given)
        snapshot = Cache.open(f"{bucket}/cache", verify=True).directory
        found = {name: storage.read_bytes(f"{snapshot}/{name}") for name in storage.tree(snapshot)}

    assert f"The cache is in {bucket}/cache (snapshot {local.snapshot}" in output
    assert cluster.states("buckets") == ["FINISHED"]
    expected = built_files(Path(Cache.open(tmp_path / "local").directory))
    assert {name: data for name, data in found.items() if name not in ("build.json", "report.html")} == expected


def test_an_error_in_a_stage_comes_out_as_ours(job_server: str, text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("boom now\n")

    with pytest.raises(StageError) as caught:
        build(REFERENCE, tmp_path / "cache", options=FlinkOptions(job_endpoint=job_server, parallelism=2))

    assert str(caught.value).startswith("stage 'SplitWords' failed on record 'zzz.txt@0': ValueError: cannot split")
    assert "Traceback" not in str(caught.value)
    assert not (tmp_path / "cache" / "manifest.json").exists()


def test_a_job_shows_while_it_runs_and_ctrl_c_cancels_it_on_the_cluster(
    job_server: str, cluster: FlinkCluster, paced_input: Path, tmp_path: Path
) -> None:
    """The workers are none of the interrupted process: a job that nobody cancels would go on and publish."""
    cache = tmp_path / "cache"
    with beam_workers(**{PACE_VARIABLE: "0.1"}) as workers:
        given = ["--runner", "flink", "--job-endpoint", job_server, "--flink-master", cluster.rest]
        given += ["--parallelism", "2", "--environment-type", "EXTERNAL", "--environment-config", workers.endpoint]
        with running_command("build", PACED, "--to", str(cache), *given, "--", "--job_name=cancelled") as command:
            command.wait_for(lambda: len(completions(cache)) >= 2, what="two shards")
            assert cluster.states("cancelled") == ["RUNNING"]
            status = read_status(cache)
            command.process.send_signal(signal.SIGINT)
            output = command.end(timeout_secs=120)

        assert cluster.states("cancelled") == ["CANCELED"]
        wait_for(lambda: not workers.processes(), what="the end of the job's workers")
        done = completions(cache)
        time.sleep(2.0)  # more than a shard takes

    assert status.progress is not None
    assert 2 <= status.progress.shards_done < status.progress.shards == 20
    assert status.progress.account.units["Paced"].inputs == status.progress.shards_done * RECORDS_PER_FILE
    assert command.process.returncode == 130, output
    assert "interrupted. Run the same command again to resume from the finished shards." in output
    assert "could not be cancelled" not in output
    assert completions(cache) == done
    assert not (cache / "manifest.json").exists()
    assert build(PACED, cache, options=LocalOptions(workers=1)).reused_shards == len(done) < 20


def test_a_task_manager_that_is_killed_costs_the_shards_in_flight_and_nothing_else(
    job_server: str, cluster: FlinkCluster, paced_input: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    build(PACED, cache, options=LocalOptions(workers=1))
    before = Cache.open(cache).manifest
    write_files(paced_input, range(20, 40))
    caught: list[BaseException] = []

    with beam_workers(**{PACE_VARIABLE: "0.05"}) as workers:
        options = FlinkOptions(
            job_endpoint=job_server,
            parallelism=2,
            environment_type="EXTERNAL",
            environment_config=workers.endpoint,
        )

        def run() -> None:
            try:
                build(PACED, cache, options=options)
            except BaseException as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        wait_for(lambda: len(completions(cache)) >= 20 + 20 + 2, what="two shards of the second build")
        cluster.busy().kill()
        assert Cache.open(cache).manifest.id == before.id
        thread.join(120)

    [error] = caught
    assert isinstance(error, BuildError)
    assert re.match(
        "the Beam job failed: .*Run the build again to continue from the finished shards", str(error), re.DOTALL
    )
    assert Cache.open(cache).manifest.id == before.id
    assert len(Cache.open(cache)["train"]) == 20 * RECORDS_PER_FILE

    again = build(PACED, cache, options=FlinkOptions(job_endpoint=job_server, parallelism=2))

    assert again.reused_shards >= 22
    build(PACED, tmp_path / "local", options=LocalOptions(workers=1))
    assert Cache.open(cache).manifest.id == Cache.open(tmp_path / "local").manifest.id
    snapshot, local = (Path(Cache.open(path).directory) for path in (cache, tmp_path / "local"))
    assert built_files(snapshot) == built_files(local)


@pytest.fixture
def forty_files(paced_input: Path) -> Path:
    """As many source shards."""
    write_files(paced_input, range(20, 40))
    return paced_input


def on_cluster(job_server: str | None, cluster: FlinkCluster, workers: BeamWorkers) -> list[str]:
    """The options of a job; without a job server it starts one."""
    server = ["--flink-job-server-jar", str(JARS)] if job_server is None else ["--job-endpoint", job_server]
    given = ["--runner", "flink", *server, "--flink-master", cluster.rest, "--parallelism", "2"]
    return [*given, "--environment-type", "EXTERNAL", "--environment-config", workers.endpoint]


def same_as_local(cache: Path, tmp_path: Path) -> None:
    build(PACED, tmp_path / "local", options=LocalOptions(workers=1))
    snapshot, local = (Path(Cache.open(path, verify=True).directory) for path in (cache, tmp_path / "local"))
    assert built_files(snapshot) == built_files(local)
    assert not [*snapshot.glob("launches"), *snapshot.glob("tasks")]


def test_a_launcher_that_is_killed_with_its_job_server_costs_nothing(
    cluster: FlinkCluster, forty_files: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    with beam_workers(**{PACE_VARIABLE: "0.05"}) as workers:
        command = ["build", PACED, "--to", str(cache), *on_cluster(None, cluster, workers), "--", "--job_name=orphaned"]
        with running_command(*command) as launcher:
            launcher.wait_for(lambda: len(completions(cache)) >= 4, what="four shards")
            assert job_servers()
            launcher.process.kill()
            launcher.end()
        wait_for(lambda: not job_servers(), what="the end of the job server")
        [found] = read_jobs(cache)
        with running_command(*command) as again:
            output = again.end(timeout_secs=300)

    assert (found.state.name, found.launcher_lives) == ("running", False)
    assert again.process.returncode == 0, output
    assert f"{found.record} already does this work, launched by process" in output
    assert cluster.states("orphaned") == ["FINISHED"]
    same_as_local(cache, tmp_path)


def test_a_build_outlives_its_task_manager_its_pool_of_workers_and_its_job_manager(
    job_server: str, cluster: FlinkCluster, forty_files: Path, tmp_path: Path
) -> None:
    """A supervisor starts again what was killed; nobody else does anything."""
    cache = tmp_path / "cache"

    def progress(command: RunningCommand, shards: int) -> None:
        command.wait_for(lambda: len(completions(cache)) >= shards, what=f"{shards} shards")

    with contextlib.ExitStack() as pools:
        workers = pools.enter_context(beam_workers(**{PACE_VARIABLE: "0.1"}))
        given = on_cluster(job_server, cluster, workers)
        with running_command("build", PACED, "--to", str(cache), *given, "--attempts", "5") as command:
            progress(command, 4)
            cluster.busy().kill()
            cluster.supervise()

            progress(command, 10)
            for pid in process_tree(workers.pid):
                os.kill(pid, signal.SIGKILL)
            port = int(workers.endpoint.rpartition(":")[2])
            pools.enter_context(beam_workers(port=port, **{PACE_VARIABLE: "0.05"}))

            progress(command, 16)
            cluster.job_manager.kill()
            cluster.job_manager.wait()
            cluster.supervise()
            output = command.end(timeout_secs=300)

    assert command.process.returncode == 0, output
    assert [f"That was attempt {number} of 5; starting the next one." in output for number in (1, 2, 3)] == [True] * 3
    same_as_local(cache, tmp_path)


def test_a_detached_job_is_restarted_by_flink_where_the_cluster_says_so(
    cluster: FlinkCluster, forty_files: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cluster.job_manager.kill()
    cluster.job_manager.wait()
    cluster.supervise(
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__attempts="2",
        restart_strategy__fixed_delay__delay="1s",
    )
    wait_for(lambda: cluster.has(2), what="the cluster's return")

    with beam_workers(**{PACE_VARIABLE: "0.05"}) as workers:
        given = [*on_cluster(None, cluster, workers), "--detach", "--", "--job_name=restarted"]
        beam_pipes("build", PACED, "--to", str(cache), *given)
        wait_for(lambda: len(completions(cache)) >= 4, what="four shards")
        cluster.busy().kill()
        cluster.supervise()
        output = beam_pipes("attach", str(cache))

    assert f"The cache is in {cache} (snapshot " in output
    assert cluster.states("restarted") == ["FINISHED"]
    same_as_local(cache, tmp_path)
