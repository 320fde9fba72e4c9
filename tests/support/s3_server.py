"""A process that speaks the protocol of S3 on loopback (moto), and buckets in it."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator

import boto3
from gcs_emulator import answering, free_port

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}


@contextlib.contextmanager
def running_s3() -> Iterator[str]:
    """Runs the server; gives its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with answering(command, f"{url}/moto-api/", env={**os.environ, **CREDENTIALS}):
        yield url


def new_s3_bucket(url: str) -> str:
    """The name of a new bucket."""
    name = f"b-{uuid.uuid4().hex[:12]}"
    session = boto3.session.Session(aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1")
    session.client("s3", endpoint_url=url).create_bucket(Bucket=name)
    return name
