"""The cost of limits for records: a job in which one record hangs and one takes all memory, against one without either.

    python -m benchmarks.record_limits --json limits.json             10,000 records of 20 ms: 105 s a job on two cores
    python -m benchmarks.record_limits --records 1000 --repeats 6     seconds that a long job's noise would hide

A record waits, like one that calls a service. With `--work hash` it computes rounds of a hash instead, calibrated
beforehand. That keeps a core busy, and so depends on the machine: on a shared one, the same job varies by some per cent
between runs.

The same input is built without limits and without such records (the job as it would be), with limits and without such
records (what supervision costs), and with limits and both records. Extra time is wall time, the timeout itself
included: it is part of what a user waits for. Every build is checked: the records written, and the dead letters.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from beam_pipes.cache import Cache
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
from benchmarks import harness
from benchmarks.record_limits_stages import (
    INPUT_VARIABLE,
    MEMORY_BYTES,
    ROUNDS_VARIABLE,
    TIMEOUT_SECS,
    WAIT_SECS_VARIABLE,
    hash_rounds,
)

FILES = 8


def rounds_of(secs: float) -> int:
    """The number of hash rounds that take this long on one core of this machine at present."""
    rounds = 20_000
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        hash_rounds(rounds)
        taken.append(time.perf_counter() - started)
    return max(1, round(secs * rounds / min(taken)))


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--records", type=int, default=10_000, help="records of the job [10000]")
    parser.add_argument("--record-secs", type=float, default=0.02, help="how long a record takes [0.02]")
    parser.add_argument("--work", choices=("wait", "hash"), default="wait", help="what a record does [wait]")
    parser.set_defaults(repeats=1)
    parser.add_argument("--workers", type=int, default=2, help="worker processes [2]")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="record-limits-") as directory:
        results = run(
            Path(directory),
            records=arguments.records,
            record_secs=arguments.record_secs,
            work=arguments.work,
            repeats=arguments.repeats,
            workers=arguments.workers,
        )
    harness.report(results, arguments.json)
    if results["problems"]:
        sys.exit(1)


def run(
    directory: Path, *, records: int, record_secs: float, work: str = "wait", repeats: int, workers: int
) -> dict[str, Any]:
    """`repeats` jobs of each kind, in turn; the extra time is the median over paired runs."""
    os.environ[WAIT_SECS_VARIABLE] = str(record_secs if work == "wait" else 0.0)
    os.environ[ROUNDS_VARIABLE] = str(rounds_of(record_secs) if work == "hash" else 0)
    kinds = {
        "plain": ("benchmarks.record_limits_stages:unlimited", False),
        "supervised": ("benchmarks.record_limits_stages:limited", False),
        "with_both": ("benchmarks.record_limits_stages:limited", True),
    }
    secs: dict[str, list[float]] = {kind: [] for kind in kinds}
    problems: list[str] = []
    for repeat in range(repeats):
        for kind, (reference, bad) in kinds.items():
            place = directory / f"{kind}-{repeat}"
            _write(place / "input", records=records, bad=bad)
            os.environ[INPUT_VARIABLE] = str(place / "input")
            started = time.monotonic()
            build(reference, place / "cache", options=LocalOptions(workers=workers))
            secs[kind].append(time.monotonic() - started)
            problems += _problems(place / "cache", kind=kind, records=records, bad=bad)
    plain = secs.pop("plain")
    extra_secs = {
        kind: statistics.median(mine - alone for mine, alone in zip(each, plain, strict=True))
        for kind, each in secs.items()
    }
    return {
        "records": records,
        "record_secs": record_secs,
        "work": work,
        "workers": workers,
        "record_timeout_secs": TIMEOUT_SECS,
        "record_memory_bytes": MEMORY_BYTES,
        "secs": {kind: [round(each, 2) for each in values] for kind, values in {"plain": plain, **secs}.items()},
        "extra_secs": {kind: round(each, 2) for kind, each in extra_secs.items()},
        "extra_percent": {kind: round(100 * each / statistics.median(plain), 2) for kind, each in extra_secs.items()},
        "problems": problems,
    }


def _write(directory: Path, *, records: int, bad: bool) -> None:
    directory.mkdir(parents=True)
    words = {records // 3: "hang", 2 * records // 3: "memory"} if bad else {}
    for file in range(FILES):
        numbers = range(file * records // FILES, (file + 1) * records // FILES)
        lines = [f"{words.get(number, 'good')} {number}" for number in numbers]
        (directory / f"{file}.txt").write_text("\n".join(lines) + "\n")


def _problems(path: Path, *, kind: str, records: int, bad: bool) -> list[str]:
    cache = Cache.open(path, verify=True)
    errors = sorted(letter.error_type for letter in cache.dead_letters())
    expected = ["RecordMemoryError", "RecordTimeoutError"] if bad else []
    found = []
    if errors != expected:
        found.append(f"{kind}: dead letters {errors}, expected {expected}")
    if len(cache["train"]) != records - len(expected):
        found.append(f"{kind}: {len(cache['train'])} records, expected {records - len(expected)}")
    return found


if __name__ == "__main__":
    main()
