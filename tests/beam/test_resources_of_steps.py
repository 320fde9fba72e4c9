"""Stages with resources on Beam: steps of their own with hints, and the same bytes as in one step."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from built_files import built_files
from model_declarations import INPUT_VARIABLE, score, write_lines

from beam_pipes.beam import lower
from beam_pipes.beam.build_graph import build_graph
from beam_pipes.building.plan import make_plan, prepare
from beam_pipes.building.references import DeclarationHandle, load_declaration
from beam_pipes.runners import LocalOptions, build
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from beam_pipes.runners.options import BeamOptions

ACCELERATOR = common_urns.resource_hints.ACCELERATOR.urn
MIN_RAM = common_urns.resource_hints.MIN_RAM_BYTES.urn
SCORE_HINTS = {ACCELERATOR: b"type:nvidia-l4;count:1;install-nvidia-driver", MIN_RAM: b"500000000"}


@pytest.fixture(autouse=True)
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "input")
    monkeypatch.setenv(INPUT_VARIABLE, str(tmp_path / "input"))


def hints_by_step(proto: beam_runner_api_pb2.Pipeline) -> dict[str, dict[str, bytes]]:
    environments = proto.components.environments
    return {
        transform.unique_name: dict(environments[transform.environment_id].resource_hints)
        for transform in proto.components.transforms.values()
        if transform.environment_id
    }


def proto_of(reference: str, to: Path) -> beam_runner_api_pb2.Pipeline:
    plan = make_plan(load_declaration(reference), to)
    pipeline = beam.Pipeline(runner=IN_PROCESS_RUNNER)
    build_graph(pipeline, DeclarationHandle(plan.declaration, reference), plan.header, prepare(plan))
    return pipeline.to_runner_api()


def test_the_step_of_the_stage_alone_has_hints_and_an_environment_of_its_own(tmp_path: Path) -> None:
    hints = hints_by_step(proto_of("model_declarations:scored", tmp_path / "cache"))

    assert hints.pop("score") == SCORE_HINTS
    assert hints["lower_case"] == hints["halved"] == hints["Read source"] == {}
    assert not any(hints.values())


def test_a_build_with_limits_is_one_step_that_has_what_its_stages_need(tmp_path: Path) -> None:
    hints = hints_by_step(proto_of("model_declarations:scored_with_limits", tmp_path / "cache"))

    assert hints["Build source shards"] == {MIN_RAM: b"500000000"}


def test_a_build_in_such_steps_writes_the_same_bytes(tmp_path: Path) -> None:
    build("model_declarations:scored", tmp_path / "local", options=LocalOptions(workers=2))

    build("model_declarations:scored", tmp_path / "beam", options=BeamOptions(runner=IN_PROCESS_RUNNER))

    assert built_files(tmp_path / "beam") == built_files(tmp_path / "local")


def test_lower_makes_it_a_step_too_and_says_more_where_asked(tmp_path: Path) -> None:
    pipeline = beam.Pipeline(runner=IN_PROCESS_RUNNER)
    _ = pipeline | beam.Create(["to be"]) | lower(score)
    _ = (
        pipeline
        | "Other" >> beam.Create(["to be"])
        | "More" >> lower(score, resource_hints={"score": {"min_ram": "2GB"}})
    )

    hints = hints_by_step(pipeline.to_runner_api())
    assert hints["score/score"] == SCORE_HINTS
    assert hints["More/score"] == {**SCORE_HINTS, MIN_RAM: b"2000000000"}
