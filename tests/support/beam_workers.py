"""A pool of Beam workers as a separate process, and the worker processes that it starts."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gcs_emulator import free_port

from benchmarks.harness import process_tree


@dataclasses.dataclass(frozen=True)
class BeamWorkers:
    """`endpoint` is what `environment_config` of `EXTERNAL` names."""

    pid: int
    endpoint: str

    def processes(self) -> list[int]:
        """The worker processes that run at the moment."""
        return process_tree(self.pid)[1:]


@contextlib.contextmanager
def beam_workers(port: int | None = None, **environment: str) -> Iterator[BeamWorkers]:
    """Runs `python -m apache_beam.runners.worker.worker_pool_main` with this process's import path."""
    port = free_port() if port is None else port
    pool = subprocess.Popen(
        [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # it starts workers as `python`
            **environment,
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: _listens(pool, port), what="the pool of workers")
        yield BeamWorkers(pool.pid, f"localhost:{port}")
    finally:
        pool.terminate()  # it ends the workers that it has started
        pool.wait()


def _listens(pool: subprocess.Popen[bytes], port: int) -> bool:
    assert pool.poll() is None, f"the pool of workers ended with {pool.returncode}"
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def peak_rss_bytes(pid: int) -> int:
    """The peak memory of a process so far; 0 if it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


@contextlib.contextmanager
def watched_memory(workers: BeamWorkers) -> Iterator[Callable[[], int]]:
    """Watches the worker processes meanwhile; gives a function that returns the peak memory of any of them, in
    bytes."""
    ended, peaks = threading.Event(), [0]

    def watch() -> None:
        while not ended.wait(0.02):
            peaks.append(max(map(peak_rss_bytes, workers.processes()), default=0))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: max(peaks)
    finally:
        ended.set()
        thread.join()


def wait_for(condition: Callable[[], bool], *, secs: float = 120.0, what: str) -> None:
    """Waits until `condition()` is true."""
    deadline = time.monotonic() + secs
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {secs} s"
        time.sleep(0.02)
