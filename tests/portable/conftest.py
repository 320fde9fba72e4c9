"""One Prism for each test process, one Flink for each module, and input for jobs that something happens to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import portable_declarations
import pytest
from flink_cluster import JARS, FlinkCluster, flink_cluster

from beam_pipes.runners import FlinkOptions
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


@pytest.fixture(scope="module", autouse=True)
def java_for_minutes() -> Iterator[None]:
    """Flink's processes live for a minute: what C2 compiles never pays, and took half of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    """A job manager and two task managers of two slots."""
    with flink_cluster(tmp_path_factory.mktemp("flink")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def job_server(cluster: FlinkCluster) -> Iterator[str]:
    """HOST:PORT of Beam's job server for the cluster."""
    options = FlinkOptions(flink_job_server_jar=str(JARS), flink_master=cluster.rest)
    with options.running() as beam_args:
        yield beam_args[0].removeprefix("--job_endpoint=")
