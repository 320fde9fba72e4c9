"""What nobody else holds is taken over as it is; whatever someone holds is copied, once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from beam_pipes import Pipeline, stage
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.graph import graph_of
from beam_pipes.engine.ownership import taken
from beam_pipes.engine.records import Batch, OneRecord
from beam_pipes.format import messages
from beam_pipes.typed import DAGPipeline, Input, Output

HELD = np.arange(4)
HELD_DICT = {"x": 1}
HELD_LIST = [[1], [2]]
KNOWN_WEAKLY: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def known_weakly() -> np.ndarray:
    KNOWN_WEAKLY["last"] = array = np.arange(3)
    return array


def read_only() -> np.ndarray:
    array = np.arange(3)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: np.arange(3), id="array"),
        pytest.param(lambda: np.arange(4).reshape(2, 2), id="all of an array"),
        pytest.param(lambda: {"x": np.arange(3), "y": [1, 2], "z": {"text": "a"}}, id="dict"),
        pytest.param(lambda: [[1], [2]], id="list"),
    ],
)
def test_what_a_call_has_made_is_taken_over(make: Callable[[], Any]) -> None:
    made = make()
    assert taken(made) is made


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: HELD, id="array"),
        pytest.param(lambda: HELD.reshape(2, 2), id="view"),
        pytest.param(lambda: np.arange(9)[:2], id="small part of an array"),
        pytest.param(lambda: np.frombuffer(bytearray(8), np.int64), id="memory of another object"),
        pytest.param(known_weakly, id="array in a weak dictionary"),
        pytest.param(lambda: HELD_DICT, id="dict"),
        pytest.param(lambda: HELD_LIST, id="list"),
        pytest.param(lambda: messages.Example(), id="message"),
        pytest.param(lambda: bytearray(3), id="bytearray"),
        pytest.param(read_only, id="array that the next stage could not change"),
    ],
)
def test_what_others_may_reach_is_copied(make: Callable[[], Any]) -> None:
    made = make()
    found = taken(made)
    assert found is not made and type(found) is type(made)
    if isinstance(found, np.ndarray):
        assert found.flags.writeable and not np.shares_memory(found, made) and found.tolist() == made.tolist()


def test_of_what_is_taken_over_the_parts_that_others_hold_are_copied() -> None:
    made = {"own": np.arange(2), "held": HELD, "rows": [HELD_LIST[0], [3]], "text": "a"}
    own = id(made["own"])
    found = taken(made)
    assert found is made and id(found["own"]) == own
    assert found["held"] is not HELD and found["rows"][0] is not HELD_LIST[0]
    assert (found["held"].tolist(), found["rows"]) == ([0, 1, 2, 3], [[1], [3]])


def values_of(pipeline: Any, value: Any) -> list[Any]:
    batch = Batch(OneRecord(value, lambda: "0"))
    runner = GraphRunner(graph_of(pipeline, default_output="train"))
    runner.run(batch)
    return list(runner.outputs(batch)["train"][0])


class Same(Pipeline):
    input_type = output_type = list

    def transform(self, value: list[int]) -> list[list[int]]:
        seen.append(id(value))
        return [value]


class Named(Pipeline):
    input_type, output_type = list, {"train": list, "eval": list}

    def transform(self, value: list[int]) -> dict[str, list[list[int]]]:
        return {"train": [value], "eval": []}


seen: list[int] = []


def test_what_a_stage_passes_on_is_copied_once_and_the_source_keeps_its_own() -> None:
    first, second, named, value = Same(), Same(), Named(), [1, 2]
    second.name = "second"
    row = {first: Input(list), second: first, named: second, Output(): named}
    seen.clear()

    [made] = values_of(DAGPipeline(row), value)

    assert made == value and made is not value and seen[0] == id(value)
    assert seen[1] == id(made) != seen[0]


def test_a_column_that_two_stages_read_is_copied_for_both() -> None:
    start, first, second = Same(), Same(), Same()
    first.name, second.name = "first", "second"
    dag = {start: Input(list), first: start, second: start, Output("a"): first, Output("train"): second}
    batch = Batch(OneRecord([1], lambda: "0"))
    runner = GraphRunner(DAGPipeline(dag).graph)
    runner.run(batch)
    made = {name: column[0][0] for name, column in runner.outputs(batch).items()}
    assert made["a"] is not made["train"]


def test_a_batch_that_may_be_run_again_keeps_its_values() -> None:
    runner = GraphRunner(graph_of(Same(), default_output="train"))
    batch = Batch(OneRecord([1], lambda: "0"))
    batch.records.values.clear()  # what came from a runner is held by its batch alone
    attempts = [batch.copy(), batch.copy()]
    for attempt in attempts:
        runner.run(attempt)
    made = [runner.outputs(attempt)["train"][0][0] for attempt in attempts]
    made[0].append(2)
    assert made[1] == [1]


class Kept(Pipeline):
    """Gives one list of outputs again and again."""

    input_type = output_type = list

    def transform(self, value: list[int]) -> list[list[int]]:
        self.outputs = getattr(self, "outputs", [[0], [0]][: len(value)])
        for output in self.outputs:
            output[0] += value[0]
        return self.outputs


@pytest.mark.parametrize("length", [1, 2])
def test_a_list_of_outputs_that_a_stage_keeps(length: int) -> None:
    kept = Kept()
    first = values_of(kept, [1] * length)
    second = values_of(kept, [5] * length)
    assert (first, second) == ([[1]] * length, [[6]] * length)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def zeros(size: int) -> np.ndarray:
    array = np.zeros(size)
    made.append(address(array))
    return array


made: list[int] = []


@stage
def fresh(line: str) -> Iterator[dict[str, object]]:
    yield {"x": zeros(1)}
    yield {"x": zeros(2)}


@stage
def refilled(line: str) -> Iterator[dict[str, object]]:
    example = {"x": zeros(1)}
    for number in range(2):
        example["x"][:] = number
        yield example


def test_what_is_yielded_is_taken_over_or_copied_once() -> None:
    made.clear()
    assert [address(each["x"]) for each in values_of(fresh, "a")] == made
    made.clear()
    found = values_of(refilled, "a")
    assert [each["x"].tolist() for each in found] == [[0], [1]]
    assert made[0] not in [address(each["x"]) for each in found]
