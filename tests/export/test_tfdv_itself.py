"""TensorFlow Data Validation, in an environment of its own, opens our statistics and makes its own of our examples."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_exports import FEATURES, Everything, built

from beam_pipes.building import Declaration
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.export import export
from beam_pipes.runners import LocalOptions, build
from beam_pipes.sources import Memory
from beam_pipes.typed import Pipeline

ROOT = Path(__file__).parents[2]


AWKWARD: dict[str, Any] = {
    "text": FeatureSpec("str"),
    "words": FeatureSpec("str", shape=(None,)),
    "raw": FeatureSpec("bytes"),
    "numbers": FeatureSpec("float32", shape=(None,)),
    "nothing": FeatureSpec("float32", shape=(None,)),
    "number": FeatureSpec("int64"),
    "same": FeatureSpec("float32"),
    "flag": FeatureSpec("bool"),
}


class Awkward(Pipeline):
    """A number as texts of several bytes a character, empty ones, empty lists, NaN, infinities and -0.0."""

    def __init__(self, shift: int) -> None:
        super().__init__(str, dict, "Awkward")
        self.shift = shift

    def transform(self, line: str) -> list[dict[str, Any]]:
        number = int(line) + self.shift
        endings = {3: [math.nan], 5: [math.inf, -0.0], 7: [-math.inf]}
        return [
            {
                "text": ["", "ä", "日本語", "plain"][number % 4 if self.shift == 0 else 2],
                "words": np.array(["é" * (number % 3), ""][: number % 3], object),
                "raw": b"\xff" * (number % 4),
                "numbers": np.array([float(number)] * (number % 3) + endings.get(number, []), np.float32),
                "nothing": np.full(number % 2, math.nan, np.float32),
                "number": number * number,
                "same": 2.5,
                "flag": number % 2 == 0,
            }
        ]


def awkward(root: Path, shift: int) -> Cache:
    declaration = Declaration(
        name="awkward",
        source=Memory([str(number) for number in range(40)], records_per_shard=15),
        pipeline=Awkward(shift),
        features=AWKWARD,
    )
    build(declaration, root / "cache", options=LocalOptions(workers=1))
    return Cache.open(root / "cache")


def tfdv_python() -> Path:
    """The interpreter of the environment; made where it is missing, as `make test` does beforehand."""
    if not (ROOT / ".venv-tfdv/.installed").exists():
        subprocess.run(["make", ".venv-tfdv/.installed"], cwd=ROOT, check=True)
    return ROOT / ".venv-tfdv/bin/python"


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What it says of a cache's statistics, schema and examples."""
    root = tmp_path_factory.mktemp("tfdv")
    for name in ("everything", "awkward", "shifted"):
        (root / name).mkdir()
    caches = {
        "everything": built(root / "everything", Everything(), FEATURES),
        "awkward": awkward(root / "awkward", 0),
        "shifted": awkward(root / "shifted", 100),
    }
    exported = {
        name: {format: export(cache, root / name / format, format=format) for format in ("tfmd", "tfx")}
        for name, cache in caches.items()
    }
    request = {
        "caches": exported,
        "drift": ["awkward", "shifted"],
        "split": "train",
        "answer": str(root / "answer"),
    }
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
    assert answer["num_examples"] == {"everything": 18, "awkward": 40, "shifted": 40}
    assert answer["ours"]["everything"].keys() == FEATURES.keys()
    assert answer["anomalies"] == {name: [[], []] for name in ("everything", "awkward", "shifted")}
    assert answer["anomalies_where_tokens_are_narrow"] == ["tokens"]
    assert answer["page_bytes"] > 1000


@pytest.mark.parametrize("name", ["everything", "awkward", "shifted"])
def test_our_statistics_are_what_it_counts_itself(answer: dict[str, Any], name: str) -> None:
    ours, theirs = answer["ours"][name], answer["theirs"][name]

    assert ours.keys() == theirs.keys()
    for feature in ours:
        found, expected = dict(ours[feature]), dict(theirs[feature])
        if feature == "raw":  # to it, bytes without a schema are texts
            assert (found["kind"], found["type"]) == ("bytes_stats", "BYTES")
            assert found["bytes"][0] == pytest.approx(expected["avg_length"])
            for made in (found, expected):
                for key in {"kind", "type", "bytes", "avg_length", "top_values", "ranks"} & made.keys():
                    del made[key]
        if found.get("kind") == "num_stats" and "STANDARD" in found:
            # Of two values in the middle it takes the greater one.
            assert found.pop("median") <= expected.pop("median")
            # It shares out the values of a thousand ranges, so its numbers are a little off.
            assert_near(found.pop("STANDARD"), expected.pop("STANDARD"))
            if math.inf in (abs(found["min"]), abs(found["max"])):
                assert math.isnan(expected.pop("mean"))
                assert [math.isfinite(found.pop(key)) for key in ("mean", "std_dev")] == [True, True]
                expected.pop("std_dev")
        for key, figure in found.items():
            value = np.array(figure, object if not key.isupper() else float)
            assert value.shape == np.shape(np.array(expected[key], value.dtype)), (feature, key)
            assert value.ravel().tolist() == pytest.approx(np.array(expected[key], value.dtype).ravel().tolist()), (
                feature,
                key,
            )
        assert found.keys() == expected.keys()


def assert_near(ours: list[list[float]], theirs: list[list[float]]) -> None:
    assert [bucket[:2] for bucket in ours] == [pytest.approx(bucket[:2]) for bucket in theirs]
    assert [bucket[2] for bucket in ours] == pytest.approx([bucket[2] for bucket in theirs], abs=0.3)


def test_awkward_values_are_counted_and_the_moments_are_those_of_the_finite_ones(answer: dict[str, Any]) -> None:
    found = answer["ours"]["awkward"]
    numbers = [float(number) for number in range(40) for _ in range(number % 3)] + [-0.0]

    assert found["numbers"]["mean"] == pytest.approx(np.mean(numbers))
    assert found["numbers"]["std_dev"] == pytest.approx(np.std(numbers))
    assert (found["numbers"]["min"], found["numbers"]["max"]) == (-math.inf, math.inf)
    assert found["numbers"]["num_nan"] == [1, 1]
    assert found["nothing"]["num_nan"] == [20, 20]
    assert found["text"]["avg_length"] == (0 + 2 + 9 + 5) / 4


def test_its_check_for_drift_sees_one_in_our_statistics(answer: dict[str, Any]) -> None:
    found, expected = answer["drift"], answer["drift_of_theirs"]

    assert {"number", "numbers", "text"} <= set(found["anomalies"])
    assert found["anomalies"] == expected["anomalies"]
    assert found["measured"] == pytest.approx(expected["measured"], abs=0.02)
    # A feature with infinite values is some way from itself, in its own statistics too.
    assert answer["drift_of_nothing"]["measured"] == pytest.approx(
        {"number": 0, "text": 0, "numbers": answer["drift_of_nothing"]["measured"]["numbers"]}
    )
    assert answer["drift_of_nothing"]["anomalies"] == ["numbers"]
