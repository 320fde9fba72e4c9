"""A transform function in a cache on gs://: learned there, and applied from a local copy of its directory."""

from __future__ import annotations

from pathlib import Path

import pytest
import tft_declarations

from beam_pipes.cache import Cache
from beam_pipes.runners import LocalOptions, build
from beam_pipes.tft import TransformFunction

pytestmark = pytest.mark.gcs


def test_what_is_learned_on_an_object_store_is_applied_as_in_the_build(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviews = tft_declarations.write_reviews(tmp_path / "in" / "a.jsonl", count=40, seed=1)
    monkeypatch.setenv(tft_declarations.INPUT_VARIABLE, str(tmp_path / "in"))

    build("tft_declarations:declared", f"{bucket}/cache", options=LocalOptions(workers=1))

    cache = Cache.open(f"{bucket}/cache", local_directory=tmp_path / "copies")
    transform = TransformFunction.of(cache, "tft")
    assert Path(transform.directory).is_relative_to(tmp_path / "copies")
    assert [row["word_ids"].tolist() for row in transform.examples(reviews)] == [
        row["word_ids"].tolist() for row in cache["train"]
    ]
    assert [row["stars_z"] for row in transform.examples(reviews)] == [row["stars_z"] for row in cache["train"]]
