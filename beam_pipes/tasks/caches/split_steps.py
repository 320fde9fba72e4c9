"""`SplitSteps`: the cached examples of one split of a task, as what an analysis is of."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from beam_pipes.engine.graph import Graph, Ref, Unit
from beam_pipes.engine.record_context import current_context
from beam_pipes.tasks.caches.task_reference import TaskReference
from beam_pipes.tasks.caches.task_steps import TaskSteps
from beam_pipes.typed import Pipeline


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfSplit(Pipeline):
    """Records of one split, and nothing for others: their ids begin with it, `train/part-1.txt@17`."""

    input_type = output_type = object

    split: str

    def transform(self, example: Any) -> Any:
        context = current_context()
        assert context is not None
        return [example] if context.record_id.startswith(f"{self.split}/") else self.drop("of another split")


class SplitSteps(TaskSteps):
    """`of split → step 2: tokenize → example`: `TaskSteps` for the records of one split."""

    def __init__(self, reference: TaskReference, *, split: str, seed: int = 0) -> None:
        super().__init__(reference, seed=seed)
        self._split = split

    @property
    def output_type(self) -> dict[str, type]:
        return {self._split: dict}

    @functools.cached_property
    def graph(self) -> Graph:
        whole, first = super().graph, OfSplit(split=self._split)
        start, all_records = Ref(first.name, None), Ref("", None)
        units = [
            dataclasses.replace(unit, inputs=start) if unit.inputs == all_records else unit for unit in whole.units
        ]
        return dataclasses.replace(
            whole,
            units=(Unit(name=first.name, stage=first, inputs=all_records), *units),
            outputs={self._split: whole.outputs[self._split]},
            output_type=self.output_type,
        )
