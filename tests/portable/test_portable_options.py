"""What a job server is told, and what is refused before anything is sent."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gcs_emulator import free_port

from beam_pipes.commands.options import Running
from beam_pipes.errors import BeamPipesError, BuildError, DeclarationError
from beam_pipes.runners import FlinkOptions, LocalOptions, PortableOptions, PrismOptions, build
from beam_pipes.runners.options import is_this_machine
from beam_pipes.runners.portable import require_job_server
from beam_pipes.runners.preflight import preflight
from beam_pipes.runners.servers import find_prism, running_prism

REFERENCE = "sample_declarations:words"
REMOTE: dict[str, Any] = {
    "job_endpoint": "jobs.example.com:8099",
    "environment_type": "EXTERNAL",
    "environment_config": "localhost:50000",
}


def test_options_reach_beam_under_its_names() -> None:
    options = PortableOptions(
        **REMOTE,
        artifact_endpoint="jobs.example.com:8098",
        job_name="books-1",
        parallelism=4,
        beam_args=("--experiments=x",),
    )

    assert options.runner == "PortableRunner"
    assert options.pipeline_args() == (
        "--job_endpoint=jobs.example.com:8099",
        "--environment_type=EXTERNAL",
        "--environment_config=localhost:50000",
        "--artifact_endpoint=jobs.example.com:8098",
        "--job_name=books-1",
        "--sdk_worker_parallelism=4",
        "--job_server_timeout=31536000",
        "--experiments=x",
    )
    assert options.to_json() == {"runner": "PortableRunner", "beam_args": list(options.pipeline_args())}


@pytest.mark.parametrize(
    ("options", "processes"),
    [
        pytest.param({"parallelism": 16}, ["4"], id="as many as a task manager has slots"),
        pytest.param({"parallelism": 2}, ["2"], id="no more than the job takes"),
        pytest.param({}, ["4"], id="where the cluster says how many it takes"),
        pytest.param(
            {"parallelism": 16, "beam_args": ("--sdk_worker_parallelism=3",)}, ["4", "3"], id="the last counts"
        ),
        pytest.param({"parallelism": 16, "environment_type": "LOOPBACK", "environment_config": None}, [], id="in here"),
    ],
)
def test_a_task_manager_of_flink_has_a_process_for_each_slot(options: Any, processes: list[str]) -> None:
    class Rest(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/taskmanagers"
            data = json.dumps({"taskmanagers": [{"slotsNumber": 4}, {"slotsNumber": 4}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("localhost", 0), Rest) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pool = {"environment_type": "EXTERNAL", "environment_config": "localhost:50000"}
        flink = FlinkOptions(flink_master=f"localhost:{server.server_port}", **{**pool, **options})
        args = flink.for_its_cluster().pipeline_args()
        server.shutdown()

    assert [arg.partition("=")[2] for arg in args if arg.startswith("--sdk_worker_parallelism=")] == processes
    given = FlinkOptions(**{**pool, "parallelism": 16}).pipeline_args()
    assert "--sdk_worker_parallelism=16" in given, "without a cluster that can be asked"


def test_flink_has_the_same_options_with_its_own_names_and_port() -> None:
    assert FlinkOptions(flink_master="localhost:8081", parallelism=16).pipeline_args() == (
        "--job_endpoint=localhost:8099",
        "--environment_type=LOOPBACK",
        "--parallelism=16",
        "--flink_master=localhost:8081",
        "--job_server_timeout=31536000",
    )


@pytest.mark.parametrize(
    ("options", "change", "words"),
    [
        (PortableOptions, {"job_endpoint": "jobs"}, "job_endpoint should be HOST:PORT, such as 'localhost:8073', got"),
        (PortableOptions, {"job_endpoint": "jobs:99999"}, "job_endpoint should be HOST:PORT.*got 'jobs:99999'"),
        (PortableOptions, {"job_endpoint": "http://jobs:80"}, "should be HOST:PORT.*got 'http://jobs:80'"),
        (
            PortableOptions,
            {"environment_type": "LOOPBACK", "environment_config": None},
            "LOOPBACK makes this process do the work, but 'jobs.example.com:8099' .*Choose EXTERNAL",
        ),
        (
            PortableOptions,
            {"environment_type": "KUBERNETES"},
            "environment_type should be one of LOOPBACK, EXTERNAL, DOCKER, PROCESS, got 'KUBERNETES'",
        ),
        (
            PortableOptions,
            {"environment_config": None},
            "environment_config of EXTERNAL is HOST:PORT of a pool of workers that runs already.*got None",
        ),
        (PortableOptions, {"environment_config": "50000"}, "environment_config of EXTERNAL should be HOST:PORT.*50000"),
        (
            PortableOptions,
            {"environment_type": "DOCKER", "environment_config": None},
            "environment_config of DOCKER is the image of the workers; got None",
        ),
        (
            PortableOptions,
            {"environment_type": "PROCESS", "environment_config": "/opt/apache/beam/boot"},
            'environment_config of PROCESS is JSON with the command.*"command".*got .*/opt/apache/beam/boot',
        ),
        (
            PortableOptions,
            {"environment_type": "PROCESS", "environment_config": '{"command": []}'},
            r"the command of a PROCESS should be a path, got \[\]",
        ),
        (PortableOptions, {"artifact_endpoint": "x"}, "artifact_endpoint should be HOST:PORT.*got 'x'"),
        (PortableOptions, {"parallelism": 0}, "parallelism should be a number, at least 1, got 0"),
        (FlinkOptions, {"parallelism": 0}, "flink: parallelism should be a number, at least 1, got 0"),
        (FlinkOptions, {"flink_master": "[local]"}, r"flink_master should be HOST:PORT.*got '\[local\]'"),
        (
            FlinkOptions,
            {"flink_job_server_jar": "server.jar"},
            "job_endpoint 'jobs.example.com:8099' names a running job server, but flink_job_server_jar one to start",
        ),
    ],
)
def test_mistakes_are_named_where_they_are_made(
    options: Callable[..., Any], change: dict[str, Any], words: str
) -> None:
    with pytest.raises(DeclarationError, match=words):
        options(**{**REMOTE, **change})


def test_this_process_does_no_work_for_a_cluster_elsewhere() -> None:
    with pytest.raises(
        DeclarationError, match="'flink-jobmanager:8081' is on another machine.*Choose EXTERNAL: a pool"
    ):
        FlinkOptions(flink_master="flink-jobmanager:8081")


def test_the_command_line_takes_beams_names_and_ours() -> None:
    ours = Running(runner="portable", job_endpoint="localhost:1").options(["--sdk_worker_parallelism=3", "--x=1"])
    beams = Running(runner="portable", parallelism=3).options(["--job_endpoint=localhost:1", "--x=1"])

    assert ours == beams == PortableOptions(job_endpoint="localhost:1", parallelism=3, beam_args=("--x=1",))
    flink = Running(runner="flink", flink_master="[::1]:1").options(["--parallelism=3"])
    assert flink == FlinkOptions(flink_master="[::1]:1", parallelism=3)
    assert Running(runner="prism", prism_location="p").options([]) == PrismOptions(prism_location="p")
    shared = Running(runner="portable", shared_files=True).options(["--job_endpoint=localhost:1"])
    assert shared == PortableOptions(job_endpoint="localhost:1", shared_files=True)


@pytest.mark.parametrize(
    ("runner", "named", "beam_args", "words"),
    [
        ("portable", {}, [], "portable: job_endpoint should be given. Example: beam-pipes build.*--job-endpoint"),
        ("portable", {"job_endpoint": "a:1"}, ["--job_endpoint=b:1"], "job_endpoint is given twice: 'a:1' and 'b:1'"),
        ("portable", {"job_endpoint": "localhost:1"}, ["--shared_files=no"], "shared_files should be true or false"),
        ("portable", {}, ["--job_endpoint=localhost:1", "--parallelism=x"], "at least 1, got 'x'"),
        ("prism", {"job_endpoint": "a:1"}, [], "--job-endpoint belongs to --runner portable, flink; 'prism' does not"),
        ("prism", {}, ["--job_endpoint=a:1"], "prism: job_endpoint is set by this runner; choose --runner portable"),
        ("local", {"shared_files": True}, [], "--shared-files belongs to --runner portable, prism, flink; 'local'"),
        ("dataflow", {"parallelism": 2}, [], "--parallelism belongs to --runner portable, prism, flink; 'dataflow'"),
        ("portable", {"flink_master": "f:1"}, [], "--flink-master belongs to --runner flink; 'portable'"),
    ],
)
def test_options_of_another_runner_are_refused(
    runner: str, named: dict[str, Any], beam_args: list[str], words: str
) -> None:
    with pytest.raises(DeclarationError, match=words):
        Running(runner=runner, **named).options(beam_args)


@pytest.mark.parametrize(
    ("endpoint", "here"),
    [
        ("localhost:1", True),
        ("127.0.0.1:1", True),
        ("127.8.9.1:1", True),
        ("[::1]:1", True),
        (f"{os.uname().nodename}:1", True),
        ("10.0.0.1:1", False),
        ("[fd00::1]:1", False),
        ("flink-jobmanager:1", False),
    ],
)
def test_which_endpoints_are_this_machine(endpoint: str, here: bool) -> None:
    assert is_this_machine(endpoint) == here


@pytest.mark.parametrize(
    ("options", "where"),
    [
        pytest.param(PortableOptions(**REMOTE), "on other machines", id="remote_server"),
        pytest.param(
            PortableOptions(
                job_endpoint="localhost:1", environment_type="EXTERNAL", environment_config="pool.example.com:50000"
            ),
            "on other machines",
            id="remote_pool",
        ),
        pytest.param(
            PortableOptions(job_endpoint="localhost:1", environment_type="DOCKER", environment_config="image:1"),
            "in containers",
            id="containers",
        ),
        pytest.param(FlinkOptions(**REMOTE), "on other machines", id="flink"),
        pytest.param(
            FlinkOptions(**{**REMOTE, "job_endpoint": "localhost:8099"}, flink_master="flink:8081"),
            "on other machines",
            id="remote_cluster",
        ),
    ],
)
def test_files_of_this_machine_are_refused_for_workers_elsewhere(
    options: PortableOptions, where: str, text_input: Path, tmp_path: Path
) -> None:
    with pytest.raises(DeclarationError, match=f"the cache is in '.*cache', which workers {where} cannot see"):
        build(REFERENCE, tmp_path / "cache", options=options)
    with pytest.raises(BeamPipesError, match=f"the input '.*' is on this machine, where workers {where} cannot see it"):
        preflight(REFERENCE, "gs://bucket/cache", options=options)


def test_shared_files_are_taken_at_their_word(text_input: Path, tmp_path: Path) -> None:
    """The next thing that is asked for is the server."""
    options = PortableOptions(**{**REMOTE, "job_endpoint": "127.0.0.2:1"}, shared_files=True)

    with pytest.raises(BuildError, match=r"expected a Beam job server at 127\.0\.0\.2:1"):
        build(REFERENCE, tmp_path / "cache", options=options)


@pytest.mark.parametrize("check", ["build", "plan"])
def test_a_server_that_is_not_there_is_named_with_the_command_that_starts_one(
    check: str, text_input: Path, tmp_path: Path
) -> None:
    run = {"build": build, "plan": preflight}[check]
    port = free_port()

    with pytest.raises(BuildError, match=rf"portable: expected.*localhost:{port}, but UNAVAILABLE.*prism --job_port"):
        run(REFERENCE, tmp_path / "cache", options=PortableOptions(job_endpoint=f"localhost:{port}"))
    with pytest.raises(BuildError, match=r"flink: expected.*Start one \(--flink-job-server-jar starts"):
        run(REFERENCE, tmp_path / "cache", options=FlinkOptions(job_endpoint=f"localhost:{port}"))

    assert not (tmp_path / "cache" / "manifest.json").exists()


@pytest.fixture
def other_server() -> Iterator[int]:
    """Something that listens, and is no job server."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_not_a_job_server_is_distinguished(other_server: int) -> None:
    with pytest.raises(BuildError, match=f"expected a Beam job server at localhost:{other_server}, but"):
        require_job_server("portable", f"localhost:{other_server}", start="prism", answer_secs=2.0)


def test_a_pool_of_workers_is_not_a_job_server() -> None:
    from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

    endpoint, pool = BeamFnExternalWorkerPoolServicer.start()
    try:
        with pytest.raises(BuildError, match="but what answers there is not a Beam job server. Start one"):
            require_job_server("portable", endpoint, start="prism")
    finally:
        pool.stop(0).wait()


def test_prism_is_asked_for_where_there_is_none(text_input: Path, tmp_path: Path) -> None:
    options = PrismOptions(prism_location=str(tmp_path / "prism"))

    with pytest.raises(BuildError, match="expected a program at .*/prism', and there is none that can be run.*go inst"):
        build(REFERENCE, tmp_path / "cache", options=options)
    with pytest.raises(BuildError, match="expected a program at"):
        preflight(REFERENCE, tmp_path / "cache", options=options)


def test_prism_is_looked_for_in_three_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "prism"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BuildError, match="expected the program prism, found neither .*/prism nor .*apache_beam-v.*nor"):
        find_prism()
    monkeypatch.setenv("PATH", str(program.parent))
    assert find_prism() == program


def test_a_program_that_is_not_a_prism_is_distinguished(tmp_path: Path) -> None:
    program = tmp_path / "prism"
    program.write_text("#!/bin/sh\necho the language of the same name >&2\n")
    program.chmod(0o755)

    with pytest.raises(BuildError, match="did not start serving jobs; it printed the language of the same name. Is it"):
        with running_prism(program):
            raise AssertionError("it should not have come to this")


@pytest.mark.parametrize("name", ["server.jar", "."])
def test_a_job_server_that_is_not_there_is_asked_for(name: str, text_input: Path, tmp_path: Path) -> None:
    options = FlinkOptions(flink_job_server_jar=str(tmp_path / name))

    for check in (preflight, build):
        with pytest.raises(
            BuildError, match="flink: expected Beam's job server for Flink in flink_job_server_jar.*Mav"
        ):
            check(REFERENCE, tmp_path / "cache", options=options)


def test_a_jar_of_something_else_is_distinguished(tmp_path: Path) -> None:
    (tmp_path / "other.jar").write_bytes(b"no jar at all")

    with pytest.raises(
        BuildError, match="did not start serving jobs; it printed .*jar.*Is it Beam's job server for Flink"
    ):
        with FlinkOptions(flink_job_server_jar=str(tmp_path / "other.jar")).running():
            raise AssertionError("it should not have come to this")


def test_java_is_asked_for_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.jar").write_bytes(b"")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BuildError, match="the job server needs Java, but there is no java on PATH"):
        FlinkOptions(flink_job_server_jar=str(tmp_path / "server.jar")).require_server()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(lambda path: PrismOptions(prism_location=f"{path}/prism"), "prism", id="prism"),
        pytest.param(lambda path: FlinkOptions(flink_job_server_jar=f"{path}/s.jar"), "expected Beam's job", id="jar"),
        pytest.param(
            lambda _: PortableOptions(job_endpoint=f"localhost:{free_port()}"),
            "expected a Beam job server",
            id="server",
        ),
    ],
)
def test_a_build_asks_for_its_server_before_anything_is_read_or_written(
    options: Callable[[Path], Any], words: str, tmp_path: Path, text_input: Path
) -> None:
    with pytest.raises(BuildError, match=words):
        build(REFERENCE, tmp_path / "cache", options=options(tmp_path))

    assert not (tmp_path / "cache").exists()


def test_a_build_that_has_nothing_to_do_asks_for_no_server(tmp_path: Path, text_input: Path) -> None:
    build(REFERENCE, tmp_path / "cache", options=LocalOptions(workers=1))
    absent = PrismOptions(prism_location=str(tmp_path / "prism"))

    assert build(REFERENCE, tmp_path / "cache", options=absent).up_to_date
    (text_input / "new.txt").write_text("more\n")
    before = sorted((tmp_path / "cache" / "snapshots").iterdir())
    with pytest.raises(BuildError, match="prism"):
        build(REFERENCE, tmp_path / "cache", options=absent)
    assert sorted((tmp_path / "cache" / "snapshots").iterdir()) == before
