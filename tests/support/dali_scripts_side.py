"""Runs complete DALI user scripts in a directory with their data (`dali_script_data`), and keeps their results.

    .venv-dali/bin/python tests/support/dali_scripts_side.py DIRECTORY SITE_PACKAGES ANSWERS

runs them with DALI. torch and JAX, whose arrays its iterators give, come from SITE_PACKAGES, behind its own packages.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[1] / "references" / "dali_scripts"
NAMES = sorted(path.stem for path in SCRIPTS.glob("[a-z]*.py"))


def run_script(name: str, directory: Path, imports: Callable[[str], str] = str) -> dict[str, Any]:
    """A script's final `found`; `imports` changes its lines that import from DALI."""
    path = SCRIPTS / f"{name}.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    text = "\n".join(imports(line) if line.startswith(("from nvidia", "import nvidia")) else line for line in lines)
    module = types.ModuleType(f"dali_script_{name}")
    sys.modules[module.__name__] = module  # where the conversion of conditions looks it up
    before = os.getcwd()
    os.chdir(directory)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            exec(compile(text, str(path), "exec"), vars(module))
    finally:
        os.chdir(before)
    return {key: _plain(value) for key, value in vars(module)["found"].items()}


def _plain(value: Any) -> Any:
    """Arrays of NumPy in lists and dicts, whatever the values are of."""
    import numpy as np

    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float, str, bytes)) else np.array(value)


def main(directory: str, site_packages: str, answers: str) -> None:
    sys.path.append(site_packages)
    Path(answers).write_bytes(pickle.dumps({name: run_script(name, Path(directory)) for name in NAMES}))


if __name__ == "__main__":
    main(*sys.argv[1:])
