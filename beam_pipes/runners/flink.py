"""`FlinkOptions`: a job for Flink, through Beam's job server for it.

Jobs on a Flink cluster, found by name and cancelled through its REST interface.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

from beam_pipes.errors import BuildError, DeclarationError
from beam_pipes.runners.options import (
    AT_LEAST_ONE,
    Argument,
    JobState,
    RemoteJob,
    is_this_machine,
    should_be_endpoint,
    state_of,
)
from beam_pipes.runners.portable import PortableJob, PortableOptions, value_of
from beam_pipes.runners.servers import running_server

_MAIN = "org.apache.beam.runners.flink.FlinkJobServerDriver"
# Beam's option for Python processes on each machine of workers.
_PROCESSES = "sdk_worker_parallelism"
# What Beam's Java job servers print when they are ready.
SERVES = re.compile(r"JobService started on (?P<endpoint>\S+:\d+)")

# Flink's serializers access internal classes of Java, which Java has closed since version 16.
_OPENED = tuple(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "net", "nio", "util"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlinkOptions(PortableOptions):
    """A job for Flink.

    On a running job server, or on one that is started for the build and ends with it:

        FlinkOptions(job_endpoint="flink-job-server:8099", environment_type="EXTERNAL",
                     environment_config="localhost:50000", parallelism=16)
        FlinkOptions(flink_job_server_jar="beam-runners-flink-1.19-job-server-2.77.0.jar",
                     flink_master="flink-jobmanager:8081", environment_type="EXTERNAL", …)
        FlinkOptions(flink_job_server_jar="beam-runners-flink-1.19-job-server-2.77.0.jar")

    The last one runs Flink on one machine, inside the job server.

    Args:
        job_endpoint: HOST:PORT of the job server; 8099 is its own default.
        flink_job_server_jar: Beam's job server for Flink, to be started: the jar, or a directory with all jars that it
            consists of. Takes `java` from PATH (Flink 1.19: Java 8, 11 or 17).
        flink_master: HOST:PORT of the cluster's REST interface; None: the one that the job server was started with, or
            within it.
            Ctrl-C cancels the job there, which Beam's job server does not: name it where there is a cluster.
        parallelism: Flink's: how many slots the job takes; None: the cluster's default. Each task manager has a Python
            process for each of its slots that the job may take; `--sdk_worker_parallelism` in `beam_args` sets another
            number.
        job_name, environment_type, environment_config, artifact_endpoint, shared_files: as for `PortableOptions`.
            `localhost` in the address of a pool is the machine of each task manager, and no two task managers may share
            a pool.
        attempts, detach: as for `BeamOptions`. A detached job is restarted by Flink itself, where the cluster's
            `restart-strategy` says so: Beam hands no other one to it.
        beam_args: further options for Beam (`--name=value`).

    Raises:
        DeclarationError: an option is malformed, or two contradict each other.
    """

    job_endpoint: Annotated[str, Argument(should_be_endpoint("localhost:8099"))] = "localhost:8099"
    parallelism: Annotated[int | None, Argument(AT_LEAST_ONE)] = None
    flink_job_server_jar: Annotated[str | None, Argument(beam="")] = None
    flink_master: Annotated[str | None, Argument(should_be_endpoint("localhost:8081"))] = None

    NAME: ClassVar[str] = "flink"
    START: ClassVar[str] = "--flink-job-server-jar starts one for the build"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_remote = self.flink_master is not None and not is_this_machine(self.flink_master)
        if is_remote and self.environment_type == "LOOPBACK":
            raise DeclarationError(
                f"flink: environment_type LOOPBACK makes this process do the work, but {self.flink_master!r} is on "
                "another machine and cannot reach it. Choose EXTERNAL: a pool of workers beside each task manager."
            )
        if self.flink_job_server_jar is not None and self.job_endpoint != FlinkOptions.job_endpoint:
            raise DeclarationError(
                f"flink: job_endpoint {self.job_endpoint!r} names a running job server, but flink_job_server_jar one "
                "to start; give only one of them."
            )

    @property
    def server_is_here(self) -> bool:
        """Whether the jobs run on this machine, as far as the options show."""
        return is_this_machine(self.job_endpoint) and (self.flink_master is None or is_this_machine(self.flink_master))

    def require_server(self) -> None:
        """Raises `BuildError` if there is no job server, or none that could be started."""
        if self.flink_job_server_jar is None:
            super().require_server()
        else:
            self._command(Path("."))

    def needs_this_process(self) -> str | None:
        """Why a job with these options ends with this process, and what to do about it; None if it does not."""
        if self.flink_job_server_jar is not None and self.flink_master is None:
            return (
                "Flink runs inside the job server, which starts and ends with the build. Name a cluster: "
                "--flink-master HOST:PORT."
            )
        return super().needs_this_process()

    @classmethod
    def remote_job(cls, job: str, beam_args: Sequence[str]) -> RemoteJob | None:
        """The job with this id on its job server; it has the same name on the cluster."""
        return FlinkJob(
            str(value_of("job_endpoint", beam_args)),
            job,
            rest=value_of("flink_master", beam_args),
            name=str(value_of("job_name", beam_args)),
        )

    def pipeline_args(self) -> tuple[str, ...]:
        """All options for Beam, as `--name=value`."""
        given = super().pipeline_args()
        # Beam starts one process on each machine, which would do the work of all slots on one core.
        if self.parallelism is None or self.environment_type == "LOOPBACK" or value_of(_PROCESSES, given) is not None:
            return given
        return (f"--{_PROCESSES}={self.parallelism}", *given)

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[str, ...]]:
        """Held while a job runs: provides what the runner needs. Yields all options for Beam."""
        with PortableOptions.running(self.for_its_cluster()) as beam_args:
            yield beam_args

    def for_its_cluster(self) -> FlinkOptions:
        """These options with at most as many processes per machine as the cluster has slots there, if known."""
        if self.flink_master is None or self.environment_type == "LOOPBACK":
            return self
        try:
            slots = max(int(each["slotsNumber"]) for each in _ask(self.flink_master, "/taskmanagers")["taskmanagers"])
        except (OSError, KeyError, ValueError):
            return self
        processes = f"--{_PROCESSES}={min(slots, self.parallelism or slots)}"
        return dataclasses.replace(self, beam_args=(processes, *self.beam_args))  # the user's options come last

    @contextlib.contextmanager
    def _served(self) -> Iterator[tuple[str, ...]]:
        if self.flink_job_server_jar is None:
            with super()._served() as beam_args:
                yield beam_args
            return
        with tempfile.TemporaryDirectory(prefix="beam-pipes-flink-", ignore_cleanup_errors=True) as directory:
            hint = "Is it Beam's job server for Flink? --flink-job-server-jar names another one."
            command = self._command(Path(directory))
            with running_server(self.NAME, command, serves=SERVES, hint=hint) as endpoint:
                given = self.pipeline_args()
                yield (f"--job_endpoint={endpoint}", *(arg for arg in given if not arg.startswith("--job_endpoint=")))

    def _command(self, directory: Path) -> list[str]:
        """The command that starts the job server; it writes only below `directory`."""
        jar, java = Path(str(self.flink_job_server_jar)), shutil.which("java")
        if not (jar.is_file() or jar.is_dir() and any(jar.glob("beam-runners-flink-*.jar"))):
            raise BuildError(
                f"flink: expected Beam's job server for Flink in flink_job_server_jar, a jar or a directory with "
                f"beam-runners-flink-….jar, found neither at {str(jar)!r}. Maven Central has it: "
                "org.apache.beam:beam-runners-flink-VERSION-job-server."
            )
        if java is None:
            raise BuildError("flink: the job server needs Java, but there is no java on PATH. Install a JRE.")
        master = "[local]" if self.flink_master is None else self.flink_master
        classes = ["-jar", str(jar)] if jar.is_file() else ["-cp", str(jar / "*"), _MAIN]
        return [
            java,
            *_OPENED,
            f"-Djava.io.tmpdir={directory}",
            *classes,
            f"--flink-master={master}",
            f"--artifacts-dir={directory / 'artifacts'}",
            "--job-port=0",
            "--artifact-port=0",
            "--expansion-port=0",
        ]


_ANSWER_SECS = 20.0
_END_SECS = 60.0

#: A JSON object, as returned by the REST interface of a cluster.
_Answer: TypeAlias = dict[str, Any]


class FlinkJob(PortableJob):
    """A job of Beam's job server for Flink, and of the cluster whose REST interface is at `rest`, if known.

    The cluster decides: its jobs outlive a job server, which keeps their states only in memory.
    """

    def __init__(self, endpoint: str, job: str, *, name: str, rest: str | None) -> None:
        super().__init__(endpoint, job, name=name)
        self._rest = rest

    def state(self) -> JobState:
        """The cluster's state of the job; the job server's, if the cluster does not know the job."""
        found: list[_Answer] | None = None
        if self._rest is not None:
            with contextlib.suppress(OSError):
                found = _jobs(self._rest, self._name)
        if found:
            return state_of(str(found[-1]["state"]))
        state = super().state()
        if self._rest is None:
            return state
        if state.name == "unreachable" and found is not None:
            return JobState(name="gone", words=f"the cluster at {self._rest} does not know it")
        if state.name == "gone" and found is None:
            return JobState(name="unreachable", words=f"nobody answers at {self._rest}")
        if state.name == "running" and found is not None:
            return JobState(name="starting", words=f"{state.words} on the job server, not on the cluster yet")
        return state

    def messages(self) -> str:
        """The exception stored by the cluster, else by the job server."""
        if self._rest is not None:
            with contextlib.suppress(OSError):
                for job in _jobs(self._rest, self._name)[-1:]:
                    return str(_ask(self._rest, f"/jobs/{job['jid']}/exceptions").get("root-exception") or "")
        return super().messages()

    def cancel(self) -> None:
        """Cancels the job on the job server and on the cluster, because Beam's job server does not pass it on."""
        try:
            super().cancel()
        except Exception:  # a job server that is gone, or has forgotten the job: the cluster's word counts
            if self._rest is None:
                raise
        if self._rest is not None:
            cancel_jobs(self._rest, self._name)
        elif super().state().lives:
            raise BuildError("Beam's job server does not report its cluster; give --flink-master HOST:PORT.")


def cancel_jobs(rest: str, name: str) -> None:
    """Cancels the jobs of this name on the cluster whose REST interface is at HOST:PORT, and waits for their end.

    Raises `BuildError` if a job keeps running, `OSError` if nothing answers.
    """
    deadline = time.monotonic() + _END_SECS
    for job in _running(rest, name):
        _ask(rest, f"/jobs/{job}?mode=cancel", method="PATCH")
    while left := _running(rest, name):
        if time.monotonic() > deadline:
            raise BuildError(f"the Flink job {left[0]} at {rest} has not ended within {_END_SECS:g} s")
        time.sleep(0.1)


def _running(rest: str, name: str) -> list[str]:
    """The ids of the jobs of this name that have not ended."""
    return [str(job["jid"]) for job in _jobs(rest, name) if not state_of(job["state"]).ended]


def _jobs(rest: str, name: str) -> list[_Answer]:
    """The jobs of this name, in the order of their start."""
    jobs = [job for job in _ask(rest, "/jobs/overview")["jobs"] if job["name"] == name]
    return sorted(jobs, key=lambda job: int(job["start-time"]))


def _ask(rest: str, path: str, *, method: str = "GET") -> _Answer:
    request = urllib.request.Request(f"http://{rest}{path}", method=method)
    with urllib.request.urlopen(request, timeout=_ANSWER_SECS) as answer:
        value: _Answer = json.loads(answer.read() or b"{}")
    return value
