"""A process that speaks the protocol of S3 on loopback (moto), and buckets in it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator

import boto3
from gcs_emulator import free_port

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}


@contextlib.contextmanager
def running_s3() -> Iterator[str]:
    """Runs the server; gives its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **CREDENTIALS}
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"{url}/moto-api/", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, f"moto ended with {process.returncode}"
                assert time.monotonic() < deadline, "moto does not answer"
                time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait()


def new_s3_bucket(url: str) -> str:
    """The name of a new bucket."""
    name = f"b-{uuid.uuid4().hex[:12]}"
    session = boto3.session.Session(aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1")
    session.client("s3", endpoint_url=url).create_bucket(Bucket=name)
    return name
