"""The benchmark of tokens, on little text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import tokens as benchmark


def test_all_encoders_and_jobs_are_measured_and_agree(tmp_path: Path) -> None:
    results = benchmark.main(["--bytes", "300000", "--repeats", "1", "--json", str(tmp_path / "tokens.json")])

    assert json.loads((tmp_path / "tokens.json").read_text())["documents"] == results["documents"] > 5
    assert results["tokens"] > 50_000
    for name in ("tokenizers_encode_batch_fast", "tiktoken", "vocabulary_encode", "vocabulary_encode_batch"):
        assert results[f"{name}_mb_per_cpu_sec"] > 0
    for job in benchmark.JOBS:
        assert results[f"{job}_mb_per_cpu_sec"] > 0 and results[f"{job}_mb_per_sec"] > 0
    for name in (
        "recipe_to_bare",
        "recipe_to_backend",
        "stage_to_bare",
        "parquet_to_bare",
        "two_cores",
        "two_cores_by_cpu",
        "two_cores_to_datasets",
        "two_cores_to_datatrove",
        "two_cores_to_megatron",
        "tiktoken_to_tokenizers",
    ):
        assert results[name] > 0


def test_no_text_is_there_twice_and_too_little_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site-packages").mkdir()
    for name, text in {"a.py": "a = 1", "site-packages/b.py": "b = 2", "c.py": "a = 1", "d.py": benchmark.END}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(
        "sysconfig.get_path", lambda name: str(tmp_path / ("site-packages" if name == "purelib" else ""))
    )

    assert list(benchmark.documents(10)) == ["a = 1", "b = 2"]
    with pytest.raises(SystemExit, match=r"2 of 2 MB of text are missing here\. Give fewer --bytes"):
        list(benchmark.documents(2_000_000))


def test_ids_are_compared_text_by_text_in_whatever_order() -> None:
    one, other = np.array([5, 6, 0, 7, 0], np.int32), np.array([7, 0, 5, 6, 0], np.uint16)

    assert benchmark.digest_of(iter([one])) == benchmark.digest_of(iter([other[:2], other[2:]]))
    assert benchmark.digest_of(iter([one])) != benchmark.digest_of(iter([np.array([5, 6, 7, 0, 0])]))
    with pytest.raises(SystemExit, match="1 ids are not followed by the end of a text"):
        benchmark.digest_of(iter([one[:1]]))
