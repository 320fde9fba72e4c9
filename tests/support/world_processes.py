"""Processes that train together: a program, run as every rank of a world, and what each of them found."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"


def run_world(
    program: str, count: int, *arguments: str, environment: Mapping[str, str] | None = None, ports: int = 1
) -> list[dict[str, Any]]:
    """Runs `python program rank count ports… arguments…` for every rank; returns the JSON that each printed last.

    The program gets free ports of this machine, `ports` of them.
    """
    free = [str(port) for port in free_ports(ports)]
    with contextlib.ExitStack() as files:
        # Files, as nobody reads the pipe of a process whose peer waits for it.
        logs = [files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2 * count)]
        processes = [
            subprocess.Popen(
                [sys.executable, str(SUPPORT / program), str(rank), str(count), *free, *arguments],
                env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{SUPPORT}", **(environment or {})},
                stdout=logs[2 * rank],
                stderr=logs[2 * rank + 1],
            )
            for rank in range(count)
        ]
        try:
            codes = [process.wait(timeout=120) for process in processes]
        finally:
            for process in processes:
                process.kill()
        for log in logs:
            log.seek(0)
        assert codes == [0] * count, f"{codes}\n" + "\n".join(log.read()[-4000:] for log in logs[1::2])
        return [json.loads(log.read().splitlines()[-1]) for log in logs[::2]]


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def words_of(call: Any) -> str:
    """The class and the words of what a call raises; an empty text where it raises nothing."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
