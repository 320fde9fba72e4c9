"""Whole scripts in the style of DALI's documentation find here what DALI 2.4 finds, with only their imports changed.

One process runs all of them with DALI on the CPU, torch and JAX included; ours runs here.
"""

from __future__ import annotations

import pickle
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_environment import ROOT, moved, run_dali
from dali_script_data import write_data
from dali_scripts_side import NAMES, run_script

# Script and the beginning of a key → how far apart numbers may be, where pixels that are 1 apart were computed with.
APART = {
    ("conditionals", "stacked"): 1.0,
    ("getting_started", "gray"): 1.0,  # of PNG, which DALI rounds down
    ("records", "images"): 1.0,
    ("sequences", "chw"): 1 / 64,
    ("training", "val"): 1 / (0.224 * 255),
    ("sound", ""): 2e-3,  # sums in another order; decibels
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("scripts")
    write_data(made)
    return made


@pytest.fixture(scope="module")
def answers(directory: Path) -> dict[str, Any]:
    path = directory / "answers.pickle"
    side = ROOT / "tests/support/dali_scripts_side.py"
    run_dali(side, directory, sysconfig.get_paths()["purelib"], path)
    found: dict[str, Any] = pickle.loads(path.read_bytes())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_script_finds_what_it_finds_with_dali(name: str, directory: Path, answers: dict[str, Any]) -> None:
    found = run_script(name, directory, moved)

    assert list(found) == list(answers[name])
    for key, expected in answers[name].items():
        apart = next((most for (script, start), most in APART.items() if script == name and key.startswith(start)), 0.0)
        check(found[key], expected, apart, f"{name}: {key}")


def check(found: Any, expected: Any, apart: float, where: str) -> None:
    """Asserts that both are the same: pixels but for 1 in a tenth of them, floats but for their last digits."""
    assert type(found) is type(expected), where
    if isinstance(expected, (list, dict)):
        keys = list(expected) if isinstance(expected, dict) else range(len(expected))
        assert len(found) == len(expected) and (list(found) == keys or isinstance(found, list)), where
        for key in keys:
            check(found[key], expected[key], apart, f"{where}, {key}")
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), where
        distance = np.abs(found.astype(np.float64) - expected.astype(np.float64))
        if expected.dtype == np.uint8 and expected.ndim >= 3:
            share = 1.0 if apart else 0.1
            assert np.all(distance <= 1) and np.count_nonzero(distance) <= share * distance.size, where
        elif expected.dtype.kind == "f" or apart:
            assert np.all(distance <= apart + 2e-6 + 1e-5 * np.abs(expected)), (where, distance.max())
        else:
            assert not distance.any(), where
    else:
        assert found == expected, where
