"""The benchmark of samplers, on few lengths."""

from __future__ import annotations

import json
import sys

from benchmarks import samplers as benchmark


def test_the_benchmark_writes_the_waste_of_each_sampler_on_six_distributions(tmp_path, capsys, monkeypatch):
    path = tmp_path / "samplers.json"
    options = ["--examples", "3200", "--repeats", "1", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["samplers", *options])

    benchmark.main()

    results = json.loads(path.read_text())
    wastes = {name: value for name, value in results.items() if name.startswith("waste/")}
    assert 6 * 6 == len(wastes)
    for kind in benchmark.distributions(1):
        assert wastes[f"waste/{kind}/bucketed"] < wastes[f"waste/{kind}/random"]
        assert wastes[f"waste/{kind}/bucketed_max_elements"] < 0.20
    assert wastes["waste/uniform_200_900/bucketed"] < 0.02
    assert abs(wastes["waste/uniform_200_900/random"] - 0.38) < 0.02


def test_batches_hold_every_length_once():
    lengths = benchmark.distributions(1000)["pareto_heavy_tail"]

    for batches in benchmark.samplers(lengths, 16).values():
        assert list(range(1000)) == sorted(index for batch in batches for index in batch)
