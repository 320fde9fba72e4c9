"""DALI in its environment, and the lines of a script that change in a migration from DALI: its imports."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
DALI = ROOT / ".venv-dali/bin"

_HERE = {"nvidia.dali": "beam_pipes.graph", "nvidia.dali.types": "beam_pipes.graph.types"}
_MODULES = {
    "nvidia.dali.fn": "beam_pipes.transforms.fn",
    "nvidia.dali.tfrecord": "beam_pipes.graph.functions",
    "nvidia.dali.types": "beam_pipes.graph.types",
}
# Module of DALI → name → module and name here; other names are in `beam_pipes.graph`.
_MOVED = {
    ("nvidia.dali", "fn"): ("beam_pipes.transforms", "fn"),
    ("nvidia.dali", "ops"): ("beam_pipes.transforms", "ops"),
    ("nvidia.dali", "math"): ("beam_pipes.transforms.fn", "math"),
    ("nvidia.dali.plugin.jax", "DALIGenericIterator"): ("beam_pipes.on_device", "JaxGenericIterator"),
    ("nvidia.dali.plugin.jax", "data_iterator"): ("beam_pipes.on_device", "data_iterator"),
    ("nvidia.dali.plugin.pytorch", "DALIGenericIterator"): ("beam_pipes.on_device", "TorchGenericIterator"),
    ("nvidia.dali.plugin.pytorch", "DALIClassificationIterator"): (
        *("beam_pipes.on_device", "TorchClassificationIterator"),
    ),
}


def moved(line: str) -> str:
    """A line of imports from DALI as it is here: `from nvidia.dali import fn, types` → two imports."""
    if found := re.fullmatch(r"import ([\w.]+) as (\w+)", line):
        return f"import {_MODULES[found.group(1)]} as {found.group(2)}"
    found = re.fullmatch(r"from ([\w.]+) import (.+)", line)
    assert found is not None, line
    imports = []
    for each in found.group(2).split(", "):
        name, _, alias = each.partition(" as ")
        module, own = _MOVED.get((found.group(1), name), (_HERE.get(found.group(1), "beam_pipes.graph"), name))
        imports.append(f"from {module} import {own} as {alias or name}")
    return "; ".join(imports)


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
