"""The tail of a build by workers without a server: shards taken one by one by claims, or dealt out in equal slices.

    python -m benchmarks.clusters --json clusters.json
    python -m benchmarks.clusters --workers 4 --shards 24

Each record sleeps, so that one machine shows what many would do; every eighth worker is slower (`--slowness`), as nodes
of a cluster are. A slice is built by one worker; the last of them publishes. Both write the same bytes.
Seconds run from the moment at which all workers have started to the last finished shard.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from beam_pipes import Declaration, FeatureSpec, stage
from beam_pipes.building.leftovers import build_lock
from beam_pipes.building.plan import make_plan, prepare
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.cache import Cache
from beam_pipes.runners.claims import Standing, WorkOrder
from beam_pipes.sources import TextLines
from benchmarks.harness import parser, report

_INPUT, _PACE = "BENCHMARK_CLUSTERS_INPUT", "BENCHMARK_CLUSTERS_PACE"


@stage
def paced(line: str) -> dict[str, Any]:
    """A line, after a while."""
    time.sleep(float(os.environ[_PACE]))
    return {"text": line}


def declaration() -> Declaration:
    """One source shard for each file."""
    source = TextLines(os.environ[_INPUT], pattern="*.txt")
    return Declaration(
        name="paced", source=source, pipeline=paced, features={"text": FeatureSpec("str")}, target_shard_bytes=1
    )


def _run(cache: Path, *, slices: int, workers: int, pace_secs: float, slowness: float) -> tuple[float, str]:
    """Builds with one order for all workers, or with one for each of `slices`; returns seconds and a manifest's id."""
    handle = DeclarationHandle.of("benchmarks.clusters:declaration")
    with build_lock(cache):
        plan = make_plan(handle.get(), cache)
        tasks = prepare(plan)
        ids = [
            WorkOrder.write(handle, plan.header.root, tasks[number::slices], header=plan.header)
            for number in range(slices)
        ]
    started = []
    go = cache / "go"
    for number in range(workers):
        pace = pace_secs * (slowness if number % 8 == 0 else 1)
        environment = {**os.environ, _PACE: str(pace), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = f'while [ ! -e "{go}" ]; do sleep 0.05; done; exec "$@"'
        order = ids[number % slices]
        work = [sys.executable, "-m", "beam_pipes", "work", order, "--worker", str(number), "--processes", "1"]
        started.append(subprocess.Popen(["bash", "-c", command, "-", *work], env=environment, stderr=subprocess.PIPE))
    go.touch()
    begun: float | None = None
    done = 0
    while done < len(tasks):
        standings = [Standing.of(order) for order in ids]
        done = sum(min(each.done, len(tasks[n::slices])) for n, each in enumerate(standings) if each is not None)
        claimed = sum(each.claimed for each in standings if each is not None)
        if begun is None and claimed + done >= workers:
            begun = time.perf_counter()
        time.sleep(0.05)
    secs = time.perf_counter() - (begun or 0.0)
    # Slices know nothing of each other: all but the last one find shards missing at their end, and publish nothing.
    for each in started:
        each.communicate()
    published = Cache.open(cache).manifest.id
    return secs, published


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--workers", type=int, default=8)
    options.add_argument("--shards", type=int, default=64)
    options.add_argument(
        "--records", type=int, default=20, help="of the shortest shard; the longest has four times as many"
    )
    options.add_argument("--pace-secs", type=float, default=0.02)
    options.add_argument("--slowness", type=float, default=3.0)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "input")
        source.mkdir()
        for number in range(given.shards):
            lines = given.records * (1 + number % 4)
            text = "".join(f"{number}/{line}\n" for line in range(lines))
            (source / f"{number:04d}.txt").write_text(text)
        os.environ[_INPUT] = str(source)
        kinds = {"claims": 1, "slices": given.workers}
        secs, ids = {}, set()
        for kind, slices in kinds.items():
            secs[kind], published = _run(
                Path(directory, kind),
                slices=slices,
                workers=given.workers,
                pace_secs=given.pace_secs,
                slowness=given.slowness,
            )
            ids.add(published)
    assert len(ids) == 1, "claims and slices have published different records"
    results = {"workers": given.workers, "shards": given.shards, "slowness": given.slowness, "secs": secs}
    report({**results, "ratio_slices_to_claims": secs["slices"] / secs["claims"]}, given.json)


if __name__ == "__main__":
    main()
