"""The request of a job for a large build is small: services refuse more than 10 MB, after everything was staged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from built_files import built_files

from beam_pipes import declare
from beam_pipes.beam import ReadFromSource, build_regrouped_graph, read_from_cache
from beam_pipes.beam.build_graph import job_graph_bytes
from beam_pipes.building import Declaration
from beam_pipes.building.plan import make_plan
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.cache import FeatureSpec
from beam_pipes.errors import DeclarationError
from beam_pipes.runners import BeamOptions, build
from beam_pipes.runners.preflight import MAX_JOB_GRAPH_BYTES
from beam_pipes.sources import TextLines
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline, RandomPartition, stage

SPLITS = [f"split-{number:03d}" for number in range(200)]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Line(Pipeline):
    input_type = str
    output_type = dict

    def transform(self, line: str) -> list[dict[str, str]]:
        return [{"text": line}]


def test_two_hundred_splits_of_ten_thousand_source_shards_stay_far_below_what_services_take(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("to be\n")
    line, partition = Line(), RandomPartition(dict, SPLITS, [1 / 200] * 199)
    declaration = Declaration(
        name="large",
        source=TextLines(str(tmp_path / "in"), pattern="*.txt"),
        pipeline=DAGPipeline({line: Input(str), partition: line, Output(): partition}, "Large"),
        features={split: {"text": FeatureSpec("str")} for split in SPLITS},
    )
    plan = make_plan(declaration, tmp_path / "cache")
    [task] = plan.tasks
    tasks = [
        dataclasses.replace(task, shard=dataclasses.replace(task.shard, index=index, slices=task.shard.slices * 20))
        for index in range(10_000)
    ]
    header = dataclasses.replace(plan.header, num_shards=len(tasks))

    num_bytes = job_graph_bytes(DeclarationHandle(declaration), header, tasks)

    assert 10_000 < num_bytes < MAX_JOB_GRAPH_BYTES / 10


@stage
def word(line: str) -> tuple:
    return line.split()[0], 1


@stage
def counted(group: tuple) -> dict:
    return {"word": group[0], "count": sum(group[1])}


@pytest.fixture
def grouped(tmp_path: Path) -> Callable[[], Declaration]:
    (tmp_path / "in").mkdir()
    for number in range(40):
        (tmp_path / "in" / f"{number:04d}.txt").write_text(f"word{number % 7} once\n" * 30)
    source = TextLines(str(tmp_path / "in"), pattern="*.txt")
    features = {"word": FeatureSpec("str"), "count": FeatureSpec("int64")}
    steps = [word, beam.GroupByKey(), counted]
    return lambda: declare(
        "grouped", source, steps, features=features, key="word", num_shards=2, target_shard_bytes=256
    )


def test_source_shards_of_a_pipeline_travel_by_files(
    grouped: Callable[[], Declaration], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(grouped(), tmp_path / "sent", options=BeamOptions())
    monkeypatch.setattr(read_from_cache, "_SENT_BYTES", 0)
    build(grouped(), tmp_path / "filed", options=BeamOptions())

    assert built_files(tmp_path / "filed") == built_files(tmp_path / "sent")
    assert not (tmp_path / "filed" / "source-tasks").exists()
    with beam.Pipeline(options=PipelineOptions([])) as pipeline:
        build_regrouped_graph(pipeline, grouped(), str(tmp_path / "own"))
    [directory] = (tmp_path / "own" / "source-tasks").iterdir()
    assert "0000.txt" in (directory / "00000000.json").read_text()
    assert "0000.txt" not in str(pipeline.to_runner_api())


def test_a_request_that_services_refuse_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("to be\n" * 1000)
    monkeypatch.setattr(read_from_cache, "_SENT_BYTES", 0)
    monkeypatch.setattr(read_from_cache, "_LARGEST_REQUEST", 0)
    source = TextLines(str(tmp_path / "a.txt"))

    far = beam.Pipeline(runner="PortableRunner", options=PipelineOptions(["--job_endpoint=localhost:1"]))
    with pytest.raises(DeclarationError, match="source shards, and services take 10 MB. Give scratch=.*temp_location"):
        far | ReadFromSource(source, target_shard_bytes=64)
    temp = PipelineOptions(["--job_endpoint=localhost:1", f"--temp_location={tmp_path / 'temp'}"])
    beam.Pipeline(runner="PortableRunner", options=temp) | ReadFromSource(source, target_shard_bytes=64)
    assert list((tmp_path / "temp").iterdir())
