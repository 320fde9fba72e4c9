"""What happens to a record on which a stage fails."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
from function_stages import Listed, Stage, fails_on, reconciled, run
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.records import Batch
from beam_pipes.errors import DeclarationError, StageError
from beam_pipes.typed import (
    DAGPipeline,
    Input,
    Output,
)


@pytest.mark.parametrize("way_out", [SystemExit, GeneratorExit])
@pytest.mark.parametrize("batched", [False, True])
def test_a_stage_that_would_end_the_process_fails_its_record(way_out: type[BaseException], batched: bool) -> None:
    def transform(stage: Any, value: int) -> list[int]:
        if value == 2:
            raise way_out(0)
        return [value]

    stage = Stage(transform, name="Leaving")
    if batched:
        stage.transform_batch = lambda values: [transform(stage, value) for value in values]  # type: ignore[attr-defined]

    outputs, batch = run(DAGPipeline({stage: Input(int), Output("o"): stage}), [1, 2, 3], on_error="dead_letter")

    assert outputs["o"] == [[1], [], [3]]
    assert batch.failures[1].error_type == way_out.__name__
    with pytest.raises(StageError, match=f"stage 'Leaving' failed on record .*: {way_out.__name__}: 0"):
        run(DAGPipeline({stage: Input(int), Output("o"): stage}), [1, 2, 3], on_error="fail")


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
            assert (failure.stage, failure.error_type, failure.message) == ("Fragile", "ValueError", "3 is bad")
            assert (failure.dropped, failure.reason) == (is_dropped, "error/ValueError")
            assert failure.traceback.endswith("ValueError: 3 is bad")

    def test_a_stages_own_policy_goes_before_the_builds(self) -> None:
        _, batch = run(self.branching({3}, "drop"), [3, 4], on_error="fail")
        assert list(batch.failures) == [0]
        with pytest.raises(StageError):
            run(self.branching({3}, "fail"), [3, 4], on_error="drop")

    def test_an_unknown_policy_is_refused_before_anything_runs(self) -> None:
        message = "stage 'Fragile': on_error should be one of fail, drop, dead_letter, got 'ignore'."
        with pytest.raises(DeclarationError, match=f"^{re.escape(message)}$"):
            run(self.branching(set(), "ignore"), [])

    def test_fail_names_stage_record_and_what_to_do(self) -> None:
        with pytest.raises(StageError) as caught:
            run(self.branching({3}, None), [2, 3], on_error="fail")
        assert str(caught.value) == (
            "stage 'Fragile' failed on record 'list@1': ValueError: 3 is bad. Fix the record or the stage, or allow "
            "failures with on_error='dead_letter' (--on-error dead_letter: kept for a replay) or on_error='drop' "
            "(--on-error drop)."
        )
        assert (caught.value.stage, caught.value.record) == ("Fragile", "list@1")
        assert isinstance(caught.value.__cause__, ValueError)

    def test_the_full_stop_of_a_message_is_not_doubled(self) -> None:
        def fail(stage: object, value: int) -> list[int]:
            raise ValueError("Declare another type.")

        with pytest.raises(StageError, match=r"ValueError: Declare another type\. Fix the record"):
            run(Stage(fail, name="Strict"), [3], on_error="fail")

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
            raise Unpicklable("this", "that")

        _, batch = run(Stage(transform), [0], on_error="dead_letter")
        failure = pickle.loads(pickle.dumps(batch.failures))[0]

        assert (failure.stage, failure.error_type, failure.message) == ("Stage", "Unpicklable", "this and that")

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
