"""Retried bundles: on a runner that really retries, the same bytes come out and no record is lost or counted twice."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from function_stages import Stage

from beam_pipes.beam import lower
from benchmarks.campaigns.retries import FAILURES_A_BUILD, RUNNER, retry_campaign


def test_transient_failures_of_a_stage_change_nothing(tmp_path: Path) -> None:
    counts = retry_campaign(tmp_path, builds=2)

    assert counts.failures == 2 * FAILURES_A_BUILD  # each was raised, and the runner went on
    assert counts.extra_executions > 0
    assert (counts.records_lost, counts.records_duplicated, counts.different_builds) == (0, 0, 0)


def test_the_campaign_notices_what_changes_with_a_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the copies that keep the input of a bundle as it was, a retry works on half-finished batches."""
    monkeypatch.setattr("beam_pipes.engine.records.Batch.copy", lambda batch: batch)

    with pytest.raises(Exception, match="KeyError|reconcile|records were read"):
        retry_campaign(tmp_path, builds=1)


_failed: set[int] = set()


def _fails_once(stage: Stage, value: int) -> list[int]:
    if value % 4 == 3 and value not in _failed:
        _failed.add(value)
        raise ConnectionError(value)
    return [value * 10]


def test_a_pipeline_lowered_into_a_pipeline_of_ones_own_is_retried_too(tmp_path: Path) -> None:
    _failed.clear()
    with beam.Pipeline(runner=RUNNER, options=PipelineOptions([])) as pipeline:
        numbers = pipeline | beam.Create(range(8)) | lower(Stage(_fails_once))
        numbers | beam.io.WriteToText(str(tmp_path / "numbers"))

    lines = [line for path in tmp_path.glob("numbers*") for line in path.read_text().splitlines()]
    assert sorted(map(int, lines)) == [0, 10, 20, 30, 40, 50, 60, 70]
    assert _failed == {3, 7}
