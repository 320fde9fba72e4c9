"""The figures of the sizing guide come from a script, and the page says what the script says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from benchmarks import sizing


def test_each_kind_is_built_and_weighed(tmp_path: Path) -> None:
    kinds = ["text", "rows", "pixels", "mel"]
    results = sizing.main(["--megabytes", "0.3", "--json", str(tmp_path / "sizing.json"), "--kinds", *kinds])

    assert json.loads((tmp_path / "sizing.json").read_text()).keys() >= {*kinds, "date", "machine"}
    for kind in kinds:
        figures = results[kind]
        parts = sum(figures[f"{part}_bytes"] for part in ("shards", "indexes", "lineage", "rest"))
        assert figures["cache_to_input"] == pytest.approx(parts / figures["input_bytes"])
        assert figures["records"] > 0 and figures["records_per_sec"] > 0
        assert figures["peak_rss_bytes"] > 10 << 20

    # A picture of 224 x 224 x 3 bytes; 80 bands of two bytes for each 256 samples of two bytes.
    assert results["pixels"]["shards_bytes"] / results["pixels"]["records"] == pytest.approx(224 * 224 * 3, rel=0.01)
    assert results["mel"]["shards_bytes"] / results["mel"]["input_bytes"] == pytest.approx(80 / 256, rel=0.02)


def test_the_same_input_is_written_every_time(tmp_path: Path) -> None:
    for copy in ("a", "b"):
        for kind in ("rows", "mel"):
            sizing.write_input(tmp_path / copy, kind, 50_000)
    first, second = ([path.read_bytes() for path in sorted((tmp_path / copy).rglob("*.*"))] for copy in "ab")
    assert first == second and len(first) >= 2


def test_a_vocabulary_shortens_the_text_that_it_was_trained_on(tmp_path: Path) -> None:
    sizing.train_tokenizer(tmp_path / "tokenizer.json", vocabulary=2_000)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    line = sizing.paragraphs()[0]

    ids = tokenizer.encode(line).ids

    assert tokenizer.get_vocab_size() == 2_000
    assert 0 < len(ids) < len(line.encode()) / 2
