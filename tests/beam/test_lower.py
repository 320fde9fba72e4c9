"""`pcoll | lower(pipeline)` inside a user's own Beam pipeline."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from sample_declarations import CountLetters, Initials, SplitWords

from beam_pipes.beam import lower
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from beam_pipes.typed import DAGPipeline, Input, Output, RandomPartition, load_pipeline

LINES = ["to be or not", "", "to be", "that is the question", "to be"]


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["pytest"])  # `list | transform` reads them


def test_a_single_stage_gives_one_collection() -> None:
    assert LINES | lower(SplitWords()) == [line.split() for line in LINES if line]


def test_a_dag_gives_the_same_as_in_memory() -> None:
    split, initials = SplitWords(), Initials()
    dag = DAGPipeline({split: Input(str), initials: split, Output("initials"): initials, Output("words"): split})

    outputs = LINES | lower(dag)

    assert {name: list(values) for name, values in outputs.items()} == dict(load_pipeline(dag, LINES))


def test_what_is_drawn_depends_on_the_element_alone() -> None:
    split, count = SplitWords(), CountLetters()
    partition = RandomPartition(dict, ["a", "b"], [0.5])
    dag = DAGPipeline({split: Input(str), count: split, partition: count, Output(): partition})
    lines = [f"line {number}" for number in range(40)]

    forward, backward = lines | lower(dag), lines[::-1] | lower(dag)

    def noise(outputs: dict) -> set:
        return {(name, example["text"], example["noise"]) for name in outputs for example in outputs[name]}

    assert noise(forward) == noise(backward)
    assert 8 < len(list(forward["a"])) < 32


def test_each_unit_is_a_labelled_transform() -> None:
    split, initials = SplitWords(), Initials()
    dag = DAGPipeline({split: Input(str), initials: split, Output("initials"): initials}, "Initials of words")
    pipeline = beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([]))

    _ = pipeline | beam.Create(LINES) | lower(dag)

    labels = [t.unique_name for t in pipeline.to_runner_api().components.transforms.values()]
    assert "Initials of words/SplitWords" in labels
    assert "Initials of words/Initials" in labels


def test_a_failing_element_can_be_left_out() -> None:
    assert ["fine words", "boom"] | lower(SplitWords(), on_error="drop") == [["fine", "words"]]


def test_an_element_of_another_type_is_named() -> None:
    with pytest.raises(Exception, match=r"SplitWords: as an element, expected str, got int: 7"):
        [7] | lower(SplitWords())
