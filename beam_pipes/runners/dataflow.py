"""`DataflowOptions`: the options of Google Cloud Dataflow, checked before anything is sent.

A job on Dataflow by its id.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from beam_pipes.errors import DeclarationError
from beam_pipes.extras import require
from beam_pipes.runners.options import (
    BeamOptions,
    JobState,
    Planned,
    RemoteJob,
    Sendable,
    job_name_of,
    joined,
    local_cache,
    local_input,
)

if TYPE_CHECKING:
    from apache_beam.runners.dataflow.internal.apiclient import DataflowApplicationClient

_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_REGION = re.compile(r"[a-z]+-[a-z]+[0-9]+")
_JOB_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataflowOptions(BeamOptions):
    """A job on Google Cloud Dataflow.

        options = DataflowOptions(project="my-project", region="europe-west1", temp_location="gs://bucket/temp",
                                  sdk_container_image="europe-docker.pkg.dev/my-project/images/worker:1")
        build("my_package.job:declaration", "gs://bucket/caches/books", options=options)

    Args:
        project: the Google Cloud project that the job runs in and is billed to.
        region: where it runs (`europe-west1`).
        temp_location: a `gs://` directory for temporary files of the job.
        staging_location: a `gs://` directory for what workers install; None: below `temp_location`, as Beam does.
        sdk_container_image: the image of the workers, with everything that the declaration imports (see `Dockerfile`).
        setup_file: instead of an image, a `setup.py`, whose package workers install before they start.
        extra_packages: source distributions (`.tar.gz`) or wheels that workers install as well.
        job_name: lower case, digits and `-`; None: the declaration's name, the first letters of the snapshot, and some
            that no other job has.
        machine_type: of the workers (`n2-standard-4`); None: Dataflow chooses.
        num_workers: to start with; `max_num_workers`: at most. None: Dataflow chooses.
        disk_size_gb: of a worker; None: Dataflow chooses. A worker holds one shard for each of its cores.
        service_account_email: who the workers act as; None: the project's default.
        network, subnetwork, use_public_ips: as Beam takes them.
        template_location: a `gs://` file. The job is written there as a template, and nothing is launched: a classic
            template of one snapshot, or what the launcher of a Flex Template asks for.
        attempts, detach: as for `BeamOptions`.
        beam_args: further options for Beam (`--name=value`), as they are.

    Jobs bear the labels `beam-pipes-declaration` and `beam-pipes-snapshot`, unless yours (`--labels=name=value`) say
    otherwise.

    Raises:
        DeclarationError: an option is malformed, or two contradict each other.
    """

    project: str
    region: str
    temp_location: str
    staging_location: str | None = None
    sdk_container_image: str | None = None
    setup_file: str | None = None
    extra_packages: tuple[str, ...] = ()
    job_name: str | None = None
    machine_type: str | None = None
    num_workers: int | None = None
    max_num_workers: int | None = None
    disk_size_gb: int | None = None
    service_account_email: str | None = None
    network: str | None = None
    subnetwork: str | None = None
    use_public_ips: bool | None = None
    template_location: str | None = None
    runner: str = dataclasses.field(default="DataflowRunner", init=False)

    NAME: ClassVar[str] = "dataflow"
    BILLS: ClassVar[str | None] = (
        "if a vCPU is as fast as a core of this machine and no worker waits or idles; starting workers comes on top"
    )

    _PLAIN: ClassVar[tuple[str, ...]] = (
        "project",
        "region",
        "temp_location",
        "staging_location",
        "sdk_container_image",
        "setup_file",
        "job_name",
        "machine_type",
        "num_workers",
        "max_num_workers",
        "disk_size_gb",
        "service_account_email",
        "network",
        "subnetwork",
        "template_location",
    )

    _NUMBERS: ClassVar[tuple[str, ...]] = ("num_workers", "max_num_workers", "disk_size_gb")

    def __post_init__(self) -> None:
        super().__post_init__()
        _matches("project", self.project, _PROJECT, "my-project")
        _matches("region", self.region, _REGION, "europe-west1")
        if self.job_name is not None:
            _matches("job_name", self.job_name, _JOB_NAME, "tokenize-books")
        for name in ("temp_location", "staging_location", "template_location"):
            location = getattr(self, name)
            if location is not None and not re.fullmatch(r"gs://[^/]+/.+", location):
                what = "file" if name == "template_location" else "directory"
                raise DeclarationError(
                    f"dataflow: {name} should be a {what} in a bucket, such as gs://bucket/temp, got {location!r}."
                )
        if self.template_location is not None and (self.detach or self.attempts > 1):
            raise DeclarationError(
                "dataflow: template_location writes a job and launches none: there is nothing for detach or attempts "
                "to do. Leave them out."
            )
        for name in self._NUMBERS:
            number = getattr(self, name)
            if number is not None and (not isinstance(number, int) or number < 1):
                raise DeclarationError(f"dataflow: {name} should be a number, at least 1, got {number!r}.")
        if self.num_workers is not None and self.max_num_workers is not None:
            if self.num_workers > self.max_num_workers:
                raise DeclarationError(
                    f"dataflow: num_workers={self.num_workers} is more than max_num_workers={self.max_num_workers}."
                )
        if (self.sdk_container_image is None) == (self.setup_file is None):
            found = "neither" if self.sdk_container_image is None else "both"
            raise DeclarationError(
                "dataflow: workers get the declaration and what it imports from sdk_container_image (an image that "
                f"holds it) or from setup_file (a package they install); give one of them, got {found}."
            )
        for path in (self.setup_file, *self.extra_packages):
            if path is not None and not Path(path).is_file():
                raise DeclarationError(f"dataflow: there is no file {path!r}.")
        if self.setup_file is not None and Path(self.setup_file).name != "setup.py":
            raise DeclarationError(
                f"dataflow: Beam wants the setup_file to be called setup.py, got {self.setup_file!r}."
            )

    @property
    def template(self) -> str | None:
        """Where the job is written as a template instead of being submitted."""
        return self.template_location

    def named(self, name: str, snapshot: str | None) -> DataflowOptions:
        """With a job name of the declaration where none is given, and with labels, before which yours go."""
        base = job_name_of(name, snapshot)
        labels = {"declaration": base.rpartition("-")[0], "snapshot": snapshot or "analysis"}
        ours = (f"--labels=beam-pipes-{key}={value}" for key, value in labels.items())
        job_name = self.job_name or f"{base}-{secrets.token_hex(4)}"
        return dataclasses.replace(self, job_name=job_name, beam_args=(*ours, *self.beam_args))

    def needs_this_process(self) -> str | None:
        """Never: Dataflow runs it."""
        return None

    @classmethod
    def remote_job(cls, job: str, beam_args: Sequence[str]) -> RemoteJob | None:
        """The job with this id, in the project and the region that `beam_args` name."""
        return DataflowJob(job, beam_args)

    @classmethod
    def from_args(cls, args: Sequence[str]) -> DataflowOptions:
        """Options in Beam's spelling: `["--project=p", "--num_workers=2", "--experiments=x"]`.

        Those that name arguments of this class are checked, the others are passed to Beam unchanged.
        """
        given: dict[str, object] = {}
        packages, others = [], []
        for arg in joined(args):
            name, _, value = arg.removeprefix("--").partition("=")
            if name in cls._PLAIN and value:
                given[name] = int(value) if name in cls._NUMBERS and value.isdecimal() else value
            elif name == "extra_package" and value:
                packages.append(value)
            else:
                others.append(arg)
        missing = [name for name in ("project", "region", "temp_location") if name not in given]
        if missing:
            raise DeclarationError(
                f"dataflow: {', '.join(missing)} should be given. Example: beam-pipes build my_package.job:declaration "
                "--to gs://bucket/cache --runner dataflow -- --project=my-project --region=europe-west1 "
                "--temp_location=gs://bucket/temp --setup_file=setup.py"
            )
        make: Callable[..., DataflowOptions] = cls
        return make(**given, extra_packages=tuple(packages), beam_args=tuple(others))

    def pipeline_args(self) -> tuple[str, ...]:
        """All options for Beam, as `--name=value`."""
        given = [(name, getattr(self, name)) for name in self._PLAIN]
        found = [f"--{name}={value}" for name, value in given if value is not None]
        found += [f"--extra_package={package}" for package in self.extra_packages]
        if self.use_public_ips is not None:
            found.append("--use_public_ips" if self.use_public_ips else "--no_use_public_ips")
        return (*found, *self.beam_args)

    def check(self, plan: Planned, handle: Sendable) -> None:
        """Raises `DeclarationError` for what workers in the cloud cannot see: local files, code of a script."""
        if local_cache(plan) is not None:
            raise DeclarationError(
                f"dataflow: the cache is in {plan.path!r}, which workers in the cloud cannot see. Build to gs://…."
            )
        local = local_input(plan)
        if local is not None:
            raise DeclarationError(
                f"dataflow: the input {local!r} is on this machine, where workers in the cloud cannot see "
                "it. Copy it to gs://… (gcloud storage cp --recursive) and declare that."
            )
        handle.require_portable()


def _matches(name: str, value: str, pattern: re.Pattern[str], example: str) -> None:
    if not pattern.fullmatch(value):
        raise DeclarationError(f"dataflow: {name} should look like {example!r}, got {value!r}.")


_STATES: Mapping[str, Literal["starting", "done", "failed", "cancelled"]] = {
    "QUEUED": "starting",
    "PENDING": "starting",
    "STOPPED": "starting",
    "DONE": "done",
    "DRAINED": "done",
    "UPDATED": "done",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
}


class DataflowJob:
    """A job on Dataflow, queried through Beam's client."""

    def __init__(self, job: str, beam_args: Sequence[str]) -> None:
        self._job = job
        self._beam_args = list(beam_args)

    def _client(self) -> DataflowApplicationClient:
        options = require("apache_beam.options.pipeline_options", purpose="the runner").PipelineOptions
        client = require("apache_beam.runners.dataflow.internal.apiclient", purpose="the runner dataflow")
        return client.DataflowApplicationClient(options(self._beam_args))

    def state(self) -> JobState:
        """As the service tells it."""
        try:
            words = str(self._client().get_job(self._job).current_state.name).removeprefix("JOB_STATE_")
        except Exception as error:  # credentials, network, service: whatever Google's clients raise
            if getattr(error, "code", None) == 404:
                return JobState(name="gone", words="Dataflow does not know it")
            told = str(error).splitlines()[:1] or ["no message"]
            return JobState(name="unreachable", words=f"Dataflow does not answer: {type(error).__name__}: {told[0]}")
        return JobState(name=_STATES.get(words, "running"), words=words)

    def told(self) -> str:
        """The error messages of the job."""
        texts: list[str] = []
        token = None
        with contextlib.suppress(Exception):
            client = self._client()
            while True:
                messages, token = client.list_messages(self._job, page_token=token)
                texts += [each.message_text for each in messages if each.message_importance.name == "JOB_MESSAGE_ERROR"]
                if not token:
                    break
        return "\n".join(texts)

    def cancel(self) -> None:
        """Requests its cancellation, which takes Dataflow a few minutes."""
        self._client().modify_job_state(self._job, "JOB_STATE_CANCELLED")
