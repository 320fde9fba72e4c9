"""`pcoll | lower(pipeline)` inside a user's own Beam pipeline."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from sample_declarations import CountLetters, Initials, SplitWords

from beam_pipes.beam import Lowered, lower
from beam_pipes.errors import DeclarationError, TypeMismatchException
from beam_pipes.runners.beam_job import IN_PROCESS_RUNNER
from beam_pipes.typed import DAGPipeline, Input, Output, Pipeline, RandomPartition, count, drop, load_pipeline, stage

RETRYING_RUNNER = "apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"

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


def labels(dag: DAGPipeline, **options: Any) -> set[str]:
    pipeline = beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([]))
    _ = pipeline | beam.Create(LINES) | lower(dag, **options)
    return {transform.unique_name for transform in pipeline.to_runner_api().components.transforms.values()}


def test_units_share_a_step_with_their_names() -> None:
    split, initials = SplitWords(), Initials()
    dag = DAGPipeline({split: Input(str), initials: split, Output("initials"): initials}, "Initials of words")

    assert {"Initials of words", "Initials of words/SplitWords + Initials"} <= labels(dag)
    alone = labels(dag, resource_hints={"Initials": {}})
    assert {"Initials of words/SplitWords", "Initials of words/Initials"} <= alone


def test_a_step_of_many_units_is_named_by_its_ends() -> None:
    stages = [stage(str.title).changed(types=(str, str), name=f"Title{number}") for number in range(7)]
    edges: dict[Any, Any] = {stages[0]: Input(str), **dict(itertools.pairwise([*stages[::-1], Input(str)][:-1]))}
    edges[Output("titles")] = stages[-1]

    assert "Titles/Title0 + 5 stages + Title6" in labels(DAGPipeline(edges, "Titles"))


@stage
def lengths(words: list) -> Iterator[int]:
    count("lists")
    for word in words:
        if word == "odd":
            yield drop("odd")
        elif word == "bad":
            raise ValueError("bad word")
        else:
            yield len(word)


TEXTS = ["to be or not", "", "odd one", "boom", "odd", "a bad one", "to be", "x" * 9] * 3


@pytest.mark.parametrize(
    ("batch_records", "alone"),
    [
        (1, ()),
        (3, ()),
        (256, ()),
        (1, ("SplitWords", "lengths", "Initials")),
        (256, ("SplitWords", "lengths", "Initials")),
        (2, ("lengths",)),
    ],
)
def test_results_counters_and_failures_do_not_depend_on_steps(batch_records: int, alone: tuple[str, ...]) -> None:
    split, initials = SplitWords(), Initials()
    outputs = {Output("initials"): initials, Output("lengths"): lengths}
    dag = DAGPipeline({split: Input(str), initials: split, lengths: split, **outputs}, "Words")
    memory = load_pipeline(
        DAGPipeline({split: Input(str), initials: split, Output("initials"): initials}, "Words"),
        [text for text in TEXTS if "bad" not in text and text != "boom"],
    )

    def define(pipeline: Any) -> Any:
        given, failed = (
            pipeline
            | beam.Create(TEXTS)
            | lower(
                dag,
                on_error="dead_letter",
                batch_records=batch_records,
                resource_hints={name: {} for name in alone},
            )
        )
        output = failed | beam.Map(lambda one: (one.element, one.stage, one.error_type, one.message))
        initial = given["initials"] | "Texts" >> beam.Map(repr)
        return (initial, given["lengths"], output) | beam.Flatten()

    expected = [
        *map(repr, memory["initials"]),
        *[2, 2, 2, 3, 3, 2, 2, 9] * 3,
        *[
            ("boom", "SplitWords", "ValueError", "cannot split 'boom'"),
            ("a bad one", "lengths", "ValueError", "bad word"),
        ]
        * 3,
    ]
    result = check(define, expected)

    counted = {each.key.metric.name: each.committed for each in result.metrics().query()["counters"]}
    assert {name: counted[name] for name in counted if "/" in name or name.endswith("lists")} == {
        "Words_SplitWords_words/[0,2)": 6,
        "Words_SplitWords_words/[2,4)": 9,
        "Words_SplitWords_words/[4,8)": 3,
        "Words_lengths_lists": 15,
        "SplitWords/inputs": 24,
        "SplitWords/outputs": 18,
        "SplitWords/dropped/empty": 3,
        "SplitWords/dead": 3,
        "Initials/inputs": 18,
        "Initials/outputs": 39,
        "lengths/inputs": 18,
        "lengths/outputs": 24,
        "lengths/dropped/odd": 3,
        "lengths/dead": 3,
    }


@stage
def pairs(text: str) -> Iterator[list]:
    pair = []
    for word in text.split():
        pair[:] = [word, len(word)]  # one list, filled again
        yield pair


@stage
def longer(pair: list, record_id: str) -> list:
    count("pairs")
    if pair[0] == "bad":
        raise ValueError("bad word")
    pair[1] += 100
    pair.append(record_id)
    return pair


@stage
def described(pair: list) -> Iterator[str]:
    if pair[0] == "odd":
        yield drop("odd")
    elif pair[0] != "or":
        yield f"{pair[0]} {pair[1]} {pair[2]}"


LINE = DAGPipeline({pairs: Input(str), longer: pairs, described: longer, Output("described"): described}, "Line")


@pytest.mark.parametrize("batch_records", [1, 3])
@pytest.mark.parametrize("on_error", ["dead_letter", "drop"])
def test_functions_in_a_line_give_the_same_one_by_one_and_in_batches(batch_records: int, on_error: Any) -> None:
    texts = ["to be or not", "", "odd one", "a bad one", "or", "to be"]

    def define(pipeline: Any) -> Any:
        named = {"record_id": str.upper, "batch_records": batch_records}
        outputs = pipeline | beam.Create(texts) | lower(LINE, on_error=on_error, **named)
        if on_error == "drop":
            return outputs["described"]
        letters = outputs.dead_letters | beam.Map(lambda one: " ".join([one.element, one.stage, one.message]))
        return (outputs.outputs["described"], letters) | beam.Flatten()

    kept = ["to 102 TO BE OR NOT", "be 102 TO BE OR NOT", "not 103 TO BE OR NOT", "one 103 ODD ONE"]
    failed = ["a bad one longer bad word"] if on_error == "dead_letter" else []
    result = check(define, [*kept, "to 102 TO BE", "be 102 TO BE", *failed])

    counted = {each.key.metric.name: each.committed for each in result.metrics().query()["counters"]}
    lost = {"longer/dead": 1} if failed else {"longer/dropped/error/ValueError": 1}
    assert {name: number for name, number in counted.items() if "/" in name or name == "Line_longer_pairs"} == {
        "pairs/inputs": 6,
        "pairs/outputs": 12,
        "pairs/dropped/no_output": 1,
        "Line_longer_pairs": 10,
        "longer/inputs": 11,
        "longer/outputs": 10,
        **lost,
        "described/inputs": 9,
        "described/outputs": 6,
        "described/dropped/odd": 1,
        "described/dropped/no_output": 2,
    }


@stage
def grown(words: list) -> list:
    words.append("more")
    return words


@stage
def grown_again(words: list) -> list:
    words.append("again")
    if len(words) > 3:
        raise ValueError("too long")
    return words


class GrownTwice(Pipeline):
    input_type = output_type = list

    def transform(self, words: list) -> list[list]:
        return grown_again.transform(*grown.transform(words))


@pytest.mark.parametrize("batch_records", [1, 3])
@pytest.mark.parametrize("is_line", [True, False])
def test_stages_that_change_their_input_change_it_for_no_other_transform(is_line: bool, batch_records: int) -> None:
    pipelines = {True: DAGPipeline({grown: Input(list), grown_again: grown, Output("grown"): grown_again}, "Grown")}
    one = pipelines.get(is_line, GrownTwice())

    def define(pipeline: Any) -> Any:
        make = beam.Map(lambda number: ["to"] * number).with_output_types(list)
        lists = pipeline | beam.Create([1, 2]) | "Make" >> make
        earlier = lists | "Earlier" >> beam.Map(repr)
        given, failed = lists | lower(one, on_error="dead_letter", batch_records=batch_records)
        later = lists | "Later" >> beam.Map(repr)
        outputs = (given["grown"] if is_line else given) | "Outputs" >> beam.Map(repr)
        return (earlier, later, outputs, failed | beam.Map(lambda one: repr(one.element))) | beam.Flatten()

    check(define, [*["['to']", "['to', 'to']"] * 2, "['to', 'more', 'again']", "['to', 'to']"])


def test_a_failing_element_can_be_left_out() -> None:
    assert ["fine words", "boom"] | lower(SplitWords(), on_error="drop") == [["fine", "words"]]


def test_a_collection_of_another_type_is_refused_before_it_runs() -> None:
    words = r"SplitWords: the collection is of int, but the pipeline takes str\. Convert its elements before lower\(\)"
    with pytest.raises(TypeMismatchException, match=words):
        [7] | lower(SplitWords())


def check(define: Callable[[Any], Any], expected: Sequence[Any], runner: str = IN_PROCESS_RUNNER) -> Any:
    """Runs what `define` adds to a pipeline, and compares its elements; returns the result of the run."""
    pipeline = beam.Pipeline(runner=runner, options=PipelineOptions([]))
    assert_that(define(pipeline), equal_to(list(expected)))
    result = pipeline.run()
    result.wait_until_finish()
    return result


def test_an_element_that_its_type_hint_does_not_tell_is_named() -> None:
    def define(pipeline: Any) -> Any:
        return pipeline | beam.Create([7, "to be"]).with_output_types(Any) | lower(SplitWords())

    with pytest.raises(Exception, match=r"SplitWords: as an element, expected str, got int: 7"):
        check(define, [])


def test_failed_elements_are_a_second_output() -> None:
    def define(pipeline: Any) -> Any:
        words, failed = (
            pipeline
            | beam.Create(["fine words", "boom", "more"])
            | lower(SplitWords(), on_error="dead_letter", batch_records=2)
        )
        letters = failed | beam.Map(
            lambda one: (one.element, one.stage, one.error_type, "in transform" in one.traceback)
        )
        return (words | "One kind" >> beam.Map(tuple), letters) | beam.Flatten()

    check(define, [("fine", "words"), ("more",), ("boom", "SplitWords", "ValueError", True)])


def test_a_dag_with_one_stage_that_keeps_failed_elements_has_both() -> None:
    title = stage(str.title, on_error="dead_letter").changed(types=(str, str))
    dag = DAGPipeline({title: Input(str), Output("titles"): title})
    lowered = beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([])) | beam.Create(LINES) | lower(dag)

    assert isinstance(lowered, Lowered)
    assert list(lowered.outputs) == ["titles"]


@stage(batched=True)
def size_of_batch(texts: list[str]) -> list[int]:
    return [len(texts)] * len(texts)


@pytest.mark.parametrize(
    ("options", "largest"),
    [
        pytest.param({}, 10, id="a_bundle_ends_it"),
        pytest.param({"batch_records": 4}, 4, id="records"),
        pytest.param({"batch_bytes": 25}, 3, id="bytes"),
        pytest.param({"batch_records": 1}, 1, id="one"),
    ],
)
def test_batches_are_bounded(options: dict[str, int], largest: int) -> None:
    sizes = ["0123456789"] * 10 | lower(size_of_batch, **options)

    rest = 10 % largest
    assert sorted(sizes) == sorted([largest] * (10 - rest) + [rest] * rest)


def test_elements_keep_their_timestamps_and_windows() -> None:
    times = {"a b": 1, "c": 7, "d e f": 3, "g": 12}

    def define(pipeline: Any) -> Any:
        stamp = beam.Map(lambda line: TimestampedValue(line, times[line])).with_output_types(str)
        windows = pipeline | beam.Create(list(times)) | "Stamp" >> stamp | beam.WindowInto(FixedWindows(5))
        words = windows | lower(SplitWords())
        return words | beam.Map(
            lambda words, at=beam.DoFn.TimestampParam, window=beam.DoFn.WindowParam: (
                " ".join(words),
                float(at),
                float(window.start),
            )
        )

    check(define, [(line, float(at), at // 5 * 5.0) for line, at in times.items()])


@stage(name="SplitWords")
def split_words(line: str) -> list | None:
    return SplitWords().transform(line)[0] if line else drop("empty")


class FailOnce(beam.DoFn):
    """Fails after the elements before it have been counted; a runner that retries bundles goes on."""

    failed: ClassVar[list[bool]] = []

    def process(self, element: Any) -> Any:
        if not FailOnce.failed:
            FailOnce.failed.append(True)
            raise ConnectionError("lost, as it was told to be")
        yield element


@pytest.mark.parametrize(("of", "batch_records"), [(SplitWords(), 1), (SplitWords(), 3), (split_words, 1)])
def test_metrics_count_each_element_once_where_a_bundle_is_retried(of: Any, batch_records: int) -> None:
    FailOnce.failed.clear()
    lines = [*LINES, "boom"]

    def define(pipeline: Any) -> Any:
        words = pipeline | beam.Create(lines) | lower(of, on_error="drop", batch_records=batch_records)
        return words | beam.ParDo(FailOnce())

    result = check(define, [line.split() for line in LINES if line], runner=RETRYING_RUNNER)

    found = {counter.key.metric.name: counter.attempted for counter in result.metrics().query()["counters"]}
    assert FailOnce.failed
    assert {name: found[name] for name in found if name.startswith("SplitWords/")} == {
        "SplitWords/inputs": 6,
        "SplitWords/outputs": 4,
        "SplitWords/dropped/empty": 1,
        "SplitWords/dropped/error/ValueError": 1,
    }


@pytest.mark.parametrize(
    ("type_", "coder"),
    [(str, "StrUtf8Coder"), (bytes, "BytesCoder"), (tf.train.Example, "ProtoCoder"), (object, "FastPrimitivesCoder")],
)
def test_outputs_have_the_declared_type_and_its_coder(type_: type, coder: str) -> None:
    class Same(Pipeline):
        def transform(self, value: Any) -> list[Any]:
            return [value]

    pipeline = beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([]))
    made = pipeline | beam.Create([]) | lower(Same(input_type=object, output_type=type_, name="Same"))

    assert type(beam.coders.registry.get_coder(made.element_type)).__name__ == coder


def test_pairs_can_be_grouped() -> None:
    class Pair(Pipeline):
        def __init__(self) -> None:
            super().__init__(input_type=str, output_type=tuple, name="Pair")

        def transform(self, line: str) -> list[tuple[str, int]]:
            return [(line[:2], len(line))]

    def define(pipeline: Any) -> Any:
        return (
            pipeline
            | beam.Create(["to be", "to"])
            | lower(Pair())
            | beam.GroupByKey()
            | beam.MapTuple(lambda key, values: (key, sorted(values)))
        )

    check(define, [("to", [2, 5])])


def test_resources_are_asked_for_by_all_units_or_by_one() -> None:
    split, initials = SplitWords(), Initials()
    dag = DAGPipeline({split: Input(str), initials: split, Output("initials"): initials}, "Words")
    pipeline = beam.Pipeline(runner=IN_PROCESS_RUNNER, options=PipelineOptions([]))
    hints = {"Initials": {"min_ram": "8GB"}}

    _ = pipeline | beam.Create(LINES) | lower(dag, resource_hints=hints).with_resource_hints(min_ram="2GB")

    components = pipeline.to_runner_api().components
    asked = {
        transform.unique_name: [*components.environments[transform.environment_id].resource_hints.values()]
        for transform in components.transforms.values()
        if transform.environment_id
    }
    assert asked["Words/SplitWords"] == [b"2000000000"]
    assert asked["Words/Initials"] == [b"8000000000"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_records": 0}, "lower: batch_records should be an integer of at least 1, got 0."),
        ({"batch_bytes": "1MB"}, "lower: batch_bytes should be an integer of at least 1, got '1MB'."),
        ({"resource_hints": {"Split": {}}}, "resource_hints names 'Split'; the units of 'SplitWords' are SplitWords."),
    ],
)
def test_options_are_checked_when_it_is_made(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(words)):
        lower(SplitWords(), **options)


SCRIPT = """
from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam

from beam_pipes.beam import Lowered, lower
from beam_pipes.errors import DeclarationError, TypeMismatchException
from beam_pipes.typed import stage

Line = str


@stage
def split(line: Line) -> Iterator[str]:
    yield from line.split()


with beam.Pipeline() as pipeline:
    pipeline | beam.Create(["to be", "or"]) | lower(split) | beam.io.WriteToText("words", shard_name_template="")
"""


def test_a_script_lowers_functions_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(SCRIPT)

    subprocess.run([sys.executable, "words.py"], cwd=tmp_path, check=True, capture_output=True)

    assert (tmp_path / "words").read_text().split() == ["to", "be", "or"]
