"""A Flink session cluster on loopback: a job manager, and task managers that can be killed.

Beam numbers workers for each task manager, and a pool knows them by these numbers: a pool shared by two task managers
stops the workers of one on behalf of the other. So jobs of tests take two slots, which Flink gives them on one task
manager.
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

# The minimum with which Flink can run the tests' jobs.
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
taskmanager.memory.network.min: 256m
taskmanager.memory.network.max: 256m
taskmanager.memory.managed.size: 64m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 64m
taskmanager.memory.jvm-overhead.max: 64m
classloader.resolve-order: parent-first
heartbeat.interval: 500
heartbeat.timeout: 5000
io.tmp.dirs: {directory}
"""


_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"


class FlinkCluster:
    """`rest` is HOST:PORT of its REST interface, for `flink_master`."""

    def __init__(self, rest: str, directory: Path, *, task_managers: int) -> None:
        self.rest = rest
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []
        self.job_manager = self._start(_JOB_MANAGER)
        self.task_managers = [self._start_task_manager(number) for number in range(task_managers)]

    def _start(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        opened = [*_OPENED, f"-Djava.io.tmpdir={self._directory}"]
        command = [
            "java",
            "-Xmx256m",
            "-XX:MaxDirectMemorySize=400m",
            *opened,
            "-cp",
            str(JARS / "*"),
            main,
            "--configDir",
            str(self._directory),
        ]
        with open(self._directory / f"{len(self._started)}.log", "wb") as log:
            process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log)
        self._started.append(process)
        return process

    def _start_task_manager(self, number: int) -> subprocess.Popen[bytes]:
        return self._start(_TASK_MANAGER, f"-Dtaskmanager.resource-id={number}")

    def supervise(self, **settings: str) -> None:
        """Restarts dead processes, like a supervisor; a job manager with these additional settings."""
        if self.job_manager.poll() is not None:
            given = (f"-D{name.replace('__', '.').replace('_', '-')}={value}" for name, value in settings.items())
            self.job_manager = self._start(_JOB_MANAGER, *given)
        for number, process in enumerate(self.task_managers):
            if process.poll() is not None:
                self.task_managers[number] = self._start_task_manager(number)

    def stop(self) -> None:
        for process in self._started:
            process.kill()
        for process in self._started:
            process.wait()

    def get(self, path: str) -> Any:
        """The answer of the REST interface."""
        with urllib.request.urlopen(f"http://{self.rest}{path}", timeout=10) as answer:
            return json.load(answer)

    def has(self, task_managers: int) -> bool:
        """Whether this many task managers have registered."""
        with contextlib.suppress(OSError):
            return bool(self.get("/overview")["taskmanagers"] == task_managers)
        return False

    def busy(self) -> subprocess.Popen[bytes]:
        """The task manager whose slots are all taken."""
        [number] = [int(each["id"]) for each in self.get("/taskmanagers")["taskmanagers"] if not each["freeSlots"]]
        return self.task_managers[number]

    def jobs(self, name: str) -> list[Any]:
        """The jobs with a `job_name`, in the order of their start."""
        jobs = [job for job in self.get("/jobs/overview")["jobs"] if job["name"].startswith(f"{name}-")]
        return sorted(jobs, key=lambda job: int(job["start-time"]))

    def states(self, name: str) -> list[str]:
        """Their final states, or that they run."""
        return [job["state"] for job in self.jobs(name)]


@contextlib.contextmanager
def flink_cluster(directory: Path, *, task_managers: int = 2) -> Iterator[FlinkCluster]:
    """Runs a cluster; its processes log to `directory`."""
    assert any(JARS.glob("beam-runners-flink-*.jar")), f"{JARS} is missing: make test puts it there"
    rest_port = free_port()
    (directory / "flink-conf.yaml").write_text(
        CONFIGURATION.format(rpc_port=free_port(), rest_port=rest_port, directory=directory)
    )
    cluster = FlinkCluster(f"localhost:{rest_port}", directory, task_managers=task_managers)
    try:
        wait_for(lambda: cluster.has(task_managers), secs=120, what="the cluster's start")
        yield cluster
    finally:
        cluster.stop()
