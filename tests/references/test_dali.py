"""DALI's names and programs: what is there, what is different, what is absent, and what programs of users give.

`dali_names.json` and `dali_answers.json` are what `dali_reference.py` has found in DALI 2.4.0 itself.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import dali_reference  # noqa: E402  # as it stands where DALI is

# Module of DALI → name → where it is here; what is not named is in `beam_pipes.graph`.
MOVED = {
    ("nvidia.dali", "fn"): "from beam_pipes.transforms import fn",
    ("nvidia.dali", "ops"): "from beam_pipes.transforms import ops",
    ("nvidia.dali.plugin.pytorch", "DALIGenericIterator"): (
        "from beam_pipes.on_device import TorchGenericIterator as DALIGenericIterator"
    ),
    ("nvidia.dali.plugin.pytorch", "DALIClassificationIterator"): (
        "from beam_pipes.on_device import TorchClassificationIterator as DALIClassificationIterator"
    ),
}


def moved(line: str) -> str:
    """A line of imports from DALI as it is here: `from nvidia.dali import fn, types` → two imports."""
    found = re.fullmatch(r"from ([\w.]+) import (.+)", line)
    assert found is not None, line
    module, names = found.group(1), found.group(2).split(", ")
    return "; ".join(MOVED.get((module, name), f"from beam_pipes.graph import {name}") for name in names)


ANSWERS: dict[str, Any] = json.loads((HERE / "dali_answers.json").read_text())
PROGRAMS = dali_reference.programs(moved)


def alike(found: Any, expected: Any) -> bool:
    """Whether both are the same but for the last digits of float32, which is computed in other orders."""
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(alike, found, expected))
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-6)
    return bool(found == expected)


def test_every_program_has_a_recorded_answer() -> None:
    assert sorted(PROGRAMS) == sorted(ANSWERS) and len(PROGRAMS) >= 30


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_give_what_they_give_with_dali(name: str) -> None:
    found = dali_reference.answer(PROGRAMS[name])

    assert alike(found, ANSWERS[name]), found
