"""The benchmark of tokens, on little text."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import tokens as benchmark


def test_all_encoders_and_jobs_are_measured_and_agree(tmp_path: Path) -> None:
    results = benchmark.main(["--bytes", "300000", "--repeats", "1", "--json", str(tmp_path / "tokens.json")])

    assert json.loads((tmp_path / "tokens.json").read_text())["documents"] == results["documents"] > 5
    assert results["tokens"] > 50_000
    for name in ("tokenizers_encode_batch_fast", "tiktoken", "vocabulary_encode", "vocabulary_encode_batch"):
        assert results[f"{name}_mb_per_cpu_sec"] > 0
    for name in (
        "recipe_to_bare",
        "recipe_to_backend",
        "stage_to_bare",
        "two_cores",
        "two_cores_by_cpu",
        "tiktoken_to_tokenizers",
    ):
        assert results[name] > 0
