"""`DataflowOptions`: the options of Google Cloud Dataflow, checked before anything is sent.

A job on Dataflow by its id.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from beam_pipes.building.references import DeclarationHandle
from beam_pipes.engine.resources import resources_of
from beam_pipes.errors import DeclarationError
from beam_pipes.extras import require
from beam_pipes.runners.options import (
    AT_LEAST_ONE,
    Argument,
    BeamOptions,
    JobState,
    RemoteJob,
    Sendable,
    Should,
    job_name_of,
    require_remote,
    should_match,
    state_of,
)

if TYPE_CHECKING:
    from apache_beam.runners.dataflow.internal.apiclient import DataflowApplicationClient

    from beam_pipes.sources.source import Source


def _in_a_bucket(what: str) -> Should:
    return Should(
        f"be a {what} in a bucket, such as gs://bucket/temp",
        lambda value: re.fullmatch("gs://[^/]+/.+", value) is not None,
    )


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

    project: Annotated[str, Argument(should_match("([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]", "my-project"))]
    region: Annotated[str, Argument(should_match("[a-z]+-[a-z]+[0-9]+", "europe-west1"))]
    temp_location: Annotated[str, Argument(_in_a_bucket("directory"))]
    staging_location: Annotated[str | None, Argument(_in_a_bucket("directory"))] = None
    sdk_container_image: Annotated[str | None, Argument()] = None
    setup_file: Annotated[str | None, Argument()] = None
    job_name: Annotated[str | None, Argument(should_match("[a-z]([a-z0-9-]{0,61}[a-z0-9])?", "tokenize-books"))] = None
    machine_type: Annotated[str | None, Argument()] = None
    num_workers: Annotated[int | None, Argument(AT_LEAST_ONE)] = None
    max_num_workers: Annotated[int | None, Argument(AT_LEAST_ONE)] = None
    disk_size_gb: Annotated[int | None, Argument(AT_LEAST_ONE)] = None
    service_account_email: Annotated[str | None, Argument()] = None
    network: Annotated[str | None, Argument()] = None
    subnetwork: Annotated[str | None, Argument()] = None
    template_location: Annotated[str | None, Argument(_in_a_bucket("file"))] = None
    extra_packages: Annotated[tuple[str, ...], Argument(beam="extra_package")] = ()
    use_public_ips: Annotated[bool | None, Argument()] = None
    runner: str = dataclasses.field(default="DataflowRunner", init=False)

    NAME: ClassVar[str] = "dataflow"
    EXAMPLE: ClassVar[str] = (
        "-- --project=my-project --region=europe-west1 --temp_location=gs://bucket/temp --setup_file=setup.py"
    )
    BILLS: ClassVar[str | None] = (
        "if a vCPU is as fast as a core of this machine and no worker waits or idles; starting workers comes on top"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.template_location is not None and (self.detach or self.attempts > 1):
            raise DeclarationError(
                "dataflow: template_location writes a job and launches none: there is nothing for detach or attempts "
                "to do. Leave them out."
            )
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
        """With a job name from the declaration if none is given, and with labels, which yours override."""
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

    def check(self, root: str, source: Source, handle: Sendable) -> None:
        """Raises `DeclarationError` for what workers in the cloud cannot see: local files, code of a script; and for a
        GPU of no type.
        """
        require_remote(self.NAME, root, source, workers="workers in the cloud")
        handle.require_portable()
        asked = resources_of(handle.get().graph.units) if isinstance(handle, DeclarationHandle) else {}
        for name, each in asked.items():
            if "gpu" in each.amounts and each.gpu_type is None:
                raise DeclarationError(
                    f"dataflow: stage {name!r} asks for a GPU, and Dataflow needs to know which. Write "
                    'resources={"gpu": 1, "gpu_type": "nvidia-l4", …}, with a type that the region has.',
                    stage=name,
                )


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
        """As reported by the service."""
        try:
            words = str(self._client().get_job(self._job).current_state.name).removeprefix("JOB_STATE_")
        except Exception as error:  # credentials, network, service: whatever Google's clients raise
            if getattr(error, "code", None) == 404:
                return JobState(name="gone", words="Dataflow does not know it")
            lines = str(error).splitlines()[:1] or ["no message"]
            return JobState(name="unreachable", words=f"Dataflow does not answer: {type(error).__name__}: {lines[0]}")
        return state_of(words)

    def messages(self) -> str:
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
