"""What the command line says of analyzers."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from beam_pipes.building.references import load_declaration
from beam_pipes.building.trace import trace_record
from beam_pipes.cache import Cache
from beam_pipes.commands import app
from beam_pipes.errors import AnalysisError, DeclarationError, StageError
from beam_pipes.report import report_html
from beam_pipes.runners.build import build
from beam_pipes.runners.options import LocalOptions
from beam_pipes.typed import Pipeline

REFERENCE = "analysis_declarations:analysed"


def beam_pipes(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")


def test_a_plan_says_what_is_to_be_analysed_and_what_is_known_after_that(text_input: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")

    first = beam_pipes("plan", REFERENCE, "--to", cache)
    as_json = json.loads(beam_pipes("plan", REFERENCE, "--to", cache, "--json"))
    build(REFERENCE, cache, options=LocalOptions(workers=1))
    explained = beam_pipes("plan", REFERENCE, "--to", cache, "--explain", "--no-forecast")
    (text_input / "zzz.txt").write_text("more words here\n" * 40, encoding="utf-8")
    after = beam_pipes("plan", REFERENCE, "--to", cache)

    assert "MISS analyzer words: " in first and "source shards to be analysed" in first
    assert "MISS analyzer means: it waits for the result of words" in first
    assert "Which of them the pipeline has to build is known once that has run." in first
    assert as_json["snapshot"] is None
    assert {row["name"]: row["waits_for"] for row in as_json["analysis"]} == {
        "words": None,
        "lengths": None,
        "means": "words",
        "ranks": "words",
    }
    assert "HIT  analyzer words: its result is there" in explained and "is published: up to date." in explained
    [line] = [line for line in after.splitlines() if "analyzer lengths" in line]
    assert line.startswith("MISS analyzer lengths: 1 of ") and line.endswith("/small-7.txt, zzz.txt")


def test_a_plan_names_what_changed_of_an_analyzer(text_input: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    build("analysis_declarations:analysed_lengths_only", cache, options=LocalOptions(workers=1))
    module = tmp_path / "changed_analysis.py"
    module.write_text(
        "import dataclasses\n"
        "from analysis_declarations import analysed_lengths_only, lengths\n"
        "from beam_pipes.transforms.analyzers import Quantiles, TopK\n"
        "declaration = dataclasses.replace(\n"
        "    analysed_lengths_only(), analyzers=(dataclasses.replace(lengths), TopK('top', k=2)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "COLUMNS": "300"}
    command = [
        sys.executable,
        "-m",
        "beam_pipes",
        "plan",
        "changed_analysis:declaration",
        "--to",
        cache,
        "--explain",
    ]

    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert "HIT  analyzer lengths: its result is there" in output
    [line] = [line for line in output.splitlines() if "analyzer top" in line]
    assert "source shards to be analysed; it was not there before" in line


def test_a_plan_cannot_be_saved_before_the_analysis_has_run(text_input: Path, tmp_path: Path) -> None:
    arguments = ["plan", REFERENCE, "--to", str(tmp_path / "cache"), "--save", str(tmp_path / "plan.json")]

    with pytest.raises(DeclarationError, match="cannot be saved: its snapshot depends on the results of"):
        CliRunner().invoke(app, arguments, catch_exceptions=False, standalone_mode=False)


def test_a_pipeline_that_holds_no_result_is_forecast_before_the_analysis(text_input: Path, tmp_path: Path) -> None:
    reference, cache = "analysis_declarations:analysed_lengths_only", str(tmp_path / "cache")

    first = beam_pipes("plan", reference, "--to", cache)
    as_json = json.loads(beam_pipes("plan", reference, "--to", cache, "--json"))
    plain = beam_pipes("plan", reference, "--to", cache, "--no-forecast")
    built = build(reference, cache, options=LocalOptions(workers=1))

    assert "MISS analyzer lengths" in first
    assert f"No stage holds a missing result: the pipeline has {built.num_shards} of them to build." in first
    assert "forecast from" in first and "remaining: " in first and "forecast from" not in plain
    assert as_json["snapshot"] is None
    assert as_json["forecast"]["records"]["train"]["value"] == pytest.approx(built.account.written, rel=0.5)


def test_a_plan_finds_what_fails_in_a_pipeline_that_holds_no_result(
    text_input: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "failing_beside_analysis.py"
    module.write_text(
        "import dataclasses\n"
        "from analysis_declarations import analysed_lengths_only\n"
        "from test_analysis_commands import Refuses\n"
        "declaration = dataclasses.replace(analysed_lengths_only(), pipeline=Refuses())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(StageError, match="stage 'Refuses' failed"):
        beam_pipes("plan", "failing_beside_analysis:declaration", "--to", str(tmp_path / "cache"))


def test_inspect_lists_results_and_gc_tells_what_it_removes(text_input: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    build(REFERENCE, cache, options=LocalOptions(workers=1))
    size = os.path.getsize(Cache.open(cache).asset_path("words"))
    (text_input / "large.txt").write_text("other words\n" * 300, encoding="utf-8")
    build(REFERENCE, cache, options=LocalOptions(workers=1))

    inspected = beam_pipes("inspect", cache, "-n", "0")
    would = beam_pipes("gc", cache, "--keep", "0", "--dry-run")
    removed = beam_pipes("gc", cache, "--keep", "0")

    assert "assets/lengths: " in inspected and "assets/words: " in inspected and size > 0
    assert "results and accumulators of analyzers: would be removed." in would
    assert "results and accumulators of analyzers: removed." in removed


def test_a_trace_has_the_results_of_the_cache(text_input: Path, tmp_path: Path) -> None:
    cache, other = str(tmp_path / "cache"), str(tmp_path / "other")
    build(REFERENCE, cache, options=LocalOptions(workers=1))
    build("analysis_declarations:analysed_lengths_only", other, options=LocalOptions(workers=1))
    train = Cache.open(cache)["train"]
    record = str(train.record_ids([3])[0])
    declaration = load_declaration(REFERENCE)
    for analyzer in declaration.analyzers:
        analyzer.result.bind(None)  # the build that ran in this process has left its own

    trace = trace_record(declaration, record, cache=cache)
    traced = beam_pipes("trace", record, REFERENCE, "--cache", cache)
    why = beam_pipes("why", record, cache, REFERENCE)
    page = report_html(cache, declaration=declaration)

    assert trace.failure is None and list(trace.written["train"]) == [train.record_bytes(3)]
    assert all(analyzer.result.bound is None for analyzer in declaration.analyzers)
    for output in (traced, why):
        assert f"train: 1 record, {len(trace.written['train'][0])} bytes" in output and "AnalysisError" not in output
    assert re.search(r'<th scope="row">Ids</th><td class="value">int32\[', page)
    assert "AnalysisError" not in page and ">nothing<" not in page
    message = "stage 'Ids' holds the result of the analyzer 'words', and no cache is given. Give the cache that was"
    with pytest.raises(AnalysisError, match=f"^{message} built from this declaration: --cache DIR"):
        trace_record(declaration, record)
    with pytest.raises(AnalysisError, match=f"'words', and the cache '{other}' has none"):
        trace_record(declaration, record, cache=other)


class Refuses(Pipeline):
    """Takes no line."""

    input_type, output_type = str, dict

    def transform(self, line: str) -> list[dict[str, str]]:
        raise ValueError(f"not {line[:2]!r}")


def test_a_report_shows_what_stopped_a_record(text_input: Path, tmp_path: Path) -> None:
    (text_input / "aaa.txt").write_text("to be\n")
    declaration = load_declaration("analysis_declarations:analysed_lengths_only")
    build(declaration, tmp_path / "cache", options=LocalOptions(workers=1))

    page = report_html(tmp_path / "cache", declaration=dataclasses.replace(declaration, pipeline=Refuses()))

    assert "failed: ValueError: not &#39;to&#39;" in page
