"""What benchmarks share: options, timing in pairs, memory of processes, the machine, one JSON object of results."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_SAMPLE_SECS = 0.1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def parser(description: str | None) -> argparse.ArgumentParser:
    """An argument parser with the options that every benchmark has: `--json FILE` and `--repeats N`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", metavar="FILE", help="write the results to this file")
    made.add_argument("--repeats", type=int, default=3, help="runs of each alternative, taken in turns [3]")
    return made


def seconds_of(run: Callable[[], Any], *, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call, by the wall clock; `clock=time.process_time` counts this process's CPU time instead."""
    started = clock()
    run()
    return clock() - started


def paired_seconds(
    runs: Mapping[str, Callable[[], Any]], *, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each run, `repeats` times, taken in turns, so that disturbances of the machine affect all equally."""
    secs: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats):
        names = list(runs)
        for name in names if repeat % 2 == 0 else reversed(names):
            secs[name].append(seconds_of(runs[name], clock=clock))
    return secs


def ratio(secs: Mapping[str, Sequence[float]], top: str, bottom: str) -> float:
    """The median over paired runs of seconds of `top` over those of `bottom`: at 2.0, `bottom` is twice as fast."""
    return statistics.median(t / b for t, b in zip(secs[top], secs[bottom], strict=True))


def resident_bytes(pid: int | None = None) -> int:
    """Resident memory of a process, pages of mapped files included; 0 if it has ended."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0


def anonymous_bytes() -> int:
    """Resident memory of this process without mapped files, which the system cannot reclaim."""
    with open("/proc/self/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["RssAnon"].split()[0]) * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """A finished Python process: its standard output, seconds, and the peak of all its processes' memory together.

    `worker_cpu_secs` is the processor time of the longest chain of processes below it, each started by the one before:
    a server and the busiest of the workers that it forked. It lacks the last tenth of a second.
    """

    output: str
    secs: float
    peak_rss_bytes: int
    worker_cpu_secs: float = 0.0


def run_measured(arguments: Sequence[str], *, env: Mapping[str, str] | None = None) -> Measured:
    """Runs `python ARGUMENTS`; raises `CalledProcessError` if it fails. Memory is sampled ten times a second."""
    # As where the package is installed: its modules are compiled once, and not by every process that imports them.
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as output:
        started = time.perf_counter()
        process = subprocess.Popen([sys.executable, *arguments], stdout=output, env={**given, **(env or {})}, text=True)
        peak, chain = 0, 0.0
        try:
            while process.poll() is None:
                pids = process_tree(process.pid)
                peak = max(peak, sum(map(_private_bytes, pids)))
                chain = max(chain, _longest_chain(process.pid))
                time.sleep(_SAMPLE_SECS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        secs = time.perf_counter() - started
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, text)
    return Measured(output=text, secs=secs, peak_rss_bytes=peak, worker_cpu_secs=chain)


def _private_bytes(pid: int) -> int:
    """Proportional set size: pages that forked processes share count once over all of them."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return 0


def cpu_secs_of_tree() -> float:
    """Processor time of this process, all its threads, and of the processes below it that still run."""
    return sum(map(_cpu_secs, process_tree(os.getpid())))


def _cpu_secs(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def _longest_chain(pid: int) -> float:
    """The most processor time of a chain of processes below this one."""
    return max((_cpu_secs(child) + _longest_chain(child) for child in _children(pid)), default=0.0)


def process_tree(pid: int) -> list[int]:
    """The process and its running descendants."""
    return [pid, *(each for child in _children(pid) for each in process_tree(child))]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def machine() -> dict[str, Any]:
    """A description of the machine, to accompany figures."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(_PAGE_BYTES * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load_average": round(os.getloadavg()[0], 2),
    }


def _commit() -> str | None:
    """The commit of this checkout, None outside a checkout."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def report(results: Mapping[str, Any], path: str | None) -> None:
    """Prints the results as one JSON object with date, commit and machine, and writes it to `path` if there is one."""
    whole = {**results, "date": time.strftime("%Y-%m-%d"), "commit": _commit(), "machine": machine()}
    text = json.dumps(whole, indent=2)
    print(text)
    sys.stdout.flush()
    if path is not None:
        Path(path).write_text(text + "\n", encoding="utf-8")
