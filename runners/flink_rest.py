"""Jobs on a Flink cluster, through its REST interface: found by their name, and cancelled."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

from beam_pipes.errors import BuildError

_ANSWER_SECS = 20.0
_END_SECS = 60.0
_ENDED = ("CANCELED", "FAILED", "FINISHED")


def cancel_jobs(rest: str, name: str) -> None:
    """Cancels the jobs of this name on the cluster whose REST interface is at HOST:PORT, and waits for their end.

    Raises `BuildError` where a job goes on, `OSError` where nobody answers.
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
    jobs = _ask(rest, "/jobs/overview")["jobs"]
    return [str(job["jid"]) for job in jobs if job["name"] == name and job["state"] not in _ENDED]


def _ask(rest: str, path: str, *, method: str = "GET") -> Any:
    request = urllib.request.Request(f"http://{rest}{path}", method=method)
    with urllib.request.urlopen(request, timeout=_ANSWER_SECS) as answer:
        return json.loads(answer.read() or b"{}")
