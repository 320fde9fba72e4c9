"""One Prism for each test process, and input for jobs that something happens to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import portable_declarations
import pytest

from beam_pipes.runners.servers import find_prism, running_prism


@pytest.fixture(scope="session")
def prism() -> Iterator[str]:
    """HOST:PORT of a job server."""
    with running_prism(find_prism()) as endpoint:
        yield endpoint


@pytest.fixture
def paced_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty files, which are twenty source shards."""
    directory = tmp_path / "paced"
    portable_declarations.write_files(directory, range(20))
    monkeypatch.setenv(portable_declarations.INPUT_VARIABLE, str(directory))
    return directory
