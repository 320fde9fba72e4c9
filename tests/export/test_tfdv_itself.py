"""TensorFlow Data Validation, in an environment of its own, opens our statistics and makes its own of our examples."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_exports import FEATURES, Everything, built

from beam_pipes.export import export

ROOT = Path(__file__).parents[2]


def tfdv_python() -> Path:
    """The interpreter of the environment; made where it is missing, as `make test` does beforehand."""
    if not (ROOT / ".venv-tfdv/.installed").exists():
        subprocess.run(["make", ".venv-tfdv/.installed"], cwd=ROOT, check=True)
    return ROOT / ".venv-tfdv/bin/python"


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What it says of a cache's statistics, schema and examples."""
    root = tmp_path_factory.mktemp("tfdv")
    cache = built(root, Everything(), FEATURES)
    request = {"tfmd": str(root / "tfmd"), "tfx": str(root / "tfx"), "split": "train", "answer": str(root / "answer")}
    for format in ("tfmd", "tfx"):
        export(cache, root / format, format=format)
    (root / "request.json").write_text(json.dumps(request))
    ran = subprocess.run(
        [tfdv_python(), ROOT / "tests/support/tfdv_side.py", root / "request.json"],
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads((root / "answer").read_text())
    return found


def test_it_opens_statistics_and_schema_and_finds_nothing_wrong(answer: dict[str, Any]) -> None:
    assert answer["num_examples"] == 18
    assert answer["ours"].keys() == FEATURES.keys()
    assert answer["anomalies"] == answer["anomalies_of_theirs"] == []
    assert answer["anomalies_where_tokens_are_narrow"] == ["tokens"]
    assert answer["page_bytes"] > 1000


def test_our_statistics_are_what_it_counts_itself(answer: dict[str, Any]) -> None:
    ours, theirs = answer["ours"], answer["theirs"]

    assert ours.keys() == theirs.keys()
    for name, found in ours.items():
        expected = theirs[name]
        if name == "raw":  # to it, bytes without a schema are texts
            assert (found.pop("kind"), found.pop("type")) == ("bytes_stats", "BYTES")
            assert (expected.pop("kind"), expected.pop("type")) == ("string_stats", "STRING")
        if found.get("kind") == "num_stats":  # of two values in the middle it takes the greater one
            assert found.pop("median") <= expected.pop("median")
        assert found == pytest.approx(expected), name
