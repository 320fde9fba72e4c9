"""A loopback proxy in front of an object store that breaks requests in all the ways that networks do.

    with FaultProxy(upstream, plan) as proxy: STORAGE_EMULATOR_HOST = proxy.url

`plan(number, method, path)` says what to do with each request: None forwards it.
"""

from __future__ import annotations

import gzip
import http.client
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# What a plan may answer: a status ("429", "500", "503", "403", ...), or one of these.
CUT_BEFORE = "cut before"  # the connection is closed, nothing was forwarded
CUT_UPLOAD = "cut upload"  # half of the request's body is read, then the connection is closed
LOST_RESPONSE = "lost response"  # forwarded; the connection is closed without an answer
CUT_BODY = "cut body"  # forwarded; the answer breaks off in the middle of its body
SLOW = "slow"  # forwarded; the answer takes a moment
DRIP = "drip"  # forwarded; the answer's body arrives byte by byte, endlessly
FLIP = "flip"  # forwarded; one bit of the answer's body is flipped

OTHER_RANGE = "other range"  # forwarded; the answer claims to hold the first bytes, whatever was requested
NO_RANGE = "no range"  # forwarded without its range
UNSAID_RANGE = "unsaid range"  # forwarded; the answer does not say which part it holds
GARBLED_RANGE = "garbled range"  # forwarded; what the answer says about its part is nonsense
PART_AS_WHOLE = "part as whole"  # forwarded; the answer is a part, and says that it is everything
COMPRESSED = "compressed"  # forwarded; the body is compressed, whatever was accepted
NO_CONDITION = "no condition"  # forwarded without the version that it asks for

EVERYTHING = ("429", "500", "503", CUT_BEFORE, CUT_UPLOAD, LOST_RESPONSE, CUT_BODY, SLOW)

Plan = Callable[[int, str, str], "str | None"]


def at_random(rate: float, *, seed: int, faults: tuple[str, ...] = EVERYTHING) -> Plan:
    """Breaks a share `rate` of all requests, each with one of the faults."""
    draw, lock = random.Random(seed), threading.Lock()

    def plan(number: int, method: str, path: str) -> str | None:
        with lock:
            return draw.choice(faults) if draw.random() < rate else None

    return plan


class FaultProxy:
    def __init__(self, upstream: str, plan: Plan, *, slow_secs: float = 0.05) -> None:
        self.host, _, port = upstream.removeprefix("http://").partition(":")
        self.port = int(port)
        self.plan = plan
        self.slow_secs = slow_secs
        self.done: Counter[str] = Counter()
        self.requests: list[tuple[str, str]] = []
        #: Bytes that answers to GET requests held, by path without query.
        self.sent_bytes: Counter[str] = Counter()
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            def decide(self) -> str | None:
                with proxy._lock:
                    number = len(proxy.requests)
                    proxy.requests.append((self.command, self.path))
                fault = proxy.plan(number, self.command, self.path)
                if fault is not None:
                    with proxy._lock:
                        proxy.done[fault] += 1
                return fault

            @property
            def proxy(self) -> FaultProxy:
                return proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _at_the_beginning(told: str) -> str:
    first, last, total = map(int, re.findall(r"\d+", told))
    return f"bytes 0-{last - first}/{total}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that hangs up


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def decide(self) -> str | None:
        raise NotImplementedError

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        fault = self.decide()
        size = int(self.headers.get("Content-Length") or 0)
        if fault == CUT_BEFORE:
            return self._hang_up()
        if fault == CUT_UPLOAD:
            self.rfile.read(size // 2)
            return self._hang_up()
        body = self.rfile.read(size)
        if fault is not None and fault.isdigit():
            message = b'{"error": {"code": %s, "message": "injected"}}' % fault.encode()
            self.send_response(int(fault))
            self.send_header("Content-Length", str(len(message)))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(message)
            return None
        if fault == SLOW:
            time.sleep(self.proxy.slow_secs)
        status, reason, headers, answer = self._forward(body, fault)
        if fault == LOST_RESPONSE:
            return self._hang_up()
        if fault == FLIP and answer:
            middle = len(answer) // 2
            answer = answer[:middle] + bytes([answer[middle] ^ 1]) + answer[middle + 1 :]
        if fault == OTHER_RANGE:
            headers = [
                (name, _at_the_beginning(value) if name.lower() == "content-range" else value)
                for name, value in headers
            ]
        if fault == GARBLED_RANGE:
            headers = [(name, "x" if name.lower() == "content-range" else value) for name, value in headers]
        if fault == PART_AS_WHOLE and status == 206:
            status, reason = 200, "OK"
        if fault in (UNSAID_RANGE, PART_AS_WHOLE):
            headers = [(name, value) for name, value in headers if name.lower() != "content-range"]
        if fault == COMPRESSED:
            answer, headers = gzip.compress(answer), [*headers, ("Content-Encoding", "gzip")]
        self.send_response_only(status, reason)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        told = next((value for name, value in headers if name.lower() == "content-length"), None)
        self.send_header("Content-Length", told if self.command == "HEAD" and told else str(len(answer)))
        self.end_headers()
        if fault == CUT_BODY and self.command != "HEAD":
            self.wfile.write(answer[: len(answer) // 2])
            return self._hang_up()
        if fault == DRIP:
            for at in range(len(answer)):
                self.wfile.write(answer[at : at + 1])
                time.sleep(self.proxy.slow_secs)
            return None
        if self.command == "GET":
            with self.proxy._lock:
                self.proxy.sent_bytes[self.path.partition("?")[0]] += len(answer)
        if self.command != "HEAD":
            self.wfile.write(answer)
        return None

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = _serve

    def _forward(self, body: bytes, fault: str | None) -> tuple[int, str, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.proxy.host, self.proxy.port, timeout=60)
        try:
            # With our own `Host`, so that addresses in answers lead back here.
            kept = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            headers = {name: value for name, value in kept.items() if name.lower() != "range" or fault != NO_RANGE}
            path = self.path
            if fault == NO_CONDITION:
                headers = {name: value for name, value in headers.items() if not name.lower().endswith("if-match")}
                path = re.sub(r"[&?]generation=\d+", "", path)
            connection.request(self.command, path, body=body or None, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.reason, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _hang_up(self) -> None:
        self.close_connection = True
        try:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
