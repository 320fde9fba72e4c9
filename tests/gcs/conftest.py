"""An emulator for each test process, a bucket for each test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from gcs_emulator import new_bucket, running

from beam_pipes.storage import GcsOptions, GcsStorage

# Pauses of tests: attempts follow each other quickly, and there are enough of them.
QUICK = {"MOST_BACKOFF_SECS": "0.05", "ATTEMPT_TIMEOUT_SECS": "20", "CHUNK_BYTES": str(256 << 10)}


@pytest.fixture(scope="session")
def emulator() -> Iterator[str]:
    with running("fake-gcs-server") as url:
        yield url


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK.items():
        monkeypatch.setenv(f"BEAM_PIPES_GCS_{name}", value)


@pytest.fixture
def bucket(emulator: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """`gs://<a new bucket>`, served by the emulator."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    return f"gs://{new_bucket(emulator)}"


@pytest.fixture
def storage(bucket: str) -> GcsStorage:
    return GcsStorage(GcsOptions.from_environment())


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No thread that a test began outlives it; one that is in the middle of a request may end it first."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 60
    own = {"beam_pipes leases"}  # it lives as long as a split that was read
    while left := [
        each.name
        for each in set(threading.enumerate()) - before
        if each.name.startswith("beam_pipes") and each.name not in own
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)
