"""Numbers from a source through a stage into a cache and out of it: the same ones, or dead letters."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_pipes.building import Declaration
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.loader import Loader
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
from beam_pipes.sources import JSONLines
from beam_pipes.typed import Pipeline

ONE = LocalOptions(workers=1)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Hashes(Pipeline):
    """64-bit hashes of a row, as plain ints beside an id that tells the row."""

    input_type = dict
    output_type = dict

    def transform(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        ints = [int(digits) for digits in row["digits"]]
        return [{"id": row["id"], "from_stage": ints, "from_source": row["hashes"]}]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Numbers(Pipeline):
    """The row as it is."""

    input_type = dict
    output_type = dict

    def transform(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        return [row]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def declared(path: Path, stage: Pipeline, features: Mapping[str, FeatureSpec] | None, **options: Any) -> Declaration:
    return Declaration(name="numbers", source=JSONLines(path), pipeline=stage, features=features, **options)


@pytest.mark.parametrize("encoding", ["raw", "list"])
def test_hashes_of_64_bits_are_read_back_as_they_were(tmp_path: Path, encoding: Any) -> None:
    draw = random.Random(7)
    bits = 64 if encoding == "raw" else 63
    hashes = [[draw.getrandbits(bits) for _ in range(draw.randint(0, 4))] + [2**bits - 1, 1] for _ in range(200)]
    rows = [{"id": i, "hashes": each, "digits": list(map(str, each))} for i, each in enumerate(hashes)]
    spec = FeatureSpec("uint64", shape=(None,), encoding=encoding, maximum=None if bits == 64 else 2**63 - 1)
    features = {"id": FeatureSpec("int32"), "from_stage": spec, "from_source": spec}

    result = build(declared(write(tmp_path / "in.jsonl", rows), Hashes(), features), tmp_path / "cache", options=ONE)

    assert (result.account.written, result.account.dead) == (200, 0)
    split = Cache.open(tmp_path / "cache")["train"]
    found = {int(one["id"]): one for one in split}
    loader = Loader(split, batch_size=16, epochs=1, last="partial", ragged="pad")
    for batch in loader:
        for row, number in enumerate(batch["id"].tolist()):
            for name in ("from_stage", "from_source"):
                assert found[number][name].tolist() == hashes[number]
                length = len(hashes[number])
                assert batch[name][row, :length].tolist() == hashes[number]


def test_features_that_are_inferred_from_hashes_are_unsigned(tmp_path: Path) -> None:
    rows = [{"x": [2**63 + i, i]} for i in range(20)]

    build(declared(write(tmp_path / "in.jsonl", rows), Numbers(), None), tmp_path / "cache", options=ONE)

    split = Cache.open(tmp_path / "cache")["train"]
    assert split.spec["x"] == FeatureSpec("uint64", shape=(None,))
    assert sorted(one["x"].tolist() for one in split) == [row["x"] for row in rows]


def test_a_list_that_no_dtype_holds_is_a_dead_letter(tmp_path: Path) -> None:
    rows = [{"x": [0.5, i]} for i in range(5)] + [{"x": [0.5, 2**53 + 1]}, {"x": [10**400, 1]}]
    declaration = declared(
        write(tmp_path / "in.jsonl", rows),
        Numbers(),
        {"x": FeatureSpec("float64", shape=(2,))},
        on_error="dead_letter",
    )

    result = build(declaration, tmp_path / "cache", options=ONE)

    cache = Cache.open(tmp_path / "cache")
    assert (result.account.written, result.account.dead) == (5, 2)
    words = sorted(letter.message for letter in cache.dead_letters())
    assert "exact in float64, got 10000000000" in words[0]
    assert "exact in float64, got 9007199254740993 (int64) at [1]" in words[1]


def test_halves_in_float_lists_are_read_in_every_way_with_their_bits(tmp_path: Path) -> None:
    rows = [{"fixed": [0.1, 1e-7, 65504.0], "ragged": [0.1] * (i % 3), "scalar": 0.1 + i} for i in range(12)]
    features = {
        "fixed": FeatureSpec("float16", shape=(3,), encoding="list"),
        "ragged": FeatureSpec("bfloat16", shape=(None,), encoding="list"),
        "scalar": FeatureSpec("float16", encoding="list"),
    }

    build(declared(write(tmp_path / "in.jsonl", rows), Numbers(), features), tmp_path / "cache", options=ONE)

    split = Cache.open(tmp_path / "cache")["train"]
    by_batch = split.gather(range(12), ragged="pad")
    for index, one in enumerate(split):
        expected = rows[int(np.argmin([abs(row["scalar"] - float(one["scalar"])) for row in rows]))]
        for name, spec in features.items():
            wanted = np.array(expected[name], spec.numpy_dtype)
            assert one[name].tobytes() == wanted.tobytes()
            assert np.atleast_1d(by_batch[name][index])[: wanted.size].tobytes() == wanted.tobytes()
