"""`PortableOptions`: a job for a Beam job server, which runs it on its own workers or on yours.

| word | meaning |
| --- | --- |
| job server | takes jobs through Beam's Job API and runs them: Prism, Flink's, Spark's |
| environment | how it gets workers that run Python: a type, and their location |

Whether a Beam job server answers at an endpoint, checked before a job is prepared for it.

A job by its id, as its server reports it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import uuid
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, ClassVar

from beam_pipes.checks import choice
from beam_pipes.errors import BuildError, DeclarationError
from beam_pipes.extras import require
from beam_pipes.runners.options import (
    AT_LEAST_ONE,
    Argument,
    BeamOptions,
    JobState,
    RemoteJob,
    Sendable,
    is_this_machine,
    job_name_of,
    require_remote,
    should_be_endpoint,
    state_of,
)

if TYPE_CHECKING:
    from apache_beam.portability.api.beam_job_api_pb2_grpc import JobServiceStub

    from beam_pipes.sources.source import Source

# Type → what environment_config is for it.
ENVIRONMENT_TYPES = {
    "LOOPBACK": "nothing: the process that submits the job does its work too",
    "EXTERNAL": "HOST:PORT of a pool of workers that runs already, as the job server reaches it",
    "DOCKER": "the image of the workers",
    "PROCESS": 'JSON with the command that starts a worker: {"command": "/opt/apache/beam/boot"}',
}

# Beam's deadline for the streams on which it follows a job, 300 s by default; it takes their end for the job's.
_FOLLOW_SECS = 365 * 24 * 3600


@dataclasses.dataclass(frozen=True, kw_only=True)
class PortableOptions(BeamOptions):
    """A job on a server that speaks Beam's Job API.

        options = PortableOptions(job_endpoint="localhost:8073",
                                  environment_type="EXTERNAL", environment_config="localhost:50000")
        build("my_package.job:declaration", "gs://bucket/caches/books", options=options)

    Args:
        job_endpoint: HOST:PORT of the job server.
        environment_type: where workers come from. `LOOPBACK`, the default because it needs nothing else: this process,
            for a server on this machine. `EXTERNAL`: a pool of workers that you run. `DOCKER`: containers
            that the server starts. `PROCESS`: processes that it starts.
        environment_config: `EXTERNAL`: HOST:PORT of the pool, as the server reaches it. `DOCKER`: the image, which must
            hold this package and the declaration. `PROCESS`: JSON with the `command`, and `env` if wanted.
        artifact_endpoint: HOST:PORT where packages are staged; None: where the job server says.
        job_name: shown by the server, with a unique suffix; None: the declaration's name and the first letters of the
            snapshot. Servers restart their numbering when they are restarted; the name distinguishes jobs with the same
            number.
        parallelism: worker processes on each machine; None: one. Servers that do not support it ignore it.
        shared_files: the workers see the same files under the same paths (a volume that all mount), so that cache and
            input may be local paths even if the workers are elsewhere.
        attempts, detach: as for `BeamOptions`. With `LOOPBACK` nothing can be detached: this process does the work.
        beam_args: further options for Beam (`--name=value`).

    Raises:
        DeclarationError: an option is malformed, or two contradict each other.
    """

    job_endpoint: Annotated[str, Argument(should_be_endpoint("localhost:8073"))]
    environment_type: Annotated[str, Argument()] = "LOOPBACK"
    environment_config: Annotated[str | None, Argument()] = None
    artifact_endpoint: Annotated[str | None, Argument(should_be_endpoint("localhost:8098"))] = None
    job_name: Annotated[str | None, Argument()] = None
    parallelism: Annotated[int | None, Argument(AT_LEAST_ONE, beam="sdk_worker_parallelism")] = None
    shared_files: Annotated[bool, Argument(beam="")] = False
    runner: str = dataclasses.field(default="PortableRunner", init=False)

    NAME: ClassVar[str] = "portable"
    EXAMPLE: ClassVar[str] = "--job-endpoint localhost:8073"
    # The command that starts its server.
    START: ClassVar[str] = "for example prism --job_port=8073"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.environment_type == "LOOPBACK" and not is_this_machine(self.job_endpoint):
            raise DeclarationError(
                f"{self.NAME}: environment_type LOOPBACK makes this process do the work, but {self.job_endpoint!r} is "
                "on another machine and cannot reach it. Choose EXTERNAL (a pool of workers beside the server), "
                "DOCKER or PROCESS."
            )
        self._check_environment()

    def _check_environment(self) -> None:
        kind, config = self.environment_type, self.environment_config
        choice(kind, of=ENVIRONMENT_TYPES, what=f"{self.NAME}: environment_type")
        if (kind == "LOOPBACK") != (config is None):
            raise DeclarationError(
                f"{self.NAME}: environment_config of {kind} is {ENVIRONMENT_TYPES[kind]}; got {config!r}."
            )
        if kind == "EXTERNAL":
            self.require("environment_config of EXTERNAL", should_be_endpoint("localhost:50000"), config)
        if kind == "PROCESS":
            assert config is not None
            try:
                command = json.loads(config)["command"]
            except (ValueError, KeyError, TypeError) as error:
                raise DeclarationError(
                    f"{self.NAME}: environment_config of PROCESS is {ENVIRONMENT_TYPES[kind]}; got {config!r}."
                ) from error
            if not isinstance(command, str) or not command:
                raise DeclarationError(f"{self.NAME}: the command of a PROCESS should be a path, got {command!r}.")

    def needs_this_process(self) -> str | None:
        """Why a job with these options ends with this process, and what to do about it; None if it does not."""
        if self.environment_type == "LOOPBACK":
            return "this process does its work (environment_type LOOPBACK). Choose EXTERNAL, DOCKER or PROCESS."
        return None

    @classmethod
    def remote_job(cls, job: str, beam_args: Sequence[str]) -> RemoteJob | None:
        """The job with this id on the server that `beam_args` name."""
        return PortableJob(str(value_of("job_endpoint", beam_args)), job, name=str(value_of("job_name", beam_args)))

    @property
    def server_is_here(self) -> bool:
        """Whether the job server runs on this machine, as far as the options show."""
        return is_this_machine(self.job_endpoint)

    @property
    def workers_are_here(self) -> bool:
        """Whether the workers see the files of this machine, as far as the options show."""
        if not self.server_is_here or self.environment_type == "DOCKER":
            return False
        return self.environment_type != "EXTERNAL" or is_this_machine(str(self.environment_config))

    def pipeline_args(self) -> tuple[str, ...]:
        """All options for Beam, as `--name=value`."""
        given = super().pipeline_args()
        if any(arg.startswith(("--job_server_timeout", "--job-server-timeout")) for arg in self.beam_args):
            return given
        own = given[: len(given) - len(self.beam_args)]
        return (*own, f"--job_server_timeout={_FOLLOW_SECS}", *self.beam_args)

    def check(self, root: str, source: Source, handle: Sendable) -> None:
        """Raises `DeclarationError` for what workers elsewhere cannot see: local files, code of a script."""
        if not self.workers_are_here and not self.shared_files:
            is_container = self.environment_type == "DOCKER" and self.server_is_here
            require_remote(
                self.NAME,
                root,
                source,
                workers=f"workers {'in containers' if is_container else 'on other machines'}",
                or_else=", or say --shared-files (shared_files=True) where they mount it under the same path",
            )
        handle.require_portable()

    def require_server(self) -> None:
        """Raises `BuildError` if no job server answers at the endpoint; says which one to start."""
        require_job_server(self.NAME, self.job_endpoint, start=self.START)

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[str, ...]]:
        name = f"{self.job_name or 'beam-pipes'}-{uuid.uuid4().hex[:12]}"
        with dataclasses.replace(self, job_name=name)._served() as beam_args:
            yield beam_args

    def named(self, name: str, snapshot: str | None) -> PortableOptions:
        """With a job name of the declaration, where none is given."""
        return dataclasses.replace(self, job_name=self.job_name or job_name_of(name, snapshot))

    @contextlib.contextmanager
    def _served(self) -> Iterator[tuple[str, ...]]:
        self.require_server()
        yield self.pipeline_args()


def value_of(name: str, beam_args: Sequence[str]) -> str | None:
    """The value of `--name=value` among the options of a job."""
    found = [arg.partition("=")[2] for arg in beam_args if arg.startswith(f"--{name}=")]
    return found[-1] if found else None


# A Java job server reads its class path before the first answer; this is for one machine asking another.
ANSWER_SECS = 20.0


@contextlib.contextmanager
def _asked(endpoint: str, purpose: str) -> Iterator[tuple[JobServiceStub, ModuleType, ModuleType]]:
    """The job service at HOST:PORT, its messages, and gRPC."""
    require("apache_beam", purpose=purpose)
    grpc = importlib.import_module("grpc")  # it has no types, and comes with Beam
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with grpc.insecure_channel(endpoint) as channel:
        yield beam_job_api_pb2_grpc.JobServiceStub(channel), beam_job_api_pb2, grpc


def require_job_server(runner: str, endpoint: str, *, start: str, answer_secs: float = ANSWER_SECS) -> None:
    """Asks the server at HOST:PORT for its options, as Beam does before each job.

    Args:
        runner: the name of the runner on the command line, for the message.
        endpoint: HOST:PORT.
        start: the command that starts such a server, for the message.
        answer_secs: how long to wait for a server that accepts a connection but does not answer.

    Raises:
        BuildError: nothing listens there, it does not answer, or it is not a job server.
    """
    with _asked(endpoint, f"the runner {runner}") as (service, api, grpc):
        try:
            service.DescribePipelineOptions(api.DescribePipelineOptionsRequest(), timeout=answer_secs)
        except grpc.RpcError as error:
            code = error.code()
            if code == grpc.StatusCode.UNIMPLEMENTED:
                found = "what answers there is not a Beam job server"
            elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
                found = f"the server there did not answer within {answer_secs:g} s"
            else:
                found = f"{code.name}: {error.details()}"
            raise BuildError(
                f"{runner}: expected a Beam job server at {endpoint}, but {found}. Start one ({start}), or name "
                "the one that runs (--job-endpoint HOST:PORT).",
                endpoint=endpoint,
            ) from error


# What the Job API calls the option `job_name`.
_JOB_NAME = "beam:option:job_name:v1"

# How long to read the messages of an ended job: servers send all of them, and some never close the stream.
_MESSAGES_SECS = 5.0


class PortableJob:
    """A job on a job server, queried through Beam's Job API.

    `name` is unique: a restarted server may have given its id to another job.
    """

    def __init__(self, endpoint: str, job: str, *, name: str) -> None:
        self._endpoint = endpoint
        self._job = job
        self._name = name

    def state(self) -> JobState:
        """`gone` if its server does not know the job."""
        with _asked(self._endpoint, "jobs of a server") as (service, api, grpc):
            try:
                jobs = service.GetJobs(api.GetJobsRequest(), timeout=ANSWER_SECS).job_info
            except grpc.RpcError as error:
                return JobState(name="unreachable", words=f"nobody answers at {self._endpoint} ({error.code().name})")
            for job in jobs:
                if job.job_id == self._job and job.pipeline_options.fields[_JOB_NAME].string_value == self._name:
                    return state_of(api.JobState.Enum.Name(job.state))
        return JobState(name="gone", words=f"the server at {self._endpoint} does not know it")

    def messages(self) -> str:
        """The error messages of the job, as kept by its server."""
        texts = []
        with (
            _asked(self._endpoint, "jobs of a server") as (service, api, grpc),
            contextlib.suppress(grpc.RpcError),
        ):
            request = api.JobMessagesRequest(job_id=self._job)
            for message in service.GetMessageStream(request, timeout=_MESSAGES_SECS):
                response = message.message_response
                if response.importance == api.JobMessage.JOB_MESSAGE_ERROR:
                    texts.append(response.message_text)
        return "\n".join(texts)

    def cancel(self) -> None:
        """Cancels it on its server."""
        with _asked(self._endpoint, "jobs of a server") as (service, api, _):
            service.Cancel(api.CancelJobRequest(job_id=self._job), timeout=ANSWER_SECS)
