"""A cache that version 1 wrote is read, and version 1 is still what is written."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
from built_files import built_files

from beam_pipes.cache import Cache
from beam_pipes.format.index import WHOLE_INDEX_CRC32C

GOLDEN = Path(__file__).parent.parent / "golden"


def test_the_golden_cache_is_read() -> None:
    cache = Cache.open(GOLDEN / "cache_v1", verify=True)

    assert cache.splits == ("eval", "train") and cache.statistics == [{"records": 3}]
    assert [*cache] == ["eval", "train"] and len(cache) == 2 and "train" in cache and "test" not in cache
    first, second = cache["train"]
    assert first["image"].tolist() == [[1, 2], [3, 4]] and first["image"].dtype == np.uint8
    assert (first["label"], first["text"], first["tokens"].tolist()) == (7, "größe", [5, 50_000])
    assert first["tokens"].dtype == np.int32
    assert second["image"].shape == (0, 3) and second["text"] == "" and second["tokens"].shape == (0,)
    assert cache["train"].lengths("tokens").tolist() == [2, 0]
    assert cache["train"].gather([1, 0])["tokens"].tolist() == [[0, 0], [5, 50_000]]
    assert cache["eval"].fixed and cache["eval"][0]["id"] == 1 << 40
    assert cache["eval"].gather([0])["vector"].tolist() == [[0.5, -1.0, 2.0]]


def replace_checksums(found: re.Match[bytes]) -> bytes:
    count = found[0].count(b",") + 1
    return found[1] + b"[" + b",".join([str(WHOLE_INDEX_CRC32C).encode()] * count) + b"]"


def test_the_same_bytes_are_written_today(tmp_path: Path) -> None:
    runpy.run_path(str(GOLDEN / "make_cache_v1.py"))["write"](tmp_path / "again")

    written, golden = built_files(tmp_path / "again"), built_files(GOLDEN / "cache_v1")
    assert written.keys() == golden.keys() and len(golden) == 11
    for name, expected in golden.items():
        # The golden manifests hold the checksum of whole indexes, which was written before and is still read.
        made = re.sub(rb'("index_crc32c":)\[[\d,]+\]', replace_checksums, written[name])
        assert made == expected, name
