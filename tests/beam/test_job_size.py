"""The request of a job for a large build is small: services refuse more than 10 MB, after everything was staged."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from beam_pipes.beam.build_graph import job_graph_bytes
from beam_pipes.building import Declaration
from beam_pipes.building.plan import make_plan
from beam_pipes.building.references import DeclarationHandle
from beam_pipes.cache import FeatureSpec
from beam_pipes.runners.preflight import MAX_JOB_GRAPH_BYTES
from beam_pipes.sources import TextLines
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline, RandomPartition

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
