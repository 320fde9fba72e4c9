"""The two spellings of a stage, what it may say of itself, direct calls, drawing, pickling."""

from __future__ import annotations

import dataclasses
import pickle
import re
import typing
from typing import Any

import numpy as np
import pytest

from beam_pipes.typed import (
    Counter,
    DAGPipeline,
    Input,
    InvalidStatisticsException,
    InvalidTypeSignatureException,
    Output,
    Pipeline,
    load_pipeline,
    merge_statistics,
)


class Classic(Pipeline):
    def __init__(self, suffix: str = "!") -> None:
        super().__init__(str, str, "ClassicName")
        self.suffix = suffix

    def transform(self, input_object: str) -> list[str]:
        self._set_stats([Counter("calls", 1)])
        return [input_object + self.suffix]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frozen(Pipeline):
    input_type = str
    output_type = str
    suffix: str = "!"

    def transform(self, input_object: str) -> list[str]:
        self._set_stats([Counter("calls", 1)])
        return [input_object + self.suffix] if input_object else self.drop("empty")


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted(Pipeline):
    suffix: str
    input_type = str
    output_type = str

    def transform(self, input_object: str) -> list[str]:
        return [input_object + self.suffix]


@dataclasses.dataclass(frozen=True)
class Named(Pipeline):
    name: str
    input_type = str
    output_type = str

    def transform(self, input_object: str) -> list[str]:
        return [f"{input_object}{self.rng().integers(2**60)}"]


class Drawing(Pipeline):
    input_type = output_type = str

    def transform(self, input_object: str) -> list[str]:
        return [f"{self.rng().integers(2**60)} {self.rng().integers(2**60)}"]


ALL = [Classic(), Frozen(), Slotted("!"), Drawing(), Named("named")]


@pytest.mark.parametrize("stage", [Classic(), Frozen(), Slotted("!")], ids=lambda stage: type(stage).__name__)
def test_both_spellings_run_in_a_dag(stage: Pipeline) -> None:
    dag = DAGPipeline({stage: Input(str), Output("o"): stage})
    assert dag.transform("a") == {"o": ["a!"]}


def test_names_are_the_given_ones_or_the_class() -> None:
    class Child(Classic):
        pass

    class Called(Pipeline):
        name = "called so"

        def transform(self, input_object: Any) -> list[Any]:
            return []

    names = [stage.name for stage in (Classic(), Frozen(), Named("n"), Called(), Child())]
    assert names == ["ClassicName", "Frozen", "n", "called so", "ClassicName"]


def test_a_frozen_stage_reports_statistics_and_drops() -> None:
    loaded = load_pipeline(Frozen(), ["a", "", "b"])
    assert loaded == ["a!", "b!"]
    assert [str(stat) for stat in loaded.statistics] == ["Frozen_calls: 3"]


def test_equal_dataclass_stages_stay_two_stages() -> None:
    first, second = Frozen(), dataclasses.replace(Frozen())
    assert first != second
    assert len({first, second}) == 2

    one, two = Named("one"), Named("two")
    assert one == one and hash(one) != hash(two)


def test_a_stage_that_says_how_it_compares_is_left_alone() -> None:
    class Comparing(Classic):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Comparing)

        def __hash__(self) -> int:
            return 5

    class Child(Comparing):
        pass

    assert Child() == Child()
    assert hash(Child()) == 5


def test_a_pipeline_without_transform_cannot_be_created() -> None:
    class Abstract(Pipeline):
        input_type = output_type = str

    @dataclasses.dataclass(frozen=True)
    class AbstractDataclass(Pipeline):
        input_type = output_type = str

    for cls in (Abstract, AbstractDataclass):
        with pytest.raises(TypeError, match=f"Can't instantiate abstract class {cls.__name__} with.*transform"):
            cls()


def test_transform_may_come_from_a_mixin() -> None:
    class Shout:
        def transform(self, input_object: str) -> list[str]:
            self._set_stats([Counter("shouts", 1)])  # type: ignore[attr-defined]
            return [input_object.upper()]

    class Mixed(Shout, Pipeline):
        input_type = output_type = str

    mixed = Mixed()
    assert mixed.transform("a") == ["A"]
    assert [str(stat) for stat in load_pipeline(mixed, ["a", "b"]).statistics] == ["Mixed_shouts: 2"]


def test_super_transform_is_the_same_call() -> None:
    class Base(Pipeline):
        input_type = output_type = str

        def transform(self, input_object: str) -> list[str]:
            return [input_object, str(self.rng().integers(2**60))]

    class Child(Base):
        def transform(self, input_object: str) -> list[str]:
            self._set_stats([Counter("child", 1)])
            return [*super().transform(input_object), str(self.rng().integers(2**60))]

    child = Child()
    _, from_base, from_child = child.transform("x")
    assert from_base == from_child
    assert [str(stat) for stat in child.get_stats()] == ["Child_child: 1"]
    assert load_pipeline(Child(), ["x"])[1] == from_base


class TestTypeSignatures:
    @pytest.mark.parametrize(
        ("signature", "words"),
        [
            ("str", "should be a class or a dict of name to class, got 'str' (str). "),
            ([str], "should be a class or a dict of name to class, got [<class 'str'>] (list). "),
            (list[int], "should be a class or a dict of name to class, got list[int] (GenericAlias). "),
            (typing.Any, "should be a class or a dict of name to class, got typing.Any ("),
            ({}, "should be a class or a dict of name to class, got an empty dict. Name at least one value."),
            ({1: str}, "should map names (str) to classes, got the key 1."),
            ({"a": "str"}, "['a'] should be a class, got 'str'. "),
            (
                {"a": {"b": str}},
                "['a'] should be a class, got {'b': <class 'str'>}. Signatures nest one level only.",
            ),
        ],
    )
    def test_what_is_not_a_signature_is_refused(self, signature: Any, words: str) -> None:
        class Loose(Pipeline):
            def __init__(self, signature: Any) -> None:
                super().__init__(str, signature, "Loose")

            def transform(self, input_object: Any) -> list[Any]:
                return []

        with pytest.raises(InvalidTypeSignatureException, match=re.escape(words)) as caught:
            Loose(signature)
        assert str(caught.value).startswith("Loose.output_type")
        if words.endswith(". ") and not words.startswith("should map"):
            advice = "Use a class that isinstance() accepts: list for list[int], object for anything."
            assert str(caught.value).endswith(advice)

    def test_a_class_attribute_is_checked_when_the_class_is_made(self) -> None:
        with pytest.raises(InvalidTypeSignatureException, match=r"^Wrong\.input_type should be a class"):

            class Wrong(Pipeline):
                input_type = "str"

                def transform(self, input_object: Any) -> list[Any]:
                    return []

    def test_input_checks_its_type(self) -> None:
        with pytest.raises(InvalidTypeSignatureException, match=r"^Input should be a class or a dict"):
            Input("str")  # type: ignore[arg-type]

    def test_a_property_or_a_field_may_give_the_signature(self) -> None:
        @dataclasses.dataclass(frozen=True)
        class Cast(Pipeline):
            input_type = str
            output_type: Any = dataclasses.field(default=int)

            def transform(self, input_object: str) -> list[Any]:
                return [self.output_type(input_object)]

        class Computed(Pipeline):
            input_type = str

            @property
            def output_type(self) -> Any:
                return int

            def transform(self, input_object: str) -> list[int]:
                return [int(input_object)]

        assert load_pipeline(Cast(), ["1"]) == [1]
        assert load_pipeline(Cast(float), ["1"]) == [1.0]
        assert load_pipeline(Computed(), ["1"]) == [1]


class TestStatistics:
    class Once(Pipeline):
        """Reports the bad records only."""

        input_type = output_type = str

        def transform(self, input_object: str) -> list[str]:
            if input_object == "bad":
                self._set_stats([Counter("discarded", 1)])
                return []
            return [input_object]

    INPUTS = ["bad", *["good"] * 99]

    def test_one_bad_record_before_99_good_ones_counts_once_in_a_loop_of_direct_calls(self) -> None:
        stage, stats = self.Once(), []
        for value in self.INPUTS:
            stage.transform(value)
            stats += stage.get_stats()
        assert [str(stat) for stat in merge_statistics(stats)] == ["Once_discarded: 1"]

    def test_one_bad_record_before_99_good_ones_counts_once_in_a_run(self) -> None:
        stage = self.Once()
        dag = DAGPipeline({stage: Input(str), Output("o"): stage})
        stats = []
        for value in self.INPUTS:
            dag.transform(value)
            stats += dag.get_stats()
        assert [str(stat) for stat in merge_statistics(stats)] == ["DAGPipeline_Once_discarded: 1"]
        assert [str(stat) for stat in load_pipeline(dag, self.INPUTS).statistics] == ["DAGPipeline_Once_discarded: 1"]
        assert [str(stat) for stat in load_pipeline(stage, self.INPUTS).statistics] == ["Once_discarded: 1"]

    def test_get_stats_may_be_asked_twice_and_gives_copies(self) -> None:
        stage = Classic()
        stage.transform("x")
        stage.get_stats()[0].increment(5)  # type: ignore[attr-defined]
        assert [str(stat) for stat in stage.get_stats()] == ["ClassicName_calls: 1"]

    def test_there_are_none_before_the_first_call(self) -> None:
        assert Classic().get_stats() == []

    def test_set_stats_takes_any_iterable(self) -> None:
        class Generating(Pipeline):
            input_type = output_type = str

            def transform(self, input_object: str) -> list[str]:
                self._set_stats(Counter(name, 1) for name in ("a", "b"))
                return []

            def transform_batch(self, inputs: list[str]) -> list[list[str]]:
                self._set_stats(Counter(name, len(inputs)) for name in ("a", "b"))
                return [[] for _ in inputs]

        stage = Generating()
        stage.transform("x")
        expected = ["Generating_a: 1", "Generating_b: 1"]
        assert [str(stat) for stat in stage.get_stats()] == expected
        assert [str(stat) for stat in stage.get_stats()] == expected
        assert [str(stat) for stat in load_pipeline(stage, ["x"]).statistics] == expected

    @pytest.mark.parametrize(
        ("stats", "words"),
        [
            (Counter("c"), "should give a list of Statistic objects, got Counter: <Counter c: 0>. Put it into a list"),
            (3, "should give a list of Statistic objects, got int: 3. Put it into a list: [statistic]."),
            (["c"], "should give Statistic objects only, got str: 'c'. Use Counter, Histogram or a subclass of"),
            ("c", "should give Statistic objects only, got str: 'c'. Use Counter, Histogram or a subclass of"),
        ],
    )
    def test_anything_else_is_refused(self, stats: Any, words: str) -> None:
        class Reporting(Pipeline):
            input_type = output_type = str

            def transform(self, input_object: str) -> list[str]:
                self._set_stats(stats)
                return []

        with pytest.raises(InvalidStatisticsException, match=re.escape(f"stage 'Reporting': _set_stats {words}")):
            Reporting().transform("x")


class TestDrawing:
    def test_two_generators_of_one_call_start_over(self) -> None:
        first, second = Drawing().transform("x")[0].split()
        assert first == second

    def test_calls_and_names_draw_differently_and_copies_alike(self) -> None:
        stage = Named("n")
        drawn = [stage.transform("")[0] for _ in range(3)]
        assert len(set(drawn)) == 3
        assert Named("n").transform("")[0] == drawn[0] != Named("m").transform("")[0]

    def test_the_numbers_are_frozen(self) -> None:
        class Numbers(Pipeline):
            input_type, output_type = str, int

            def transform(self, input_object: str) -> list[int]:
                return [int(number) for number in self.rng().integers(1000, size=4)]

        # Written down: what is drawn must stay the same from version to version.
        assert load_pipeline(Numbers(), ["a", "b"]) == FROZEN_DRAWS

    def test_the_key_has_the_size_asked_for_and_no_call_around_it_needs_one(self) -> None:
        assert [len(Drawing().record_key(size=size)) for size in (8, 16, 32)] == [8, 16, 32]
        assert isinstance(Drawing().rng(), np.random.Generator)

    def test_a_stage_inside_a_stage_draws_by_the_outer_record(self) -> None:
        class Outer(Pipeline):
            input_type = output_type = str

            def __init__(self) -> None:
                self.inner = Named("inner")

            def transform(self, input_object: str) -> list[str]:
                return self.inner.transform("")

        loaded = load_pipeline(Outer(), ["a", "b"])
        assert loaded == load_pipeline(Outer(), ["a", "b"])
        assert len({*loaded, *load_pipeline(Named("inner"), ["", ""])}) == 4


FROZEN_DRAWS = [785, 692, 341, 978, 946, 243, 592, 485]


def test_drops_do_not_pile_up_in_direct_calls() -> None:
    class Dropping(Pipeline):
        input_type = str
        output_type = {"a": str, "b": str}

        def transform(self, input_object: str) -> Any:
            return self.drop(input_object)

    stage = Dropping()
    assert stage.transform("why") == {"a": [], "b": []}
    stage.transform("other")
    assert stage._drops == ["other"]


@pytest.mark.parametrize("stage", ALL, ids=lambda stage: type(stage).__name__)
def test_stages_are_picklable_and_forget_their_calls(stage: Pipeline) -> None:
    first = type(stage).transform(pickle.loads(pickle.dumps(stage)), "x")
    stage.transform("x")
    stage.transform("x")

    copy = pickle.loads(pickle.dumps(stage))

    assert copy.transform("x") == first
    assert (copy.name, copy.input_type, copy.output_type) == (stage.name, str, str)


def test_a_pipeline_is_not_iterable() -> None:
    with pytest.raises(TypeError, match="'Classic' object is not iterable"):
        list(Classic())  # type: ignore[call-overload]


def test_transform_keeps_its_documentation() -> None:
    class Documented(Pipeline):
        input_type = output_type = str

        def transform(self, input_object: str) -> list[str]:
            """Says what it does."""
            return []

    assert Documented.transform.__doc__ == "Says what it does."
