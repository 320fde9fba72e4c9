"""Everything that grows with 10^5 shards and 10^9 records: planning, the job request, publishing, the order, a loader's
start.

    python -m benchmarks.scale --json scale.json            # 10^5 shards, 10^9 records
    python -m benchmarks.scale --scale 0.01                 # a hundredth of both

Runs everything that a build of this size runs on the launching machine, with real files where it reads files; only the
shards themselves are not built (workers do that, and its cost does not grow with their number):

- `plan`: as many files as shards, of 64 bytes each, found, hashed and planned, as every build does; `replan`: again.
- `job`: the job graph that a Beam runner is sent, and the files of tasks beside it.
- `files`: ten times as many small files, planned as sources plan them, and again with known digests.
- `publish`: as many completions of one real shard, beside files with the names of its own: what `status` says of them;
  read, merged (counts and a histogram), checked and published.
- `order`: places in a global order of all records.
- `open`, `first_batch`, `restore`: a loader on a manifest of this size (`benchmarks.loader_start`).

Each phase is a fresh process: its seconds are without imports, its memory is all of it. `cost` is a model: dollars for
a terabyte of input, from bytes per second of one core (measured by `benchmarks.build`, or by `beam-pipes plan --save`
of a declaration of yours) and from prices that are arguments.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from beam_pipes.building import Declaration
from beam_pipes.cache import FeatureSpec
from beam_pipes.sources import TextLines
from beam_pipes.typed import Histogram, Pipeline
from benchmarks import harness, loader_start

LINE = b"1234567\n"
FILE_BYTES = 8 * len(LINE)
# Objects that a source shard of one split leaves: shard, index, lineage, completion.
OBJECTS_PER_SHARD = 4
# Not `-m`: objects in `__main__` cannot be sent to workers.
AS_MODULE = "import sys; from benchmarks.scale import main; main(sys.argv[1:])"
BUILD_PHASES = ("plan", "job", "files", "publish", "order")
FILES_PER_SHARD = 10
LOADER_PHASES = ("open", "first_batch", "restore")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lengths(Pipeline):
    """A line as its bytes, with a histogram, so that there are statistics to merge."""

    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, Any]]:
        lengths = Histogram("lengths", [0, 2, 4, 8, 16])
        lengths.increment(len(line))
        self._set_stats([lengths])
        return [{"bytes": np.frombuffer(line.encode(), np.uint8)}]


def declaration(files: str) -> Declaration:
    return Declaration(
        name="scale",
        source=TextLines(files),
        pipeline=Lengths(),
        features={"bytes": FeatureSpec("uint8", shape=(None,))},
        target_shard_bytes=FILE_BYTES,
    )


def write_files(root: Path, count: int) -> None:
    """`count` files of 64 bytes, a thousand in a directory."""
    for number in range(count):
        if number % 1000 == 0:
            (directory := root / f"{number // 1000:04d}").mkdir(parents=True)
        (directory / f"{number:07d}.txt").write_bytes(LINE * (FILE_BYTES // len(LINE)))


def plan_phase(work: Path) -> dict[str, Any]:
    """Plans, and plans again with the digests of the first time; then the request of a Beam job."""
    from beam_pipes.building.plan import make_plan

    made = declaration(str(work / "input"))
    (work / "planned").mkdir()  # so that digests of files are kept
    found: dict[str, Any] = {}
    for name in ("plan", "replan"):
        started = time.perf_counter()
        plan = make_plan(made, work / "planned")
        found[f"{name}_secs"] = round(time.perf_counter() - started, 3)
    found["shards"] = plan.header.num_shards
    return found


def job_phase(work: Path) -> dict[str, Any]:
    """The request of a Beam job for all shards."""
    from beam_pipes.beam.build_graph import job_graph_bytes
    from beam_pipes.building.plan import make_plan
    from beam_pipes.building.references import DeclarationHandle

    plan = make_plan(declaration(str(work / "input")), work / "planned")
    started = time.perf_counter()
    num_bytes = job_graph_bytes(DeclarationHandle(plan.declaration), plan.header, plan.tasks)
    return {"job_secs": round(time.perf_counter() - started, 3), "job_graph_bytes": num_bytes}


def cpu_secs() -> float:
    """Of this process and its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def files_phase(work: Path) -> dict[str, Any]:
    """Plans small files, many to a shard, and again with the digests that were kept. CPU seconds are of all cores."""
    from beam_pipes.building.plan import make_plan

    made = dataclasses.replace(declaration(str(work / "files")), target_shard_bytes=64 << 20)
    cache = work / "planned_files"
    cache.mkdir()
    found: dict[str, Any] = {}
    plans = []
    for name in ("files_cold", "files_known"):
        before, started = cpu_secs(), time.perf_counter()
        plans.append(make_plan(made, cache))
        found[f"{name}_cpu_secs"] = round(cpu_secs() - before, 3)
        found[f"{name}_secs"] = round(time.perf_counter() - started, 3)
    if plans[0].snapshot != plans[1].snapshot:
        raise AssertionError("known digests give another plan")
    found["files"] = plans[0].source.num_files
    found["digests_bytes"] = (cache / ".digests").stat().st_size
    return found


def publish_phase(work: Path, records: int, shards: int) -> dict[str, Any]:
    """Publishes a snapshot whose completions are copies of one real shard's."""
    from beam_pipes.building.commit import commit
    from beam_pipes.building.completion import completion_path, find_completion
    from beam_pipes.building.plan import make_plan, prepare
    from beam_pipes.building.progress import read_status
    from beam_pipes.building.shard_job import ShardJob
    from beam_pipes.cache import Cache
    from beam_pipes.format.index import index_path
    from beam_pipes.lineage.lineage import lineage_file

    per_shard = records // shards
    one = work / "one"
    one.mkdir()
    (one / "a.txt").write_bytes(LINE * per_shard)
    made = dataclasses.replace(declaration(str(one)), target_shard_bytes=FILE_BYTES * per_shard)
    plan = make_plan(made, work / "published")
    prepare(plan)
    ShardJob(made, plan.header).run(plan.tasks[0])
    first = find_completion(plan.header, plan.tasks[0])
    assert first is not None and first.account.written == per_shard
    os.unlink(completion_path(plan.header.directory, 0, 1))
    header = dataclasses.replace(plan.header, num_shards=shards)
    for index in range(shards):
        files = {
            split: dataclasses.replace(entry, file=header.file_name(split, index))
            for split, entry in first.entries.items()
        }
        copy = dataclasses.replace(first, index=index, entries=files)
        Path(completion_path(header.directory, index, shards)).write_bytes(copy.to_bytes())
        # The status lists them, but neither it nor the commit opens them, so they are empty.
        for entry in files.values():
            for name in (entry.file, index_path(entry.file), lineage_file(index, shards)):
                Path(header.directory, name).touch()
    started, before = time.perf_counter(), cpu_secs()
    status = read_status(work / "published")
    status_secs, status_cpu_secs = time.perf_counter() - started, cpu_secs() - before
    if status.progress is None or status.progress.account.read != per_shard * shards:
        raise AssertionError("the status does not count what is done")
    started, before = time.perf_counter(), cpu_secs()
    commit(header)
    secs, publish_cpu_secs = time.perf_counter() - started, cpu_secs() - before
    manifest = Cache.open(work / "published").manifest
    if manifest.splits["train"].num_records != per_shard * shards or len(manifest.splits["train"].records) != shards:
        raise AssertionError("the manifest does not hold what was published")
    found = {
        "status_secs": round(status_secs, 3),
        "status_cpu_secs": round(status_cpu_secs, 3),
        "publish_secs": round(secs, 3),
        "publish_cpu_secs": round(publish_cpu_secs, 3),
    }
    return {**found, "manifest_bytes": (work / "published" / "manifest.json").stat().st_size}


def order_phase(records: int) -> dict[str, Any]:
    """A million places of a keyed permutation of all records."""
    from beam_pipes.loader.order import KeyedPermutation

    started = time.perf_counter()
    order = KeyedPermutation(records, seed=1, epoch=3)
    made_secs = time.perf_counter() - started
    positions = np.arange(records // 3, records // 3 + min(records // 2, 1_000_000))
    started = time.perf_counter()
    found = order.records(positions)
    secs = time.perf_counter() - started
    if not np.array_equal(order.positions(found), positions):
        raise AssertionError("the order is no bijection")
    return {"order_made_secs": round(made_secs, 6), "order_indices_per_sec": round(len(positions) / secs)}


def cost_per_tb(
    *,
    bytes_per_sec: float,
    shard_bytes: float,
    output_ratio: float,
    prices: Mapping[str, float],
    gib_per_core: float = 4.0,
    objects_per_shard: int = OBJECTS_PER_SHARD,
) -> dict[str, float]:
    """Dollars for 10^12 bytes of input, on Dataflow and on machines of one's own that run Flink.

    Both need the same core-hours, since the job shuffles nothing; they differ in the price of an hour. Objects are
    those written; `kept_a_month` is the cost of the cache afterwards. Start-up of machines is not included.
    """
    hours = 1e12 / bytes_per_sec / 3600
    objects = 1e12 / shard_bytes * objects_per_shard * prices["object_write"]
    dataflow = hours * (prices["dataflow_core_hour"] + gib_per_core * prices["dataflow_gib_hour"]) + objects
    return {
        "core_hours": round(hours, 2),
        "dataflow_dollars": round(dataflow, 2),
        "flink_dollars": round(hours * prices["machine_core_hour"] + objects, 2),
        "of_it_objects_dollars": round(objects, 2),
        "kept_a_month_dollars": round(1000 * output_ratio * prices["gb_month"], 2),
    }


def measured_rate(path: str | None) -> tuple[float, float]:
    """Input bytes per second of one core, and output bytes per input byte, from a saved plan or `benchmarks.build`."""
    if path is None:
        return 150e6 / 18.3, 0.9
    plan = json.loads(Path(path).read_text())
    secs = plan["forecast"]["worker_hours"]["value"] * 3600
    if not secs:
        raise SystemExit(f"{path}: the plan had nothing left to do, so it tells no rate. Plan to an empty directory.")
    return plan["num_bytes"] / secs, plan["forecast"]["total_output_bytes"]["value"] / plan["num_bytes"]


def child(phase: str, work: Path, records: int, shards: int) -> None:
    """One phase in this process; prints its figures."""
    found = {
        "plan": lambda: plan_phase(work),
        "job": lambda: job_phase(work),
        "files": lambda: files_phase(work),
        "publish": lambda: publish_phase(work, records, shards),
        "order": lambda: order_phase(records),
    }[phase]()
    print(json.dumps(found))


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = harness.parser(__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 10^5 shards and 10^9 records [1]")
    phases = (*BUILD_PHASES, *LOADER_PHASES)
    parser.add_argument("--phases", nargs="+", choices=phases, default=phases, help="only these [all]")
    parser.add_argument("--plan", help="a plan from `beam-pipes plan --save`, whose rate the cost model takes")
    for name, price in (
        ("dataflow-core-hour", 0.056),
        ("dataflow-gib-hour", 0.0036),
        ("machine-core-hour", 0.05),
        ("object-write", 5e-6),
        ("gb-month", 0.02),
    ):
        parser.add_argument(f"--{name}", type=float, default=price, help=f"a price in dollars [{price}]")
    parser.add_argument("--child", nargs=4, metavar=("PHASE", "PATH", "RECORDS", "SHARDS"), help="(used by itself)")
    options = parser.parse_args(arguments)
    if options.child:
        child(options.child[0], Path(options.child[1]), int(options.child[2]), int(options.child[3]))
        return {}
    shards = max(2, round(1e5 * options.scale))
    records = max(64 * shards, round(1e9 * options.scale))
    results: dict[str, Any] = {"shards": shards, "records": records}
    peaks: dict[str, int] = {}

    def run(phase: str, *arguments: str) -> dict[str, Any]:
        ran = harness.run_measured(list(arguments))
        peaks[phase] = ran.peak_rss_bytes
        found: dict[str, Any] = json.loads(ran.output.strip().splitlines()[-1])
        return found

    work = Path(tempfile.mkdtemp(prefix="beam-pipes-benchmark-"))
    try:
        if {"plan", "job"} & set(options.phases):
            write_files(work / "input", shards)
        if "files" in options.phases:
            write_files(work / "files", FILES_PER_SHARD * shards)
        for phase in (phase for phase in BUILD_PHASES if phase in options.phases):
            own = ("-c", AS_MODULE, "--child", phase, str(work), str(records), str(shards))
            results |= {name: value for name, value in run(phase, *own).items() if name not in ("shards",)}
        if set(LOADER_PHASES) & set(options.phases):
            loader_start.write_synthetic_cache(work / "cache", records, shards)
        for phase in (phase for phase in LOADER_PHASES if phase in options.phases):
            own = ("-m", "benchmarks.loader_start", "--child", phase, str(work / "cache"))
            results[f"{phase}_secs"] = round(run(phase, *own)["secs"], 3)
    finally:
        shutil.rmtree(work)
    results["peak_rss_bytes"] = max(peaks.values())
    results["peak_rss_bytes_of_phase"] = peaks
    prices = {
        name: getattr(options, name)
        for name in ("dataflow_core_hour", "dataflow_gib_hour", "machine_core_hour", "object_write", "gb_month")
    }
    rate, output_ratio = measured_rate(options.plan)
    results["bytes_per_sec_of_a_core"] = round(rate)
    results["prices"] = prices
    results["cost_per_tb"] = cost_per_tb(
        bytes_per_sec=rate, shard_bytes=32 << 20, output_ratio=output_ratio, prices=prices
    )
    harness.report(results, options.json)
    return results


if __name__ == "__main__":
    main()
