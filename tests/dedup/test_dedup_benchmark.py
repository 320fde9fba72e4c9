"""The benchmark of deduplication, on few records."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import dedup as benchmark


def test_the_benchmark_finds_what_it_has_planted_and_measures_every_part(tmp_path: Path) -> None:
    options = ["--records", "3000", "--near-records", "1000", "--bytes", "100000", "--repeats", "1"]

    results = benchmark.main([*options, "--json", str(tmp_path / "dedup.json")])

    assert json.loads((tmp_path / "dedup.json").read_text())["exact"] == results["exact"]
    assert results["exact"]["removed"] == 600
    assert 190 <= results["near"]["removed"] <= 200
    assert 24 <= results["exact"]["accumulator_bytes_per_record"] < 25
    for name in ("exact_mb_per_sec", "exact_plain_text_mb_per_sec", "near_mb_per_sec"):
        assert results[name] > 0
