"""The benchmark beside SPDL, litdata, MosaicML Streaming and webdataset, small, with those that are installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import image_stores, peers


def test_what_is_installed_is_checked_and_measured_and_the_rest_is_named(tmp_path: Path) -> None:
    parts = ("tar", "arrays", "wav", "resize")
    only = [word for part in parts for word in ("--only", part)]
    results = tmp_path / "peers.json"

    peers.main([*only, "--megabytes", "1", "--images", "32", "--repeats", "1", "--json", str(results)])

    found = json.loads(results.read_text())
    assert {"ours", "ours_graph", "python"} <= set(found["tar"]["4096_bytes"])
    assert found["tar"]["256_bytes"]["ours_to_python"] > 0 and found["arrays"]["ours_to_numpy_npz"] > 0
    assert found["wav"]["1_secs"]["ours"]["per_sec"][0] > 0 and found["resize"]["ours"]["per_sec"][0] > 0
    for name, command in peers.INSTALLED_BY.items():
        assert (peers.module(name) is None) == (
            found["not_measured"].get(name) == f"not installed: pip install {command}"
        )


def test_arrays_come_from_a_worker_whole_and_in_order(tmp_path: Path) -> None:
    found = peers.main(["--only", "handover", "--megabytes", "1", "--repeats", "1"])

    assert set(found["handover"]) == {"2_mib", "8_mib", "32_mib"}
    assert found["handover"]["2_mib"]["ours"]["per_sec"][0] > 0


def test_every_image_of_a_store_is_there_once_in_each_epoch(tmp_path: Path) -> None:
    image_stores.write_images(tmp_path / "jpegs", 40)
    paths = sorted((tmp_path / "jpegs" / "all").glob("*.jpg"))
    image_stores.write_ours(tmp_path / "cache", paths)

    times = image_stores.two_epochs("ours_graph", str(tmp_path / "cache"), images=40)

    assert set(times) == {"first", "first_cpu", "second", "second_cpu"} and min(times.values()) > 0
    with pytest.raises(AssertionError, match=r"ours_graph: 40 of 41 images in 40"):
        image_stores.two_epochs("ours_graph", str(tmp_path / "cache"), images=41)
