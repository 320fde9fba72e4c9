"""Every code example of Magenta's "Data processing in Magenta", with the values it prints."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from beam_pipes.typed import (
    BadInputOrOutputException,
    BadTopologyException,
    Counter,
    DAGPipeline,
    DuplicateNameException,
    Histogram,
    Input,
    InvalidDictionaryOutput,
    InvalidStatisticsException,
    InvalidTransformOutputException,
    NotConnectedException,
    Output,
    Pipeline,
    RandomPartition,
    TypeMismatchException,
    merge_statistics,
)


@dataclasses.dataclass(frozen=True)
class Type1:
    a: Any = None
    b: Any = None
    c: Any = None


@dataclasses.dataclass(frozen=True)
class Type2:
    value: Any = None


@dataclasses.dataclass(frozen=True)
class TypeX:
    value: Any = None


@dataclasses.dataclass(frozen=True)
class TypeY:
    value: Any = None


class Fixed(Pipeline):
    """Gives the same outputs whatever it is given; keeps its inputs."""

    def __init__(self, input_type: Any, output_type: Any, outputs: Any, name: str = "Fixed") -> None:
        super().__init__(input_type, output_type, name)
        self.outputs = outputs
        self.seen: list[Any] = []

    def transform(self, input_object: Any) -> Any:
        self.seen.append(input_object)
        return self.outputs


def simple(name: str, input_type: Any = str, output_type: Any = str) -> Fixed:
    return Fixed(input_type, output_type, [], name)


def printed(stats: Any) -> list[str]:
    return [str(stat) for stat in stats]


class TestPipeline:
    def test_one_input_gives_a_list_of_outputs_and_prefixed_statistics(self) -> None:
        class MyPipeline(Pipeline):
            def __init__(self) -> None:
                super().__init__(input_type=Type1, output_type=Type2, name="MyPipeline")

            def transform(self, input_object: Type1) -> list[Type2]:
                numbers = [input_object.a, input_object.b, input_object.c]
                self._set_stats([Counter("how_many_ints", 3), Counter("sum_of_ints", sum(numbers))])
                return [Type2(number) for number in numbers]

        pipeline = MyPipeline()

        outputs = pipeline.transform(Type1(1, 2, 3))

        assert (pipeline.input_type, pipeline.output_type, pipeline.name) == (Type1, Type2, "MyPipeline")
        assert outputs == [Type2(1), Type2(2), Type2(3)]
        assert printed(pipeline.get_stats()) == ["MyPipeline_how_many_ints: 3", "MyPipeline_sum_of_ints: 6"]

    def test_inputs_and_outputs_may_be_dictionaries(self) -> None:
        class MyPipeline(Pipeline):
            def __init__(self) -> None:
                super().__init__(
                    {"property_1": Type1, "property_2": int}, {"output_1": Type2, "output_2": str}, "MyPipeline"
                )

            def transform(self, input_object: dict[str, Any]) -> dict[str, list[Any]]:
                first, second = input_object["property_1"], str(input_object["property_2"])
                numbers = [first.a, first.b, first.c]
                self._set_stats(
                    [
                        Counter("how_many_ints", len(numbers)),
                        Counter("sum_of_ints", sum(numbers)),
                        Counter("property_2_digits", len(second)),
                    ]
                )
                return {"output_1": [Type2(number) for number in numbers], "output_2": [second, second[::-1]]}

        pipeline = MyPipeline()

        outputs = pipeline.transform({"property_1": Type1(1, 2, 3), "property_2": 1007})

        assert pipeline.input_type == {"property_1": Type1, "property_2": int}
        assert pipeline.output_type == {"output_1": Type2, "output_2": str}
        assert outputs == {"output_1": [Type2(1), Type2(2), Type2(3)], "output_2": ["1007", "7001"]}
        assert printed(pipeline.get_stats()) == [
            "MyPipeline_how_many_ints: 3",
            "MyPipeline_sum_of_ints: 6",
            "MyPipeline_property_2_digits: 4",
        ]

    def test_output_types_are_given_as_a_dict(self) -> None:
        assert simple("One", str, int).output_type_as_dict == {"dataset": int}
        assert simple("Two", str, {"a": int, "b": str}).output_type_as_dict == {"a": int, "b": str}

    def test_the_full_example_counts_foos(self) -> None:
        class FooExtractor(Pipeline):
            def __init__(self) -> None:
                super().__init__(input_type=int, output_type=str, name="FooExtractor")

            def transform(self, bar_object: int) -> list[str]:
                how_many_foo = Counter("how_many_foo")
                how_many_features = Counter("how_many_features")
                how_many_bar = Counter("how_many_bar", 1)
                foos = []
                for feature in range(bar_object):
                    if feature in (1, 2):
                        foos.append(f"foo {feature}")
                        how_many_foo.increment()
                    how_many_features.increment()
                self._set_stats([how_many_foo, how_many_features, how_many_bar])
                return foos

        foo_extractor = FooExtractor()

        assert (foo_extractor.input_type, foo_extractor.output_type, foo_extractor.name) == (int, str, "FooExtractor")
        assert foo_extractor.transform(5) == ["foo 1", "foo 2"]
        assert printed(foo_extractor.get_stats()) == [
            "FooExtractor_how_many_foo: 2",
            "FooExtractor_how_many_features: 5",
            "FooExtractor_how_many_bar: 1",
        ]


class TestStatistics:
    def test_a_counter_counts_and_merges(self) -> None:
        count = Counter("how_many_foo")
        count.increment()
        count.increment(5)
        assert str(count) == "how_many_foo: 6"

        count_2 = Counter("how_many_foo")
        count_2.increment()
        count.merge_from(count_2)
        assert str(count) == "how_many_foo: 7"

    def test_a_histogram_counts_ranges_and_merges(self) -> None:
        histogram = Histogram("bar_distribution", [0, 1, 2, 3])
        for value in (0.0, 1.2, 1.9, 2.5):
            histogram.increment(value)
        assert str(histogram) == "bar_distribution:\n  [0,1): 1\n  [1,2): 2\n  [2,3): 1"

        histogram_2 = Histogram("bar_distribution", [0, 1, 2, 3])
        histogram_2.increment(0.1)
        histogram_2.increment(1.0, 3)
        histogram.merge_from(histogram_2)
        assert str(histogram) == "bar_distribution:\n  [0,1): 2\n  [1,2): 5\n  [2,3): 1"

    def test_merge_statistics_adds_over_calls_of_transform(self) -> None:
        class FooBarExtractor(Pipeline):
            input_type = output_type = int

            def transform(self, foos: int) -> list[int]:
                self._set_stats(
                    [
                        Counter("how_many_foo", foos),
                        Counter("how_many_foo", 1),
                        Counter("how_many_bar", 1),
                        Counter("how_many_foo", 0),
                    ]
                )
                return []

        my_pipeline = FooBarExtractor()
        my_pipeline.transform(1)
        stats = my_pipeline.get_stats()
        assert printed(stats) == [
            "FooBarExtractor_how_many_foo: 1",
            "FooBarExtractor_how_many_foo: 1",
            "FooBarExtractor_how_many_bar: 1",
            "FooBarExtractor_how_many_foo: 0",
        ]

        merged = merge_statistics(stats)
        assert printed(merged) == ["FooBarExtractor_how_many_foo: 2", "FooBarExtractor_how_many_bar: 1"]

        my_pipeline.transform(2)
        stats += my_pipeline.get_stats()
        assert printed(merge_statistics(stats)) == [
            "FooBarExtractor_how_many_foo: 5",
            "FooBarExtractor_how_many_bar: 2",
        ]


class TestDAG:
    def test_the_melody_data_set_runs_from_notes_to_partitions(self) -> None:
        quantizer = Fixed(bytes, list, [[60, 62], [64]], "Quantizer")
        melody_extractor = Fixed(list, tuple, [(60,)], "MonophonicMelodyExtractor")
        encoder_pipeline = Fixed(tuple, dict, [{"inputs": [60]}], "EncoderPipeline")
        partitioner = RandomPartition(dict, ["eval_melodies", "training_melodies"], [0.1])
        dag = {
            quantizer: Input(bytes),
            melody_extractor: quantizer,
            encoder_pipeline: melody_extractor,
            partitioner: encoder_pipeline,
            Output(): partitioner,
        }

        composite_pipeline = DAGPipeline(dag)
        outputs = composite_pipeline.transform(b"notes")

        assert composite_pipeline.output_type == {"eval_melodies": dict, "training_melodies": dict}
        assert sorted(outputs) == ["eval_melodies", "training_melodies"]
        assert outputs["eval_melodies"] + outputs["training_melodies"] == [{"inputs": [60]}] * 2

    def test_a_basic_dag(self) -> None:
        to_pipe = Fixed(Type1, Type2, [Type2("to")], "ToPipeline")
        from_pipe = Fixed(str, Type1, [Type1("from")], "FromPipeline")

        dag_pipe = DAGPipeline({from_pipe: Input(str), to_pipe: from_pipe, Output("my_output"): to_pipe})

        assert dag_pipe.transform("in") == {"my_output": [Type2("to")]}
        assert (from_pipe.seen, to_pipe.seen) == (["in"], [Type1("from")])

    def test_equal_dictionaries_connect_by_name(self) -> None:
        both = {"intermediate_1": Type1, "intermediate_2": Type2}
        to_pipe = Fixed(both, str, ["out"], "ToPipeline")
        from_pipe = Fixed(str, both, {"intermediate_1": [Type1(1)], "intermediate_2": [Type2(2)]}, "FromPipeline")

        dag_pipe = DAGPipeline({from_pipe: Input(str), to_pipe: from_pipe, Output("my_output"): to_pipe})

        assert dag_pipe.transform("in") == {"my_output": ["out"]}
        assert to_pipe.seen == [{"intermediate_1": Type1(1), "intermediate_2": Type2(2)}]

    def test_an_output_without_a_name_gives_every_key(self) -> None:
        my_pipeline = Fixed(
            str, {"output_1": Type1, "output_2": Type2}, {"output_1": [Type1()], "output_2": [Type2()]}, "MyPipeline"
        )

        dag_pipe = DAGPipeline({my_pipeline: Input(str), Output(): my_pipeline})

        assert dag_pipe.transform("in") == {"output_1": [Type1()], "output_2": [Type2()]}

    def test_single_keys_and_dict_dependencies_connect_branches(self) -> None:
        first_pipe = Fixed(str, {"type_1": Type1, "type_2": Type2}, {"type_1": [Type1()], "type_2": [Type2()]}, "First")
        second_pipe = Fixed(Type1, TypeX, [TypeX("x")], "Second")
        third_pipe = Fixed(Type2, TypeY, [TypeY("y")], "Third")
        last_pipe = Fixed({"type_x": TypeX, "type_y": TypeY}, str, ["out"], "Last")
        dag = {
            first_pipe: Input(str),
            second_pipe: first_pipe["type_1"],
            third_pipe: first_pipe["type_2"],
            last_pipe: {"type_x": second_pipe, "type_y": third_pipe},
            Output("my_output"): last_pipe,
        }

        assert DAGPipeline(dag).transform("in") == {"my_output": ["out"]}
        assert last_pipe.seen == [{"type_x": TypeX("x"), "type_y": TypeY("y")}]

    def test_keys_may_stand_in_dict_dependencies(self) -> None:
        first_pipe = Fixed(
            str, {"type_1": TypeX, "type_2": TypeY}, {"type_1": [TypeX("a")], "type_2": [TypeY("b")]}, "First"
        )
        last_pipe = Fixed({"type_x": TypeY, "type_y": TypeX}, str, ["out"], "Last")
        dag = {
            first_pipe: Input(str),
            last_pipe: {"type_x": first_pipe["type_2"], "type_y": first_pipe["type_1"]},
            Output("my_output"): last_pipe,
        }

        assert DAGPipeline(dag).transform("in") == {"my_output": ["out"]}
        assert last_pipe.seen == [{"type_x": TypeY("b"), "type_y": TypeX("a")}]

    def test_statistics_of_all_pipelines_are_collected(self) -> None:
        class Pipe1(Pipeline):
            input_type, output_type = Type1, int

            def transform(self, input_object: Type1) -> list[int]:
                self._set_stats([Counter("how_many_foo", input_object.a), Counter("how_many_bar", 2)])
                return [6]

        class Pipe2(Pipeline):
            input_type = output_type = int

            def transform(self, input_object: int) -> list[int]:
                self._set_stats([Counter("how_many_bar", input_object), Counter("foobar", 7)])
                return [0]

        pipeline_1, pipeline_2 = Pipe1(), Pipe2()
        dag_pipe = DAGPipeline({pipeline_1: Input(Type1), pipeline_2: pipeline_1, Output("output"): pipeline_2})

        dag_pipe.transform(Type1(5))

        assert (pipeline_1.name, pipeline_2.name, dag_pipe.name) == ("Pipe1", "Pipe2", "DAGPipeline")
        assert printed(dag_pipe.get_stats()) == [
            "DAGPipeline_Pipe1_how_many_foo: 5",
            "DAGPipeline_Pipe1_how_many_bar: 2",
            "DAGPipeline_Pipe2_how_many_bar: 6",
            "DAGPipeline_Pipe2_foobar: 7",
        ]


class TestExceptions:
    def test_different_names_are_fine_and_equal_ones_are_not(self) -> None:
        for name, raised in (("hello", None), ("my_name", DuplicateNameException)):
            pipeline_1, pipeline_2 = simple("my_name"), simple(name)
            dag = {pipeline_1: Input(str), pipeline_2: pipeline_1, Output("o"): pipeline_2}
            if raised is None:
                assert DAGPipeline(dag).transform("x") == {"o": []}
            else:
                with pytest.raises(raised):
                    DAGPipeline(dag)

    @pytest.mark.parametrize(
        ("destination_type", "source_type"),
        [
            pytest.param(Type1, Type2, id="two classes"),
            pytest.param({"name_1": Type1}, {"name_1": Type2}, id="two classes under one name"),
            pytest.param({"name_1": Type1}, {"name_2": Type1}, id="one class under two names"),
        ],
    )
    def test_signatures_at_both_ends_of_an_edge_are_equal(self, destination_type: Any, source_type: Any) -> None:
        source, destination = simple("source", str, source_type), simple("destination", destination_type)
        with pytest.raises(TypeMismatchException):
            DAGPipeline({source: Input(str), destination: source, Output("o"): destination})

    def test_two_pipelines_in_a_circle(self) -> None:
        pipe1, pipe2 = simple("pipe1"), simple("pipe2")
        with pytest.raises(BadTopologyException):
            DAGPipeline({Output("output"): Input(str), pipe2: pipe1, pipe1: pipe2})

    def test_a_circle_after_the_input(self) -> None:
        pipe1, pipe2, pipe3 = simple("pipe1"), simple("pipe2", {"a": str, "b": str}), simple("pipe3")
        dag = {
            pipe1: Input(str),
            pipe2: {"a": pipe1, "b": pipe3},
            pipe3: pipe2,
            Output(): {"pipe2": pipe2, "pipe3": pipe3},
        }
        with pytest.raises(BadTopologyException):
            DAGPipeline(dag)

    def test_every_pipeline_is_fed_and_used(self) -> None:
        pipe1, pipe2 = simple("pipe1"), simple("pipe2")
        for dag in (
            {pipe1: Input(str), Output("output"): pipe2},
            {pipe1: Input(str), Output(): {"pipe1": pipe1, "pipe2": pipe2}},
            {pipe1: Input(str), pipe2: pipe1, Output("pipe1"): pipe1},
        ):
            with pytest.raises(NotConnectedException):
                DAGPipeline(dag)

    def test_there_is_one_input_type_and_an_output(self) -> None:
        pipe1, pipe2 = simple("pipe1", Type1), simple("pipe2", Type2)
        for dag in (
            {pipe1: Input(Type1)},
            {Output("output"): pipe1},
            {pipe1: Input(Type1), pipe2: Input(Type2), Output(): {"pipe1": pipe1, "pipe2": pipe2}},
        ):
            with pytest.raises(BadInputOrOutputException):
                DAGPipeline(dag)

    def test_several_inputs_of_one_type_are_one_input(self) -> None:
        pipe_a, pipe_b = simple("pipeA"), simple("pipeB")
        dag = DAGPipeline({pipe_a: Input(str), pipe_b: Input(str), Output(): {"pipeA": pipe_a, "pipeB": pipe_b}})

        assert dag.transform("x") == {"pipeA": [], "pipeB": []}
        assert pipe_a.seen == pipe_b.seen == ["x"]

    def test_get_stats_gives_statistics_only(self) -> None:
        class MyPipeline(Pipeline):
            input_type = output_type = str

            def __init__(self, stats: Any) -> None:
                super().__init__()
                self.stats = stats

            def transform(self, input_object: str) -> list[str]:
                return [input_object]

            def get_stats(self) -> Any:
                return self.stats

        def run(stats: Any) -> Any:
            my_pipeline = MyPipeline(stats)
            dag = DAGPipeline({my_pipeline: Input(str), Output("o"): my_pipeline})
            dag.transform("x")
            return dag.get_stats()

        assert len(run([Counter("c", 1), Histogram("h", [0])])) == 2
        for stats in (["hello", Histogram("h", [0])], Counter("c")):
            with pytest.raises(InvalidStatisticsException):
                run(stats)

    def test_a_named_output_takes_no_dictionary_and_an_unnamed_one_needs_one(self) -> None:
        pipe1, pipe2 = simple("pipe1"), simple("pipe2")
        feeds = {pipe1: Input(str), pipe2: Input(str)}
        with pytest.raises(InvalidDictionaryOutput):
            DAGPipeline({Output("output"): {"pipe1": pipe1, "pipe2": pipe2}, **feeds})
        with pytest.raises(InvalidDictionaryOutput):
            DAGPipeline({Output(): pipe1, **feeds})

    def test_transform_gives_the_type_it_promised(self) -> None:
        my_pipeline = Fixed(Type1, Type1, [Type2()], "MyPipeline")
        dag = DAGPipeline({my_pipeline: Input(Type1), Output("o"): my_pipeline})
        with pytest.raises(InvalidTransformOutputException):
            dag.transform(Type1())
