"""The names of a pipeline's steps, by which Dataflow matches a job with its next version and people find a step.

They depend on neither the input's size, nor shards, nor edits elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from sample_declarations import CountLetters, Initials, SplitWords

from beam_pipes.beam import WriteToCache, build_graph, lower
from beam_pipes.beam.shards import analysis_graph
from beam_pipes.building import Declaration
from beam_pipes.building.analysis.plan import plan_analysis
from beam_pipes.building.plan import make_plan, plan_input, prepare
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.cache import FeatureSpec
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from beam_pipes.sources import TextLines
from beam_pipes.transforms.analyzers import LengthHistogram
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline

CLICKS = {"user": FeatureSpec("str"), "clicks": FeatureSpec("int64")}


class SplitWordsFaster(SplitWords):
    """`SplitWords` in its second version."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "SplitWords"

    def transform(self, line: str) -> Any:
        return list(super().transform(line))


def names(define: Callable[[Any], Any]) -> set[str]:
    """Of all steps, and of those within them."""
    pipeline = beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([]))
    define(pipeline)
    return {each.unique_name for each in pipeline.to_runner_api().components.transforms.values()}


def declared(root: Path, split: Pipeline, *more: Pipeline, num_files: int = 1) -> Declaration:
    root.mkdir(parents=True, exist_ok=True)
    for number in range(num_files):
        (root / f"{number}.txt").write_text("to be or not to be\n")
    edges: dict[Any, Any] = {split: Input(str)}
    for stage in more:
        edges[stage] = split
    outputs = {Output(f"out{number}"): stage for number, stage in enumerate(more)}
    return Declaration(name="words", source=TextLines(root), pipeline=DAGPipeline({**edges, **outputs}))


def steps_of_build(declaration: Declaration, cache: Path) -> set[str]:
    plan = make_plan(declaration, cache)
    tasks = prepare(plan)
    return names(lambda pipeline: build_graph(pipeline, DeclarationHandle(declaration), plan.header, tasks))


def test_steps_of_a_build_are_the_same_for_more_files_and_another_version_of_a_stage(tmp_path: Path) -> None:
    first = steps_of_build(declared(tmp_path / "in", SplitWords(), CountLetters()), tmp_path / "first")
    edited = declared(tmp_path / "more", SplitWordsFaster(), CountLetters(), num_files=40)
    renamed = dataclasses.replace(edited, name="letters", seed=7, on_error="drop")

    assert steps_of_build(renamed, tmp_path / "second") == first
    assert {"Read source", "SplitWords", "CountLetters", "Write shards"} <= first


def test_a_stage_more_is_a_step_more(tmp_path: Path) -> None:
    first = steps_of_build(declared(tmp_path / "in", SplitWords(), CountLetters()), tmp_path / "first")
    second = steps_of_build(declared(tmp_path / "in", SplitWords(), CountLetters(), Initials()), tmp_path / "second")

    assert first < second
    assert {name.partition("/")[0] for name in second - first} == {"Initials"}


def test_an_analyzer_more_changes_no_step(tmp_path: Path) -> None:
    def steps(*analyzers: LengthHistogram) -> set[str]:
        declaration = dataclasses.replace(declared(tmp_path / "in", SplitWords(), CountLetters()), analyzers=analyzers)
        root = str(tmp_path / str(len(analyzers)))
        planned = plan_input(declaration, root)
        tasks = plan_analysis(declaration, root, planned.source, generation=planned.generation).tasks()
        handle = DeclarationHandle(declaration)
        return names(lambda pipeline: analysis_graph(pipeline, handle, root, tasks, launch="0"))

    assert steps(LengthHistogram("lengths")) == steps(LengthHistogram("lengths"), LengthHistogram("again"))


def test_steps_of_collections_are_the_same_for_more_shards_and_other_batches(tmp_path: Path) -> None:
    def steps(*, num_shards: int, batch_records: int, splits: dict[str, float]) -> set[str]:
        def define(pipeline: Any) -> None:
            words = pipeline | beam.Create(["to be"]) | lower(SplitWords(), batch_records=batch_records)
            rows = words | beam.Map(len)
            rows | WriteToCache(tmp_path / "to", features=CLICKS, key="user", num_shards=num_shards, splits=splits)

        return names(define)

    first = steps(num_shards=1, batch_records=1, splits={"train": 1.0})
    assert first == steps(num_shards=64, batch_records=256, splits={"train": 0.9, "test": 0.1})
    assert "SplitWords/SplitWords" in first
    assert "WriteToCache/Group by shard" in first
