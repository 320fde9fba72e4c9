"""DALI, in an environment of its own, reads a cache by the indices that we export for it; no GPU is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_environment import ROOT, run_dali
from test_exports import built

from beam_pipes.building.takedown import take_down
from beam_pipes.cache import Cache, FeatureSpec
from beam_pipes.export.export import export_dali_index
from beam_pipes.typed import Pipeline

FEATURES = {
    "text": FeatureSpec("str"),
    "raw": FeatureSpec("uint16", shape=(None,)),
    "codes": FeatureSpec("int64", shape=(None,), encoding="list"),
    "shares": FeatureSpec("float32", shape=(2,), encoding="list"),
}


class Codes(Pipeline):
    """A line with numbers as raw bytes and as lists."""

    def __init__(self) -> None:
        super().__init__(str, dict, "Codes")

    def transform(self, line: str) -> list[dict[str, Any]]:
        codes = [ord(letter) for letter in line]
        shares = np.array([len(line), 0.5], np.float32)
        return [{"text": line, "raw": np.array(codes, np.uint16), "codes": np.array(codes, np.int64), "shares": shares}]


def read_by_dali(cache: Cache, directory: Path) -> list[dict[str, Any]]:
    made = export_dali_index(cache, directory / "indices")
    request = {
        "shards": [shard for shard, _ in made],
        "indices": [index for _, index in made],
        "features": {"text": "string", "raw": "string", "codes": "int64", "shares": "float32"},
        "answer": str(directory / "answer.json"),
    }
    (directory / "request.json").write_text(json.dumps(request))
    run_dali(ROOT / "tests/support/dali_side.py", directory / "request.json")
    rows: list[dict[str, Any]] = json.loads((directory / "answer.json").read_text())["rows"]
    return rows


@pytest.mark.parametrize("taken_down", [False, True], ids=["whole", "taken_down"])
def test_dali_reads_every_record_in_order(tmp_path: Path, taken_down: bool) -> None:
    cache = built(tmp_path, Codes(), FEATURES)
    expected = list(cache["train"])
    if taken_down:
        take_down(cache.path, [cache["train"].record_ids([4])[0]])
        cache = Cache.open(cache.path)
        del expected[4]

    rows = read_by_dali(cache, tmp_path)

    assert len(rows) == len(expected) == 21 - taken_down
    for row, example in zip(rows, expected, strict=True):
        assert bytes.fromhex(row["text"]).decode() == example["text"]
        assert bytes.fromhex(row["raw"]) == example["raw"].astype("<u2").tobytes()
        assert row["codes"] == example["codes"].tolist()
        assert row["shares"] == example["shares"].tolist()
