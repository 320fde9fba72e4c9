"""A job for Dataflow as it is sent, and run by an environment that holds what was staged and nothing else.

The jobs API and the object store are stand-ins on loopback; what they are sent, the packages, the pipeline and the
cache that comes of it are real.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gcs_emulator
import pytest
from built_files import built_files
from dataflow_stand_in import JOB_ID, DataflowStandIn
from running_jobs import beam_pipes, running_command

from beam_pipes.cache import Cache
from beam_pipes.errors import BuildError, WorkerEnvironmentError
from beam_pipes.runners import DataflowOptions, LocalOptions, build, read_jobs
from beam_pipes.runners.preflight import WorkerEnvironment, make_worker_environment, source_distribution

pytestmark = [pytest.mark.gcs, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]

# What Beam's worker harness does with the pipeline, in this process instead of a container.
RUN_STAGED = """
import sys
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
pipeline = beam_runner_api_pb2.Pipeline.FromString(open(sys.argv[1], "rb").read())
for environment in pipeline.components.environments.values():
    environment.urn = "beam:env:embedded_python:v1"
    environment.payload = b""
FnApiRunner().run_via_runner_api(pipeline, PipelineOptions([])).wait_until_finish()
"""

JOB = '''
"""A job of a user's own."""

from dataclasses import dataclass

from beam_pipes.cache import FeatureSpec
from beam_pipes.building import Declaration
from beam_pipes.sources import TextLines
from beam_pipes.typed import Pipeline


@dataclass(frozen=True)
class Words(Pipeline):
    input_type = str
    output_type = dict

    def transform(self, line):
        return [{"text": word.encode()} for word in line.split()]


def declared(place):
    return Declaration(
        name="cloud", source=TextLines(place), pipeline=Words(), features={"text": FeatureSpec("bytes")}
    )


declaration = declared("%(place)s")
'''


@pytest.fixture(scope="module")
def beam_pipes_sdist(tmp_path_factory: pytest.TempPathFactory) -> str:
    """This project as users stage it: a copy of its tree is packed, which leaves no build files behind here."""
    tree = tmp_path_factory.mktemp("tree")
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "beam_pipes", "transforms", "runners"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for name in [*files, "setup.py", "README.md", "pyproject.toml"]:
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    return str(source_distribution(str(tree / "setup.py"), tmp_path_factory.mktemp("sdist")))


@pytest.fixture(scope="module")
def worker(beam_pipes_sdist: str, tmp_path_factory: pytest.TempPathFactory) -> WorkerEnvironment:
    return make_worker_environment(tmp_path_factory.mktemp("worker"), extra_packages=[beam_pipes_sdist])


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    with gcs_emulator.running("fake-gcs-server") as url:
        yield url


@pytest.fixture
def bucket(emulator: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    client = storage.Client(project="p", credentials=AnonymousCredentials())  # type: ignore[no-untyped-call]
    return client.bucket(gcs_emulator.new_bucket(emulator))


@pytest.fixture
def package(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's package with a declaration, beside its setup.py."""
    directory = tmp_path / "package"
    (directory / "cloud_words").mkdir(parents=True)
    (directory / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='cloud-words', version='1', packages=['cloud_words'])\n"
    )
    (directory / "cloud_words" / "__init__.py").write_text(JOB % {"place": f"gs://{bucket.name}/input"})
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.delitem(sys.modules, "cloud_words", raising=False)
    return directory


def options_for(stand_in: DataflowStandIn, bucket: Any, package: Path, **more: Any) -> DataflowOptions:
    return DataflowOptions(
        project="my-project",
        region="europe-west1",
        temp_location=f"gs://{bucket.name}/temp",
        setup_file=str(package / "setup.py"),
        job_name="words",
        machine_type="n2-standard-4",
        num_workers=2,
        max_num_workers=5,
        service_account_email="worker@my-project.iam.gserviceaccount.com",
        beam_args=(f"--dataflow_endpoint={stand_in.url}", "--no_auth"),
        **more,
    )


def run_staged(bucket: Any, worker: WorkerEnvironment, staged: Path, told: list[str]) -> bool:
    """Runs the job as a worker would; its files, and what it says where it fails, are added to `told`."""
    staged.mkdir()
    for blob in bucket.client.list_blobs(bucket, prefix="temp/words."):
        blob.download_to_filename(staged / Path(blob.name).name)
    told.extend(sorted(path.name for path in staged.iterdir()))
    worker.install([str(staged / "workflow.tar.gz")], where="the staged package")
    done = worker.run(
        RUN_STAGED, str(staged / "pipeline.pb"), env={"STORAGE_EMULATOR_HOST": os.environ["STORAGE_EMULATOR_HOST"]}
    )
    if done.returncode:
        told.append(done.stderr)
    return done.returncode == 0


def test_the_staged_job_builds_the_same_bytes_from_what_was_staged_alone(
    bucket: Any, package: Path, worker: WorkerEnvironment, beam_pipes_sdist: str, tmp_path: Path
) -> None:
    lines = [f"word {number} of line {number}" for number in range(300)]
    (tmp_path / "input").mkdir()
    for number in range(3):
        text = "\n".join(lines[number::3]) + "\n"
        (tmp_path / "input" / f"{number}.txt").write_text(text)
        bucket.blob(f"input/{number}.txt").upload_from_string(text)
    told: list[str] = []

    with DataflowStandIn(lambda request: run_staged(bucket, worker, tmp_path / "staged", told)).serving() as stand_in:
        options = options_for(stand_in, bucket, package, extra_packages=(beam_pipes_sdist,))
        result = build("cloud_words:declaration", f"gs://{bucket.name}/cache", options=options)

    assert told == [Path(beam_pipes_sdist).name, "extra_packages.txt", "pipeline.pb", "workflow.tar.gz"]
    assert result.account.read == 300
    import cloud_words  # type: ignore[import-not-found]

    build(cloud_words.declared(str(tmp_path / "input")), tmp_path / "local", options=LocalOptions(workers=1))
    found = {
        blob.name.removeprefix("cache/"): blob.download_as_bytes()
        for blob in bucket.client.list_blobs(bucket, prefix="cache/")
    }
    expected = built_files(tmp_path / "local")
    shards = [name for name in expected if ".tfrecord-" in name]
    assert shards
    assert {Path(name).name: found[name] for name in found if ".tfrecord-" in name} == {
        Path(name).name: expected[name] for name in shards
    }
    assert stand_in.request is not None
    golden = json.loads((ROOT / "tests" / "golden" / "dataflow_job.json").read_text())
    assert described(stand_in.request, tmp_path / "staged" / "pipeline.pb", bucket.name) == golden


def described(request: dict[str, Any], pipeline: Path, bucket: str) -> dict[str, Any]:
    """What of a request does not change from run to run: the environment of the workers, and the job's stages."""
    from apache_beam.portability.api import beam_runner_api_pb2

    environment = request["environment"]
    [pool] = environment["workerPools"]
    del pool["taskrunnerSettings"]
    for image in pool["sdkHarnessContainerImages"]:
        del image["capabilities"]
    kept = ("region", "save_main_session", "pickle_library", "streaming", "service_account_email")
    options = environment["sdkPipelineOptions"]["options"]
    staged = beam_runner_api_pb2.Pipeline.FromString(pipeline.read_bytes())
    transforms = staged.components.transforms.values()
    rows = {
        "name": request["name"],
        "type": request["type"],
        "temp": environment["tempStoragePrefix"],
        "service_account": environment["serviceAccountEmail"],
        "experiments": environment["experiments"],
        "options": {name: options.get(name) for name in kept},
        "worker_pool": pool,
        "stages": sorted(one.unique_name for one in transforms if not re.search("/|^ref_", one.unique_name)),
    }
    text = re.sub(r"words\.\d+\.\d+", "words.TIME", json.dumps(rows).replace(bucket, "BUCKET"))
    found: dict[str, Any] = json.loads(text.replace(f"python{sys.version_info[0]}.{sys.version_info[1]}", "python3.x"))
    return found


def test_a_job_that_fails_far_away_publishes_nothing_and_says_so(
    bucket: Any, package: Path, beam_pipes_sdist: str
) -> None:
    bucket.blob("input/0.txt").upload_from_string("some words\n")
    with DataflowStandIn(lambda request: False).serving() as stand_in:
        options = options_for(stand_in, bucket, package)

        with pytest.raises(BuildError, match=r"Nothing was published\. Run the build again to continue"):
            build("cloud_words:declaration", f"gs://{bucket.name}/cache", options=options)

    assert not bucket.blob("cache/manifest.json").exists()


def test_a_launcher_that_is_killed_leaves_a_job_that_the_same_build_waits_for(
    bucket: Any, package: Path, worker: WorkerEnvironment, beam_pipes_sdist: str, tmp_path: Path
) -> None:
    bucket.blob("input/0.txt").upload_from_string("some words\n")
    cache, released, told = f"gs://{bucket.name}/cache", threading.Event(), list[str]()

    def run(request: dict[str, Any]) -> bool:
        return released.wait(300) and run_staged(bucket, worker, tmp_path / "staged", told)

    with DataflowStandIn(run).serving() as stand_in:
        options = options_for(stand_in, bucket, package, extra_packages=(beam_pipes_sdist,))
        given = ["build", "cloud_words:declaration", "--to", cache, "--runner", "dataflow"]
        with running_command(*given, "--", *options.pipeline_args()) as launcher:
            launcher.wait_for(lambda: bool(blobs(bucket, "launches")), what="the record of its job")
            launcher.process.kill()
            launcher.end()
        [found] = read_jobs(cache)
        shown = beam_pipes("jobs", cache)
        threading.Timer(3.0, released.set).start()
        result = build("cloud_words:declaration", cache, options=options)

    place = "project=my-project, region=europe-west1"
    assert (found.state.name, found.launcher_lives) == ("running", False)
    assert f"job {JOB_ID} (dataflow, {place}): running; snapshot {result.snapshot}, 0 of 1 source shards" in shown
    assert result.account.read == 1, told
    assert stand_in.num_jobs == 1
    assert Cache.open(cache).build_info["job"] == JOB_ID
    assert not blobs(bucket, "launches")


def test_a_detached_job_is_cancelled_from_anywhere(bucket: Any, package: Path, beam_pipes_sdist: str) -> None:
    bucket.blob("input/0.txt").upload_from_string("some words\n")
    cache, ended = f"gs://{bucket.name}/cache", threading.Event()
    with DataflowStandIn(lambda request: ended.wait(300)).serving() as stand_in:
        options = options_for(stand_in, bucket, package, extra_packages=(beam_pipes_sdist,), detach=True)
        begun = build("cloud_words:declaration", cache, options=options)

        told = beam_pipes("cancel", cache)
        ended.set()

    assert begun.job is not None
    assert f"{begun.job} has ended (CANCELLED). Run the build again to continue." in told
    assert not blobs(bucket, "launches")


def blobs(bucket: Any, directory: str) -> list[str]:
    names = [blob.name for blob in bucket.client.list_blobs(bucket, prefix="cache/snapshots/")]
    return [name for name in names if f"/{directory}/" in name]


def test_the_doctor_finds_what_workers_would_miss(worker: WorkerEnvironment, package: Path, bucket: Any) -> None:
    with pytest.raises(
        WorkerEnvironmentError, match=r"a worker cannot import 'not_staged.job:declaration'.*not_staged"
    ):
        worker.load("not_staged.job:declaration")
    with pytest.raises(WorkerEnvironmentError, match=r"an extra package cannot be installed on a worker: .*none\.whl"):
        worker.install(["/nowhere/none.whl"], where="an extra package")

    worker.install([str(source_distribution(str(package / "setup.py"), package))], where="the setup_file")
    files = worker.load("cloud_words:declaration")

    assert set(files) == {"cloud_words", "beam_pipes.sources.lines"}
    assert all(str(worker.directory) in file for file in files.values())


def test_the_doctor_asks_for_beam_pipes_itself(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare")

    with pytest.raises(
        WorkerEnvironmentError, match=r"it has no beam_pipes package, .* Pass --extra-package with the sdist"
    ):
        WorkerEnvironment(tmp_path / "bare").load("cloud_words:declaration")


def test_a_setup_file_that_makes_no_package_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("raise SystemExit('no such version')\n")

    with pytest.raises(WorkerEnvironmentError, match=r"setup.py gives no source distribution: no such version"):
        source_distribution(str(tmp_path / "setup.py"), tmp_path)
