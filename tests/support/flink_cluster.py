"""A Flink session cluster on loopback: a job manager, and task managers that can be killed.

Beam numbers workers for each task manager, and a pool knows them by these numbers: a pool that two task managers share
stops the workers of one for the other. So jobs of tests take two slots, which Flink gives them on one task manager.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beam_workers import wait_for
from gcs_emulator import free_port

from beam_pipes.runners.flink import _OPENED

JARS = Path(sys.prefix) / "flink"

# As little as Flink takes for what the tests give it.
CONFIGURATION = """
jobmanager.rpc.address: localhost
jobmanager.rpc.port: {rpc_port}
jobmanager.bind-host: localhost
rest.address: localhost
rest.bind-address: localhost
rest.port: {rest_port}
taskmanager.host: localhost
taskmanager.bind-host: localhost
taskmanager.numberOfTaskSlots: 2
taskmanager.cpu.cores: 1.0
taskmanager.memory.task.heap.size: 128m
taskmanager.memory.task.off-heap.size: 32m
taskmanager.memory.framework.heap.size: 64m
taskmanager.memory.framework.off-heap.size: 64m
taskmanager.memory.network.min: 128m
taskmanager.memory.network.max: 128m
taskmanager.memory.managed.size: 64m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 64m
taskmanager.memory.jvm-overhead.max: 64m
classloader.resolve-order: parent-first
heartbeat.interval: 500
heartbeat.timeout: 5000
io.tmp.dirs: {directory}
"""


class FlinkCluster:
    """`rest` is HOST:PORT of its REST interface, what `flink_master` names."""

    def __init__(self, rest: str, task_managers: list[subprocess.Popen[bytes]]) -> None:
        self.rest = rest
        self.task_managers = task_managers

    def get(self, path: str) -> Any:
        """What the REST interface answers."""
        with urllib.request.urlopen(f"http://{self.rest}{path}", timeout=10) as answer:
            return json.load(answer)

    def has(self, task_managers: int) -> bool:
        """Whether so many task managers have registered."""
        with contextlib.suppress(OSError):
            return bool(self.get("/overview")["taskmanagers"] == task_managers)
        return False

    def busy(self) -> subprocess.Popen[bytes]:
        """The task manager whose slots are all taken."""
        [number] = [int(each["id"]) for each in self.get("/taskmanagers")["taskmanagers"] if not each["freeSlots"]]
        return self.task_managers[number]

    def jobs(self, name: str) -> list[Any]:
        """The jobs that a `job_name` was given."""
        return [job for job in self.get("/jobs/overview")["jobs"] if job["name"].startswith(f"{name}-")]

    def states(self, name: str) -> list[str]:
        """How they ended, or that they run."""
        return [job["state"] for job in self.jobs(name)]


@contextlib.contextmanager
def flink_cluster(directory: Path, *, task_managers: int = 2) -> Iterator[FlinkCluster]:
    """Runs a cluster; what its processes say is in `directory`."""
    assert any(JARS.glob("beam-runners-flink-*.jar")), f"{JARS} is missing: make test puts it there"
    rest_port = free_port()
    (directory / "flink-conf.yaml").write_text(
        CONFIGURATION.format(rpc_port=free_port(), rest_port=rest_port, directory=directory)
    )
    processes: list[subprocess.Popen[bytes]] = []

    def start(main: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = ["java", "-Xmx256m", *_OPENED, f"-Djava.io.tmpdir={directory}", "-cp", str(JARS / "*"), main]
        with open(directory / f"{len(processes)}.log", "wb") as log:
            process = subprocess.Popen([*command, "--configDir", str(directory), *arguments], stdout=log, stderr=log)
        processes.append(process)
        return process

    try:
        start("org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint")
        workers = [
            start("org.apache.flink.runtime.taskexecutor.TaskManagerRunner", f"-Dtaskmanager.resource-id={number}")
            for number in range(task_managers)
        ]
        cluster = FlinkCluster(f"localhost:{rest_port}", workers)
        wait_for(lambda: cluster.has(task_managers), secs=120, what="the cluster's start")
        yield cluster
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
