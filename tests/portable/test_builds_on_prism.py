"""Builds as jobs of Prism, a job server of Beam's own: real submissions, real workers, real interruptions."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2
from beam_workers import BeamWorkers, beam_workers, wait_for, watched_memory
from built_files import built_files
from model_declarations import INPUT_VARIABLE as MODEL_INPUT
from model_declarations import write_lines
from portable_declarations import (
    CLICKS_VARIABLE,
    INPUT_VARIABLE,
    PACE_VARIABLE,
    RECORDS_PER_FILE,
    grouped,
    write_clicks,
    write_files,
)
from running_jobs import beam_pipes, command_of, completions, jobs_of, live_counter, named, running_command

from beam_pipes.beam import ReadFromCache, WriteToCache
from beam_pipes.beam.build_graph import shard_batches, write_snapshot
from beam_pipes.building.leftovers import collect
from beam_pipes.building.plan import make_plan, prepare
from beam_pipes.building.progress import read_status
from beam_pipes.building.references import DeclarationHandle, load_declaration
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.errors import BeamPipesError, BuildError, DeclarationError, JobLostError, StageError
from beam_pipes.runners import LocalOptions, PortableOptions, PrismOptions, attach, build, read_jobs
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from benchmarks.harness import process_tree

REFERENCE = "sample_declarations:words"
PACED = "portable_declarations:paced"
ANALYSED = "portable_declarations:analysed"
GROUPED = "portable_declarations:grouped"
SCORED = "model_declarations:scored"

# Beam's worker in the submitting process leaves threads that end with an exception where their job fails.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture
def expected(text_input: Path, tmp_path: Path) -> dict[str, bytes]:
    build(REFERENCE, tmp_path / "local", options=LocalOptions(workers=1))
    return built_files(tmp_path / "local")


def test_a_collection_ends_in_the_same_cache_as_in_process(prism: str, tmp_path: Path) -> None:
    """Behind a grouping, whose order and bundles are the runner's."""
    features = {"user": FeatureSpec("str"), "counts": FeatureSpec("int64", shape=(None,))}

    def write(to: Path, *, runner: str, options: list[str], clicks: list[tuple[str, int]]) -> None:
        with beam.Pipeline(runner=runner, options=PipelineOptions(options)) as pipeline:
            grouped = pipeline | beam.Create(clicks) | beam.Reshuffle() | beam.GroupByKey()
            rows = grouped | beam.Map(lambda pair: {"user": pair[0], "counts": sorted(pair[1])})
            shares = {"train": 0.8, "test": 0.2}
            rows | WriteToCache(to, features=features, key="user", splits=shares, num_shards=4)

    clicks = [(f"user{number % 40}", number) for number in range(400)]
    on_prism = [f"--job_endpoint={prism}", "--environment_type=LOOPBACK"]
    write(tmp_path / "prism", runner="PortableRunner", options=on_prism, clicks=clicks[::-1])
    write(tmp_path / "direct", runner=IN_PROCESS_RUNNER, options=[], clicks=clicks)

    assert built_files(tmp_path / "prism") == built_files(tmp_path / "direct")
    with beam.Pipeline(runner="PortableRunner", options=PipelineOptions(on_prism)) as pipeline:
        users = pipeline | ReadFromCache(tmp_path / "prism", "train", columns=["user"], as_rows=True)
        users | beam.Map(lambda row: row.user) | beam.io.WriteToText(str(tmp_path / "users"), shard_name_template="")
    assert sorted((tmp_path / "users").read_text().split()) == sorted(
        row["user"] for row in Cache.open(tmp_path / "direct")["train"]
    )


def test_a_list_with_a_transform_gives_the_same_bytes(
    prism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CLICKS_VARIABLE, str(tmp_path / "clicks.txt"))
    write_clicks(tmp_path / "clicks.txt")
    build(GROUPED, tmp_path / "local", options=LocalOptions(workers=1))

    result = build(GROUPED, tmp_path / "prism", options=PortableOptions(job_endpoint=prism))

    assert built_files(tmp_path / "prism") == built_files(tmp_path / "local")
    assert (result.account.written, result.account.dead) == (40, 3)
    again = build(GROUPED, tmp_path / "local", options=PortableOptions(job_endpoint=prism))
    assert again.up_to_date and again.regrouped


def test_a_failure_between_transforms_is_reported_in_its_own_words(
    prism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CLICKS_VARIABLE, str(tmp_path / "clicks.txt"))
    write_clicks(tmp_path / "clicks.txt")

    with pytest.raises(StageError, match="stage 'click' failed on record .*user7 none.*: ValueError: invalid literal"):
        build(grouped(on_error="fail"), tmp_path / "prism", options=PortableOptions(job_endpoint=prism))

    assert not (tmp_path / "prism" / "manifest.json").exists()


def states_of(prism: str, name: str) -> list[str]:
    """How the jobs of a name ended, or that they run."""
    return [beam_job_api_pb2.JobState.Enum.Name(job.state) for job in named(jobs_of(prism), name)]


def test_a_build_by_the_submitting_process_gives_the_same_bytes(
    prism: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    options = PortableOptions(job_endpoint=prism)

    first = build(REFERENCE, tmp_path / "cache", options=options)
    second = build(REFERENCE, tmp_path / "cache", options=options)

    assert (first.up_to_date, second.up_to_date) == (False, True)
    assert built_files(tmp_path / "cache") == expected
    figures = Cache.open(tmp_path / "cache").build_info["beam_metrics"]
    assert figures["SplitWords/inputs"] == first.account.units["SplitWords"].inputs


def test_a_build_by_workers_of_a_pool_gives_the_same_bytes(
    prism: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    with beam_workers() as workers:
        options = PortableOptions(
            job_endpoint=prism, environment_type="EXTERNAL", environment_config=workers.endpoint, parallelism=2
        )
        build(REFERENCE, tmp_path / "cache", options=options)

    assert built_files(tmp_path / "cache") == expected


def test_shards_whose_batches_a_shuffle_has_torn_apart_are_put_together(
    prism: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    plan = make_plan(load_declaration(REFERENCE), tmp_path / "torn")
    tasks = prepare(plan)
    handle = DeclarationHandle(plan.declaration, REFERENCE)

    options = PipelineOptions(list(PortableOptions(job_endpoint=prism).pipeline_args()))
    with beam.Pipeline(runner="PortableRunner", options=options) as pipeline:
        batches = shard_batches(pipeline, handle, tasks, plan.header)
        shuffled = batches | "Key" >> beam.Map(lambda b: (b.sequence % 3, b)) | beam.Reshuffle() | beam.Values()
        write_snapshot(pipeline, shuffled, handle, plan.header)

    assert built_files(tmp_path / "torn") == expected


def test_the_step_of_a_model_is_cut_from_the_others_and_gives_the_same_bytes(
    prism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path / "input")
    monkeypatch.setenv(MODEL_INPUT, str(tmp_path / "input"))
    build(SCORED, tmp_path / "local", options=LocalOptions(workers=1))

    build(SCORED, tmp_path / "portable", options=PortableOptions(job_endpoint=prism))

    assert built_files(tmp_path / "portable") == built_files(tmp_path / "local")


def test_dead_letters_are_the_same(prism: str, text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("fine\nboom here\nboom there\nfine\n")
    reference = "sample_declarations:words_with_dead_letters"
    build(reference, tmp_path / "local", options=LocalOptions(workers=2))

    build(reference, tmp_path / "portable", options=PortableOptions(job_endpoint=prism))

    assert len(list(Cache.open(tmp_path / "portable").dead_letters())) == 2
    assert built_files(tmp_path / "portable") == built_files(tmp_path / "local")


def test_records_with_limits_have_a_process_of_their_own_here_too(
    prism: str, paced_input: Path, tmp_path: Path
) -> None:
    for path in sorted(paced_input.iterdir())[3:]:
        path.unlink()
    reference = "portable_declarations:paced_with_limits"
    build(reference, tmp_path / "local", options=LocalOptions(workers=1))

    build(reference, tmp_path / "portable", options=PortableOptions(job_endpoint=prism))

    assert built_files(tmp_path / "portable") == built_files(tmp_path / "local")


def test_an_error_in_a_stage_comes_out_as_ours(prism: str, text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("boom now\n")

    with pytest.raises(StageError) as caught:
        build(REFERENCE, tmp_path / "cache", options=PortableOptions(job_endpoint=prism))

    assert str(caught.value).startswith("stage 'SplitWords' failed on record 'zzz.txt@0': ValueError: cannot split")
    assert "Traceback" not in str(caught.value)
    assert "while running" not in str(caught.value)
    assert not (tmp_path / "cache" / "manifest.json").exists()


def test_a_declaration_that_workers_cannot_import_is_named(
    prism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here_alone.py").write_text("from portable_declarations import paced\n")
    write_files(tmp_path / "input", range(2))
    monkeypatch.setenv(INPUT_VARIABLE, str(tmp_path / "input"))
    with beam_workers() as workers:
        monkeypatch.syspath_prepend(str(tmp_path))
        options = PortableOptions(job_endpoint=prism, environment_type="EXTERNAL", environment_config=workers.endpoint)
        with pytest.raises(DeclarationError, match="there is no module 'here_alone' on the path"):
            build("here_alone:paced", tmp_path / "cache", options=options)


@pytest.fixture
def slow_workers(paced_input: Path) -> Iterator[BeamWorkers]:
    with beam_workers(**{PACE_VARIABLE: "0.1"}) as workers:
        yield workers


def test_a_worker_that_is_killed_costs_the_shards_in_flight_and_nothing_else(
    prism: str, paced_input: Path, slow_workers: BeamWorkers, tmp_path: Path
) -> None:
    cache, options = (
        tmp_path / "cache",
        PortableOptions(job_endpoint=prism, environment_type="EXTERNAL", environment_config=slow_workers.endpoint),
    )
    build(PACED, cache, options=LocalOptions(workers=1))
    before = Cache.open(cache).manifest
    write_files(paced_input, range(20, 40))
    done_before = len(completions(cache))
    caught: list[BaseException] = []

    def run() -> None:
        try:
            build(PACED, cache, options=options)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: len(completions(cache)) >= done_before + 20 + 3, what="three shards of the second build")
    for pid in slow_workers.processes():
        os.kill(pid, signal.SIGKILL)
    assert Cache.open(cache).manifest.id == before.id
    thread.join(60)

    [error] = caught
    assert isinstance(error, BuildError)
    assert re.search("the Beam job failed: .*SDK worker disconnected.*Run the build again to continue from", str(error))
    assert Cache.open(cache).manifest.id == before.id
    assert len(Cache.open(cache)["train"]) == 20 * RECORDS_PER_FILE

    again = build(PACED, cache, options=PortableOptions(job_endpoint=prism))

    assert again.reused_shards >= 23
    build(PACED, tmp_path / "local", options=LocalOptions(workers=1))
    assert Cache.open(cache).manifest.id == Cache.open(tmp_path / "local").manifest.id
    snapshot, local = (Path(Cache.open(path).directory) for path in (cache, tmp_path / "local"))
    assert built_files(snapshot) == built_files(local)


def test_ctrl_c_cancels_the_job_and_publishes_nothing(prism: str, paced_input: Path, tmp_path: Path) -> None:
    cache, name = tmp_path / "cache", f"cancelled-{os.getpid()}"
    arguments = ["--runner", "portable", "--job-endpoint", prism, "--", f"--job_name={name}"]
    with running_command("build", PACED, "--to", str(cache), *arguments, **{PACE_VARIABLE: "0.05"}) as command:
        command.wait_for(lambda: len(completions(cache)) >= 2, what="two shards")
        assert states_of(prism, name) == ["RUNNING"]
        command.process.send_signal(signal.SIGINT)
        output = command.end()

    assert command.process.returncode == 130, output
    assert "interrupted. Run the same command again to resume from the finished shards." in output
    assert "could not be cancelled" not in output
    assert states_of(prism, name) == ["CANCELLED"]
    done = completions(cache)
    time.sleep(1.0)  # more than a shard takes
    assert completions(cache) == done
    assert len(done) < 20
    assert not (cache / "manifest.json").exists()

    assert build(PACED, cache, options=PortableOptions(job_endpoint=prism)).reused_shards == len(done)


def pool_of(workers: BeamWorkers) -> list[str]:
    return ["--environment-type", "EXTERNAL", "--environment-config", workers.endpoint]


@contextlib.contextmanager
def orphan(prism: str, workers: BeamWorkers, cache: Path, name: str, reference: str = PACED) -> Iterator[str]:
    """The id of a job whose launcher was killed after two of its source shards."""
    arguments = ["--runner", "portable", "--job-endpoint", prism, *pool_of(workers), "--", f"--job_name={name}"]
    with running_command("build", reference, "--to", str(cache), *arguments) as command:
        command.wait_for(lambda: len(completions(cache)) >= 2, what="two shards")
        [job] = named(jobs_of(prism), name)
        command.process.kill()
        command.end()
    yield job.job_id


def same_as_local(cache: Path, tmp_path: Path, reference: str = PACED) -> None:
    build(reference, tmp_path / "local", options=LocalOptions(workers=1))
    snapshot, local = (Path(Cache.open(path, verify=True).directory) for path in (cache, tmp_path / "local"))
    assert built_files(snapshot) == built_files(local)
    left = [place / name for place in (snapshot, cache / "analysis") for name in ("launches", "tasks")]
    assert not [path for path in left if path.exists()]


def test_the_same_build_waits_for_the_job_of_a_launcher_that_was_killed(
    prism: str, paced_input: Path, slow_workers: BeamWorkers, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cache, name = tmp_path / "cache", f"orphan-{os.getpid()}"
    with orphan(prism, slow_workers, cache, name) as job:
        [found] = read_jobs(cache)
        assert (found.record.job, found.state.name, found.launcher_lives) == (job, "running", False)

        result = build(PACED, cache, options=PortableOptions(job_endpoint=prism))

    output = capfd.readouterr().err
    assert f"job {job} (portable, job_endpoint={prism}) already does this work, launched by process " in output
    assert states_of(prism, name) == ["DONE"]
    assert len(jobs_of(prism)) == len({each.job_id for each in jobs_of(prism)})
    assert Cache.open(cache).build_info["job"] == job
    assert result.account.read == 20 * RECORDS_PER_FILE
    same_as_local(cache, tmp_path)


def test_a_build_that_does_not_wait_says_why_and_neither_disturbs_the_other(
    prism: str, paced_input: Path, slow_workers: BeamWorkers, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cache, name = tmp_path / "cache", f"twice-{os.getpid()}"
    with orphan(prism, slow_workers, cache, name) as job:
        write_files(paced_input, range(20, 21))
        build(PACED, cache, options=LocalOptions(workers=1))
        [record] = [each.record for each in read_jobs(cache)]
        output = capfd.readouterr().err

        # What the other job is writing is left alone by every build, and its snapshot by `gc`.
        assert collect(cache, keep=0).kept == (record.snapshot,)
        wait_for(lambda: states_of(prism, name) != ["RUNNING"], what="the end of the first job")

    assert f"job {job} (portable, job_endpoint={prism}) builds snapshot {record.snapshot}, and this build" in output
    assert "does not wait for it: another source. `beam-pipes attach" in output
    assert states_of(prism, name) == ["FAILED"]
    with pytest.raises(BeamPipesError, match="another process has replaced it"):
        attach(cache)
    assert not read_jobs(cache)
    same_as_local(cache, tmp_path)


def test_a_detached_job_is_seen_waited_for_and_finished_from_another_process(
    prism: str, paced_input: Path, slow_workers: BeamWorkers, tmp_path: Path
) -> None:
    cache, name = tmp_path / "cache", f"detached-{os.getpid()}"
    given = ["--runner", "portable", "--job-endpoint", prism, *pool_of(slow_workers), "--detach"]
    build_command = ["build", PACED, "--to", str(cache), *given, "--", f"--job_name={name}"]

    begun = beam_pipes(*build_command)
    shown = beam_pipes("jobs", str(cache))
    [as_json] = json.loads(beam_pipes("jobs", str(cache), "--json"))
    attached = beam_pipes("attach", str(cache), "--progress", "json")

    [job] = named(jobs_of(prism), name)
    assert f"job {job.job_id} (portable, job_endpoint={prism}) builds snapshot " in begun
    assert f"beam-pipes jobs {cache}\n" in begun
    assert f"beam-pipes attach {cache}\n" in begun
    assert f"beam-pipes cancel {cache}\n" in begun
    assert f"beam-pipes build {PACED} --to {cache} --runner portable" in begun
    assert f"job {job.job_id} (portable, job_endpoint={prism}): running; snapshot " in shown
    assert re.search(r"\d+ of 20 source shards are done; launched by process \d+ on .*, which is gone\.", shown)
    assert as_json["lives"] and as_json["declaration"] == PACED
    assert f"The cache is in {cache} (snapshot {as_json['snapshot']})." in attached
    assert f"no job is on record in {cache}" in beam_pipes("jobs", str(cache))
    assert Cache.open(cache).build_info["job"] == job.job_id
    same_as_local(cache, tmp_path)


def test_a_detached_job_is_cancelled_and_its_shards_are_kept(
    prism: str, paced_input: Path, slow_workers: BeamWorkers, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    options = PortableOptions(
        job_endpoint=prism, environment_type="EXTERNAL", environment_config=slow_workers.endpoint, detach=True
    )
    begun = build(PACED, cache, options=options)
    wait_for(lambda: len(completions(cache)) >= 2, what="two shards")

    output = beam_pipes("cancel", str(cache))

    assert begun.job is not None and not begun.manifest_id and begun.reused_shards == 0
    assert f"{begun.job} has ended (CANCELLED). Run the build again to continue." in output
    assert not read_jobs(cache)
    done = len(completions(cache))
    assert build(PACED, cache, options=LocalOptions(workers=1)).reused_shards == done < 20
    with pytest.raises(BuildError, match="no job is on record in .*: nothing was detached there, or its end was"):
        attach(cache)


def test_a_job_that_lost_its_worker_is_followed_by_another_one(
    prism: str, paced_input: Path, slow_workers: BeamWorkers, tmp_path: Path
) -> None:
    cache, name = tmp_path / "cache", f"attempts-{os.getpid()}"
    given = ["--runner", "portable", "--job-endpoint", prism, *pool_of(slow_workers), "--attempts", "2"]
    with running_command("build", PACED, "--to", str(cache), *given, "--", f"--job_name={name}") as command:
        command.wait_for(lambda: len(completions(cache)) >= 3, what="three shards")
        for pid in slow_workers.processes():
            os.kill(pid, signal.SIGKILL)
        output = command.end()

    assert command.process.returncode == 0, output
    assert "SDK worker disconnected" in output
    assert "That was attempt 1 of 2; starting the next one." in output
    assert sorted(states_of(prism, name)) == ["DONE", "FAILED"]
    same_as_local(cache, tmp_path)


def test_an_error_of_a_stage_is_not_tried_again(prism: str, text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("boom now\n")
    before = len(jobs_of(prism))

    with pytest.raises(StageError, match="stage 'SplitWords' failed on record 'zzz.txt@0'"):
        build(REFERENCE, tmp_path / "cache", options=PortableOptions(job_endpoint=prism, attempts=3))

    assert len(jobs_of(prism)) == before + 1


def test_a_detached_job_that_fails_tells_attach_the_error_of_its_stage(
    prism: str, text_input: Path, tmp_path: Path
) -> None:
    (text_input / "zzz.txt").write_text("boom now\n")
    with beam_workers() as workers:
        pool = PortableOptions(
            job_endpoint=prism, environment_type="EXTERNAL", environment_config=workers.endpoint, detach=True
        )
        with pytest.raises(StageError, match="stage 'SplitWords' failed on record 'zzz.txt@0': ValueError"):
            build(REFERENCE, tmp_path / "cache", options=pool)
            attach(tmp_path / "cache")

    assert not read_jobs(tmp_path / "cache")


def test_progress_and_live_statistics_show_while_the_job_runs(prism: str, paced_input: Path, tmp_path: Path) -> None:
    cache, name = tmp_path / "cache", f"watched-{os.getpid()}"
    arguments = ["--progress", "json", "--runner", "portable", "--job-endpoint", prism, "--", f"--job_name={name}"]
    with running_command("build", PACED, "--to", str(cache), *arguments, **{PACE_VARIABLE: "0.02"}) as command:
        command.wait_for(lambda: len(completions(cache)) >= 3, what="three shards")
        status = read_status(cache)
        [job] = named(jobs_of(prism), name)
        command.wait_for(lambda: live_counter(prism, job.job_id, "Paced/inputs") > 0, what="a counter of the stage")
        output = command.end()

    assert command.process.returncode == 0, output
    assert status.published is None
    assert status.builder is not None
    assert status.progress is not None
    assert 3 <= status.progress.shards_done < status.progress.shards == 20
    assert status.progress.account.units["Paced"].inputs == status.progress.shards_done * RECORDS_PER_FILE
    shown = [json.loads(line)["shards_done"] for line in output.splitlines() if line.startswith("{")]
    assert any(0 < done < 20 for done in shown)
    assert shown[-1] == 20


def test_memory_of_a_worker_does_not_grow_with_the_input(
    prism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, peaks = tmp_path / "given", []
    monkeypatch.setenv(INPUT_VARIABLE, str(given))
    with beam_workers() as workers:
        options = PortableOptions(job_endpoint=prism, environment_type="EXTERNAL", environment_config=workers.endpoint)
        for megabytes in (1, 8):
            write_files(tmp_path / str(megabytes), range(megabytes), line_bytes=20_000, records=50)
            given.unlink(missing_ok=True)
            given.symlink_to(tmp_path / str(megabytes))
            with watched_memory(workers) as peak:
                result = build("portable_declarations:large", tmp_path / f"cache-{megabytes}", options=options)
            assert result.account.read == megabytes * 50
            peaks.append(peak())

    assert peaks[0] > 50e6
    assert peaks[1] < 1.2 * peaks[0], peaks


def test_prism_is_started_for_a_build_and_ends_with_it(expected: dict[str, bytes], tmp_path: Path) -> None:
    before = prisms_of(os.getpid())

    build(REFERENCE, tmp_path / "cache", options=PrismOptions())

    assert built_files(tmp_path / "cache") == expected
    assert prisms_of(os.getpid()) == before


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_prism_ends_however_the_build_ends(signal_number: int, paced_input: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with running_command("build", PACED, "--to", str(cache), "--runner", "prism", **{PACE_VARIABLE: "0.05"}) as command:
        command.wait_for(lambda: len(completions(cache)) >= 2, what="two shards")
        [prism] = prisms_of(command.process.pid)
        command.process.send_signal(signal_number)
        output = command.end()
    jobs = read_jobs(cache)

    expected = {signal.SIGINT: 130, signal.SIGKILL: -signal.SIGKILL}[signal_number]
    assert command.process.returncode == expected, output
    wait_for(lambda: not Path(f"/proc/{prism}").exists(), what="the end of Prism")
    assert "could not be cancelled" not in output
    assert not (cache / "manifest.json").exists()
    done = len(completions(cache))
    if signal_number == signal.SIGKILL:  # nobody was there to remove the record
        assert "gone (its launcher ran its work or its server, and has ended)" in str(jobs[0])
        with pytest.raises(JobLostError, match="has ended, and its outcome is unknown .its launcher ran its work"):
            attach(cache)
    assert not read_jobs(cache)
    assert build(PACED, cache, options=LocalOptions(workers=1)).reused_shards == done < 20


def test_a_server_that_dies_in_the_middle_ends_the_build_in_one_message(paced_input: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with running_command("build", PACED, "--to", str(cache), "--runner", "prism", **{PACE_VARIABLE: "0.05"}) as command:
        command.wait_for(lambda: len(completions(cache)) >= 2, what="two shards")
        [prism] = prisms_of(command.process.pid)
        os.kill(prism, signal.SIGKILL)
        output = command.end()

    assert command.process.returncode == 1
    assert "beam-pipes: the Beam job failed: " in output
    assert "Run the build again to continue from the finished shards." in output
    assert not (cache / "manifest.json").exists()


def prisms_of(pid: int) -> set[int]:
    """The processes of the program prism that this process has started, and its children have."""
    return {one for one in process_tree(pid) if command_of(one)[0].endswith("/prism")}


def test_the_same_build_waits_for_an_analysis_whose_launcher_was_killed(
    prism: str, paced_input: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cache, name = tmp_path / "cache", f"orphaned-analysis-{os.getpid()}"
    arguments = ["--runner", "portable", "--job-endpoint", prism, "--environment-type", "EXTERNAL"]
    with beam_workers(**{PACE_VARIABLE: "0.05"}) as slow:
        arguments += ["--environment-config", slow.endpoint, "--", f"--job_name={name}"]
        with running_command("build", ANALYSED, "--to", str(cache), *arguments) as command:
            command.wait_for(lambda: len([*cache.glob("analysis/accumulators/*/*")]) >= 2, what="two accumulators")
            [job] = named(jobs_of(prism), name)
            command.process.kill()
            command.end()
        [found] = read_jobs(cache)
        assert (found.record.job, found.record.snapshot) == (job.job_id, None)
        assert "; an analysis of this cache; launched by process" in str(found)

        build(ANALYSED, cache, options=PortableOptions(job_endpoint=prism))

        output = capfd.readouterr().err
        assert f"job {job.job_id} (portable, job_endpoint={prism}) already does this work" in output
        assert states_of(prism, name) == ["DONE"]
    same_as_local(cache, tmp_path, ANALYSED)
