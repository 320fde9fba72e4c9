"""Duplicates of a cache on gs://: built, listed and explained as those of a local one."""

from __future__ import annotations

from pathlib import Path

import dedup_declarations
import pytest
from typer.testing import CliRunner

from beam_pipes.cache import Cache
from beam_pipes.commands import app
from beam_pipes.runners import LocalOptions, build
from beam_pipes.transforms.dedup import cache_duplicates

pytestmark = pytest.mark.gcs


def test_duplicates_on_an_object_store_are_those_of_a_local_cache(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dedup_declarations.write_planted(tmp_path / "in", files=3)
    monkeypatch.setenv(dedup_declarations.INPUT_VARIABLE, str(tmp_path / "in"))
    for to in (str(tmp_path / "local"), f"{bucket}/cache"):
        build("dedup_declarations:unique", to, options=LocalOptions(workers=1))

    local, remote = Cache.open(tmp_path / "local"), Cache.open(f"{bucket}/cache")

    assert [example["text"] for example in remote["train"]] == [example["text"] for example in local["train"]]
    found = cache_duplicates(local)
    assert {name: list(rows) for name, rows in cache_duplicates(remote).items()} == {
        name: list(rows) for name, rows in found.items()
    }
    row = next(iter(found["exact"]))
    why = CliRunner().invoke(app, ["why", row.removed, f"{bucket}/cache"], catch_exceptions=False).output
    assert f"  exact duplicate of {row.kept} (similarity 1.00)\n" in why
