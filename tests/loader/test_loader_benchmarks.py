from __future__ import annotations

import json

import numpy as np

from beam_pipes.cache import write_cache
from benchmarks import block_shuffle, load, loader_start, packing, scoreboard, windows


def test_the_packing_benchmark_reports_six_distributions(tmp_path):
    packing.main(["--documents", "3000", "--json", str(tmp_path / "packing.json")])

    results = json.loads((tmp_path / "packing.json").read_text())
    assert results["token_batches"]["by_tokens"]["padding"] < results["token_batches"]["rows_of_64"]["padding"]

    for found in results["with_bos"].values():
        assert found["lost"] == 0 < found["lost_by_cropping"] and found["padding"] < 0.02
    assert packing.lost_by_cropping(np.array([6, 7]), 10) == 3 / 13

    assert len(results["distributions"]) == 6
    for distribution in results["distributions"].values():
        assert distribution["waste_of_bound"] <= distribution["best_fit"]["waste"] <= distribution["next_fit"]["waste"]


def test_the_block_shuffle_benchmark_shows_that_wider_windows_are_better(tmp_path):
    block_shuffle.main(["--shards", "64", "--records", "64", "--json", str(tmp_path / "quality.json")])

    found = json.loads((tmp_path / "quality.json").read_text())["batch_of_32"]

    assert found["window_1"]["spread"] > found["window_8"]["spread"] > found["window_32"]["spread"] >= 0.9


def test_the_start_benchmark_restores_from_a_synthetic_manifest(tmp_path):
    arguments = ["--records", "20000", "--shards", "200", "--repeats", "1"]
    loader_start.main([*arguments, "--json", str(tmp_path / "start.json")])

    results = json.loads((tmp_path / "start.json").read_text())

    assert results["restore_secs"] > 0 and results["first_batch_secs"] > 0
    assert results["state_bytes"] < 1000 and results["restore_peak_rss_bytes"] > 0


def test_the_loading_benchmark_checks_every_reader_and_compares_with_the_memory_map(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "_measure_five_features", lambda *_: {})
    load.main(["--tokens", "200000", "--repeats", "1", "--readers", "native", "--json", str(tmp_path / "load.json")])

    results = json.loads((tmp_path / "load.json").read_text())

    assert results["native_to_memmap"] > 0 and results["tokens"] == 196_608
    assert set(results["mtokens_per_sec"]) == {"memmap", "native"}


def test_packed_rows_are_compared_with_bare_copies_at_the_size_that_the_help_names(tmp_path):
    ratios = load._measure_ways(tmp_path, 5_000_000 // load.WIDTH // 4, 1)

    assert set(ratios) == {
        "packed_to_native",
        "packed_lengths_to_native",
        "filtered_to_native",
        "mixture_of_ten_to_native",
        "packed_bare_to_native",
    }
    assert all(ratio > 0 for ratio in ratios.values())


def test_windows_are_those_that_tensorflow_cuts_from_the_same_files(tmp_path):
    write_cache(tmp_path, {"train": windows.episodes(2)}, features=windows.FEATURES, num_shards=2)

    def rows(batches):
        return sorted(b"".join(batch[name].tobytes() for name in sorted(batch)) for batch in batches)

    ours, theirs = windows.ours(str(tmp_path), 0, batch=1), windows.theirs(str(tmp_path), 50, batch=1)
    assert rows(ours) == rows(theirs)


def test_the_windows_benchmark_starts_over_long_episodes(tmp_path):
    write_cache(tmp_path, {"train": windows.many(30)}, features=windows.MANY_FEATURES)

    found = windows.measured(str(tmp_path), "start")

    assert found["windows"] == 30_000 and found["shape"] == [32, 16] and found["state_bytes"] < 400


def test_the_scoreboard_shuffles_all_records_and_a_larger_buffer_mixes_better():
    assert sorted(scoreboard._buffered(list(range(100)), 7)) == list(range(100))

    found = scoreboard.main(["--only", "shuffle"])["shuffle"]

    assert found["buffer_of_16384"] < found["buffer_of_2048"] and found["blocks_of_16384"] < found["blocks_of_2048"]
