"""Analyses that cannot go on: workers that die or tell nothing, storage that keeps nothing, jobs that fail."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from analysis_declarations import ToText, analysed_lengths_only, lengths

from beam_pipes.building.analysis.analyse import analyse
from beam_pipes.building.analysis.job import analysis_tasks
from beam_pipes.building.plan import plan_input
from beam_pipes.errors import AnalysisError, WorkerDiedError
from beam_pipes.runners.build import build
from beam_pipes.runners.options import BeamOptions, LocalOptions
from beam_pipes.transforms.analyzers import Count
from beam_pipes.typed import Pipeline

TWO = LocalOptions(workers=2)

unlisted = Count("unlisted")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NeedsUnlisted(Pipeline):
    """Its code refers to an analyzer that the declaration does not run."""

    input_type = str
    output_type = str

    def transform(self, line: str) -> list[str]:
        return [f"{line} {unlisted.result.value()}"]


def test_a_worker_that_dies_is_named_with_its_shard_and_the_next_build_continues(
    text_input: Path, tmp_path: Path
) -> None:
    (text_input / "zzz.txt").write_text(f"fine\ndie {tmp_path / 'repaired'}\n", encoding="utf-8")
    reference = "analysis_declarations:analysed_by_dying_workers"

    with pytest.raises(
        WorkerDiedError,
        match=r"a worker died \(exit code 3\) while it analysed source shard \d+ \(.*zzz.txt\) for 'lines'. Finished "
        r"accumulators are kept: run the build again to continue; with --workers 1",
    ):
        build(reference, tmp_path / "cache", options=TWO)
    kept = len(list((tmp_path / "cache").glob("analysis/accumulators/*/*/record.json")))
    assert not list((tmp_path / "cache").glob(".tmp-*"))
    (tmp_path / "repaired").write_text("")
    again = build(reference, tmp_path / "cache", options=TWO)

    assert again.analysis is not None and again.analysis.num_tasks == again.num_shards - kept


@pytest.mark.parametrize("workers", [1, 2])
def test_a_shard_that_tells_nothing_for_long_is_named(
    workers: int, text_input: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (text_input / "zzz.txt").write_text("wait\n", encoding="utf-8")

    build(
        "analysis_declarations:analysed_with_a_pause",
        tmp_path / "cache",
        options=LocalOptions(workers=workers, stall_secs=0.2),
    )

    assert "zzz.txt) has reported nothing for" in capsys.readouterr().err


def test_storage_that_keeps_nothing_ends_the_analysis(text_input: Path, tmp_path: Path) -> None:
    declaration = analysed_lengths_only()
    given = plan_input(declaration, tmp_path)
    rounds = []

    with pytest.raises(
        AnalysisError,
        match=r"3 times the accumulators of 'lengths' were written below '.*' and are not there in full: the storage",
    ):
        analyse(declaration, given.root, given.source, run_tasks=rounds.append)

    assert len(rounds) == 3


def test_code_that_needs_an_unlisted_analyzer_is_an_error(text_input: Path, tmp_path: Path) -> None:
    hidden = dataclasses.replace(
        analysed_lengths_only(), analyzers=(lengths, Count("count", of=NeedsUnlisted())), pipeline=ToText()
    )

    with pytest.raises(AnalysisError, match=r"the analyzer 'unlisted' \(Count\) was requested.*lists it in analyzers="):
        build(hidden, tmp_path, options=LocalOptions(workers=1))


def test_tasks_that_were_removed_are_missed(tmp_path: Path) -> None:
    with pytest.raises(
        AnalysisError, match=r"expected the tasks of the analysis in '.*00000000.json', got CacheNotFou"
    ):
        analysis_tasks(str(tmp_path), "0")[3]


def test_a_job_that_fails_without_an_error_is_reported(text_input: Path, tmp_path: Path) -> None:
    options = BeamOptions(runner="failing_runner.FailingRunner")

    with pytest.raises(AnalysisError, match="the Beam job of the analysis ended as FAILED: finished accumulators are"):
        build("analysis_declarations:analysed_lengths_only", tmp_path, options=options)

    assert not [*(tmp_path / "analysis").glob("tasks/*/*")]
