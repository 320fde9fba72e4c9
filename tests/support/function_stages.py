"""Stages made of functions, and a run of a pipeline over one batch of listed values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beam_pipes.engine.account import Account
from beam_pipes.engine.execute import GraphRunner
from beam_pipes.engine.graph import graph_of
from beam_pipes.engine.records import Batch
from beam_pipes.typed import Pipeline


class Listed:
    """Records of a list, named by their number."""

    def __init__(self, values: list[Any], first: int = 0) -> None:
        self.values = values
        self.first = first

    def record_id(self, index: int) -> str:
        return f"list@{self.first + index}"

    def content(self, index: int) -> bytes:
        return self.record_id(index).encode()


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
