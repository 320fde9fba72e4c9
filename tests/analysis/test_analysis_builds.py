"""Builds with analyzers: the same bytes on every runner, resumable, incremental, exact under kills and retries."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from analysis_declarations import analysed, lengths, means, words
from built_files import built_files

from beam_pipes.building.analysis.plan import plan_analysis
from beam_pipes.building.leftovers import collect
from beam_pipes.building.plan import make_plan, plan_input
from beam_pipes.building.progress import read_status
from beam_pipes.cache import Cache
from beam_pipes.errors import AnalysisError, StageError
from beam_pipes.runners.build import build
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.storage.locks import ANALYSIS_LABELS, VARIABLE

REFERENCE = "analysis_declarations:analysed"
ONE = LocalOptions(workers=1)


def published(cache: Path) -> dict[str, bytes]:
    """What readers see: the published snapshot without the fingerprint, which names the module of stages."""
    manifest = Cache.open(cache).manifest
    directory = cache / "snapshots" / manifest.snapshot
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in ("build.json", "report.html")
    }


@pytest.fixture
def expected(text_input: Path, tmp_path: Path) -> dict[str, bytes]:
    build(REFERENCE, tmp_path / "expected", options=ONE)
    return built_files(tmp_path / "expected")


def test_results_are_those_of_a_plain_loop_and_assets_of_the_cache(text_input: Path, tmp_path: Path) -> None:
    build(REFERENCE, tmp_path / "cache", options=ONE)

    lines = [line for path in sorted(text_input.rglob("*.txt")) for line in path.read_text("utf-8").split("\n")[:-1]]
    counts = collections.Counter(word for line in lines for word in line.split())
    kept = sorted((token for token in counts if counts[token] >= 2), key=lambda token: (-counts[token], token.encode()))
    cache = Cache.open(tmp_path / "cache")
    table = words.read(cache.asset_path("words"))
    assert table.tokens == ["<unk>", *kept]
    assert table.counts.tolist() == [0, *(counts[token] for token in kept)]
    assert (table.total, table.distinct) == (counts.total(), len(counts))
    assert lengths.read(cache.asset_path("lengths")).counts == dict(
        sorted(collections.Counter(map(len, lines)).items())
    )
    ids = {token: index for index, token in enumerate(table.tokens)}
    rows = [np.array([ids.get(word, 0) for word in line.split()]) for line in lines]
    row_means = np.array([row.mean() for row in rows if len(row)])
    sums = means.read(cache.asset_path("means"))
    np.testing.assert_allclose([sums.count, sums.mean, sums.std], [len(row_means), row_means.mean(), row_means.std()])
    for example, row in zip(cache["train"], rows, strict=True):
        np.testing.assert_array_equal(example["ids"], row)
        if len(row):
            assert example["score"] == pytest.approx((row.mean() - sums.mean) / sums.std)
    assert cache.verify().ok
    assert {name for name in cache.manifest.fingerprints if name.startswith("analysis ")} == {
        "analysis words",
        "analysis lengths",
        "analysis means",
        "analysis ranks",
    }


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(LocalOptions(workers=2), id="two_workers"),
        pytest.param(BeamOptions(), id="beam"),
        pytest.param(
            BeamOptions(runner="apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"), id="bundle_based"
        ),
    ],
)
def test_every_runner_writes_the_same_bytes(
    options: LocalOptions | BeamOptions, expected: dict[str, bytes], tmp_path: Path
) -> None:
    build(REFERENCE, tmp_path / "other", options=options)

    assert built_files(tmp_path / "other") == expected


def test_results_travel_to_the_worker_processes_of_beam(expected: dict[str, bytes], tmp_path: Path) -> None:
    cache = tmp_path / "expected"
    (cache / "snapshots").rename(tmp_path / "away")
    (cache / "manifest.json").unlink()
    in_processes = BeamOptions(beam_args=("--direct_running_mode=multi_processing", "--direct_num_workers=2"))

    again = build(REFERENCE, cache, options=in_processes)

    assert again.analysis is not None and again.analysis.num_tasks == 0 and not again.up_to_date
    assert built_files(cache) == expected


def test_a_second_build_analyses_nothing_and_writes_nothing(expected: dict[str, bytes], tmp_path: Path) -> None:
    again = build(REFERENCE, tmp_path / "expected", options=ONE)

    assert again.up_to_date and again.analysis is not None
    assert (again.analysis.num_tasks, again.analysis.merged) == (0, 0)
    assert built_files(tmp_path / "expected") == expected


def test_a_file_that_is_added_is_analysed_alone(text_input: Path, tmp_path: Path) -> None:
    before = build(REFERENCE, tmp_path / "cache", options=ONE)
    (text_input / "zzz.txt").write_text("new words only\n" * 400, encoding="utf-8")

    after = build(REFERENCE, tmp_path / "cache", options=ONE)
    build(REFERENCE, tmp_path / "fresh", options=ONE)

    assert before.analysis is not None and after.analysis is not None
    rows = {row["name"]: row for row in after.analysis.rows}
    new = after.num_shards - before.num_shards
    assert new > 0
    # Of what follows from the vocabulary everything, because that has changed.
    assert {name: row["analysed_shards"] for name, row in rows.items()} == {
        "lengths": new,
        "words": new,
        "means": after.num_shards,
        "ranks": after.num_shards,
    }
    assert published(tmp_path / "cache") == published(tmp_path / "fresh")


def test_a_result_that_no_stage_holds_does_not_build_shards_again(text_input: Path, tmp_path: Path) -> None:
    reference = "analysis_declarations:analysed_lengths_only"
    build(reference, tmp_path / "cache", options=ONE)
    (text_input / "zzz.txt").write_text("a line\n" * 900, encoding="utf-8")

    after = build(reference, tmp_path / "cache", options=ONE)

    assert 0 < after.num_shards - after.reused_shards < after.num_shards
    fresh = build(reference, tmp_path / "fresh", options=ONE)
    assert after.snapshot == fresh.snapshot and published(tmp_path / "cache") == published(tmp_path / "fresh")


@pytest.mark.parametrize("step", [*ANALYSIS_LABELS, "analysis/recorded#13", "storage/renamed#4"])
def test_a_build_that_is_killed_while_it_analyses_continues(
    step: str, expected: dict[str, bytes], tmp_path: Path
) -> None:
    cache = tmp_path / "killed"
    command = [sys.executable, "-m", "beam_pipes", "build", REFERENCE, "--to", str(cache), "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), VARIABLE: step}
    assert subprocess.run(command, env=environment, capture_output=True).returncode == -9
    assert not (cache / "manifest.json").exists()
    kept = len(list(cache.glob("analysis/accumulators/*/*/record.json")))

    resumed = build(REFERENCE, cache, options=ONE)

    assert resumed.analysis is not None
    assert resumed.analysis.num_tasks == 4 * resumed.num_shards - kept
    assert built_files(cache) == expected


def test_a_damaged_accumulator_is_made_again(expected: dict[str, bytes], tmp_path: Path) -> None:
    cache = tmp_path / "expected"
    for place in (cache / "analysis" / "results").iterdir():
        for path in place.iterdir():
            path.unlink()
    victim = next(cache.glob("analysis/accumulators/*/*/content"))
    victim.write_bytes(bytes(byte ^ 1 for byte in victim.read_bytes()))

    again = build(REFERENCE, cache, options=ONE)

    assert again.analysis is not None and (again.analysis.num_tasks, again.analysis.merged) == (1, 4)
    assert built_files(cache) == expected


def test_a_damaged_result_is_made_again_also_in_the_published_snapshot(
    expected: dict[str, bytes], tmp_path: Path
) -> None:
    cache = tmp_path / "expected"
    asset = Path(Cache.open(cache).asset_path("words"))
    asset.write_bytes(asset.read_bytes().replace(b'"<unk>"', b'"<UNK>"'))
    assert not Cache.open(cache).verify().ok

    again = build(REFERENCE, cache, options=ONE)

    assert again.up_to_date and again.analysis is not None and again.analysis.merged == 1
    assert built_files(cache) == expected and Cache.open(cache).verify().ok


def test_without_the_analysis_directory_the_same_snapshot_is_found(expected: dict[str, bytes], tmp_path: Path) -> None:
    cache = tmp_path / "expected"
    (cache / "analysis").rename(tmp_path / "away")

    again = build(REFERENCE, cache, options=ONE)

    assert again.up_to_date
    assert built_files(cache) == expected


def test_overwrite_analyses_everything_again(expected: dict[str, bytes], tmp_path: Path) -> None:
    again = build(REFERENCE, tmp_path / "expected", options=ONE, overwrite=True)

    assert again.analysis is not None and again.analysis.num_tasks == 4 * again.num_shards


def test_a_record_that_fails_stops_the_build_by_name(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("boom now\n", encoding="utf-8")

    for options in (ONE, LocalOptions(workers=2), BeamOptions()):
        with pytest.raises(StageError, match="stage 'SplitWords' failed on record 'zzz.txt@0': ValueError: cannot spl"):
            build(REFERENCE, tmp_path / "cache", options=options)

    assert not (tmp_path / "cache" / "manifest.json").exists()


def test_where_failures_are_allowed_a_record_is_not_analysed_and_counted(text_input: Path, tmp_path: Path) -> None:
    (text_input / "zzz.txt").write_text("fine words\nboom here\nfine words\n", encoding="utf-8")

    result = build("analysis_declarations:analysed_with_dead_letters", tmp_path / "cache", options=ONE)

    assert result.analysis is not None
    rows = {row["name"]: row for row in result.analysis.rows}
    assert rows["words"]["failed"] == {"SplitWords": 1}
    assert rows["lengths"]["failed"] == {}
    assert rows["words"]["records"] == rows["lengths"]["values"] == result.account.read
    table = words.read(Cache.open(tmp_path / "cache").asset_path("words"))
    assert "here" not in table and "fine" in table
    # The pipeline itself does not fail on it: it is no dead letter there.
    assert result.account.dead == 0 and result.account.written == result.account.read


def test_a_plan_asks_for_the_analysis_first(text_input: Path, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"depends on results that do not exist yet: 'words' \(\d+ of \d+ source"):
        make_plan(analysed(), tmp_path / "cache")


def test_the_build_record_tells_what_was_analysed(expected: dict[str, bytes], tmp_path: Path) -> None:
    analysis = Cache.open(tmp_path / "expected").build_info["analysis"]

    assert {row["name"] for row in analysis["analyzers"]} == {"words", "lengths", "means", "ranks"}
    assert all(row["analysed_shards"] == row["num_shards"] and row["bytes"] > 0 for row in analysis["analyzers"])


def test_gc_removes_what_no_kept_snapshot_was_built_with(text_input: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    build(REFERENCE, cache, options=ONE)
    (text_input / "large.txt").write_text("other words\n" * 300, encoding="utf-8")
    last = build(REFERENCE, cache, options=ONE)

    kept = collect(cache, keep=1, dry_run=True)
    collected = collect(cache, keep=0)

    assert (kept.unused, len(collected.removed)) == (0, 1)
    assert collected.unused > 0 and collected.bytes > 0
    again = build(REFERENCE, cache, options=ONE)
    assert again.up_to_date and again.analysis is not None
    assert (again.snapshot, again.analysis.num_tasks, again.analysis.merged) == (last.snapshot, 0, 0)
    assert collect(cache, keep=0).unused == 0


def test_gc_keeps_an_unfinished_analysis_unless_nothing_is_to_be_kept(text_input: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (text_input / "zzz.txt").write_text("boom now\n", encoding="utf-8")
    with pytest.raises(StageError):
        build(REFERENCE, cache, options=ONE)

    status = read_status(cache)
    assert status.analysis is not None
    assert 0 < status.analysis[0] < status.analysis[1]
    assert f"analysis: {status.analysis[0]} of {status.analysis[1]} accumulators are done." in str(status)
    assert json.loads(json.dumps(status.to_json()))["analysis"] == list(status.analysis)
    assert collect(cache, keep=1).unused == 0
    assert collect(cache, keep=0).unused == status.analysis[0]


def test_accumulators_are_found_by_what_they_are_of(text_input: Path, tmp_path: Path) -> None:
    """Another name, another policy for failures and another pipeline change no accumulator."""
    declaration = analysed()
    build(REFERENCE, tmp_path / "cache", options=ONE)
    other = dataclasses.replace(declaration, name="renamed", on_error="drop")
    given = plan_input(other, tmp_path / "cache")

    assert plan_analysis(other, given.root, given.source).done
    renamed = dataclasses.replace(other, seed=1)  # draws of `of` are keyed by it
    assert not plan_analysis(renamed, given.root, given.source).done
