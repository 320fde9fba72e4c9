"""Named tuples whose only code is a property: a fingerprint of them is the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from beam_pipes.identity.source_code import class_node

MODULE = """
import functools
from typing import NamedTuple

class {name}(NamedTuple):
    size: int

    {decorator}
    def twice(self):
        return {code}

class Stage:
    name, input_type, output_type = "Stage", str, str
    def transform(self, line):
        return [line * {name}(1).twice]
"""


def fingerprint_of(directory: Path, seed: int) -> str:
    code = (
        "import named\nfrom beam_pipes.identity.fingerprint import fingerprint\nprint(fingerprint(named.Stage).digest)"
    )
    path = os.pathsep.join([str(directory), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("decorator", ["@property", "@classmethod"])
def test_it_is_the_same_in_every_process_and_follows_the_code(decorator: str, tmp_path: Path) -> None:
    module = tmp_path / "named.py"
    digests = []
    for code in ("2", "2", "3"):
        module.write_text(MODULE.format(name="Pair", decorator=decorator, code=code))
        digests.append(fingerprint_of(tmp_path, seed=len(digests)))

    assert digests[0] == digests[1] != digests[2]


def test_the_source_of_a_class_is_found_by_its_properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "found_by_property.py").write_text(MODULE.format(name="Pair", decorator="@property", code="2"))
    monkeypatch.syspath_prepend(str(tmp_path))
    from found_by_property import Pair  # type: ignore[import-not-found]

    node = class_node(Pair)

    assert node is not None and node.name == "Pair"
