from __future__ import annotations

from collections.abc import Iterator

import loader_caches
import pytest

from beam_pipes.cache import Split


@pytest.fixture(scope="session")
def document_split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """103 documents of 0 to 30 tokens in three shards."""
    return loader_caches.write_split(
        tmp_path_factory.mktemp("documents") / "cache", loader_caches.documents(103), loader_caches.DOCUMENTS
    )


@pytest.fixture(scope="session")
def other_split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """58 other documents in two shards."""
    return loader_caches.write_split(
        tmp_path_factory.mktemp("others") / "cache",
        loader_caches.documents(58, seed=1, longest=40),
        loader_caches.DOCUMENTS,
        shards=2,
        name="other",
    )


@pytest.fixture(scope="session")
def row_split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """100 records of a fixed layout in three shards."""
    return loader_caches.write_split(
        tmp_path_factory.mktemp("rows") / "cache", loader_caches.rows(100), loader_caches.ROWS
    )


@pytest.fixture(scope="session")
def pair_split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """80 pairs of inputs and targets."""
    return loader_caches.write_split(
        tmp_path_factory.mktemp("pairs") / "cache", loader_caches.pairs(80), loader_caches.PAIRS
    )


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    """Every test ends with the loader threads that it began with."""
    import gc
    import threading
    import time

    before = set(threading.enumerate())

    def left() -> list[str]:
        begun = set(threading.enumerate()) - before
        names = [thread.name for thread in begun if thread.name.startswith("beam_pipes")]
        return [name for name in names if name != "beam_pipes leases"]  # it lives as long as a split that was read

    yield
    if left():
        gc.collect()  # half a second with TensorFlow, JAX and torch loaded: only where something may hang on it
    deadline = time.monotonic() + 60
    while left() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left() == []
