"""DALI in its environment, and the lines of a script that change in a migration from DALI: its imports."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
DALI = ROOT / ".venv-dali/bin"


def moved(line: str) -> str:
    """A line of imports from DALI as it is here: one word of it changes."""
    return line.replace("nvidia.dali", "beam_pipes.dali")


def run_dali(*arguments: str | Path) -> str:
    """Runs Python in DALI's environment, creating it if missing, as `make test` does beforehand; returns the output."""
    if not (ROOT / ".venv-dali/.installed").exists():
        subprocess.run(["make", ".venv-dali/.installed"], cwd=ROOT, check=True)
    ran = subprocess.run(
        [DALI / "python", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
