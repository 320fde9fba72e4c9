"""`SlurmOptions`, `KubernetesOptions`: a build by workers that a scheduler starts, with no server between them.

The scheduler gets one array job (an indexed job on Kubernetes) of workers that all do the same: `beam-pipes work ORDER`
(see `claims`). It restarts those that it preempts. Progress and the end of the job are read from the cache's directory;
the scheduler is only asked whether any worker is left.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from beam_pipes.errors import BuildError, DeclarationError
from beam_pipes.identity.source_code import python_path
from beam_pipes.runners.claims import FAULT, LEASE_SECS, Standing, end_job, failure, is_done
from beam_pipes.runners.options import (
    AT_LEAST_ONE,
    Argument,
    BeamOptions,
    JobState,
    RemoteJob,
    Sendable,
    require_remote,
    should_match,
    without_secrets,
)
from beam_pipes.storage.local import is_remote, storage_for

if TYPE_CHECKING:
    from beam_pipes.sources.source import Source

_ANSWER_SECS = 60.0
# A scheduler is asked at most this often by one process.
_ASK_EVERY_SECS = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterOptions(BeamOptions, abc.ABC):
    """What both schedulers take: see the subclasses."""

    workers: Annotated[int, Argument(AT_LEAST_ONE, beam="")]
    processes: Annotated[int, Argument(AT_LEAST_ONE, beam="")] = 1
    script: Annotated[str | None, Argument(beam="")] = None
    lease_secs: Annotated[int, Argument(AT_LEAST_ONE, beam="")] = int(LEASE_SECS)

    #: The program that is asked about jobs.
    PROGRAM: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.script is not None and (self.detach or self.attempts > 1):
            raise DeclarationError(
                f"{self.NAME}: script writes the job and submits nothing: there is nothing for detach or attempts to "
                "do. Leave them out."
            )

    def needs_this_process(self) -> str | None:
        """None: workers need no launcher."""
        return None

    @property
    def without_beam(self) -> str | None:
        return self.NAME

    @property
    def template(self) -> str | None:
        """Where the job is written instead of being submitted."""
        return self.script

    def check(self, root: str, source: Source, handle: Sendable) -> None:
        """Raises `DeclarationError` if the declaration cannot be sent to workers."""
        handle.require_portable()

    def require_server(self) -> None:
        """Raises `BuildError` if the scheduler's program is missing."""
        if self.script is None and shutil.which(self.PROGRAM) is None:
            raise BuildError(
                f"{self.NAME}: jobs are submitted by {self.PROGRAM}, which is not on PATH. Run this where it is, or "
                "write the job to a file (-- --script=FILE) and submit it there."
            )

    def to_json(self) -> dict[str, object]:
        given = {"workers": self.workers, "processes": self.processes}
        return {"runner": self.NAME, **given, "beam_args": without_secrets(self.beam_args)}

    def command(self, order: str) -> list[str]:
        """The command of a worker, without its name."""
        return ["-m", "beam_pipes", "work", order, f"--processes={self.processes}"]

    @abc.abstractmethod
    def job_text(self, order: str, name: str) -> str:
        """The job, as its scheduler takes it."""

    @abc.abstractmethod
    def submit(self, order: str, name: str) -> str:
        """Submits the job; returns its id. Raises `BuildError` with the scheduler's words."""


def _run(command: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=_ANSWER_SECS, check=False)


def _submitted(runner: str, command: Sequence[str], text: str) -> str:
    done = _run(command, text=text)
    if done.returncode:
        said = "; ".join((done.stderr or done.stdout).strip().splitlines()) or "no message"
        raise BuildError(
            f"{runner}: {command[0]} refused the job: {said.rstrip('.')}. "
            "Nothing was published. Correct the options after --, which go to the scheduler, and run the build again."
        )
    return done.stdout.strip()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmOptions(ClusterOptions):
    """An array job of Slurm.

        SlurmOptions(workers=16, processes=4, beam_args=("--partition=cpu", "--time=4:00:00"))

    The nodes see the cache, the input and this Python at the same paths; or the cache and input are on an object store.

    Args:
        workers: tasks of the array. A build continues with those that run, and needs none of them to start together.
        processes: worker processes of each task, and its `--cpus-per-task`. The default is 1, because Slurm's is.
        script: a file. The job is written there and not submitted; `sbatch FILE` submits it.
        lease_secs: after how many seconds of silence a worker's source shard is taken over by another.
        attempts, detach: as for `BeamOptions`.
        beam_args: further options of `sbatch` (`--name=value`); they come last, so they win.

    Raises:
        DeclarationError: an option is malformed, or two contradict each other.
    """

    runner: str = dataclasses.field(default="slurm", init=False)

    NAME: ClassVar[str] = "slurm"
    PROGRAM: ClassVar[str] = "sbatch"
    EXAMPLE: ClassVar[str] = "--workers 16 -- --partition=cpu --time=4:00:00"
    LAUNCH: ClassVar[str] = "sbatch"

    def job_text(self, order: str, name: str) -> str:
        """The script of the array job."""
        options = [f"--job-name={name}", f"--array=0-{self.workers - 1}", f"--cpus-per-task={self.processes}"]
        options += ["--requeue", "--open-mode=append"]
        if not is_remote(order):
            options.append(f"--output={order.rpartition('/')[0]}/worker-%a.log")
        lines = [f"#SBATCH {shlex.quote(option)}" for option in (*options, *self.beam_args)]
        command = shlex.join([sys.executable, *self.command(order)])
        return "\n".join(
            [
                "#!/bin/bash",
                *lines,
                f"export PYTHONPATH={shlex.quote(python_path())}",
                f'exec {command} --worker "slurm-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID"',
                "",
            ]
        )

    def submit(self, order: str, name: str) -> str:
        """Submits the script; returns the id of the array."""
        return _submitted(self.NAME, ["sbatch", "--parsable"], self.job_text(order, name)).partition(";")[0]

    @classmethod
    def remote_job(cls, job: str, beam_args: Sequence[str]) -> RemoteJob:
        """The array of this id."""
        return _SlurmJob(job, beam_args)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KubernetesOptions(ClusterOptions):
    """An indexed Job of Kubernetes (1.29 or newer).

        KubernetesOptions(workers=16, processes=4, image="registry.example.com/books:1",
                          beam_args=("--namespace=data",))

    Args:
        workers: pods, all of which may run at once.
        processes: worker processes of each pod, and its request for CPUs.
        image: with this package and all that the declaration imports: see `Dockerfile`.
        memory: request and limit of each pod (`4Gi`); None: none.
        volume_claim: `NAME:/PATH`, a PersistentVolumeClaim that all pods mount there: for a cache or an input that is
            not on an object store. This machine has to see it under the same path.
        service_account: whose rights the pods have on the object store; None: the namespace's default.
        script: a file. The manifest is written there and not submitted; `kubectl create -f FILE` submits it.
        lease_secs: after how many seconds of silence a worker's source shard is taken over by another.
        attempts, detach: as for `BeamOptions`.
        beam_args: options of `kubectl` (`--context=…`, `--namespace=…`).

    Raises:
        DeclarationError: an option is malformed, or two contradict each other.
    """

    image: Annotated[str, Argument(beam="")]
    memory: Annotated[str | None, Argument(should_match("[0-9]+([KMGT]i?)?", "4Gi"), beam="")] = None
    volume_claim: Annotated[str | None, Argument(should_match("[a-z0-9.-]+:/.*", "caches:/shared"), beam="")] = None
    service_account: Annotated[str | None, Argument(beam="")] = None
    runner: str = dataclasses.field(default="kubernetes", init=False)

    NAME: ClassVar[str] = "kubernetes"
    PROGRAM: ClassVar[str] = "kubectl"
    EXAMPLE: ClassVar[str] = "--workers 16 -- --image=registry.example.com/books:1 --namespace=data"
    LAUNCH: ClassVar[str] = "kubectl create --filename"

    def check(self, root: str, source: Source, handle: Sendable) -> None:
        """Raises `DeclarationError` for files that pods cannot see."""
        super().check(root, source, handle)
        if self.volume_claim is None:
            or_else = ", or name a volume that pods and this machine mount at one path (--volume_claim=NAME:/PATH)"
            require_remote(self.NAME, root, source, workers="pods", or_else=or_else)

    def job_text(self, order: str, name: str) -> str:
        """The manifest, as JSON, which is YAML."""
        container: dict[str, Any] = {
            "name": "worker",
            "image": self.image,
            "command": ["python", *self.command(order), f"--worker={name}-$(JOB_COMPLETION_INDEX)"],
            "resources": {"requests": {"cpu": str(self.processes)}},
        }
        if self.memory is not None:
            container["resources"]["requests"]["memory"] = self.memory
            container["resources"]["limits"] = {"memory": self.memory}
        pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
        if self.service_account is not None:
            pod["serviceAccountName"] = self.service_account
        if self.volume_claim is not None:
            claim, _, path = self.volume_claim.partition(":")
            container["volumeMounts"] = [{"name": "shared", "mountPath": path}]
            pod["volumes"] = [{"name": "shared", "persistentVolumeClaim": {"claimName": claim}}]
        manifest = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "beam-pipes"}},
            "spec": {
                "completionMode": "Indexed",
                "completions": self.workers,
                "parallelism": self.workers,
                "backoffLimitPerIndex": 3,
                # Evicted and preempted pods are no failures; a fault of the declaration is one for all.
                "podFailurePolicy": {
                    "rules": [
                        {
                            "action": "FailJob",
                            "onExitCodes": {"containerName": "worker", "operator": "In", "values": [FAULT]},
                        },
                        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                    ]
                },
                "ttlSecondsAfterFinished": 86400,
                "template": {"spec": pod},
            },
        }
        return json.dumps(manifest, indent=2) + "\n"

    def submit(self, order: str, name: str) -> str:
        """Creates the Job; returns its name."""
        command = ["kubectl", "create", "--filename=-", "--output=name", *self.beam_args]
        return _submitted(self.NAME, command, self.job_text(order, name)).rpartition("/")[2]

    @classmethod
    def remote_job(cls, job: str, beam_args: Sequence[str]) -> RemoteJob:
        """The Job of this name."""
        return _KubernetesJob(job, beam_args)


def _value(name: str, args: Sequence[str]) -> str | None:
    return next((arg.partition("=")[2] for arg in args if arg.startswith(f"--{name}=")), None)


class _ClusterJob(abc.ABC):
    """A job by its id, and by the order of its workers, which is in the cache's directory.

    `num_steps` is how many tasks it has, the commit of a build included.
    """

    def __init__(self, job: str, beam_args: Sequence[str]) -> None:
        self._job, self._order = job, _value("order", beam_args) or ""
        self._num_steps = int(_value("num_steps", beam_args) or 0)

    def state(self) -> JobState:
        """What the files say; if they show no end, what the scheduler says about its workers."""
        if not storage_for(self._order).exists(self._order):
            return JobState(name="gone", words="its tasks were removed: it was settled, or replaced")
        if failure(self._order) is not None:
            return JobState(name="failed", words="a worker met an error")
        if is_done(self._order, self._num_steps):
            return JobState(name="done", words="all source shards are done")
        return _asked(self, int(time.monotonic() / _ASK_EVERY_SECS))

    def messages(self) -> str:
        """The error of the worker that met one."""
        return failure(self._order) or ""

    def cancel(self) -> None:
        """Ends the workers, those that were started by hand too."""
        end_job(self._order, "the job was cancelled")
        self.cancel_there()

    @abc.abstractmethod
    def ask(self) -> JobState:
        """The scheduler's word about the workers of a job that is not done."""

    @abc.abstractmethod
    def cancel_there(self) -> None: ...

    def __hash__(self) -> int:
        return hash(self._order)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def _gone(self, words: str) -> JobState:
        standing = Standing.of(self._order)
        done = 0 if standing is None else standing.done
        return JobState(name="gone", words=f"{words}, and {done} of {self._num_steps} steps are done")


@functools.lru_cache(maxsize=64)
def _asked(job: _ClusterJob, moment: int) -> JobState:
    """The answer for this moment of some seconds."""
    try:
        return job.ask()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return JobState(name="unreachable", words=str(error))


class _SlurmJob(_ClusterJob):
    def ask(self) -> JobState:
        done = _run(["squeue", "--noheader", f"--jobs={self._job}", "--format=%T"])
        if done.returncode and "Invalid job id" not in done.stderr:
            return JobState(name="unreachable", words=done.stderr.strip())
        states = set(done.stdout.split())
        if not states:
            return self._gone("none of its workers is left: a time limit, a lack of memory, or scancel")
        if states <= {"PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING"}:
            return JobState(name="starting", words=", ".join(sorted(states)))
        return JobState(name="running", words=", ".join(sorted(states)))

    def cancel_there(self) -> None:
        done = _run(["scancel", self._job])
        if done.returncode and "Invalid job id" not in done.stderr:
            raise BuildError(f"scancel {self._job}: {done.stderr.strip()}")


class _KubernetesJob(_ClusterJob):
    def __init__(self, job: str, beam_args: Sequence[str]) -> None:
        super().__init__(job, beam_args)
        self._of_kubectl = tuple(arg for arg in beam_args if not arg.startswith(("--order=", "--num_steps=")))

    def ask(self) -> JobState:
        done = _run(["kubectl", "get", "job", self._job, "--output=json", *self._of_kubectl])
        if done.returncode:
            if "NotFound" in done.stderr:
                return self._gone("the cluster does not know it any more")
            return JobState(name="unreachable", words=done.stderr.strip())
        status = json.loads(done.stdout).get("status", {})
        ends = {each["type"]: each for each in status.get("conditions", ()) if each.get("status") == "True"}
        for name in ("Failed", "Complete"):
            if name in ends:
                return self._gone(
                    f"{name}: {ends[name].get('message') or ends[name].get('reason') or 'all pods ended'}"
                )
        if not status.get("active") or not status.get("ready", 1):
            return JobState(name="starting", words="its pods are pending")
        return JobState(name="running", words=f"{status['active']} pods")

    def cancel_there(self) -> None:
        done = _run(["kubectl", "delete", "job", self._job, "--ignore-not-found", *self._of_kubectl])
        if done.returncode:
            raise BuildError(f"kubectl delete job {self._job}: {done.stderr.strip()}")
