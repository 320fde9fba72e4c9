"""A job for Dataflow as it is sent, and run by an environment that holds what was staged and nothing else.

The jobs API and the object store are stand-ins on loopback; what they are sent, the packages, the pipeline and the
cache that comes of it are real.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gcs_emulator
import google.api_core.exceptions
import google.auth.exceptions
import pytest
from built_files import built_files
from dataflow_stand_in import JOB_ID, DataflowStandIn, canonical
from running_jobs import beam_pipes, running_command

from beam_pipes.cache import Cache
from beam_pipes.errors import AnalysisError, BuildError, DeclarationError, JobLostError, WorkerEnvironmentError
from beam_pipes.runners import DataflowOptions, LocalOptions, beam_job, build, read_jobs
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

import apache_beam as beam

from beam_pipes import declare, stage
from beam_pipes.cache import FeatureSpec
from beam_pipes.building import Declaration
from beam_pipes.sources import TextLines
from beam_pipes.transforms.analyzers import Vocabulary
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


@stage
def keyed(line: str) -> tuple:
    first, _, rest = line.partition(" ")
    return first, rest


@stage
def joined(group: tuple) -> dict:
    return {"first": group[0], "rest": sorted(group[1])}


def grouped_of(place):
    features = {"first": FeatureSpec("str"), "rest": FeatureSpec("str", shape=(None,))}
    steps = [keyed, beam.GroupByKey(), joined]
    return declare("groups", TextLines(place), steps, features=features, key="first", num_shards=2)


@stage(batched=True, resources={"gpu": 1, "gpu_type": "nvidia-l4", "ram_gb": 16})
def embedded(lines: list[str]) -> list[dict]:
    return [{"text": line} for line in lines]


def modelled_of(place, *stages):
    return declare("models", TextLines(place), list(stages), features={"text": FeatureSpec("str")})


declaration = declared("%(place)s")
modelled = modelled_of("%(place)s", embedded)
of_no_type = modelled_of("%(place)s", stage(embedded, resources={"gpu": 1}))
grouped = grouped_of("%(place)s")


@dataclass(frozen=True)
class Tokens(Pipeline):
    input_type = str
    output_type = list

    def transform(self, line):
        return [line.split()]


def learned_of(place):
    words = Vocabulary("words", of=Tokens())
    features = {"text": FeatureSpec("bytes")}
    return declare("learned", TextLines(place), [Words()], features=features, analyzers=(words,))


learned = learned_of("%(place)s")
'''


@pytest.fixture(scope="module")
def beam_pipes_sdist(tmp_path_factory: pytest.TempPathFactory) -> str:
    """This project as users stage it: a copy of its tree is packed, which leaves no build files behind here."""
    tree = tmp_path_factory.mktemp("tree")
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "beam_pipes"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for name in [*files, "setup.py", "pyproject.toml", "README.md", "LICENSE"]:
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


def run_staged(bucket: Any, worker: WorkerEnvironment, staged: Path, message: list[str]) -> bool:
    """Runs the job as a worker would; its files, and what it says where it fails, are added to `told`."""
    staged.mkdir()
    for blob in bucket.client.list_blobs(bucket, prefix="temp/words."):
        blob.download_to_filename(staged / Path(blob.name).name)
    message.extend(sorted(path.name for path in staged.iterdir()))
    worker.install([str(staged / "workflow.tar.gz")], where="the staged package")
    done = worker.run(
        RUN_STAGED, str(staged / "pipeline.pb"), env={"STORAGE_EMULATOR_HOST": os.environ["STORAGE_EMULATOR_HOST"]}
    )
    if done.returncode:
        message.append(done.stderr)
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
    output: list[str] = []

    with DataflowStandIn(lambda request: run_staged(bucket, worker, tmp_path / "staged", output)).serving() as stand_in:
        options = options_for(stand_in, bucket, package, extra_packages=(beam_pipes_sdist,))
        result = build("cloud_words:declaration", f"gs://{bucket.name}/cache", options=options)

    assert output == [Path(beam_pipes_sdist).name, "extra_packages.txt", "pipeline.pb", "workflow.tar.gz"]
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
    steps = steps_of(tmp_path / "staged" / "pipeline.pb")
    like_golden(stand_in.request, "dataflow_job.json", bucket.name, steps=steps)


def test_a_list_with_a_transform_is_staged_and_builds_the_same_bytes(
    bucket: Any, package: Path, worker: WorkerEnvironment, beam_pipes_sdist: str, tmp_path: Path
) -> None:
    text = "".join(f"w{number % 7} of line {number}\n" for number in range(100))
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "0.txt").write_text(text)
    bucket.blob("input/0.txt").upload_from_string(text)
    output: list[str] = []

    with DataflowStandIn(lambda request: run_staged(bucket, worker, tmp_path / "staged", output)).serving() as stand_in:
        options = options_for(stand_in, bucket, package, extra_packages=(beam_pipes_sdist,))
        result = build("cloud_words:grouped", f"gs://{bucket.name}/cache", options=options)

    assert stand_in.num_jobs == 1
    assert result.account.written == 7, output
    import cloud_words

    local = build(cloud_words.grouped_of(str(tmp_path / "input")), tmp_path / "local", options=LocalOptions(workers=1))
    assert (result.snapshot, result.manifest_id) == (local.snapshot, local.manifest_id)
    assert {"Read source", "keyed", "GroupByKey", "joined", "Write to cache"} <= set(
        steps_of(tmp_path / "staged" / "pipeline.pb")
    )


def test_the_step_of_a_model_asks_dataflow_for_its_accelerator_and_memory(bucket: Any, package: Path) -> None:
    from apache_beam.portability import common_urns
    from apache_beam.portability.api import beam_runner_api_pb2

    bucket.blob("input/0.txt").upload_from_string("some words\n")
    with DataflowStandIn(lambda request: False).serving() as stand_in:
        options = options_for(stand_in, bucket, package)
        with pytest.raises(DeclarationError, match="dataflow: stage 'embedded' asks for a GPU, and Dataflow needs to"):
            build("cloud_words:of_no_type", f"gs://{bucket.name}/cache", options=options)
        assert stand_in.num_jobs == 0
        with pytest.raises(BuildError, match="Nothing was published"):
            build("cloud_words:modelled", f"gs://{bucket.name}/cache", options=options)

    [staged] = [blob for blob in bucket.client.list_blobs(bucket) if blob.name.endswith("/pipeline.pb")]
    components = beam_runner_api_pb2.Pipeline.FromString(staged.download_as_bytes()).components
    hints = {
        each.unique_name: dict(components.environments[each.environment_id].resource_hints)
        for each in components.transforms.values()
        if each.environment_id
    }
    assert hints.pop("embedded") == {
        common_urns.resource_hints.ACCELERATOR.urn: b"type:nvidia-l4;count:1;install-nvidia-driver",
        common_urns.resource_hints.MIN_RAM_BYTES.urn: b"16000000000",
    }
    assert hints["Read source"] == hints["Write shards"] == {} and not any(hints.values())


# What the documentation of Dataflow says of a job: its pages "Request quotas" (graphs of 10 MB, in requests of 20 MB)
# and "REST resource: projects.jobs" (names of up to 1,024 characters, of which ours take 63 at most; labels).
MOST_REQUEST_BYTES = 10_000_000
JOB_NAME = re.compile("[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL, LABEL_VALUE = re.compile("[a-z][a-z0-9_-]{0,62}"), re.compile("[a-z0-9_-]{0,63}")


def own_write(pipeline: Any, bucket: str) -> None:
    """A pipeline of a user's own that ends in a cache."""
    import apache_beam as beam

    from beam_pipes import FeatureSpec
    from beam_pipes.beam import WriteToCache

    rows = pipeline | beam.Create([{"x": 1}])
    rows | WriteToCache(f"gs://{bucket}/own", features={"x": FeatureSpec("int64")}, key="x")


def own_reads(pipeline: Any, bucket: str) -> None:
    """One that reads a source and a cache, and runs stages."""
    import cloud_words

    from beam_pipes.beam import ReadFromCache, ReadFromSource, lower
    from beam_pipes.sources import TextLines

    pipeline | ReadFromSource(TextLines(f"gs://{bucket}/input")) | lower(cloud_words.keyed)
    pipeline | ReadFromCache(f"gs://{bucket}/read", "train")


KINDS = {
    "build": "declaration",
    "list with a transform": "grouped",
    "analysis": "learned",
    "WriteToCache": own_write,
    "ReadFromSource, ReadFromCache, lower": own_reads,
}


def test_jobs_of_every_kind_are_within_the_limits_that_dataflow_documents(
    bucket: Any, package: Path, tmp_path: Path
) -> None:
    """Beam's own translation to a request; the steps are those of a golden file."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.portability.api import beam_runner_api_pb2
    from apache_beam.runners.dataflow.internal.apiclient import validate_pipeline_graph

    from beam_pipes import FeatureSpec
    from beam_pipes.cache import write_cache

    bucket.blob("input/0.txt").upload_from_string("some words\n")
    write_cache(f"gs://{bucket.name}/read", {"train": [{"x": 1}]}, features={"x": FeatureSpec("int64")})
    steps = {}
    for kind, job in KINDS.items():
        with DataflowStandIn(lambda request: False).serving() as stand_in:
            options = DataflowOptions(
                project="my-project",
                region="europe-west1",
                temp_location=f"gs://{bucket.name}/temp/{len(steps)}",
                sdk_container_image="europe-docker.pkg.dev/my-project/images/books:1",
                beam_args=(f"--dataflow_endpoint={stand_in.url}", "--no_auth"),
            )
            if isinstance(job, str):
                with pytest.raises((BuildError, AnalysisError), match="Dataflow|ended as|Nothing was published"):
                    build(f"cloud_words:{job}", f"gs://{bucket.name}/{job}", options=options)
            else:
                args = [*options.pipeline_args(), "--job_name=own"]
                pipeline = beam.Pipeline(runner="DataflowRunner", options=PipelineOptions(args))
                job(pipeline, bucket.name)
                pipeline.run()
        request = stand_in.request
        assert request is not None
        [staged] = [
            blob for blob in bucket.list_blobs(prefix=f"temp/{len(steps)}/") if blob.name.endswith("pipeline.pb")
        ]
        (tmp_path / "pipeline.pb").write_bytes(staged.download_as_bytes())
        proto = beam_runner_api_pb2.Pipeline.FromString((tmp_path / "pipeline.pb").read_bytes())
        validate_pipeline_graph(proto)
        assert max(len(json.dumps(request)), staged.size) < MOST_REQUEST_BYTES / 20, kind
        assert JOB_NAME.fullmatch(request["name"]), kind
        labels = request.get("labels", {})
        assert len(labels) <= 64
        assert all(LABEL.fullmatch(name) and LABEL_VALUE.fullmatch(value) for name, value in labels.items())
        [pool] = request["environment"]["workerPools"]
        images = {each["containerImage"] for each in pool["sdkHarnessContainerImages"]}
        assert images == {pool["workerHarnessContainerImage"]} == {options.sdk_container_image}, kind
        assert "use_runner_v2" in request["environment"]["experiments"]
        urns = {each.urn for each in proto.components.environments.values()}
        assert urns <= {"beam:env:docker:v1", ""}, "workers of Dataflow are containers"
        names = [each.unique_name for each in proto.components.transforms.values()]
        assert len(set(names)) == len(names)
        steps[kind] = steps_of(tmp_path / "pipeline.pb")

    assert steps == json.loads((ROOT / "tests" / "golden" / "dataflow_steps.json").read_text())


def like_golden(request: dict[str, Any], name: str, bucket: str, *, steps: Sequence[str] = ()) -> None:
    """Compares a request with a file of `tests/golden`; `steps` are those of its pipeline."""
    golden = json.loads((ROOT / "tests" / "golden" / name).read_text())
    found = {"request": canonical(request, bucket=bucket), "steps": list(steps)}
    # Packages are staged below Beam's own directory of the user.
    found["request"]["environment"]["sdkPipelineOptions"]["options"].pop("setup_file", None)
    found["request"]["environment"]["sdkPipelineOptions"]["options"].pop("extra_packages", None)
    assert found == golden


def steps_of(pipeline: Path) -> list[str]:
    """The names of a staged pipeline's steps, but not of what is within them."""
    from apache_beam.portability.api import beam_runner_api_pb2

    staged = beam_runner_api_pb2.Pipeline.FromString(pipeline.read_bytes())
    names = [each.unique_name for each in staged.components.transforms.values()]
    return sorted(name for name in names if not re.search("/|^ref_", name))


def test_a_job_on_a_private_network_is_sent_as_its_options_say(bucket: Any, package: Path) -> None:
    bucket.blob("input/0.txt").upload_from_string("some words\n")
    cache = f"gs://{bucket.name}/cache"
    given = [
        "--project=my-project",
        "--region=europe-west1",
        f"--temp_location=gs://{bucket.name}/temp",
        "--sdk_container_image=europe-docker.pkg.dev/my-project/images/books:1",
        "--no_use_public_ips",
        "--network=private",
        "--subnetwork=https://www.googleapis.com/compute/v1/projects/host/regions/europe-west1/subnetworks/private",
        "--worker_zone=europe-west1-b",
        "--dataflow_kms_key=projects/p/locations/europe-west1/keyRings/r/cryptoKeys/k",
        "--service_account_email=worker@my-project.iam.gserviceaccount.com",
        "--dataflow_service_options=enable_prime",
        "--dataflow_service_options=block_project_ssh_keys",
        "--machine_type=n2-standard-4",
        "--labels=team=text",
        "--no_auth",
    ]
    with DataflowStandIn(lambda request: False).serving() as stand_in:
        options = DataflowOptions.from_args([*given, f"--dataflow_endpoint={stand_in.url}"])
        with pytest.raises(BuildError, match="Nothing was published"):
            build("cloud_words:declaration", cache, options=options)

        names = [str(stand_in.request["name"])] if stand_in.request else []
        with pytest.raises(BuildError, match="Nothing was published"):
            build("cloud_words:declaration", cache, options=options)

    assert stand_in.request is not None
    names.append(str(stand_in.request["name"]))
    assert names[0] != names[1]
    assert names[0].rpartition("-")[0] == names[1].rpartition("-")[0]
    like_golden(stand_in.request, "dataflow_private_job.json", bucket.name)


def test_a_plan_tells_vcpu_hours_and_what_they_rest_on(bucket: Any, package: Path) -> None:
    bucket.blob("input/0.txt").upload_from_string("some words\n" * 1000)
    given = ["plan", "cloud_words:declaration", "--to", f"gs://{bucket.name}/cache", "--runner", "dataflow"]
    beam_args = ["--project=my-project", "--region=europe-west1", "--temp_location=gs://bucket/temp"]
    beam_args.append("--sdk_container_image=europe-docker.pkg.dev/my-project/images/books:1")

    shown = " ".join(beam_pipes(*given, "--", *beam_args).split())
    forecast = json.loads(beam_pipes(*given, "--json", "--", *beam_args))["forecast"]

    assumption = (
        "if a vCPU is as fast as a core of this machine and no worker waits or idles; starting workers comes on top"
    )
    assert re.search(rf"on dataflow: [\d.e-]+ vCPU hours ± \d+%, {assumption}", shown)
    assert forecast["vcpu_hours"] == {**forecast["cpu_hours"], "assumption": assumption}
    assert 0 < forecast["cpu_hours"]["value"] * 3600 < 60


def test_a_template_builds_when_somebody_launches_it(
    bucket: Any, package: Path, worker: WorkerEnvironment, beam_pipes_sdist: str, tmp_path: Path
) -> None:
    bucket.blob("input/0.txt").upload_from_string("some words\n")
    cache, place = f"gs://{bucket.name}/cache", f"gs://{bucket.name}/templates/words"
    with DataflowStandIn(lambda request: True).serving() as stand_in:
        options = options_for(stand_in, bucket, package, extra_packages=(beam_pipes_sdist,), template_location=place)
        given = ["build", "cloud_words:declaration", "--to", cache, "--runner", "dataflow"]

        shown = beam_pipes(*given, "--", *options.pipeline_args())

    assert stand_in.num_jobs == 0
    assert f", of 1 source shard, is in {place}. Nothing was launched." in shown
    assert f"gcloud dataflow jobs run NAME --gcs-location {place}" in shown
    assert not bucket.blob("cache/manifest.json").exists()
    like_golden(json.loads(bucket.blob("templates/words").download_as_bytes()), "dataflow_template.json", bucket.name)
    output: list[str] = []
    assert run_staged(bucket, worker, tmp_path / "staged", output), output
    assert len(Cache.open(cache)["train"]) == 2
    assert not run_staged(bucket, worker, tmp_path / "again", output)
    assert "expected the tasks of the build in" in output[-1], "a template builds once"

    again = build("cloud_words:declaration", cache, options=options)

    assert again.template == place, "who launches a template wants a job, though there is nothing to do for it"
    assert not again.up_to_date


def test_a_flex_template_plans_when_it_is_launched(bucket: Any, package: Path) -> None:
    """As Google's launcher runs it: with the parameters and Beam's options, and the place that it wants the job in."""
    bucket.blob("input/0.txt").upload_from_string("some words\n")
    metadata = json.loads((ROOT / "runners/dataflow/metadata.json").read_text())
    given = {
        "declaration": "cloud_words:declaration",
        "to": f"gs://{bucket.name}/cache",
        "sdk_container_image": "europe-docker.pkg.dev/my-project/images/books-template:1",
    }
    options = {
        "runner": "DataflowRunner",
        "project": "my-project",
        "region": "europe-west1",
        "temp_location": f"gs://{bucket.name}/temp",
        "job_name": "nightly",
        "template_location": f"gs://{bucket.name}/launches/job_object",
    }

    def launch(**changed: str) -> subprocess.CompletedProcess[str]:
        named = [f"--{name}={value}" for name, value in {**given, **options, **changed}.items()]
        command = [sys.executable, str(ROOT / "runners/dataflow/flex_template.py"), *named, "--no_auth"]
        path = os.pathsep.join([str(package), *sys.path])
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)

    done = launch()

    assert done.returncode == 0, done.stderr
    assert re.search(
        r"launches/job_object: builds snapshot [0-9a-f]{16} of gs://\S+/cache, 1 source shards", done.stdout
    )
    job = json.loads(bucket.blob("launches/job_object").download_as_bytes())
    assert job["name"] == "nightly"
    assert job["labels"]["beam-pipes-declaration"] == "cloud"
    [pool] = job["environment"]["workerPools"]
    assert pool["workerHarnessContainerImage"] == given["sdk_container_image"]
    assert [each["name"] for each in metadata["parameters"]] == list(given)
    for each in metadata["parameters"]:
        assert all(re.fullmatch(pattern, given[each["name"]]) for pattern in each["regexes"])
        assert not all(re.fullmatch(pattern, "gs:/x y") for pattern in each["regexes"])
    spec = json.loads((ROOT / "runners/dataflow/spec.json").read_text())
    assert spec == {"image": spec["image"], "sdkInfo": {"language": "PYTHON"}, "metadata": metadata}
    refused = launch(to="/tmp/cache")
    assert refused.returncode == 1
    assert "beam-pipes: dataflow: the cache is in '/tmp/cache', which workers in the cloud cannot see" in refused.stderr


def test_a_job_that_fails_far_away_publishes_nothing_and_says_so(
    bucket: Any, package: Path, beam_pipes_sdist: str
) -> None:
    bucket.blob("input/0.txt").upload_from_string("some words\n")
    with DataflowStandIn(lambda request: False).serving() as stand_in:
        options = options_for(stand_in, bucket, package)

        with pytest.raises(BuildError, match=r"Nothing was published\. Run the build again to continue"):
            build("cloud_words:declaration", f"gs://{bucket.name}/cache", options=options)

    assert not bucket.blob("cache/manifest.json").exists()


def test_a_job_that_is_refused_is_sent_once_and_is_not_called_lost(
    bucket: Any, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.blob("input/0.txt").upload_from_string("some words\n")
    monkeypatch.syspath_prepend(str(package))
    with DataflowStandIn(lambda request: True, refusal=403).serving() as stand_in:
        options = dataclasses.replace(
            options_for(stand_in, bucket, package), setup_file=None, sdk_container_image="gcr.io/x/books:1", attempts=3
        )

        with pytest.raises(
            BuildError, match="was not accepted: .*cannot act as worker@.*would be refused again"
        ) as caught:
            build("cloud_words:declaration", f"gs://{bucket.name}/cache", options=options)
        with pytest.raises(BuildError, match="was not accepted: ValueError: .*[Uu]rl.*Correct what the message names"):
            wrong = dataclasses.replace(options, beam_args=("--dataflow_endpoint=nowhere", "--no_auth"))
            build("cloud_words:declaration", f"gs://{bucket.name}/cache", options=wrong)

    assert stand_in.num_jobs == 1
    assert not isinstance(caught.value, JobLostError) and "--attempts" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (google.api_core.exceptions.Forbidden("no"), False),
        (google.api_core.exceptions.TooManyRequests("later"), True),
        (google.api_core.exceptions.ServiceUnavailable("later"), True),
        (google.auth.exceptions.DefaultCredentialsError("none"), False),
        (google.auth.exceptions.TransportError("no network"), True),
        (AttributeError("type object 'DataFrame' has no attribute 'first'"), False),
        (ConnectionResetError("reset"), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_be_sent_again(error: Exception, may_pass: bool) -> None:
    assert beam_job._may_pass(error) is may_pass


def test_a_launcher_that_is_killed_leaves_a_job_that_the_same_build_waits_for(
    bucket: Any, package: Path, worker: WorkerEnvironment, beam_pipes_sdist: str, tmp_path: Path
) -> None:
    bucket.blob("input/0.txt").upload_from_string("some words\n")
    cache, released, output = f"gs://{bucket.name}/cache", threading.Event(), list[str]()

    def run(request: dict[str, Any]) -> bool:
        return released.wait(300) and run_staged(bucket, worker, tmp_path / "staged", output)

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
    assert result.account.read == 1, output
    assert stand_in.num_jobs == 1
    assert Cache.open(cache).build_info["job"] == JOB_ID
    assert not blobs(bucket, "launches")


def test_a_detached_job_is_cancelled_from_anywhere(bucket: Any, package: Path, beam_pipes_sdist: str) -> None:
    bucket.blob("input/0.txt").upload_from_string("some words\n")
    cache, ended = f"gs://{bucket.name}/cache", threading.Event()
    with DataflowStandIn(lambda request: ended.wait(300)).serving() as stand_in:
        options = options_for(stand_in, bucket, package, extra_packages=(beam_pipes_sdist,), detach=True)
        begun = build("cloud_words:declaration", cache, options=options)

        output = beam_pipes("cancel", cache)
        ended.set()

    assert begun.job is not None
    assert f"{begun.job} has ended (CANCELLED). Run the build again to continue." in output
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
