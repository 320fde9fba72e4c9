"""A process that speaks the JSON API of Google Cloud Storage on loopback, and buckets in it.

fake-gcs-server honours generation preconditions and checks announced checksums, but counts a repeated chunk of a
resumable upload twice. gcp-storage-emulator lacks preconditions, but follows the protocol of resumable uploads. So the
first one serves all tests, and the second those that resume uploads.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

FAKE_GCS_SERVER = Path(sys.executable).with_name("fake-gcs-server")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def running(command: str) -> Iterator[str]:
    """Runs `fake-gcs-server` or `gcp-storage-emulator`; gives its URL."""
    port = free_port()
    if command == "fake-gcs-server":
        program = str(FAKE_GCS_SERVER) if FAKE_GCS_SERVER.exists() else shutil.which(command)
        assert program, f"{FAKE_GCS_SERVER} is missing: make install puts it there"
        options = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
        arguments = [program, *options, "-log-level", "error"]
    else:
        arguments = [str(Path(sys.executable).with_name(command)), "start", "--host=127.0.0.1", f"--port={port}"]
        arguments += ["--in-memory"]
    url = f"http://127.0.0.1:{port}"
    with answering(arguments, f"{url}/storage/v1/b?project=p"):
        yield url


@contextlib.contextmanager
def answering(arguments: list[str], probe: str, *, env: dict[str, str] | None = None) -> Iterator[None]:
    """Runs a server until the block ends; waits until it answers at the URL `probe`."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(probe, timeout=5):
                    break
            except OSError as error:
                if isinstance(error, urllib.error.HTTPError) and error.code == 403:
                    break  # it answers, though it requires signed requests
                assert process.poll() is None, f"{arguments} ended with {process.returncode}"
                assert time.monotonic() < deadline, f"{arguments} does not answer"
                time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()


def new_bucket(url: str) -> str:
    """Makes an empty bucket in an emulator; its name."""
    name = f"b-{uuid.uuid4().hex[:12]}"
    request = urllib.request.Request(
        f"{url}/storage/v1/b?project=p",
        data=json.dumps({"name": name}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30):
        return name
