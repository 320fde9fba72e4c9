"""The benchmark of large caches, at a thousandth of its size; and its cost model."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from beam_pipes.cache import Cache
from benchmarks import scale

PRICES = {
    "dataflow_core_hour": 0.06,
    "dataflow_gib_hour": 0.01,
    "machine_core_hour": 0.05,
    "object_write": 1e-6,
    "gb_month": 0.02,
}


def test_it_reports_time_and_memory_of_each_phase(tmp_path: Path) -> None:
    results = scale.main(["--scale", "0.0005", "--phases", "plan", "first_batch", "--json", str(tmp_path / "it.json")])

    assert results.keys() <= json.loads((tmp_path / "it.json").read_text()).keys()
    assert (results["shards"], results["records"]) == (50, 500_000)
    assert min(results[f"{name}_secs"] for name in ("plan", "replan", "first_batch")) >= 0
    assert list(results["peak_rss_bytes_of_phase"]) == ["plan", "first_batch"]
    assert results["peak_rss_bytes"] == max(results["peak_rss_bytes_of_phase"].values()) > 0


def test_phases_do_what_a_build_does(tmp_path: Path) -> None:
    scale.write_files(tmp_path / "input", 50)
    assert scale.plan_phase(tmp_path)["shards"] == 50
    assert 10_000 < scale.job_phase(tmp_path)["job_graph_bytes"] < 1 << 20
    published = scale.publish_phase(tmp_path, 500, 50)
    assert 1000 < published["manifest_bytes"] < 20_000
    assert min(published["status_secs"], published["publish_secs"]) > 0 <= published["publish_cpu_secs"]
    assert published["status_cpu_secs"] >= 0
    assert Cache.open(tmp_path / "published").manifest.accounting["read"] == 500
    assert scale.order_phase(10_000)["order_indices_per_sec"] > 0


def test_many_small_files_are_planned_twice(tmp_path: Path) -> None:
    scale.write_files(tmp_path / "files", 300)
    time.sleep(0.1)  # so that digests are kept

    found = scale.files_phase(tmp_path)

    assert (found["files"], found["digests_bytes"]) == (300, 24 + 300 * 48 + len("{}") + 4)
    assert min(found["files_cold_secs"], found["files_known_secs"]) > 0 <= found["files_known_cpu_secs"]


def test_the_cost_of_a_terabyte() -> None:
    cost = scale.cost_per_tb(bytes_per_sec=1e12 / 3600 / 100, shard_bytes=1e6, output_ratio=0.5, prices=PRICES)

    assert cost == {
        "core_hours": 100.0,
        "dataflow_dollars": 100 * (0.06 + 4 * 0.01) + 4.0,
        "flink_dollars": 100 * 0.05 + 4.0,
        "of_it_objects_dollars": 4.0,
        "kept_a_month_dollars": 10.0,
    }


def test_the_rate_comes_from_a_saved_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    forecast = {"worker_hours": {"value": 0.5}, "total_output_bytes": {"value": 3_600_000}}
    plan.write_text(json.dumps({"num_bytes": 7_200_000, "forecast": forecast}))

    assert scale.measured_rate(str(plan)) == (4000.0, 0.5)
    plan.write_text(json.dumps({"num_bytes": 1, "forecast": {**forecast, "worker_hours": {"value": 0}}}))
    with pytest.raises(SystemExit, match="the plan had nothing left to do, so it tells no rate"):
        scale.measured_rate(str(plan))
