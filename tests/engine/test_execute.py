"""What the engine makes of what a stage returns: outputs, statistics, drops."""

from __future__ import annotations

import re
from typing import Any

import pytest
from function_stages import Listed, Stage, fails_on, reconciled, run

from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.graph import Graph, Ref, Unit
from beam_pipes.engine.records import Batch
from beam_pipes.typed import (
    Counter,
    DAGPipeline,
    Histogram,
    Input,
    InvalidStatisticsException,
    InvalidTransformOutputException,
    MergeStatisticsException,
    Output,
)


class TestOutputs:
    @pytest.mark.parametrize(
        ("output_type", "produced", "words"),
        [
            (int, None, "transform should be a list, got NoneType: None. Return [value] for one output and []"),
            (int, (1,), "transform should be a list, got tuple: (1,). Return [value] for one output and [] for none."),
            (int, {"a": []}, "transform should be a list, got dict: {'a': []}."),
            (
                str,
                ["a", 1],
                "output 1 should be str, got int: 1. Return a list of str from Stage.transform, or change its "
                "output_type.",
            ),
            (
                {"a": int, "b": int},
                {"a": [1]},
                "transform should return a dict with the keys ['a', 'b'], each a list, got the keys ['a']. Return "
                "exactly the keys of output_type; a list may be empty.",
            ),
            (
                {"a": int, "b": int},
                {"a": [], "b": [], "c": []},
                "transform should return a dict with the keys ['a', 'b'], each a list, got the keys ['a', 'b', 'c'].",
            ),
            ({"a": int}, [1], "transform should return a dict with the keys ['a'], each a list, got list: [1]."),
            ({"a": int}, {"a": 1}, "transform's output 'a' should be a list, got int: 1. Return [value] for one"),
            (
                {"a": int},
                {"a": [1, "x"]},
                "output 'a'[1] should be int, got str: 'x'. Return a list of int from Stage.transform, or change its "
                "output_type.",
            ),
        ],
    )
    def test_what_does_not_match_output_type_is_refused(self, output_type: Any, produced: Any, words: str) -> None:
        stage = Stage(lambda stage, value: produced, output_type)
        with pytest.raises(InvalidTransformOutputException, match=re.escape(f"stage 'Stage': {words}")) as caught:
            run(stage, [1])
        assert caught.value.stage == "Stage"

    def test_a_long_value_is_cut_in_the_message(self) -> None:
        stage = Stage(lambda stage, value: ["x" * 10_000], int)
        with pytest.raises(InvalidTransformOutputException) as caught:
            run(stage, [1])
        assert len(str(caught.value)) < 300 and "…" in str(caught.value)

    def test_a_list_that_a_stage_uses_again_is_not_shared_between_records(self) -> None:
        reused: list[int] = []

        def transform(stage: Stage, value: int) -> list[int]:
            reused[:] = [value]
            return reused

        assert run(Stage(transform), [1, 2, 3])[0] == {"o": [[1], [2], [3]]}

    def test_subclasses_of_list_and_of_the_type_pass(self) -> None:
        class Several(list[Any]):
            pass

        assert run(Stage(lambda stage, value: Several([True])), [1])[0] == {"o": [[True]]}

    def test_a_stage_needs_no_more_than_the_protocol(self) -> None:
        class Plain:
            name, input_type, output_type = "Plain", int, int

            def transform(self, input_object: int) -> list[int]:
                return [input_object + 1] if input_object else []

        outputs, batch = run(Plain(), [1, 0])  # type: ignore[arg-type]
        assert outputs == {"o": [[2], []]}
        assert reconciled(batch).units["Plain"].dropped == {"no_output": 1}

    def test_columns_are_let_go_when_nobody_reads_them_any_more(self) -> None:
        first, second = fails_on(set(), "first"), fails_on(set(), "second")
        dag = DAGPipeline({first: Input(int), second: first, Output("o"): second})
        assert list(run(dag, [1])[1].columns) == [Ref("second", None)]

        unread = Stage(lambda stage, value: {"a": [1], "b": [2]}, {"a": int, "b": int})
        dag = DAGPipeline({unread: Input(int), Output("o"): unread["a"]})
        assert list(run(dag, [1])[1].columns) == [Ref("Stage", "a")]
        assert list(run(DAGPipeline({Output("o"): Input(int)}), [1])[1].columns) == [Ref("", None)]

    def test_an_input_that_no_unit_of_a_graph_reads_is_let_go(self) -> None:
        unit = Unit(name="u", stage=fails_on(set()), inputs=Ref("", None))
        graph = Graph(name="g", input_type=int, units=(unit,), outputs={"o": Ref("u", None)}, output_type={"o": int})
        batch = Batch(Listed([1]))
        GraphRunner(graph).run(batch)
        assert list(batch.columns) == [Ref("u", None)]


class TestStatistics:
    @pytest.mark.parametrize("wrap", [list, tuple, iter, lambda stats: (stat for stat in stats)])
    def test_an_overridden_get_stats_may_give_any_iterable(self, wrap: Any) -> None:
        class Overriding(Stage):
            def get_stats(self) -> Any:
                return wrap([Counter("mine", 1)])

        stage = Overriding(lambda stage, value: [value], name="O")
        assert [str(stat) for stat in run(stage, [1, 2])[1].account.statistics()] == ["mine: 2"]
        dag = DAGPipeline({stage: Input(int), Output("o"): stage}, "D")
        assert [str(stat) for stat in run(dag, [1, 2])[1].account.statistics()] == ["D_mine: 2"]

    def test_get_stats_may_come_from_a_mixin(self) -> None:
        class Mixin:
            def get_stats(self) -> Any:
                return [Counter("mixed", 1)]

        class Mixed(Mixin, Stage):
            pass

        stage = Mixed(lambda stage, value: [value])
        assert [str(stat) for stat in run(stage, [1, 2])[1].account.statistics()] == ["mixed: 2"]

    @pytest.mark.parametrize(
        ("stats", "words"),
        [
            (None, "get_stats should give a list of Statistic objects, got NoneType: None. Put it into a list: [s"),
            (Counter("c"), "get_stats should give a list of Statistic objects, got Counter: <Counter c: 0>. Put it"),
            (["hello"], "get_stats should give Statistic objects only, got str: 'hello'. Use Counter, Histogram or"),
            ("hello", "get_stats should give Statistic objects only, got str: 'h'. Use Counter, Histogram or a sub"),
        ],
    )
    def test_an_overridden_get_stats_gives_statistics_only(self, stats: Any, words: str) -> None:
        class Overriding(Stage):
            def get_stats(self) -> Any:
                return stats

        with pytest.raises(InvalidStatisticsException, match=re.escape(f"stage 'Stage': {words}")):
            run(Overriding(lambda stage, value: [value]), [1])

    def test_histograms_whose_buckets_change_between_records_are_refused(self) -> None:
        def transform(stage: Stage, value: int) -> list[int]:
            stage._set_stats([Histogram("h", [value])])
            return []

        with pytest.raises(MergeStatisticsException, match=r"one has the buckets \[1\], the other \[2\]"):
            run(Stage(transform), [1, 2])

    def test_a_name_that_changes_its_kind_is_refused(self) -> None:
        def transform(stage: Stage, value: int) -> list[int]:
            stage._set_stats([Counter("n")] if value else [Histogram("n", [0])])
            return []

        with pytest.raises(MergeStatisticsException, match="different kinds of statistics"):
            run(Stage(transform), [0, 1])

    def test_a_statistic_kept_by_the_stage_is_not_changed(self) -> None:
        kept = Counter("n", 1)

        def transform(stage: Stage, value: int) -> list[int]:
            stage._set_stats([kept])
            return []

        assert [str(stat) for stat in run(Stage(transform), [1, 2, 3])[1].account.statistics()] == ["Stage_n: 3"]
        assert str(kept) == "n: 1"

    def test_statistics_of_a_call_that_failed_are_not_counted(self) -> None:
        def transform(stage: Stage, value: int) -> list[int]:
            stage._set_stats([Counter("n", 1)])
            if value == 1:
                raise ValueError
            return [value]

        _, batch = run(Stage(transform), [0, 1, 2], on_error="drop")
        assert [str(stat) for stat in batch.account.statistics()] == ["Stage_n: 2"]


class TestDrops:
    def test_reasons_are_counted_and_the_last_one_says_why_nothing_is_left(self) -> None:
        def transform(stage: Stage, value: int) -> Any:
            if value == 0:
                return []
            if value == 1:
                return stage.drop("too_short")
            if value == 2:
                stage.drop("first")
                return stage.drop("last")
            stage.drop("a_part")
            stage.drop("a_part")
            return [value]

        _, batch = run(Stage(transform), [0, 1, 1, 2, 3])

        unit = reconciled(batch).units["Stage"]
        assert (unit.inputs, unit.kept, unit.outputs) == (5, 1, 1)
        assert unit.dropped == {"no_output": 1, "too_short": 2, "last": 1}
        assert unit.partly_dropped == {"a_part": 2}

    def test_a_dict_of_empty_lists_is_a_drop(self) -> None:
        stage = Stage(lambda stage, value: stage.drop("why"), {"a": int, "b": int})
        outputs, batch = run(stage, [1])
        assert outputs == {"a": [[]], "b": [[]]}
        assert reconciled(batch).units["Stage"].dropped == {"why": 1}

    def test_a_nested_dag_says_why(self) -> None:
        picky = Stage(lambda stage, value: [value] if value else stage.drop("zero"), name="Picky")
        inner = DAGPipeline({picky: Input(int), Output("o"): picky}, "Inner")
        outer = DAGPipeline({inner: Input(int), Output("o"): inner["o"]}, "Outer")
        assert reconciled(run(outer, [0, 1, 0])[1]).units["Inner"].dropped == {"Picky/zero": 2}
