"""The same tests of each service: one server for each test process, a bucket for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from etag_stores import STORES, Store, running

from beam_pipes.storage.objects import ObjectStorage

QUICK = {"MOST_BACKOFF_SECS": "0.05", "ATTEMPT_TIMEOUT_SECS": "20", "CHUNK_BYTES": str(256 << 10)}


@pytest.fixture(scope="session", params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in STORES])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with running(request.param) as store:
        yield store


@pytest.fixture(autouse=True)
def environment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK.items():
        monkeypatch.setenv(store.options.PREFIX + name, value)
    store.go_to(store.url, monkeypatch)


@pytest.fixture
def bucket(store: Store) -> str:
    """The path of a new bucket on the server."""
    return store.new_bucket()


@pytest.fixture
def storage(store: Store) -> ObjectStorage:
    return store.storage(store.options.from_environment())
