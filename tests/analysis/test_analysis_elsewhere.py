"""Analyses under chaos, on an object store, and before dead letters are replayed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from analysis_declarations import words
from built_files import built_files
from gcs_emulator import new_bucket, running

from beam_pipes.building.leftovers import collect
from beam_pipes.cache import Cache
from beam_pipes.runners.build import build
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.runners.replay import replay_dead
from beam_pipes.storage.local import storage_for
from beam_pipes.storage.locks import ANALYSIS_LABELS
from beam_pipes.testing import assert_robust

REFERENCE = "analysis_declarations:analysed"
ONE = LocalOptions(workers=1)


def test_a_declaration_with_analyzers_is_robust(text_input: Path) -> None:
    verdict = assert_robust(REFERENCE, max_records=60, beam=True, kill_at=[f"{next(iter(ANALYSIS_LABELS))}#3"])

    assert "analysed" in verdict.trials
    assert "built, killed at analysis/content-stored#3, and built again" in verdict.trials


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    with running("fake-gcs-server") as url:
        yield url


@pytest.mark.gcs
@pytest.mark.parametrize("options", [ONE, BeamOptions()], ids=["inline", "beam"])
def test_an_object_store_holds_the_same_bytes(
    options: LocalOptions | BeamOptions,
    emulator: str,
    text_input: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    far = f"gs://{new_bucket(emulator)}/cache"
    build(REFERENCE, tmp_path / "near", options=ONE)

    build(REFERENCE, far, options=options)
    again = build(REFERENCE, far, options=options)

    storage = storage_for(far)
    near = {name: data for name, data in built_files(tmp_path / "near").items() if name != ".build.lock"}
    assert {name: storage.read_bytes(f"{far}/{name}") for name in near} == near
    assert again.up_to_date and again.analysis is not None and again.analysis.num_tasks == 0
    cache = Cache.open(far)
    table = words.read(cache.asset_path("words"))
    assert table.tokens[0] == "<unk>" and os.path.exists(cache.asset_path("words"))
    assert collect(far, keep=0).unused == 0


def test_dead_letters_are_replayed_with_the_results_that_are_there(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("fine words\nboom here\n", encoding="utf-8")
    reference = "analysis_declarations:analysed_with_failing_pipeline"
    built = build(reference, tmp_path / "cache", options=ONE)
    assert built.account.dead == 1

    replayed = replay_dead(reference, tmp_path / "cache", options=ONE)

    assert replayed.up_to_date and replayed.dead == 1
