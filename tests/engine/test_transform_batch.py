"""`transform_batch` gives what `transform` gives one by one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from function_stages import Stage, reconciled, run
from hypothesis import given
from hypothesis import strategies as st

from beam_pipes.errors import DeclarationError
from beam_pipes.typed import (
    Counter,
    DAGPipeline,
    Input,
    InvalidTransformOutputException,
    Output,
)


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
            failures = {index: (f.stage, f.error_type, f.message) for index, f in batch.failures.items()}
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
            f"{found}. Return [] for an input without output."
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
            "omit transform_batch."
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
