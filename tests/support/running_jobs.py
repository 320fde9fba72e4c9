"""Jobs that run: the command line as a process to be interrupted, and what job servers and files tell meanwhile."""

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
    """`beam-pipes …` in a process of its own; `log` is where it says what it says."""

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
        """Waits for its end; what it has said."""
        self.process.wait(timeout_secs)
        return self.said()


@contextlib.contextmanager
def running_command(*arguments: str, **environment: str) -> Iterator[RunningCommand]:
    """`beam-pipes …` in a process of its own, to be interrupted; it is gone when the block ends."""
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
    """What `beam-pipes …` prints, in a process of its own; it has to end with 0."""
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
    """All jobs that the server has been given."""
    with grpc.insecure_channel(endpoint) as channel:
        answer = beam_job_api_pb2_grpc.JobServiceStub(channel).GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=10)
    return list(answer.job_info)


def named(jobs: list[Any], name: str) -> list[Any]:
    """Those of them that a `job_name` was given; behind it each has letters of its own."""
    names = [job.pipeline_options.fields["beam:option:job_name:v1"].string_value for job in jobs]
    return [job for job, found in zip(jobs, names, strict=True) if found.rpartition("-")[0] == name]


def live_counter(endpoint: str, job_id: str, name: str) -> int:
    """A counter of Beam's as the job server tells it at this moment, over all steps."""
    with grpc.insecure_channel(endpoint) as channel:
        request = beam_job_api_pb2.GetJobMetricsRequest(job_id=job_id)
        metrics = beam_job_api_pb2_grpc.JobServiceStub(channel).GetJobMetrics(request, timeout=10).metrics
    counters = from_monitoring_infos(metrics.attempted)[0]
    return sum(value for key, value in counters.items() if key.metric.name == name)
