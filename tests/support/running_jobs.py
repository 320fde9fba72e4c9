"""Jobs that run: the command line as a process to be interrupted, and what job servers and files tell meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.portable_metrics import from_monitoring_infos


def completions(cache: Path) -> list[Path]:
    return sorted(cache.glob("snapshots/*/completions/[!.]*.json"))


def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """`beam-pipes …` in a process of its own, to be interrupted."""
    return subprocess.Popen(
        [sys.executable, "-m", "runners", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        start_new_session=True,
        # Whoever runs the tests in the background ignores the signal, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def jobs_of(endpoint: str) -> list[Any]:
    """All jobs that the server has been given."""
    with grpc.insecure_channel(endpoint) as channel:
        answer = beam_job_api_pb2_grpc.JobServiceStub(channel).GetJobs(beam_job_api_pb2.GetJobsRequest(), timeout=10)
    return list(answer.job_info)


def named(jobs: list[Any], name: str) -> list[Any]:
    """Those of them that a `job_name` was given."""
    return [job for job in jobs if job.pipeline_options.fields["beam:option:job_name:v1"].string_value == name]


def live_counter(endpoint: str, job_id: str, name: str) -> int:
    """A counter of Beam's as the job server tells it at this moment, over all steps."""
    with grpc.insecure_channel(endpoint) as channel:
        request = beam_job_api_pb2.GetJobMetricsRequest(job_id=job_id)
        metrics = beam_job_api_pb2_grpc.JobServiceStub(channel).GetJobMetrics(request, timeout=10).metrics
    counters = from_monitoring_infos(metrics.attempted)[0]
    return sum(value for key, value in counters.items() if key.metric.name == name)
