"""What the engine does with each record of a batch: outputs, failures, accounts, batches of inputs at once."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.engine.account import Account
from beam_pipes.engine.batch import Batch
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.graph import Graph, Ref, Unit, graph_of
from beam_pipes.errors import DeclarationError, ReconciliationError, StageError
from beam_pipes.typed import (
    Counter,
    DAGPipeline,
    Histogram,
    Input,
    InvalidStatisticsException,
    InvalidTransformOutputException,
    MergeStatisticsException,
    Output,
    Pipeline,
)


class Listed:
    """Records of a list, named by their number."""

    def __init__(self, values: list[Any], first: int = 0) -> None:
        self.values = values
        self.first = first

    def record_id(self, index: int) -> str:
        return f"list@{self.first + index}"


class Stage(Pipeline):
    """`transform` as a function."""

    def __init__(
        self, function: Callable[[Any, Any], Any], output_type: Any = int, *, name: str = "Stage", input_type: Any = int
    ) -> None:
        super().__init__(input_type, output_type, name)
        self.function = function

    def transform(self, input_object: Any) -> Any:
        return self.function(self, input_object)


def run(pipeline: Pipeline, values: list[Any], **options: Any) -> tuple[dict[str, Any], Batch]:
    runner = GraphRunner(graph_of(pipeline, default_output="o"), **options)
    batch = Batch(Listed(values))
    runner.run(batch)
    return {name: [list(values) for values in column] for name, column in runner.outputs(batch).items()}, batch


def reconciled(batch: Batch) -> Account:
    for unit in batch.account.units.values():
        assert unit.inputs == unit.kept + sum(unit.dropped.values()) + unit.dead
    batch.account.reconcile(where="test")
    return batch.account


def fails_on(bad: set[int], name: str = "Fragile") -> Stage:
    def transform(stage: Stage, value: int) -> list[int]:
        if value in bad:
            raise ValueError(f"{value} is bad")
        return [value, -value]

    return Stage(transform, name=name)


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


class TestFailures:
    def branching(self, bad: set[int], policy: str | None) -> DAGPipeline:
        """Input → fragile → o1; input → steady → o2; both → pair → o3."""
        fragile, steady = fails_on(bad), Stage(lambda stage, value: [value], name="Steady")
        if policy is not None:
            fragile.on_error = policy  # type: ignore[assignment]
        pair = Stage(lambda stage, value: [value["f"] * value["s"]], name="Pair", input_type={"f": int, "s": int})
        return DAGPipeline(
            {
                steady: Input(int),
                fragile: Input(int),
                pair: {"f": fragile, "s": steady},
                Output("o1"): fragile,
                Output("o2"): steady,
                Output("o3"): pair,
            }
        )

    @pytest.mark.parametrize("policy", ["drop", "dead_letter"])
    @given(bad=st.sets(st.integers(0, 9)))
    def test_a_record_that_fails_leaves_all_branches_and_accounts_reconcile(self, policy: str, bad: set[int]) -> None:
        outputs, batch = run(self.branching(bad, None), list(range(10)), on_error=policy)
        good, _ = run(self.branching(set(), None), list(range(10)))

        for name, column in outputs.items():
            assert column == [[] if value in bad else good[name][value] for value in range(10)]
        assert set(batch.failures) == bad
        account = reconciled(batch)
        fragile, pair = account.units["Fragile"], account.units["Pair"]
        assert (fragile.inputs, fragile.kept) == (10, 10 - len(bad))
        assert sum(fragile.dropped.values()) + fragile.dead == len(bad)
        assert pair.inputs == 2 * (10 - len(bad))

    def test_what_is_dropped_bears_the_error_and_what_is_dead_keeps_it(self) -> None:
        _, dropped = run(self.branching({3}, None), [3, 4], on_error="drop")
        _, dead = run(self.branching({3}, None), [3, 4], on_error="dead_letter")

        assert dropped.account.units["Fragile"].dropped == {"error/ValueError": 1}
        assert dead.account.units["Fragile"].dead == 1
        for batch, is_dropped in ((dropped, True), (dead, False)):
            failure = batch.failures[0]
            assert (failure.stage, str(failure.error), failure.dropped) == ("Fragile", "3 is bad", is_dropped)

    def test_a_stages_own_policy_goes_before_the_builds(self) -> None:
        _, batch = run(self.branching({3}, "drop"), [3, 4], on_error="fail")
        assert list(batch.failures) == [0]
        with pytest.raises(StageError):
            run(self.branching({3}, "fail"), [3, 4], on_error="drop")

    def test_fail_names_stage_record_and_what_to_do(self) -> None:
        with pytest.raises(StageError) as caught:
            run(self.branching({3}, None), [2, 3], on_error="fail")
        assert str(caught.value) == (
            "stage 'Fragile' failed on record 'list@1': ValueError: 3 is bad. Fix the record or the stage, or allow "
            "failures with on_error='dead_letter' (kept for a replay) or on_error='drop'."
        )
        assert (caught.value.stage, caught.value.record) == ("Fragile", "list@1")
        assert isinstance(caught.value.__cause__, ValueError)

    def test_without_a_policy_the_stages_own_error_comes_through(self) -> None:
        with pytest.raises(ValueError) as caught:
            run(self.branching({3}, None), [3])
        assert str(caught.value) == "3 is bad"

    def test_a_later_input_of_a_record_fails_the_whole_record(self) -> None:
        words = Stage(lambda stage, value: list(range(value)), name="Count")
        fragile = fails_on({2})
        dag = DAGPipeline({words: Input(int), fragile: words, Output("o"): fragile})

        outputs, batch = run(dag, [2, 5, 1], on_error="dead_letter")

        assert outputs == {"o": [[0, 0, 1, -1], [], [0, 0]]}
        unit = reconciled(batch).units["Fragile"]
        assert (unit.inputs, unit.kept, unit.dead) == (6, 5, 1)

    @pytest.mark.parametrize(("join", "error"), [("zip", "UnequalZip"), ("product", "TooManyCombinations")])
    def test_joins_that_cannot_be_made_are_failures_of_their_record(self, join: Any, error: str) -> None:
        many = Stage(lambda stage, value: [0] * value, name="Many")
        few = Stage(lambda stage, value: [0] * min(value, 700), name="Few")
        pair = Stage(lambda stage, value: [1], name="Pair", input_type={"a": int, "b": int})
        dag = DAGPipeline(
            {many: Input(int), few: Input(int), pair: {"a": many, "b": few}, Output("o"): pair}, join=join
        )
        outputs, batch = run(dag, [1, 701, 2], on_error="drop")
        assert [bool(column) for column in outputs["o"]] == [True, False, True]
        assert reconciled(batch).units["Pair"].dropped == {f"error/{error}Exception": 1}

    def test_failures_travel_even_if_their_errors_do_not(self) -> None:
        class Unpicklable(Exception):
            def __init__(self, one: str, two: str) -> None:
                super().__init__(f"{one} and {two}")

        def transform(stage: Stage, value: int) -> list[int]:
            raise Unpicklable("this", "that") if value else ValueError("plain")

        _, batch = run(Stage(transform), [0, 1], on_error="dead_letter")
        plain, other = (pickle.loads(pickle.dumps(batch.failures[index])) for index in (0, 1))

        assert (type(plain.error), str(plain.error)) == (ValueError, "plain")
        assert (type(other.error), str(other.error)) == (StageError, "Unpicklable: this and that")
        assert (other.stage, other.dropped) == ("Stage", False)

    def test_a_batch_survives_pickling_between_units(self) -> None:
        first, second = fails_on({1}, "first"), fails_on(set(), "second")
        graph = DAGPipeline({first: Input(int), second: first, Output("o"): second}).graph
        runner = GraphRunner(graph, on_error="drop")
        batch = Batch(Listed([0, 1, 2]))
        runner.run_unit(0, batch)

        batch = pickle.loads(pickle.dumps(batch))
        runner.run_unit(1, batch)

        assert [list(values) for values in runner.outputs(batch)["o"]] == [[0, 0, 0, 0], [], [2, -2, -2, 2]]
        assert reconciled(batch).units["first"].dropped == {"error/ValueError": 1}


class Halves(Stage):
    """Halves even numbers, drops odd ones, fails on 13; at once or one by one."""

    def __init__(self) -> None:
        super().__init__(Halves.one, name="Halves")
        self.batches = 0

    def one(self, value: int) -> list[int]:
        if value == 13:
            raise ValueError("unlucky")
        self._set_stats([Counter("seen", 1), *([Counter("odd", 1)] if value % 2 else [])])
        return self.drop("odd") if value % 2 else [value // 2] * (value % 3)


class HalvesAtOnce(Halves):
    def transform_batch(self, inputs: list[int]) -> list[list[int]]:
        if 13 in inputs:
            raise ValueError("unlucky")
        self.batches += 1
        odd = sum(value % 2 for value in inputs)
        self._set_stats([Counter("seen", len(inputs)), *([Counter("odd", odd)] if odd else [])])
        for _ in range(odd):
            self.drop("odd")
        return [[] if value % 2 else [value // 2] * (value % 3) for value in inputs]


class TestTransformBatch:
    @given(
        st.lists(st.lists(st.integers(0, 20) | st.just(13), max_size=4), max_size=6),
        st.sampled_from(["drop", "dead_letter"]),
    )
    def test_it_equals_one_by_one_with_failures_in_the_middle(self, records: list[list[int]], policy: str) -> None:
        results = []
        for stage in (Halves(), HalvesAtOnce()):
            items = Stage(lambda stage, value: value, name="Items", input_type=list)
            dag = DAGPipeline({items: Input(list), stage: items, Output("o"): stage})
            outputs, batch = run(dag, records, on_error=policy)
            failures = {index: (f.stage, str(f.error)) for index, f in batch.failures.items()}
            results.append((outputs, failures, reconciled(batch).to_json()))
        assert results[0] == results[1]

    def test_it_is_called_once_for_a_batch_even_if_records_failed_before(self) -> None:
        at_once = HalvesAtOnce()
        fragile = Stage(lambda stage, value: [1 // (value - 3) * 0 + value], name="Fragile")
        dag = DAGPipeline({fragile: Input(int), at_once: fragile, Output("o"): at_once})

        outputs, batch = run(dag, [2, 3, 4], on_error="drop")

        assert (at_once.batches, outputs) == (1, {"o": [[1, 1], [], [2]]})
        assert reconciled(batch).units["Halves"].inputs == 2

    def test_it_is_not_called_without_inputs(self) -> None:
        at_once = HalvesAtOnce()
        run(at_once, [])
        assert at_once.batches == 0

    @pytest.mark.parametrize(("produced", "found"), [([[1]], "1 lists"), ("no", "str: 'no'"), (None, "NoneType: None")])
    def test_another_number_of_lists_is_a_mistake_of_the_stage(self, produced: Any, found: str) -> None:
        class Wrong(Stage):
            def transform_batch(self, inputs: list[int]) -> Any:
                return produced

        message = (
            "stage 'Stage': transform_batch should return a list with one list for each of the 2 inputs, got "
            f"{found}. Return [] for an input that gives nothing."
        )
        with pytest.raises(InvalidTransformOutputException, match=f"^{re.escape(message)}$"):
            run(Wrong(lambda stage, value: [value]), [1, 2], on_error="drop")

    @pytest.mark.parametrize("produced", [[["x"], [1]], [1, 2]])
    def test_values_of_a_wrong_type_are_found_one_by_one(self, produced: Any) -> None:
        class Wrong(Stage):
            def transform_batch(self, inputs: list[int]) -> Any:
                return produced

        stage = Wrong(lambda stage, value: ["x"] if value == 1 else [value])
        outputs, batch = run(stage, [1, 2], on_error="drop")
        assert outputs == {"o": [[], [2]]}
        assert reconciled(batch).units["Stage"].dropped == {"error/InvalidTransformOutputException": 1}

    def test_it_cannot_draw(self) -> None:
        class Drawing(Stage):
            def transform_batch(self, inputs: list[int]) -> Any:
                return [[int(self.rng().integers(9))] for _ in inputs]

        message = (
            "stage 'Stage' draws in transform_batch, where no single record keys the draw. Draw in transform, and "
            "leave transform_batch out."
        )
        with pytest.raises(DeclarationError, match=f"^{re.escape(message)}"):
            run(Drawing(lambda stage, value: [value]), [1, 2], on_error="drop")

    def test_stages_with_a_dict_output_or_their_own_get_stats_go_one_by_one(self) -> None:
        class Own(HalvesAtOnce):
            def get_stats(self) -> Any:
                return [Counter("own", 1)]

        stage = Own()
        outputs, batch = run(stage, [2, 4])
        assert (outputs, stage.batches) == ({"o": [[1, 1], [2]]}, 0)
        assert [str(stat) for stat in batch.account.statistics()] == ["own: 2"]


class TestDraws:
    def draws(self, values: list[int], cuts: list[int], **options: Any) -> list[int]:
        stage = Stage(lambda stage, value: [int(stage.rng().integers(2**60))])
        runner = GraphRunner(graph_of(stage, default_output="o"), **options)
        drawn = []
        for start, end in zip([0, *cuts], [*cuts, len(values)], strict=True):
            batch = Batch(Listed(values[start:end], first=start))
            runner.run(batch)
            drawn += [value for column in runner.outputs(batch)["o"] for value in column]
        return drawn

    @given(st.sets(st.integers(1, 11)))
    def test_the_same_record_draws_the_same_however_batches_are_cut(self, cuts: set[int]) -> None:
        values = list(range(12))
        assert self.draws(values, sorted(cuts)) == self.draws(values, [])

    def test_seed_epoch_and_place_change_every_draw(self) -> None:
        variants: list[dict[str, Any]] = [{}, {"seed": 1}, {"epoch": 1}, {"path": "Elsewhere"}]
        drawn = [value for options in variants for value in self.draws([1, 2, 3], [], **options)]
        assert len(set(drawn)) == 12

    def test_nested_stages_inherit_seed_and_epoch(self) -> None:
        def nested(**options: Any) -> Any:
            stage = Stage(lambda stage, value: [int(stage.rng().integers(2**60))])
            inner = DAGPipeline({stage: Input(int), Output("o"): stage}, "Inner")
            return run(DAGPipeline({inner: Input(int), Output("o"): inner["o"]}), [1], **options)[0]["o"][0][0]

        assert len({nested(), nested(seed=1), nested(epoch=1)}) == 3
        assert nested(seed=1) == nested(seed=1)


class TestAccounts:
    def account(self) -> Account:
        def transform(stage: Stage, value: int) -> Any:
            stage._set_stats([Histogram("h", [0, 2])] if value else [Counter("c", 1)])
            return [value] if value else stage.drop("zero")

        batch = run(Stage(transform), [0, 1, 2])[1]
        batch.account.read, batch.account.written, batch.account.dropped = 3, 2, 1
        batch.account.outputs["o"] = 2
        return batch.account

    def test_json_keeps_everything(self) -> None:
        account = self.account()
        assert Account.from_json(account.to_json()) == account

    def test_merging_adds_and_does_not_change_its_argument(self) -> None:
        total, one = Account(), self.account()
        total.merge_from(one)
        total.merge_from(one)

        assert one == self.account()
        unit = total.units["Stage"]
        assert (total.read, total.written, total.dropped, total.outputs) == (6, 4, 2, {"o": 4})
        assert (unit.inputs, unit.kept, unit.dropped) == (6, 4, {"zero": 2})
        assert [str(stat) for stat in total.statistics()] == ["Stage_c: 2", "Stage_h:"]

    def test_records_that_do_not_add_up_are_reported(self) -> None:
        account = self.account()
        account.reconcile(where="shard 3")
        account.read = 4
        message = "shard 3: 4 records were read, but 2 written + 1 dropped + 0 dead letters = 3. Nothing was published."
        with pytest.raises(ReconciliationError, match=f"^{re.escape(message)}$") as caught:
            account.reconcile(where="shard 3")
        assert caught.value.account == account.to_json()

    def test_inputs_of_a_stage_that_do_not_add_up_are_reported(self) -> None:
        account = self.account()
        account.units["Stage"].inputs = 5
        message = "shard 3, stage 'Stage': 5 inputs, but 2 kept + 1 dropped + 0 dead = 3. Nothing was published."
        with pytest.raises(ReconciliationError, match=f"^{re.escape(message)}$") as caught:
            account.reconcile(where="shard 3")
        assert caught.value.stage == "Stage"
