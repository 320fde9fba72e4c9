"""A server for each test process, a bucket for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from s3_server import CREDENTIALS, new_s3_bucket, running_s3

from beam_pipes.cache.s3 import S3Options, S3Storage

QUICK = {"MOST_BACKOFF_SECS": "0.05", "ATTEMPT_TIMEOUT_SECS": "20", "CHUNK_BYTES": str(256 << 10)}


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with running_s3() as url:
        yield url


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**CREDENTIALS, **{f"BEAM_PIPES_S3_{name}": value for name, value in QUICK.items()}}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """`s3://<a new bucket>`, on the server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    return f"s3://{new_s3_bucket(server)}"


@pytest.fixture
def storage(bucket: str) -> S3Storage:
    return S3Storage(S3Options.from_environment())
