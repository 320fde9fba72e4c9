"""A stage that asks a service over HTTP, and the service: it counts what it is asked, and can fail or hold answers."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from beam_pipes import Service, count, declare, drop, stage
from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import TextLines

INPUT_VARIABLE = "BEAM_PIPES_TEST_SERVICE_INPUT"
URL_VARIABLE = "BEAM_PIPES_TEST_SERVICE_URL"


def asked(texts: list[str]) -> Any:
    data = json.dumps(texts).encode()
    with urllib.request.urlopen(urllib.request.Request(os.environ[URL_VARIABLE], data), timeout=60) as answer:
        return json.load(answer)


@stage(batched=True, batch_tokens=40, tokens_of=len, service=Service(at_once=4))
def embed(lines: list[str]) -> list[dict[str, object]]:
    vectors = asked(lines)
    count("tokens", sum(map(len, lines)))
    return [{"text": line, "vector": vector} for line, vector in zip(lines, vectors, strict=True)]


@stage(service=Service(at_once=4))
def judge(example: dict[str, Any]) -> dict[str, Any] | None:
    [(length, *_)] = asked([example["text"] + "?"])
    return drop("too_short") if length < 8 else {**example, "length": length}


def judged() -> Declaration:
    """A batch of each call of `embed` has several lines; `judge` asks about one at a time."""
    return declare(
        "judged",
        TextLines(os.environ[INPUT_VARIABLE], pattern="*.txt"),
        [embed, judge],
        features={
            "text": FeatureSpec("str"),
            "vector": FeatureSpec("float32", shape=(3,)),
            "length": FeatureSpec("int64"),
        },
        target_shard_bytes=200,
    )


class AskedService:
    """`requests` holds the texts of each request that was answered, `times` when each came (`time.monotonic`).

    `status_of` says for each request with which HTTP status it is refused; None answers it.
    """

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.changed = threading.Condition()
        self.status_of: Callable[[list[str]], int | None] = lambda texts: None
        #: How many more requests are answered; others are held until there are more, or a new round begins.
        self.permits = 1 << 30
        self.round = 0
        self.url = ""

    def asked_about(self) -> collections.Counter[str]:
        with self.changed:
            return collections.Counter(text for texts in self.requests for text in texts)

    def calls(self) -> collections.Counter[tuple[str, ...]]:
        with self.changed:
            return collections.Counter(map(tuple, self.requests))

    def begin_round(self, permits: int) -> None:
        """Answers so many requests from now on; those that are held belong to a process that was killed."""
        with self.changed:
            self.round += 1
            self.permits = permits
            self.changed.notify_all()

    def wait_until_all_are_used(self) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: not self.permits, 60), self.permits


@contextlib.contextmanager
def asked_service() -> Iterator[AskedService]:
    service = AskedService()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with service.changed:
                own = service.round
                service.changed.wait_for(lambda: service.permits or service.round != own)
                if service.round != own:
                    return
                status = service.status_of(texts)
                if status is None:
                    service.permits -= 1
                    service.requests.append(texts)
                    service.changed.notify_all()
            body = json.dumps([[len(text), text.count(" "), 0.5] for text in texts]).encode()
            with contextlib.suppress(OSError):  # whoever asked was killed
                self.send_response(status or 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
