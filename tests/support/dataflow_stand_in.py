"""The jobs API of Dataflow on loopback: accepts a job as Beam sends it, and runs it in a worker's environment.

The worker gets only what is staged on the emulated bucket (the pipeline, the packages): a virtual environment with Beam
and these packages, a clean path, and no `__main__` of ours.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Parts of a request that change between runs → their replacements in a golden file.
_VOLATILE = {
    r"http://localhost:\d+": "ENDPOINT",
    r"(?<=-)[0-9a-f]{8}-[0-9a-f]{8}\b": "SNAPSHOT-TOKEN",
    r"(?<=beam-pipes-snapshot=)[0-9a-f]{16}": "SNAPSHOT",
    r"\b\d{10}\.\d{6}\b": "TIME",
    r"(?<=[Pp]ython)(?P<space>[ _]?)3\.\d+": r"\g<space>3.x",
}


def canonical(request: dict[str, Any], *, bucket: str) -> Any:
    """The part of a job request or template stored in a golden file: everything but Beam's own settings.

    It includes only the given options, without the capabilities of Beam's worker and the request id.
    """
    found = json.loads(json.dumps(request))
    environment = found["environment"]
    pipeline = environment["sdkPipelineOptions"]
    given = {each["key"] for each in pipeline.pop("display_data")} - {"beam_plugins"}
    pipeline["options"] = {name: value for name, value in pipeline["options"].items() if name in given}
    found.pop("clientRequestId")
    for pool in environment["workerPools"]:
        for image in pool["sdkHarnessContainerImages"]:
            del image["capabilities"]
    if "labels" in found:
        found["labels"]["beam-pipes-snapshot"] = "SNAPSHOT"
    text = json.dumps(found, sort_keys=True).replace(bucket, "BUCKET")
    for pattern, name in _VOLATILE.items():
        text = re.sub(pattern, name, text)
    return json.loads(text)


JOB_ID = "2026-01-01_00_00_00-1"
_JOBS = re.compile(r"/v1b3/projects/([^/]+)/locations/([^/]+)/jobs")


class DataflowStandIn:
    """`url` is its endpoint, `request` the body of the last job that was sent, of `num_jobs`; `run` is called with it,
    on a thread. With `refusal`, a status, no job is taken."""

    def __init__(self, run: Callable[[dict[str, Any]], bool], *, refusal: int | None = None) -> None:
        self.request: dict[str, Any] | None = None
        self.num_jobs = 0
        self._run = run
        self._state = "JOB_STATE_RUNNING"
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if _JOBS.match(self.path):
                    if refusal is not None:
                        stand_in.num_jobs += 1
                        return self._send(refusal, {"error": {"code": refusal, "message": "cannot act as worker@"}})
                    stand_in._start(json.loads(body))
                self._answer()

            def do_GET(self) -> None:
                self._answer()

            def do_PUT(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if "CANCELLED" in str(body.get("requestedState", "")) or body.get("requestedState") == 5:
                    stand_in._state = "JOB_STATE_CANCELLED"
                self._answer()

            def _answer(self) -> None:
                path = self.path.split("?")[0]
                known = _JOBS.match(path)
                if path.endswith(("/messages", "/metrics")):
                    answer: dict[str, Any] = {}
                else:
                    project, region = known.groups() if known else ("", "")
                    answer = {
                        "id": JOB_ID,
                        "projectId": project,
                        "location": region,
                        "name": "job",
                        "currentState": stand_in._state,
                    }
                self._send(200, answer)

            def _send(self, status: int, answer: dict[str, Any]) -> None:
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("localhost", 0), Handler)
        self.url = f"http://localhost:{self._server.server_port}"

    def _start(self, request: dict[str, Any]) -> None:
        self.request = request
        self.num_jobs += 1

        def run() -> None:
            ended = "JOB_STATE_DONE" if self._run(request) else "JOB_STATE_FAILED"
            if self._state == "JOB_STATE_RUNNING":
                self._state = ended

        threading.Thread(target=run, daemon=True).start()

    @contextlib.contextmanager
    def serving(self) -> Iterator[DataflowStandIn]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join(timeout=10)
