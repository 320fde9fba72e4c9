"""Running jobs: the command line as a process to be interrupted, and the state of job servers and files meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.portable_metrics import from_monitoring_infos
from beam_workers import wait_for


def completions(cache: Path) -> list[Path]:
    return sorted(cache.glob("snapshots/*/completions/[!.]*.json"))


@dataclasses.dataclass(frozen=True)
class RunningCommand:
    """`beam-pipes …` in a separate process; `log` is the file of its output."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, condition: Callable[[], bool], *, what: str) -> None:
        """Waits until `condition()` is true; not longer than the process lives."""
        try:
            wait_for(lambda: self.process.poll() is not None or condition(), what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}; it has said: {self.said()}") from None
        assert condition(), f"it ended with {self.process.returncode} before {what}, and had said: {self.said()}"

    def end(self, *, timeout_secs: float = 60.0) -> str:
        """Waits for its end; returns its output."""
        self.process.wait(timeout_secs)
        return self.said()


@contextlib.contextmanager
def running_command(*arguments: str, **environment: str) -> Iterator[RunningCommand]:
    """`beam-pipes …` in a separate process, to be interrupted; it is ended with the block."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "said")
        with log.open("wb") as said:  # a pipe that nobody reads would stop it
            process = subprocess.Popen(
                [sys.executable, "-m", "beam_pipes", *arguments],
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
                start_new_session=True,
            )
        try:
            yield RunningCommand(process, log)
        finally:
            process.kill()
            process.wait()


def beam_pipes(*arguments: str) -> str:
    """The output of `beam-pipes …` in a separate process, which must exit with 0."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "beam_pipes", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def command_of(pid: int) -> list[str]:
    """The program of a process, and its arguments."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return [""]


def jobs_of(endpoint: str) -> list[Any]:
    """All jobs of the server."""
    with grpc.insecure_channel(endpoint) as channel:
        answer = beam_job_api_pb2_grpc.JobServiceStub(channel).GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=10)
    return list(answer.job_info)


def named(jobs: list[Any], name: str) -> list[Any]:
    """The jobs with a `job_name`, to which each adds its own suffix."""
    names = [job.pipeline_options.fields["beam:option:job_name:v1"].string_value for job in jobs]
    return [job for job, found in zip(jobs, names, strict=True) if found.rpartition("-")[0] == name]


def live_counter(endpoint: str, job_id: str, name: str) -> int:
    """The current value of a Beam counter at the job server, over all steps."""
    with grpc.insecure_channel(endpoint) as channel:
        request = beam_job_api_pb2.GetJobMetricsRequest(job_id=job_id)
        metrics = beam_job_api_pb2_grpc.JobServiceStub(channel).GetJobMetrics(request, timeout=10).metrics
    counters = from_monitoring_infos(metrics.attempted)[0]
    return sum(value for key, value in counters.items() if key.metric.name == name)
