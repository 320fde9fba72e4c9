"""torchtitan's own trainer over two caches: as many steps and the same losses on 4 ranks, and on 4, then 2, then 3."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np

from beam_pipes import FeatureSpec, write_cache

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-torchtitan/bin/python"
RANDOM = np.random.default_rng(0)


def documents(first: int, longest: int) -> list[dict[str, np.ndarray]]:
    """Runs of token ids from `first` on."""
    sizes = RANDOM.integers(5, longest, 100).tolist()
    starts = RANDOM.integers(first, first + 900, 100).tolist()
    return [{"tokens": np.arange(start, start + size)} for start, size in zip(starts, sizes, strict=True)]


def test_losses_are_equal_on_any_number_of_ranks(tmp_path: Path) -> None:
    assert PYTHON.exists(), f"{PYTHON} is not there: run `make .venv-torchtitan/.installed` first"
    features = {"tokens": FeatureSpec("uint16", shape=(None,))}
    write_cache(tmp_path / "books", {"train": documents(0, 90)}, features=features)
    write_cache(tmp_path / "web", {"train": documents(1000, 40)}, features=features)
    run = {"shares": {f"{tmp_path}/books/train": 0.7, f"{tmp_path}/web/train": 0.3}, "steps": 1000}
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    runs = [
        {**run, "ranks": 4, "folder": whole},
        {**run, "ranks": 2, "folder": parts, "continues": whole, "steps": 6},
        {**run, "ranks": 3, "folder": parts},
    ]

    command = [str(PYTHON), "-m", "tests.support.torchtitan_training", json.dumps(runs)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)

    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
    # Each rank logs the loss of all, and ends after the last whole batch of the one epoch.
    expected = [json.loads(Path(whole, f"losses.{rank}").read_text()) for rank in range(4)]
    assert expected == expected[:1] * 4
    steps = [int(step) for step in expected[0]]
    assert steps == list(range(1, steps[-1] + 1)) and steps[-1] in range(8, 20)
    output = finished.stdout + finished.stderr
    assert output.count("Ran out of data; last step was canceled.") == 4 + 3
    resumed = [json.loads(Path(parts, f"losses.{rank}").read_text()) for rank in range(3)]
    assert resumed == resumed[:1] * 3
    assert [int(step) for step in resumed[0]] == steps[6:]
    np.testing.assert_allclose(list(resumed[0].values()), list(expected[0].values())[6:], rtol=1e-5)
