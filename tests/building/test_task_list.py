"""Tasks as files: what comes back is what went in, and a job's request does not grow with them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipes.beam import build_graph
from beam_pipes.building.limits import Quarantined
from beam_pipes.building.plan import make_plan
from beam_pipes.building.references import DeclarationHandle, load_declaration
from beam_pipes.building.shard_task import ROWS_PER_FILE, Prior, ShardTask, tasks_of
from beam_pipes.errors import BuildError

REFERENCE = "sample_declarations:words"


def many(task: ShardTask, count: int) -> list[ShardTask]:
    return [dataclasses.replace(task, shard=dataclasses.replace(task.shard, index=index)) for index in range(count)]


def test_tasks_come_back_as_they_were(text_input: Path, tmp_path: Path) -> None:
    plan = make_plan(load_declaration(REFERENCE), tmp_path / "cache")
    tasks = many(plan.tasks[0], 2 * ROWS_PER_FILE + 3)
    prior = Prior(directory="somewhere", index=3, num_shards=7, changed=frozenset({"SplitWords", "Initials"}))
    record = Quarantined(ordinal=4, unit="SplitWords", cause="timeout", limit=0.5)
    tasks[70] = dataclasses.replace(tasks[70].quarantining([record]), prior=prior)

    tasks_of(plan.header).write(tasks)
    reader = tasks_of(plan.header)

    assert [reader[number] for number in range(len(tasks))] == tasks


def test_tasks_that_are_gone_are_an_error_that_says_so(text_input: Path, tmp_path: Path) -> None:
    plan = make_plan(load_declaration(REFERENCE), tmp_path / "cache")
    tasks_of(plan.header).write(plan.tasks)
    tasks_of(plan.header).remove()
    tasks_of(plan.header).remove()

    with pytest.raises(BuildError, match=r"expected the tasks of the build in '.*00000000.json'.*run the build again"):
        tasks_of(plan.header)[0]


def test_the_request_of_a_job_hardly_grows_with_its_tasks(text_input: Path, tmp_path: Path) -> None:
    plan = make_plan(load_declaration(REFERENCE), tmp_path / "cache")
    handle = DeclarationHandle(plan.declaration, REFERENCE)

    def request_bytes(count: int) -> int:
        runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
        pipeline = beam.Pipeline(runner=runner, options=PipelineOptions([]))
        build_graph(pipeline, handle, plan.header, many(plan.tasks[0], count))
        return len(pipeline.to_runner_api().SerializeToString())

    assert request_bytes(1000) - request_bytes(1) < 5 * 1000
