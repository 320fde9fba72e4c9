"""A cache as the data of torchtitan and of Lightning.

Lightning imports Triton, which aborts a process that has TensorFlow: its tests run in a process of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["torchtitan_loader", "lightning_data"])
def test_examples_are_short(name: str) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 64


def test_runs_read_the_cache_and_continue_after_the_last_batch() -> None:
    tests = ROOT / "tests" / "support" / "training_stacks.py"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", str(tests)]

    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)

    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-1000:]
    assert "7 passed" in finished.stdout
