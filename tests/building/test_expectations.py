"""Expectations: what they say of a snapshot, and that a build which does not meet them publishes nothing."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample_declarations

from beam_pipes.building import Declaration, expect
from beam_pipes.building.expectation import quantile_of_histogram
from beam_pipes.cache import Cache
from beam_pipes.engine.statistics import Histogram
from beam_pipes.errors import CacheNotFoundError, DeclarationError, ExpectationError
from beam_pipes.runners import LocalOptions, build

LOCAL = LocalOptions(workers=1)


def words(*expectations: str) -> Declaration:
    return sample_declarations.words(expectations=tuple(map(expect, expectations)))


def test_what_holds_is_published(text_input: Path, tmp_path: Path) -> None:
    holds = (
        "read >= 496",
        "dead <= 0",
        "dropped <= 20% of read",
        "train records between 100 and 496",
        "train.lengths p50 between 1 and 12",
        "train.lengths max <= 12",
        "Words_SplitWords_lines >= 1",
        "Words_SplitWords_words p95 <= 8",
        "train.lengths mean within 5% of last snapshot",
    )
    result = build(words(*holds), tmp_path / "cache", options=LOCAL)
    assert Cache.open(tmp_path / "cache").manifest.id == result.manifest_id

    # They are no part of the fingerprint: other ones leave the snapshot as it is.
    assert build(words("read >= 1"), tmp_path / "cache", options=LOCAL).up_to_date


def test_what_does_not_hold_stops_the_publish_and_keeps_the_shards(text_input: Path, tmp_path: Path) -> None:
    with pytest.raises(ExpectationError) as caught:
        build(words("train records >= 1000", "read >= 1", "eval.nothing p50 >= 1"), tmp_path / "cache", options=LOCAL)

    assert "'train records >= 1000' (it is " in str(caught.value)
    assert "'eval.nothing p50 >= 1' (there is no eval.nothing p50)" in str(caught.value)
    assert "read >= 1'" not in str(caught.value)
    assert "Nothing was published" in str(caught.value)
    with pytest.raises(CacheNotFoundError):
        Cache.open(tmp_path / "cache")
    again = build(words("train records >= 100"), tmp_path / "cache", options=LOCAL)
    assert again.reused_shards == again.num_shards


def test_a_new_snapshot_is_compared_with_the_last_one(text_input: Path, tmp_path: Path) -> None:
    near = words("train.lengths p50 within 20% of last snapshot")
    first = build(near, tmp_path / "cache", options=LOCAL)
    median = np.quantile(Cache.open(tmp_path / "cache")["train"].lengths("lengths"), 0.5, method="nearest")
    (text_input / "large.txt").write_text("one\n" * 900)

    with pytest.raises(ExpectationError, match=rf"\(it is 1, the last snapshot has {median}\)"):
        build(near, tmp_path / "cache", options=LOCAL)
    assert Cache.open(tmp_path / "cache").manifest.id == first.manifest_id


def test_quantiles_of_a_histogram() -> None:
    histogram = Histogram("h", [0, 10, 20])
    assert quantile_of_histogram(histogram, 0.5) is None
    for value in (1, 2, 3, 4, 11, 12, 13, 14):
        histogram.increment(value)
    assert [quantile_of_histogram(histogram, share) for share in (0.25, 0.5, 0.75, 1.0)] == [5.0, 10.0, 15.0, 20.0]
    histogram.increment(99, 100)
    assert quantile_of_histogram(histogram, 0.9) == 20.0

    open_ended = Histogram("tokens", [-math.inf, 5, 10, math.inf])
    for value in (1, 7, 1000):
        open_ended.increment(value)
    assert [quantile_of_histogram(open_ended, share) for share in (0.1, 0.9)] == [5.0, 10.0]


@pytest.mark.parametrize(
    "text", ["", "train", "train records", "train > 3", "a b c >= 1", "x within 5 of last snapshot"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(DeclarationError, match="cannot read the expectation .* Expected SUBJECT"):
        expect(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "written within -20% of last snapshot",
            "cannot hold: 'within N%' is a distance, up or down. Expected N of at",
        ),
        ("written between 100 and 5", "cannot hold: 100 is above 5. Expected 'between LOW and HIGH'"),
        (3, "cannot read the expectation 3. Expected SUBJECT"),
    ],
)
def test_expectations_that_cannot_hold_are_refused(text: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        expect(text)


def test_a_bare_text_is_refused(text_input: Path) -> None:
    with pytest.raises(DeclarationError, match=r"expectations are made by expect\('...'\), got 'read >= 1'"):
        dataclasses.replace(words(), expectations=("read >= 1",))  # type: ignore[arg-type]
