"""The benchmark of deduplication, on few records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import dedup as benchmark


def test_the_benchmark_finds_what_it_has_planted_and_measures_every_part(tmp_path: Path) -> None:
    options = ["--records", "3000", "--near-records", "1000", "--bytes", "100000", "--repeats", "1"]

    results = benchmark.main([*options, "--json", str(tmp_path / "dedup.json")])

    assert json.loads((tmp_path / "dedup.json").read_text())["exact"] == results["exact"]
    assert results["exact"]["removed"] == 600
    assert 190 <= results["near"]["removed"] <= 200
    assert 24 <= results["exact"]["accumulator_bytes_per_record"] < 25
    assert results["near"]["extrapolated"]["accumulator_bytes"] == pytest.approx(656 * 10**8, rel=0.05)
    for name in ("exact_mb_per_sec", "exact_plain_text_mb_per_sec", "near_mb_per_sec"):
        assert results[name] > 0


def test_memory_continues_as_a_line_and_time_as_a_power() -> None:
    tenth = {"records": 10**5, "secs": 1.0, "peak_bytes": 10_000_000}
    whole = {"records": 10**6, "secs": 12.0, "peak_bytes": 28_000_000, "accumulator_bytes_per_record": 656.0}

    found = benchmark.extrapolated(tenth, whole, 10**8)

    assert found == {"records": 10**8, "peak_bytes": 2_008_000_000, "secs": 1728, "accumulator_bytes": 65_600_000_000}
    assert benchmark.extrapolated(tenth, {**whole, "secs": 2.0}, 10**8)["secs"] == 200  # never below the first power
